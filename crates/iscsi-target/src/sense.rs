//! Sense data for store errors.

use scsi::{Sense, SenseKey};
use store::{Fault, StoreError};

/// LOGICAL UNIT COMMUNICATION TIME-OUT: the writes that a PREEMPT AND ABORT waited for did not end.
pub(crate) const ABORT_TIMED_OUT: Sense = Sense::new(SenseKey::HardwareError, 0x08, 0x01);

/// LOGICAL UNIT COMMUNICATION TIME-OUT of a store that does not answer. ABORTED COMMAND: the initiator may try again, also on
/// another path, and the medium is not accused.
const NO_ANSWER: Sense = Sense::new(SenseKey::AbortedCommand, 0x08, 0x01);

/// LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE: the initiator goes on with another path, and the medium is not accused.
const FENCED: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x0b);

pub(crate) fn read_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "read failed");
    match error {
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::READ_ERROR),
        StoreError::TimedOut { .. } => NO_ANSWER,
        StoreError::Fenced(_) => FENCED,
        _ => Sense::READ_ERROR,
    }
}

pub(crate) fn write_sense(error: &StoreError) -> Sense {
    if !matches!(error, StoreError::Miscompare(_)) {
        tracing::warn!(%error, "write failed");
    }
    match error {
        StoreError::ReadOnly => Sense::WRITE_PROTECTED,
        StoreError::NoMemory(_) | StoreError::NoSpace(_) => Sense::SPACE_ALLOCATION_FAILED,
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::WRITE_ERROR),
        StoreError::TimedOut { .. } => NO_ANSWER,
        StoreError::Fenced(_) => FENCED,
        StoreError::Miscompare(at) => Sense::miscompare(*at),
        StoreError::OutOfRange { .. }
        | StoreError::FixedSize(_)
        | StoreError::Cancelled
        | StoreError::NoSteps(_)
        | StoreError::Io { .. } => Sense::WRITE_ERROR,
    }
}

/// Returns the sense data of a fault that reads and writes report alike; `None` for medium errors, which differ.
fn fault_sense(fault: Fault) -> Option<Sense> {
    match fault {
        Fault::Medium => None,
        Fault::Hardware => Some(Sense::INTERNAL_FAILURE),
        Fault::NotReady => Some(Sense::NOT_READY),
        Fault::NoSpace => Some(Sense::SPACE_ALLOCATION_FAILED),
    }
}
