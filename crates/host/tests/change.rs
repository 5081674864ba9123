//! Changes, crashes and undo: whatever happens, the host gets its values back, and nobody else's value is overwritten.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::time::Duration;

use host::apply::{self, Kernel, Request};
use host::change::{Change, Setting};
use host::error::ChangeError;
use host::journal::{Interface, Journal, SetState, StepState};
use host::rollback;
use host::undo::{self, Overwrite};
use host::verify::{left, verify};
use memory::{
    FIRST, Memory, after_reboot, apply, crash_at_each_call, journal, now, request, sysctl, undo, undo_all,
};
use proptest::prelude::*;

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
    let act = |kernel: &Memory, journal: &Journal| {
        apply(kernel, journal, &changes).unwrap();
    };
    let crashes = crash_at_each_call(|_, _| (), act, undo_all);
    assert!(crashes >= 16, "only {crashes} moments were tried");
}

#[test]
fn an_undo_that_crashes_is_repeated() {
    let prepare = |kernel: &Memory, journal: &Journal| {
        apply(kernel, journal, &request(&[("a", "9"), ("b", "8"), ("c", "6")])).unwrap();
    };
    let crashes = crash_at_each_call(prepare, undo_all, undo_all);
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
    let verified = |kernel: &Memory, boot: &str| verify(kernel, &journal.all().unwrap().sets, boot);
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

#[test]
fn a_file_that_cannot_be_read_does_not_hide_the_others() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    for value in ["9", "8", "7"] {
        apply(&kernel, &journal, &request(&[("a", value)])).unwrap();
    }
    let path = |name: &str| journal.folder().join(name);
    std::fs::write(path("1.json"), "{").unwrap();
    std::fs::remove_file(path("2.json")).unwrap();
    // A FIFO without a writer must not be waited for.
    nix::unistd::mkfifo(&path("2.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(path("4.json")).unwrap();
    // Names that only parse as numbers.
    std::fs::write(path("+3.json"), "").unwrap();
    std::fs::write(path("03.json"), "").unwrap();
    let contents = journal.all().unwrap();
    assert_eq!(contents.sets.iter().map(|set| set.id).collect::<Vec<_>>(), [3]);
    let unreadable: Vec<_> = contents.unreadable.iter().map(|file| file.path.clone()).collect();
    assert_eq!(unreadable, [path("1.json"), path("2.json"), path("4.json")]);
    assert!(contents.unreadable[0].why.contains("1.json") && contents.unreadable[0].why.contains("damaged"));
    for file in &contents.unreadable[1..] {
        assert!(file.why.contains("not a regular file; move it elsewhere"), "{}", file.why);
    }
    assert!(rollback::finish_overdue(&kernel, &journal, &now()).unwrap().is_empty());
    std::fs::remove_file(path("lock")).unwrap();
    nix::unistd::mkfifo(&path("lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(journal.lock().is_err());
    // No number is left after the largest.
    std::fs::remove_file(path("lock")).unwrap();
    std::fs::write(path(&format!("{}.json", u64::MAX)), "").unwrap();
    let error = apply(&kernel, &journal, &request(&[("a", "6")])).unwrap_err().to_string();
    assert!(error.contains("no number is left"), "{error}");
}

#[test]
fn what_an_undo_has_left_is_recorded_and_verified() {
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    apply(&kernel, &journal, &request(&[("a", "9"), ("b", "8")])).unwrap();
    kernel.put("a", "77");
    undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    let sets = journal.all().unwrap().sets;
    let found = left(&kernel, &sets, "boot-1");
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].setting.clone(), found[0].change_set, &*found[0].before),
        (sysctl("a"), 1, "1\t2 3")
    );
    assert_eq!(found[0].in_force.as_deref(), Some("77"));
    assert!(found[0].why.contains("changed since"), "{}", found[0].why);
    assert!(left(&kernel, &sets, "boot-2").is_empty(), "the kernel's values end with the boot");
    kernel.put("a", "1\t2 3");
    assert!(left(&kernel, &sets, "boot-1").is_empty(), "it was restored by hand");
    undo(&kernel, &journal, &now(), 1, Overwrite::Own);
    assert_eq!(journal.load(1).unwrap().steps[0].left, None);
}

#[test]
fn another_interface_of_the_same_name_keeps_its_value() {
    let card = |index, address: Option<&str>| Some(Interface { index, address: address.map(str::to_owned) });
    for (then, now_there, overwrite, is_restored) in [
        (card(4, None), card(4, None), Overwrite::Own, true),
        (card(4, None), card(5, None), Overwrite::Own, false),
        (card(4, None), card(5, None), Overwrite::Unrecorded, false),
        (card(4, None), card(5, None), Overwrite::All, true),
        // A card keeps its address when its driver is loaded again.
        (card(4, Some("02:00")), card(5, Some("02:00")), Overwrite::Own, true),
        (card(4, Some("02:00")), card(5, Some("02:01")), Overwrite::Own, false),
        (None, card(5, None), Overwrite::Own, true),
    ] {
        let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
        kernel.interface.replace(then.clone());
        apply(&kernel, &journal, &request(&[("b", "9")])).unwrap();
        kernel.interface.replace(now_there.clone());
        let report = undo(&kernel, &journal, &now(), 1, overwrite);
        assert_eq!(report.restored.len(), usize::from(is_restored), "{then:?} {now_there:?} {overwrite:?}");
        assert_eq!(report.ended_with_interface.len(), usize::from(!is_restored));
        assert_eq!(kernel.get("b"), if is_restored { "5" } else { "9" });
        assert!(!journal.load(1).unwrap().is_active());
    }
    // What was kept in files is in force on the new interface too, and is ours.
    let ((_folder, journal), kernel) = (journal(), Memory::new(&FIRST));
    kernel.interface.replace(card(4, None));
    apply(&kernel, &journal, &Request { persist: true, ..request(&[("b", "9")]) }).unwrap();
    kernel.interface.replace(card(5, None));
    assert_eq!(undo(&kernel, &journal, &now(), 1, Overwrite::Own).restored.len(), 1);
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
