//! What is in force against what was asked for, as after a reboot.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::apply::Kernel;
use crate::change::Setting;
use crate::journal::{ChangeSet, SetState, StepState, Unreadable};
use crate::persist::files::KeptFile;

/// What `roundtrip host verify --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// Whether everything is as it was asked for, and the whole journal could be read.
    pub holds: bool,
    /// The settings of the change sets that are in force.
    pub settings: Vec<Verified>,
    /// Files that keep settings and are not as they should be, or should not be there any more.
    pub files: Vec<KeptFile>,
    /// Settings that an undo has left.
    pub left: Vec<Left>,
    /// Files of the journal that cannot be read: what they ask for is not known.
    pub unreadable: Vec<Unreadable>,
}

impl Verification {
    /// Sums up what was compared.
    #[must_use]
    pub fn new(
        settings: Vec<Verified>,
        files: Vec<KeptFile>,
        left: Vec<Left>,
        unreadable: Vec<Unreadable>,
    ) -> Self {
        let holds = settings.iter().all(|setting| setting.holds)
            && files.is_empty()
            && left.is_empty()
            && unreadable.is_empty();
        Self { holds, settings, files, left, unreadable }
    }
}

/// A setting that was changed, and its value now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// A setting that an undo has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// The setting.
    pub setting: Setting,
    /// The change set that was undone.
    pub change_set: u64,
    /// The value that the undo was to restore.
    pub before: String,
    /// The value in force; none where it cannot be read.
    pub in_force: Option<String>,
    /// Why it was left.
    pub why: String,
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

/// The settings that an undo of this boot has left. The kernel's values end with the boot.
pub fn left(kernel: &impl Kernel, sets: &[ChangeSet], boot_id: &str) -> Vec<Left> {
    let mut all = Vec::new();
    for set in sets.iter().filter(|set| set.is_partly_undone()) {
        let kept = set.steps.iter().filter(|step| step.state == StepState::Kept);
        let of_boot = kept.filter(|step| set.boot_id == boot_id || step.setting.survives_reboot());
        let read = of_boot.map(|step| (step, kernel.read(&step.setting).ok()));
        // Its value may have been restored by hand.
        let other = read.filter(|(step, in_force)| in_force.as_ref() != Some(&step.before));
        all.extend(other.map(|(step, in_force)| Left {
            setting: step.setting.clone(),
            change_set: set.id,
            before: step.before.clone(),
            in_force,
            why: step.left.clone().unwrap_or_else(|| "an undo has left it".to_owned()),
        }));
    }
    all
}
