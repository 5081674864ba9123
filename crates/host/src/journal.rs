//! The journal: what was changed, from which value to which, so that it can be restored after the program, the shell or the
//! machine has crashed.
//!
//! One file of JSON for each change set. It is on the disk before the first change, and again before and after each step, so that
//! a step whose outcome is unknown is known to be one.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::{Change, Setting};

mod store;

pub use store::{Journal, Lock, SET_LIMIT, SIZE_LIMIT};
pub(crate) use store::{durable_write, read_regular, sync_folder};

/// The folder of the journal.
pub const STATE_FOLDER: &str = "/var/lib/roundtrip/host";

/// The format of the files.
pub const VERSION: u32 = 1;

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The change sets that can be read, in the order of their numbers.
    pub sets: Vec<ChangeSet>,
    /// The files that cannot.
    pub unreadable: Vec<Unreadable>,
}

/// A file of a journal that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what to do.
    pub why: String,
}

/// Changes that were made together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeSet {
    /// The format of the file.
    pub version: u32,
    /// Its number, from 1; also the name of its file.
    pub id: u64,
    /// The command that made it: `set eth0 speed=100`.
    pub origin: String,
    /// When, seconds since 1970.
    pub time_unix_s: u64,
    /// The boot of the kernel that was changed: what the kernel holds ends with it.
    pub boot_id: String,
    /// The network namespace that was changed: `net:[4026531840]`.
    pub namespace: String,
    /// Its state.
    pub state: SetState,
    /// Until when it must be confirmed.
    pub deadline: Option<Deadline>,
    /// Whether it is to hold after a reboot.
    pub persist: bool,
    /// The changes in their order.
    pub steps: Vec<Step>,
}

/// The state of a change set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SetState {
    /// Being applied, or interrupted meanwhile.
    Applying,
    /// Applied, until its deadline.
    AwaitingConfirmation,
    /// Applied.
    Applied,
    /// Restored, but for the steps that are `kept`.
    Undone,
}

/// When an unconfirmed change set is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// Time since boot, suspension included (CLOCK_BOOTTIME), milliseconds. Steps of the system clock do not move it.
    pub boottime_ms: u64,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What is changed.
    pub setting: Setting,
    /// Its value before, byte for byte.
    pub before: String,
    /// The value that was asked for.
    pub asked: String,
    /// The value in force after the change, as the kernel reports it.
    pub after: Option<String>,
    /// How far it is.
    pub state: StepState,
    /// The interface that had the setting's name: what it holds ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// Why the last undo left it, for a step that is `kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// Which interface a name means. Another one may have the name later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its number in its network namespace.
    pub index: u32,
    /// The hardware address of a card, which keeps it when its driver is loaded again; none for a virtual interface.
    pub address: Option<String>,
}

impl Interface {
    /// Whether another interface has the name now.
    #[must_use]
    pub fn is_another(&self, now: &Self) -> bool {
        self.index != now.index && (self.address.is_none() || self.address != now.address)
    }
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepState {
    /// Not begun.
    Planned,
    /// Perhaps done: begun, and its end was not recorded.
    Begun,
    /// Done.
    Done,
    /// The value was in force already; nothing was changed.
    InForce,
    /// Restored, or never changed.
    Undone,
    /// Not restored, as another program has changed it since.
    Kept,
}

impl ChangeSet {
    /// Whether it has an effect that `undo` would take back: also one of which an earlier undo left a part.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state != SetState::Undone || self.is_partly_undone()
    }

    /// Whether an undo restored it but for some steps.
    #[must_use]
    pub fn is_partly_undone(&self) -> bool {
        self.state == SetState::Undone && self.steps.iter().any(|step| step.state == StepState::Kept)
    }

    /// Whether it must be rolled back: not confirmed, and its deadline has passed or belongs to an earlier boot.
    #[must_use]
    pub fn is_overdue(&self, now: &Now) -> bool {
        let is_open = matches!(self.state, SetState::Applying | SetState::AwaitingConfirmation);
        let is_past =
            |deadline: Deadline| self.boot_id != now.boot_id || deadline.boottime_ms <= now.boottime_ms;
        is_open && self.deadline.is_some_and(is_past)
    }

    /// What it asks for.
    pub fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        self.steps.iter().map(|step| Change { setting: step.setting.clone(), value: step.asked.clone() })
    }
}

/// Where and when the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970.
    pub time_unix_s: u64,
    /// Time since boot, suspension included, milliseconds.
    pub boottime_ms: u64,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
    /// The caller's network namespace, as the link /proc/thread-self/ns/net has it.
    pub namespace: String,
}

impl Now {
    /// Reads the clocks, the boot and the namespace.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn read() -> Result<Self, crate::error::ChangeError> {
        let (boot, net) =
            (PathBuf::from("/proc/sys/kernel/random/boot_id"), PathBuf::from("/proc/thread-self/ns/net"));
        let boot_id =
            std::fs::read_to_string(&boot).map_err(crate::error::ChangeError::io("reading", boot))?;
        let namespace = std::fs::read_link(&net).map_err(crate::error::ChangeError::io("reading", net))?;
        Ok(Self {
            time_unix_s: socket::clock::realtime_ns() / 1_000_000_000,
            boottime_ms: socket::clock::boottime_ns() / 1_000_000,
            boot_id: boot_id.trim().to_owned(),
            namespace: namespace.to_string_lossy().into_owned(),
        })
    }
}
