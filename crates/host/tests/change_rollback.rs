//! Changes that must be confirmed: whatever happens, an unconfirmed one ends at the value from before it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use host::apply::Request;
use host::journal::{Journal, Now, SetState};
use host::rollback;
use host::undo::{self, Cause, Overwrite};
use host::verify::verify;
use memory::{FIRST, Memory, after_reboot, apply, crash_at_each_call, journal, now, request, sysctl, undo};

#[test]
fn another_namespace_is_not_touched() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    let within = Request { confirm_within: Some(Duration::from_secs(60)), ..request(&[("a", "9")]) };
    apply(&kernel, &journal, &within).unwrap();
    let elsewhere = Now { namespace: "net:[2]".to_owned(), boottime_ms: 100_000, ..now() };
    let mut set = journal.load(1).unwrap();
    let lock = journal.lock().unwrap();
    let error = undo::undo(&kernel, &journal, &lock, &elsewhere, &mut set, Overwrite::All).unwrap_err();
    assert!(error.to_string().contains("net:[1]"), "{error}");
    drop(lock);
    assert!(rollback::finish_overdue(&kernel, &journal, &elsewhere).unwrap().is_empty());
    assert_eq!(kernel.get("a"), "9");
}

#[test]
fn what_is_not_confirmed_in_time_is_rolled_back_by_the_next_command() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    let set = apply(&kernel, &journal, &within(60, &[("a", "9")])).unwrap();
    assert_eq!(set.state, SetState::AwaitingConfirmation);
    // The clock of the wall may jump; that since boot does not.
    let in_time = Now { time_unix_s: 1_000_000, ..at(60_999) };
    assert!(rollback::finish_overdue(&kernel, &journal, &in_time).unwrap().is_empty());
    assert_eq!(kernel.get("a"), "9");
    let late = rollback::confirm(&journal, &journal.lock().unwrap(), &at(61_000), 1).unwrap_err();
    assert!(late.to_string().contains("overdue"), "{late}");
    assert_eq!(rollback::finish_overdue(&kernel, &journal, &at(61_000)).unwrap().len(), 1);
    assert_eq!(kernel.get("a"), "1\t2 3");
    assert!(rollback::finish_overdue(&kernel, &journal, &at(61_001)).unwrap().is_empty());
    let gone = rollback::confirm(&journal, &journal.lock().unwrap(), &at(61_001), 1).unwrap_err();
    assert!(gone.to_string().contains("was rolled back"), "{gone}");
    // Confirmed in time, it stays.
    apply(&kernel, &journal, &within(60, &[("a", "9")])).unwrap();
    let confirmed = rollback::confirm(&journal, &journal.lock().unwrap(), &at(60_999), 2).unwrap();
    assert_eq!((confirmed.state, confirmed.deadline), (SetState::Applied, None));
    assert!(rollback::finish_overdue(&kernel, &journal, &at(999_999)).unwrap().is_empty());
    assert_eq!(kernel.get("a"), "9");
    // A reboot ends the time, however early.
    apply(&kernel, &journal, &within(60, &[("b", "9")])).unwrap();
    assert_eq!(rollback::finish_overdue(&kernel, &journal, &after_reboot()).unwrap().len(), 1);
    assert_eq!(journal.load(3).unwrap().state, SetState::Undone);
}

#[test]
fn an_interrupted_change_with_a_deadline_is_rolled_back() {
    let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
    kernel.crash_at = Some(7);
    let changes =
        Request { confirm_within: Some(Duration::from_secs(60)), ..request(&[("a", "9"), ("b", "8")]) };
    catch_unwind(AssertUnwindSafe(|| apply(&kernel, &journal, &changes))).unwrap_err();
    kernel.crash_at = None;
    assert_eq!(journal.load(1).unwrap().state, SetState::Applying);
    let late = Now { boottime_ms: 61_000, ..now() };
    assert_eq!(rollback::finish_overdue(&kernel, &journal, &late).unwrap().len(), 1);
    assert_eq!([kernel.get("a"), kernel.get("b")], ["1\t2 3", "5"]);
}

fn within(seconds: u64, changes: &[(&str, &str)]) -> Request {
    Request { confirm_within: Some(Duration::from_secs(seconds)), ..request(changes) }
}

fn at(boottime_ms: u64) -> Now {
    Now { boottime_ms, ..now() }
}

#[test]
fn two_unconfirmed_sets_end_at_the_first_value_in_any_order() {
    for (first_s, second_s, order) in [(60, 90, [1, 2]), (90, 60, [2, 1])] {
        for second in ["7", "6"] {
            let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
            apply(&kernel, &journal, &within(first_s, &[("b", "6"), ("c", "x")])).unwrap();
            apply(&kernel, &journal, &within(second_s, &[("b", second), ("b", "8")])).unwrap();
            let first = rollback::roll_back(&kernel, &journal, &at(61_000), order[0]).unwrap().unwrap();
            assert!(first.kept.is_empty(), "{first:?}");
            if order == [1, 2] {
                assert_eq!((first.handed_over.len(), first.handed_over[0].to), (1, 2));
                assert_eq!([kernel.get("b"), kernel.get("c")], ["8", ""]);
            }
            assert!(!journal.load(order[0]).unwrap().is_active());
            rollback::roll_back(&kernel, &journal, &at(91_000), order[1]).unwrap().unwrap();
            assert_eq!(kernel.get("b"), "5", "{order:?} {second}");
            assert!(!journal.load(order[1]).unwrap().is_active());
        }
    }
}

#[test]
fn a_later_set_that_stays_restores_the_value_from_before_both() {
    // The later set asks for the value that the unconfirmed one has put in force.
    for value in ["6", "7"] {
        let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
        apply(&kernel, &journal, &within(60, &[("b", "6")])).unwrap();
        apply(&kernel, &journal, &request(&[("b", value)])).unwrap();
        assert_eq!(rollback::finish_overdue(&kernel, &journal, &at(61_000)).unwrap().len(), 1);
        assert_eq!(kernel.get("b"), value);
        let verified = verify(&kernel, &journal.all().unwrap().sets, "boot-1");
        assert!(verified.iter().all(|one| one.holds && one.change_set == 2), "{verified:?}");
        undo(&kernel, &journal, &now(), 2, Overwrite::Own);
        assert_eq!(kernel.get("b"), "5");
    }
}

#[test]
fn a_rollback_that_crashes_between_two_sets_is_repeated() {
    let prepare = |kernel: &Memory, journal: &Journal| {
        apply(kernel, journal, &within(60, &[("b", "6"), ("a", "9")])).unwrap();
        apply(kernel, journal, &within(60, &[("b", "7")])).unwrap();
    };
    let roll_back = |kernel: &Memory, journal: &Journal| {
        for id in [1, 2] {
            rollback::roll_back(kernel, journal, &at(61_000), id).unwrap();
        }
    };
    assert!(crash_at_each_call(prepare, roll_back, roll_back) >= 6);
}

#[test]
fn a_rollback_that_fails_says_what_was_left_and_is_finished_later() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &within(60, &[("a", "9"), ("b", "8")])).unwrap();
    let gone = kernel.values.borrow_mut().remove(&sysctl("b")).unwrap();
    assert_eq!(rollback::roll_back(&kernel, &journal, &at(60_000), 1).unwrap(), None, "not due yet");
    let report = rollback::roll_back(&kernel, &journal, &at(61_000), 1).unwrap().unwrap();
    assert!(report.may_be_repeated() && report.kept[0].cause == Cause::Failed, "{report:?}");
    assert_eq!(kernel.get("a"), "1\t2 3", "the others are restored");
    let left = journal.load(1).unwrap().steps[1].left.clone().unwrap();
    assert!(left.contains("there is none"), "{left}");
    kernel.put("b", &gone);
    let report = rollback::roll_back(&kernel, &journal, &at(61_001), 1).unwrap().unwrap();
    assert!(!report.may_be_repeated() && report.kept.is_empty());
    assert_eq!(kernel.get("b"), "5");
    assert_eq!(rollback::roll_back(&kernel, &journal, &at(61_002), 1).unwrap(), None, "nothing is left");
    // Another program's value is not waited for.
    apply(&kernel, &journal, &within(60, &[("b", "8")])).unwrap();
    kernel.put("b", "77");
    let report = rollback::roll_back(&kernel, &journal, &at(61_000), 2).unwrap().unwrap();
    assert!(!report.may_be_repeated() && report.kept[0].cause == Cause::ChangedSince);
}
