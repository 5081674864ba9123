//! The effects of commands beyond their disk.

use std::sync::Arc;

use scsi::{Disk, Durable, Lun, Sense, UnitAttention};

use crate::state::StateFolder;

/// A session that a unit attention may be established at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient<'a> {
    /// Differs between the sessions of a target.
    pub(crate) instance: u64,
    /// [`scsi::Nexus::name`].
    pub(crate) nexus_name: &'a str,
}

/// The sessions of a target, as far as commands have effects on them.
pub(crate) trait Attentions: Send + Sync {
    /// Establishes a unit attention at every session that sees the logical unit and that `is_for` chooses.
    fn raise(&self, lun: Lun, attention: UnitAttention, is_for: &dyn Fn(Recipient<'_>) -> bool);
}

/// The effects of commands beyond their disk: unit attentions of other sessions, and durable state.
pub(crate) struct SharedEffects {
    sessions: Arc<dyn Attentions>,
    pub(crate) state: Option<StateFolder>,
}

impl SharedEffects {
    /// Effects on these sessions, saved where there is a folder for it.
    pub(crate) fn new(sessions: Arc<dyn Attentions>, state: Option<StateFolder>) -> Self {
        Self { sessions, state }
    }

    /// Establishes a unit attention at every session that sees the logical unit and that `is_for` chooses.
    pub(crate) fn raise(&self, lun: Lun, attention: UnitAttention, is_for: impl Fn(Recipient<'_>) -> bool) {
        self.sessions.raise(lun, attention, &is_for);
    }

    /// Saves what is to be kept of a disk, before it is in force.
    ///
    /// # Errors
    /// INTERNAL TARGET FAILURE, where it cannot be: the initiator must not believe that it is.
    pub(crate) fn save(&self, disk: &Disk, durable: &Durable) -> Result<(), Sense> {
        let Some(state) = &self.state else { return Ok(()) };
        state.save(&disk.identity.serial, durable).map_err(|error| {
            tracing::error!("cannot save reservations or mode parameters: {error}");
            Sense::INTERNAL_FAILURE
        })
    }
}
