//! Effects of commands on other sessions and on durable state.

use std::sync::Arc;

use scsi::{Disk, Durable, Sense, UnitAttention};

use crate::error::TargetError;
use crate::state::StateFolder;

/// A session that may receive a unit attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient<'a> {
    /// Unique among the sessions of a target.
    pub(crate) instance: u64,
    /// [`scsi::Nexus::name`].
    pub(crate) nexus_name: &'a str,
}

/// The sessions of a target as recipients of unit attentions.
pub(crate) trait Attentions: Send + Sync {
    /// Establishes a unit attention for every session that sees the disk, under whichever number, and for which `is_for` returns
    /// true.
    fn raise(&self, disk: &Disk, attention: UnitAttention, is_for: &dyn Fn(Recipient<'_>) -> bool);
}

/// Shared effects of commands: unit attentions for other sessions, and durable state.
pub(crate) struct SharedEffects {
    sessions: Arc<dyn Attentions>,
    pub(crate) state: Option<StateFolder>,
}

impl SharedEffects {
    /// Creates effects on these sessions; durable state needs a state folder.
    pub(crate) fn new(sessions: Arc<dyn Attentions>, state: Option<StateFolder>) -> Self {
        Self { sessions, state }
    }

    /// As [`Attentions::raise`].
    pub(crate) fn raise(
        &self,
        disk: &Disk,
        attention: UnitAttention,
        is_for: impl Fn(Recipient<'_>) -> bool,
    ) {
        self.sessions.raise(disk, attention, &is_for);
    }

    /// Saves a disk's state without its reservations.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub(crate) fn forget_reservations(&self, disk: &Disk) -> Result<(), TargetError> {
        let Some(state) = &self.state else { return Ok(()) };
        let durable = Durable { reservations: None, ..state.load(&disk.identity.serial)? };
        let failed = |source| TargetError::Io { what: "cannot save the state of the disk", source };
        state.save(&disk.identity.serial, &durable).map_err(failed)
    }

    /// Saves the durable state of a disk, before it takes effect.
    ///
    /// # Errors
    /// INTERNAL TARGET FAILURE when it cannot be saved: the initiator must not assume that it is durable.
    pub(crate) fn save(&self, disk: &Disk, durable: &Durable) -> Result<(), Sense> {
        let Some(state) = &self.state else { return Ok(()) };
        state.save(&disk.identity.serial, durable).map_err(|error| {
            tracing::error!("cannot save reservations or mode parameters: {error}");
            Sense::INTERNAL_FAILURE
        })
    }
}
