//! Settings in memory, and changes of them.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use host::apply::{self, Kernel, Request};
use host::change::{Change, Setting};
use host::error::ChangeError;
use host::journal::{ChangeSet, Interface, Journal, Now};
use host::undo::{self, Overwrite, Report};

/// Settings in memory. It can crash at its nth call, reject a value, and store another value than it is given.
#[derive(Default)]
pub struct Memory {
    pub values: RefCell<BTreeMap<Setting, String>>,
    pub calls: Cell<usize>,
    pub crash_at: Option<usize>,
    pub rejects: Option<String>,
    /// Larger numbers are cut to it.
    pub limit: Option<u64>,
    /// The interface of all settings.
    pub interface: RefCell<Option<Interface>>,
}

impl Memory {
    pub fn new(values: &[(&str, &str)]) -> Self {
        let values = values.iter().map(|(name, value)| (sysctl(name), (*value).to_owned())).collect();
        Self { values: RefCell::new(values), ..Self::default() }
    }

    /// Before a call, or after its effect.
    fn crash_point(&self) {
        self.calls.set(self.calls.get() + 1);
        assert!(self.crash_at != Some(self.calls.get()), "crash");
    }

    pub fn put(&self, name: &str, value: &str) {
        self.values.borrow_mut().insert(sysctl(name), value.to_owned());
    }

    pub fn get(&self, name: &str) -> String {
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

    fn interface(&self, _: &Setting) -> Option<Interface> {
        self.interface.borrow().clone()
    }
}

pub fn sysctl(name: &str) -> Setting {
    Setting::Sysctl { name: name.to_owned() }
}

pub fn request(changes: &[(&str, &str)]) -> Request {
    let change = |(name, value): &(&str, &str)| Change { setting: sysctl(name), value: (*value).to_owned() };
    Request {
        origin: "test".to_owned(),
        changes: changes.iter().map(change).collect(),
        persist: false,
        confirm_within: None,
    }
}

pub fn now() -> Now {
    Now { time_unix_s: 1, boottime_ms: 1000, boot_id: "boot-1".to_owned(), namespace: "net:[1]".to_owned() }
}

pub fn after_reboot() -> Now {
    Now { boottime_ms: 5, boot_id: "boot-2".to_owned(), namespace: "net:[2]".to_owned(), ..now() }
}

pub fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(&folder.path().join("state"));
    (folder, journal)
}

pub fn apply(kernel: &Memory, journal: &Journal, request: &Request) -> Result<ChangeSet, ChangeError> {
    apply::apply(kernel, journal, &journal.lock()?, &now(), request)
}

pub fn undo(kernel: &Memory, journal: &Journal, now: &Now, id: u64, overwrite: Overwrite) -> Report {
    let mut set = journal.load(id).unwrap();
    undo::undo(kernel, journal, &journal.lock().unwrap(), now, &mut set, overwrite).unwrap()
}

pub fn undo_all(kernel: &Memory, journal: &Journal) {
    for id in journal.ids().unwrap().into_iter().rev() {
        undo(kernel, journal, &now(), id, Overwrite::Own);
    }
}

pub const FIRST: [(&str, &str); 3] = [("a", "1\t2 3"), ("b", "5"), ("c", "")];

/// Crashes at each call of the kernel in turn, and requires that `recover` brings the values back that were there before `prepare`.
/// Returns the number of calls.
#[track_caller]
pub fn crash_at_each_call(
    prepare: impl Fn(&Memory, &Journal),
    act: impl Fn(&Memory, &Journal),
    recover: impl Fn(&Memory, &Journal),
) -> usize {
    for moment in 1.. {
        let ((_folder, journal), mut kernel) = (journal(), Memory::new(&FIRST));
        let before = kernel.values.borrow().clone();
        prepare(&kernel, &journal);
        kernel.calls.set(0);
        kernel.crash_at = Some(moment);
        let crashed = catch_unwind(AssertUnwindSafe(|| act(&kernel, &journal))).is_err();
        kernel.crash_at = None;
        recover(&kernel, &journal);
        assert_eq!(*kernel.values.borrow(), before, "crash at call {moment}");
        if !crashed {
            return moment - 1;
        }
    }
    unreachable!("the number of calls is finite")
}
