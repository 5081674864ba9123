//! What failures of a store are to an initiator.

use scsi::{Sense, SenseKey};
use store::{Fault, StoreError};

/// LOGICAL UNIT COMMUNICATION TIME-OUT: what a PREEMPT AND ABORT waited for did not end.
pub(crate) const ABORT_TIMED_OUT: Sense = Sense::new(SenseKey::HardwareError, 0x08, 0x01);

pub(crate) fn read_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a read failed");
    match error {
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::READ_ERROR),
        _ => Sense::READ_ERROR,
    }
}

pub(crate) fn write_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a write failed");
    match error {
        StoreError::ReadOnly => Sense::WRITE_PROTECTED,
        StoreError::NoMemory(_) | StoreError::NoSpace(_) => Sense::SPACE_ALLOCATION_FAILED,
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::WRITE_ERROR),
        StoreError::OutOfRange { .. }
        | StoreError::FixedSize(_)
        | StoreError::Cancelled
        | StoreError::Io { .. } => Sense::WRITE_ERROR,
    }
}

/// What a fault is to the initiator, where reads and writes tell it alike.
fn fault_sense(fault: Fault) -> Option<Sense> {
    match fault {
        Fault::Medium => None,
        Fault::Hardware => Some(Sense::INTERNAL_FAILURE),
        Fault::NotReady => Some(Sense::NOT_READY),
        Fault::NoSpace => Some(Sense::SPACE_ALLOCATION_FAILED),
    }
}
