//! Changes, crashes and undo: whatever happens, the host gets its values back, and nobody else's value is overwritten.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use host::apply::{self, Kernel, Request};
use host::change::{Change, Setting};
use host::error::ChangeError;
use host::journal::{ChangeSet, Journal, Now, SetState, StepState};
use host::rollback;
use host::undo::{self, Overwrite, Report};
use host::verify::verify;
use proptest::prelude::*;

/// Settings in memory. It can crash at its nth call, reject a value, and store another value than it is given.
#[derive(Default)]
struct Memory {
    values: RefCell<BTreeMap<Setting, String>>,
    calls: Cell<usize>,
    crash_at: Option<usize>,
    rejects: Option<String>,
    /// Larger numbers are cut to it.
    limit: Option<u64>,
}

impl Memory {
    fn new(values: &[(&str, &str)]) -> Self {
        let values = values.iter().map(|(name, value)| (sysctl(name), (*value).to_owned())).collect();
        Self { values: RefCell::new(values), ..Self::default() }
    }

    /// Before a call, or after its effect.
    fn crash_point(&self) {
        self.calls.set(self.calls.get() + 1);
        assert!(self.crash_at != Some(self.calls.get()), "crash");
    }

    fn put(&self, name: &str, value: &str) {
        self.values.borrow_mut().insert(sysctl(name), value.to_owned());
    }

    fn get(&self, name: &str) -> String {
        self.values.borrow()[&sysctl(name)].clone()
    }
}

impl Kernel for Memory {
    fn read(&self, setting: &Setting) -> Result<String, ChangeError> {
        self.crash_point();
        let missing = || ChangeError::Read { setting: setting.to_string(), why: "there is none".to_owned() };
        self.values.borrow().get(setting).cloned().ok_or_else(missing)
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError> {
        self.crash_point();
        if self.rejects.as_deref() == Some(value) {
            let (setting, value) = (setting.to_string(), value.to_owned());
            return Err(ChangeError::Write { setting, value, why: "invalid argument".to_owned() });
        }
        let number =
            value.parse::<u64>().ok().zip(self.limit).map(|(number, limit)| number.min(limit).to_string());
        self.values.borrow_mut().insert(setting.clone(), number.unwrap_or_else(|| value.to_owned()));
        self.crash_point();
        Ok(())
    }
}

fn sysctl(name: &str) -> Setting {
    Setting::Sysctl { name: name.to_owned() }
}

fn request(changes: &[(&str, &str)]) -> Request {
    let change = |(name, value): &(&str, &str)| Change { setting: sysctl(name), value: (*value).to_owned() };
    Request {
        origin: "test".to_owned(),
        changes: changes.iter().map(change).collect(),
        persist: false,
        confirm_within: None,
    }
}

fn now() -> Now {
    Now { time_unix_s: 1, boottime_ms: 1000, boot_id: "boot-1".to_owned(), namespace: "net:[1]".to_owned() }
}

fn after_reboot() -> Now {
    Now { boottime_ms: 5, boot_id: "boot-2".to_owned(), namespace: "net:[2]".to_owned(), ..now() }
}

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(&folder.path().join("state"));
    (folder, journal)
}

fn apply(kernel: &Memory, journal: &Journal, request: &Request) -> Result<ChangeSet, ChangeError> {
    apply::apply(kernel, journal, &journal.lock()?, &now(), request)
}

fn undo(kernel: &Memory, journal: &Journal, now: &Now, id: u64, overwrite: Overwrite) -> Report {
    let mut set = journal.load(id).unwrap();
    undo::undo(kernel, journal, &journal.lock().unwrap(), now, &mut set, overwrite).unwrap()
}

fn undo_all(kernel: &Memory, journal: &Journal) {
    for id in journal.ids().unwrap().into_iter().rev() {
        undo(kernel, journal, &now(), id, Overwrite::Own);
    }
}

const FIRST: [(&str, &str); 3] = [("a", "1\t2 3"), ("b", "5"), ("c", "")];

#[test]
fn what_an_undo_has_left_is_restored_by_the_next() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("b", "6")])).unwrap();
    apply(&kernel, &journal, &request(&[("b", "7")])).unwrap();
    // In the wrong order: the older set finds the newer one's value, and leaves it.
    assert_eq!(undo(&kernel, &journal, &now(), 1, Overwrite::Own).kept.len(), 1);
    let active = |id| journal.load(id).unwrap().is_active();
    assert!(active(1) && journal.load(1).unwrap().is_partly_undone(), "a part of it is still in force");
    undo(&kernel, &journal, &now(), 2, Overwrite::Own);
    assert_eq!(kernel.get("b"), "6");
    assert!(active(1) && !active(2));
    undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!(kernel.get("b"), "5");
    assert!(!active(1));
}

#[test]
fn undo_restores_byte_for_byte_and_again_changes_nothing() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    let before = kernel.values.borrow().clone();
    let set =
        apply(&kernel, &journal, &request(&[("a", "4 5 6"), ("b", "5"), ("c", "x"), ("a", "7")])).unwrap();
    assert_eq!((set.id, set.state), (1, SetState::Applied));
    assert_eq!(kernel.get("a"), "7");
    assert_eq!(set.steps[1].state, StepState::InForce, "what is in force is not written");
    let report = undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!(*kernel.values.borrow(), before);
    let restored: Vec<String> = report.restored.iter().map(|restored| restored.setting.to_string()).collect();
    assert_eq!(restored, ["a", "c", "a"], "in reverse order");
    // Somebody sets the value of the change again: the undo has been done, and is not repeated.
    kernel.put("a", "7");
    let again = undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!((again.restored.len(), again.kept.len(), kernel.get("a")), (0, 0, "7".to_owned()));
}

/// The journal has each step on the disk before the kernel gets its value.
#[test]
fn the_journal_is_written_before_the_change() {
    struct Watching<'a>(&'a Memory, &'a Journal);
    impl Kernel for Watching<'_> {
        fn read(&self, setting: &Setting) -> Result<String, ChangeError> {
            self.0.read(setting)
        }
        fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError> {
            let set = self.1.load(1)?;
            let step = set.steps.iter().find(|step| step.setting == *setting).unwrap();
            assert_eq!((step.state, &*step.asked), (StepState::Begun, value));
            assert_eq!(step.before, self.0.values.borrow()[setting]);
            assert_eq!(set.steps.len(), 2, "the later steps are known, too");
            self.0.write(setting, value)
        }
    }
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    let watching = Watching(&kernel, &journal);
    let lock = journal.lock().unwrap();
    apply::apply(&watching, &journal, &lock, &now(), &request(&[("a", "9"), ("b", "8")])).unwrap();
    assert_eq!([kernel.get("a"), kernel.get("b")], ["9", "8"]);
}

#[test]
fn a_crash_at_any_moment_is_undone() {
    let changes = request(&[("a", "9"), ("b", "8"), ("a", "7"), ("c", "6")]);
    let mut crashes = 0;
    for moment in 1.. {
        let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
        let before = kernel.values.borrow().clone();
        kernel.crash_at = Some(moment);
        let crashed = catch_unwind(AssertUnwindSafe(|| apply(&kernel, &journal, &changes))).is_err();
        kernel.crash_at = None;
        undo_all(&kernel, &journal);
        assert_eq!(*kernel.values.borrow(), before, "crash at call {moment}");
        if !crashed {
            break;
        }
        crashes += 1;
    }
    assert!(crashes >= 16, "only {crashes} moments were tried");
}

#[test]
fn an_undo_that_crashes_is_repeated() {
    let mut crashes = 0;
    for moment in 1.. {
        let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
        let before = kernel.values.borrow().clone();
        apply(&kernel, &journal, &request(&[("a", "9"), ("b", "8"), ("c", "6")])).unwrap();
        kernel.calls.set(0);
        kernel.crash_at = Some(moment);
        let crashed = catch_unwind(AssertUnwindSafe(|| undo_all(&kernel, &journal))).is_err();
        kernel.crash_at = None;
        undo_all(&kernel, &journal);
        assert_eq!(*kernel.values.borrow(), before, "crash at call {moment}");
        if !crashed {
            break;
        }
        crashes += 1;
    }
    assert!(crashes >= 9, "only {crashes} moments were tried");
}

#[test]
fn a_change_that_fails_takes_back_those_before_it() {
    let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
    let before = kernel.values.borrow().clone();
    kernel.rejects = Some("bad".to_owned());
    let error =
        apply(&kernel, &journal, &request(&[("a", "9"), ("b", "bad"), ("c", "1")])).unwrap_err().to_string();
    assert!(error.contains("cannot set the b to 'bad': invalid argument"), "{error}");
    assert!(error.contains("all values are as they were before"), "{error}");
    assert_eq!(*kernel.values.borrow(), before);
    assert_eq!(journal.load(1).unwrap().state, SetState::Undone);
    // What cannot be read could not be restored: nothing is changed, and there is no journal of it.
    assert!(apply(&kernel, &journal, &request(&[("a", "9"), ("none", "1")])).is_err());
    assert_eq!((kernel.values.borrow().clone(), journal.ids().unwrap()), (before, vec![1]));
    assert!(apply(&kernel, &journal, &request(&[])).unwrap_err().to_string().contains("1 to 1000 changes"));
}

#[test]
fn a_value_that_somebody_else_has_changed_stays_and_is_named() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("a", "9"), ("b", "8")])).unwrap();
    kernel.put("a", "77");
    let report = undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!([kernel.get("a"), kernel.get("b")], ["77", "5"]);
    assert_eq!(report.kept.len(), 1);
    let kept = &report.kept[0];
    assert_eq!((kept.setting.to_string().as_str(), kept.in_force.as_deref()), ("a", Some("77")));
    assert_eq!(kept.before, "1\t2 3");
    assert!(kept.why.contains("from '9'") && kept.why.contains("--force"), "{}", kept.why);
    undo(&kernel, &journal, &now(), 1, Overwrite::All);
    assert_eq!(kernel.get("a"), "1\t2 3");
}

#[test]
fn a_value_that_the_kernel_has_changed_is_still_ours() {
    let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
    kernel.limit = Some(100);
    let set = apply(&kernel, &journal, &request(&[("b", "4096")])).unwrap();
    assert_eq!(set.steps[0].after.as_deref(), Some("100"));
    let verified = verify(&kernel, &[set], "boot-1");
    assert!(
        verified[0].holds && verified[0].in_force.as_deref() == Some("100") && verified[0].asked == "4096"
    );
    undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!(kernel.get("b"), "5");
}

#[test]
fn verify_names_what_differs_and_the_last_set_decides() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("a", "9"), ("b", "8")])).unwrap();
    apply(&kernel, &journal, &Request { persist: true, ..request(&[("a", "7")]) }).unwrap();
    let verified = |kernel: &Memory, boot: &str| verify(kernel, &journal.all().unwrap(), boot);
    let all = verified(&kernel, "boot-1");
    assert_eq!(all.iter().map(|one| (one.change_set, one.holds)).collect::<Vec<_>>(), [(2, true), (1, true)]);
    kernel.put("a", "1");
    let all = verified(&kernel, "boot-2");
    assert_eq!(all.iter().map(|one| one.holds).collect::<Vec<_>>(), [false, true]);
    assert!(all[0].persist && !all[1].persist && all[0].was_rebooted);
    kernel.values.borrow_mut().remove(&sysctl("b"));
    assert_eq!(verified(&kernel, "boot-1")[1].in_force, None);
    assert!(!verified(&kernel, "boot-1")[1].holds);
    undo_all(&kernel, &journal);
    assert!(verified(&kernel, "boot-1").is_empty());
}

#[test]
fn values_of_the_kernel_end_with_a_reboot_and_stay_after_it() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("a", "9")])).unwrap();
    // After the reboot, an administrator happens to choose the same value.
    let report = undo(&kernel, &journal, &after_reboot(), 1, Overwrite::Own);
    assert_eq!((report.ended_with_boot, kernel.get("a")), (vec![sysctl("a")], "9".to_owned()));
    // What was kept in files is in force after the reboot, and is ours.
    let kept = Request { persist: true, ..request(&[("b", "9")]) };
    apply(&kernel, &journal, &kept).unwrap();
    assert_eq!(undo(&kernel, &journal, &after_reboot(), 2, Overwrite::Own).restored.len(), 1);
    assert_eq!(kernel.get("b"), "5");
    // An unconfirmed set has written no file: the same value is somebody else's.
    apply(&kernel, &journal, &Request { confirm_within: Some(Duration::from_secs(9)), ..kept }).unwrap();
    assert_eq!(undo(&kernel, &journal, &after_reboot(), 3, Overwrite::Own).ended_with_boot.len(), 1);
    assert_eq!(kernel.get("b"), "9");
    // A connection of NetworkManager survives the reboot without more.
    let connection = Setting::Connection { uuid: "u".to_owned(), property: "802-3-ethernet.mtu".to_owned() };
    kernel.values.borrow_mut().insert(connection.clone(), "auto".to_owned());
    let change = Change { setting: connection.clone(), value: "9000".to_owned() };
    apply(&kernel, &journal, &Request { changes: vec![change], ..request(&[]) }).unwrap();
    undo(&kernel, &journal, &after_reboot(), 4, Overwrite::Own);
    assert_eq!(kernel.values.borrow()[&connection], "auto");
}

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
    let within = |changes: &[(&str, &str)]| Request {
        confirm_within: Some(Duration::from_secs(60)),
        ..request(changes)
    };
    let set = apply(&kernel, &journal, &within(&[("a", "9")])).unwrap();
    assert_eq!(set.state, SetState::AwaitingConfirmation);
    let at = |boottime_ms| Now { boottime_ms, ..now() };
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
    apply(&kernel, &journal, &within(&[("a", "9")])).unwrap();
    let confirmed = rollback::confirm(&journal, &journal.lock().unwrap(), &at(60_999), 2).unwrap();
    assert_eq!((confirmed.state, confirmed.deadline), (SetState::Applied, None));
    assert!(rollback::finish_overdue(&kernel, &journal, &at(999_999)).unwrap().is_empty());
    assert_eq!(kernel.get("a"), "9");
    // A reboot ends the time, however early.
    apply(&kernel, &journal, &within(&[("b", "9")])).unwrap();
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

#[test]
fn a_damaged_journal_is_an_error_that_names_the_file() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("a", "9")])).unwrap();
    let path = journal.folder().join("1.json");
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = journal.load(1).unwrap_err().to_string();
        assert!(error.contains("1.json") && error.contains("damaged"), "{length}: {error}");
    }
    let text = String::from_utf8(whole).unwrap();
    for (from, to) in
        [("\"version\": 1", "\"version\": 2"), ("\"id\": 1", "\"id\": 2"), ("\"origin\"", "\"orijin\"")]
    {
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        assert!(journal.load(1).is_err(), "{from}");
    }
    std::fs::write(&path, vec![b' '; host::journal::SIZE_LIMIT as usize + 1]).unwrap();
    assert!(journal.load(1).unwrap_err().to_string().contains("larger than"));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(journal.load(1).is_err(), "a link is not followed");
    let missing = journal.load(7).unwrap_err().to_string();
    assert!(missing.contains("no change set 7") && missing.contains("the last are 1"), "{missing}");
    // It does not keep the next command from rolling back what it can read.
    assert!(rollback::finish_overdue(&kernel, &journal, &now()).unwrap().is_empty());
}

#[test]
fn a_change_set_that_the_journal_cannot_hold_is_refused() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    let long = "9".repeat(host::journal::SIZE_LIMIT as usize);
    let error = apply(&kernel, &journal, &request(&[("a", &long)])).unwrap_err();
    assert!(error.to_string().contains("fewer settings"), "{error}");
    assert_eq!((kernel.get("a"), journal.ids().unwrap()), ("1\t2 3".to_owned(), vec![]));
}

#[test]
fn one_process_at_a_time_changes_the_host() {
    let (_folder, journal) = journal();
    let held = journal.lock().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _second = journal.lock().unwrap();
            sender.send(()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "the lock is held");
        drop(held);
        receiver.recv().unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sequence_of_changes_is_undone(
        sets in prop::collection::vec(prop::collection::vec((0..3usize, "[0-9 \\t]{0,4}"), 1..5), 1..5),
    ) {
        let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
        let before = kernel.values.borrow().clone();
        for set in &sets {
            let changes: Vec<(&str, &str)> = set.iter().map(|(at, value)| (FIRST[*at].0, value.as_str())).collect();
            apply(&kernel, &journal, &request(&changes)).unwrap();
        }
        undo_all(&kernel, &journal);
        prop_assert_eq!(&*kernel.values.borrow(), &before);
        undo_all(&kernel, &journal);
        prop_assert_eq!(&*kernel.values.borrow(), &before);
    }

    #[test]
    fn no_content_of_a_journal_panics(at in 0..2000usize, byte in any::<u8>(), tail in any::<Vec<u8>>()) {
        let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
        apply(&kernel, &journal, &request(&[("a", "9"), ("b", "8")])).unwrap();
        let path = journal.folder().join("1.json");
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        } else {
            bytes.extend(tail);
        }
        std::fs::write(&path, bytes).unwrap();
        if let Ok(mut set) = journal.load(1) {
            let lock = journal.lock().unwrap();
            let _ = undo::undo(&kernel, &journal, &lock, &now(), &mut set, Overwrite::Own);
        }
    }
}
