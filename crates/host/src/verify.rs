//! What is in force against what was asked for, as after a reboot.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::apply::Kernel;
use crate::change::Setting;
use crate::journal::{ChangeSet, SetState, StepState};

/// A setting that was changed, and its value now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The setting.
    pub setting: Setting,
    /// The last change set that asks for it.
    pub change_set: u64,
    /// The value that was asked for.
    pub asked: String,
    /// The value in force; none where it cannot be read.
    pub in_force: Option<String>,
    /// Whether they are the same, or the value is the one that the kernel took instead at the time.
    pub holds: bool,
    /// Whether it was to hold after a reboot.
    pub persist: bool,
    /// Whether the kernel has been booted since.
    pub was_rebooted: bool,
}

/// Compares every setting of the change sets that are in force. The last set that names a setting decides.
pub fn verify(kernel: &impl Kernel, sets: &[ChangeSet], boot_id: &str) -> Vec<Verified> {
    let mut last: BTreeMap<&Setting, Verified> = BTreeMap::new();
    let in_force =
        sets.iter().filter(|set| matches!(set.state, SetState::Applied | SetState::AwaitingConfirmation));
    for set in in_force {
        let done = set.steps.iter().filter(|step| matches!(step.state, StepState::Done | StepState::InForce));
        for step in done {
            let in_force = kernel.read(&step.setting).ok();
            let is =
                |value: &str| in_force.as_deref().is_some_and(|now| step.setting.means_the_same(now, value));
            let holds = is(&step.asked) || step.after.as_deref().is_some_and(is);
            let verified = Verified {
                setting: step.setting.clone(),
                change_set: set.id,
                asked: step.asked.clone(),
                holds,
                persist: set.persist || step.setting.survives_reboot(),
                was_rebooted: set.boot_id != boot_id,
                in_force,
            };
            last.insert(&step.setting, verified);
        }
    }
    last.into_values().collect()
}
