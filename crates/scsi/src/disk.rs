//! A disk: a direct-access logical unit (SBC-3).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cdb::Extent;
use crate::command::{Command, Transfer};
use crate::copy_results::{Copies, CopyResult};
use crate::limits::ATOMIC_BYTES_MAX;
use crate::loading::Loading;
use crate::log_sense::LogCounters;
use crate::mode::{ModeParameters, ModeValues};
use crate::nexus::Nexus;
use crate::plan::ByteRange;
use crate::ports::Ports;
use crate::reservations::{CarriedReservations, Reservations, SavedReservations};
use crate::sense::Sense;

/// The names of a disk; fixed-length ASCII fields are padded or cut when reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION, up to 8 characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, up to 16 characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL, up to 4 characters.
    pub revision: String,
    /// Unit serial number; stable over restarts and distinct for each disk.
    pub serial: String,
    /// The target's iSCSI name, for the target port's designator.
    pub target_name: String,
    /// NAA designator, 8 or 16 bytes (SPC-4 7.8.6.6); `None`: a locally assigned one, made of target name and serial number.
    pub naa: Option<Vec<u8>>,
    /// VENDOR SPECIFIC IDENTIFIER of the T10 vendor ID designator; `None`: the serial number.
    pub t10: Option<String>,
}

/// The fixed properties of a disk, and the shared state that initiators change.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its names.
    pub identity: Identity,
    /// Logical block length, bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Writes are rejected.
    pub read_only: bool,
    /// The initiator may change nothing that others see: neither data nor mode pages, reservations, access states, or the medium.
    pub is_restricted: bool,
    /// Its medium can be ejected and loaded (RMB).
    pub removable: bool,
    /// The medium rotates.
    pub is_rotational: bool,
    /// Mode pages and persistent reservations survive a power loss if an initiator asks for it.
    pub is_durable: bool,
    /// Written data may be lost by a power failure until the cache is synchronised (WCE).
    pub write_cache: bool,
    /// Thin provisioning; `None` for a disk whose blocks are always allocated.
    pub provisioning: Option<Provisioning>,
    /// Most bytes that its store compares and writes in one step, where others use the data too; `None` if only this target does.
    pub step_bytes: Option<u32>,
    /// Preferred length and alignment of transfers, bytes.
    pub best_bytes: Option<u32>,
    /// Logical blocks of a physical one, as a power of two: 3 for 512 bytes on 4096.
    pub physical_exponent: u8,
    /// The target ports through which it is reached.
    pub ports: Arc<Ports>,
    /// The state that initiators change.
    pub shared: Arc<Shared>,
}

/// The state of a disk that initiators change; one for all that see it.
#[derive(Debug, Default)]
pub struct Shared {
    /// Mode parameters.
    pub mode: ModeParameters,
    /// Reservations and registrations.
    pub reservations: Reservations,
    /// Whether the medium is loaded.
    pub loading: Loading,
    /// The results of its copies.
    pub copies: Copies,
    /// What LOG SENSE reports.
    pub log: LogCounters,
    /// Held while durable state is saved, so that no save overtakes another.
    saving: Mutex<()>,
}

/// The state of a disk that survives a power loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durable {
    /// Mode parameters, where they were saved (SP).
    pub mode: Option<ModeValues>,
    /// Persistent reservations, where an initiator asked for it (APTPL).
    pub reservations: Option<SavedReservations>,
}

/// The state of a disk that a process takes over from the one before, which no power loss lies between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    mode: ModeValues,
    reservations: CarriedReservations,
    copies: Vec<CopyResult>,
}

impl Shared {
    /// Returns what the next process takes over.
    #[must_use]
    pub fn carried(&self) -> Carried {
        Carried {
            mode: self.mode.values(),
            reservations: self.reservations.carried(),
            copies: self.copies.carried(),
        }
    }

    /// Takes over the state of the process before. Must be called before the disk is presented, after [`Self::restore`].
    pub fn carry(&self, carried: &Carried) {
        self.mode.set(carried.mode);
        self.reservations.carry(&carried.reservations);
        self.copies.carry(&carried.copies);
    }

    /// Restores saved state. Must be called before the disk is presented.
    pub fn restore(&self, kept: &Durable) {
        if let Some(mode) = kept.mode {
            self.mode.restore(mode);
        }
        if let Some(reservations) = &kept.reservations {
            self.reservations.restore(reservations);
        }
    }

    /// Locks durable state against other changes until the guard is dropped, so that no save overtakes another.
    pub(crate) fn saving(&self) -> MutexGuard<'_, ()> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Thin provisioning (SBC-3 4.7): unmapped blocks read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisioning {
    /// Bytes that are allocated together: unmapping less frees nothing.
    pub granularity_bytes: u32,
}

impl Disk {
    /// MAXIMUM TRANSFER LENGTH of the block limits page, bytes: bounds what one command moves.
    pub const TRANSFER_BYTES_MAX: u32 = 64 << 20;

    /// Whether writes are rejected, because of the store or of an initiator's mode page.
    #[must_use]
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.shared.mode.values().write_protected
    }

    /// Whether every write is acknowledged only when it is on stable storage, as if it had FUA (WCE is 0).
    #[must_use]
    #[inline]
    pub fn is_write_through(&self) -> bool {
        self.write_cache && self.shared.mode.values().write_through
    }

    /// MAXIMUM TRANSFER LENGTH, logical blocks.
    #[must_use]
    pub fn transfer_blocks_max(&self) -> u32 {
        Self::TRANSFER_BYTES_MAX / self.block_bytes.max(1)
    }

    /// MAXIMUM COMPARE AND WRITE LENGTH, logical blocks; 0 if the command is not supported.
    #[must_use]
    pub fn compare_blocks_max(&self) -> u8 {
        // Its field has one byte.
        self.step_blocks().map_or(u8::MAX, |blocks| u8::try_from(blocks).unwrap_or(u8::MAX))
    }

    /// MAXIMUM ATOMIC TRANSFER LENGTH, logical blocks; 0 if there are no atomic writes.
    #[must_use]
    pub fn atomic_blocks_max(&self) -> u32 {
        let own = ATOMIC_BYTES_MAX / self.block_bytes.max(1);
        self.step_blocks().map_or(own, |blocks| blocks.min(own))
    }

    /// Most logical blocks that are replaced in one step, where others use the data.
    fn step_blocks(&self) -> Option<u32> {
        self.step_bytes.map(|bytes| bytes / self.block_bytes.max(1))
    }

    /// Whether an extent is replaced in one step, where others use the data: it crosses no multiple of the step.
    pub(crate) fn is_one_step(&self, extent: Extent) -> bool {
        let Some(step) = self.step_blocks() else { return true };
        let last = extent.lba + u64::from(extent.blocks.max(1)) - 1;
        step > 0 && extent.lba / u64::from(step) == last / u64::from(step)
    }

    /// The bytes of an extent that is entirely on the disk.
    ///
    /// # Errors
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    #[inline]
    pub(crate) fn range(&self, extent: Extent) -> Result<ByteRange, Sense> {
        let end = extent.lba.checked_add(extent.blocks.into());
        if end.is_none_or(|end| end > self.blocks) {
            // The first address beyond the end.
            return Err(Sense::lba_out_of_range(extent.lba.max(self.blocks)));
        }
        // No store has an offset beyond 64 bits, whatever number of blocks the disk claims. The length always fits:
        // it is the product of two 32-bit numbers.
        let block = u64::from(self.block_bytes);
        let length_bytes = u64::from(extent.blocks) * block;
        match extent.lba.checked_mul(block) {
            Some(offset_bytes) if offset_bytes.checked_add(length_bytes).is_some() => {
                Ok(ByteRange { offset_bytes, length_bytes })
            }
            _ => Err(Sense::lba_out_of_range(extent.lba)),
        }
    }

    /// The bytes of a transfer: without protection information, which no disk here has, and within
    /// [`Self::TRANSFER_BYTES_MAX`].
    ///
    /// # Errors
    /// INVALID FIELD IN CDB, or LOGICAL BLOCK ADDRESS OUT OF RANGE.
    #[inline]
    pub(crate) fn transfer(&self, transfer: &Transfer) -> Result<ByteRange, Sense> {
        if transfer.protection {
            return Err(Sense::invalid_bit(1, 7));
        }
        let range = self.range(transfer.extent)?;
        if transfer.extent.blocks > self.transfer_blocks_max() {
            return Err(Sense::INVALID_FIELD);
        }
        Ok(range)
    }

    /// Whether a command on the medium may run for this nexus now: not while another nexus has reserved the disk, the
    /// port is in standby, or the medium is ejected.
    pub(crate) fn admits(&self, command: &Command, nexus: &Nexus) -> bool {
        !self.shared.reservations.conflicts(command, nexus.name())
            && self.ports.admit(nexus.portal_group(), command).is_ok()
            && !self.shared.loading.is_ejected()
    }

    /// A 60-bit identifier derived from the names: the same after a restart.
    #[must_use]
    pub fn designator(&self) -> u64 {
        let text = [self.identity.target_name.as_bytes(), b"\0", self.identity.serial.as_bytes()].concat();
        fnv_1a(text) >> 4
    }
}

/// The 64-bit FNV-1a hash: identifiers derived from it are stable across versions.
#[must_use]
pub fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
pub(crate) fn example() -> Disk {
    Disk {
        identity: Identity {
            vendor: "RNDTRIP".into(),
            product: "disk".into(),
            revision: "0.1".into(),
            serial: "abc123".into(),
            naa: None,
            t10: None,
            target_name: "iqn.2026-11.example:t".into(),
        },
        block_bytes: 512,
        blocks: 2048,
        read_only: false,
        is_restricted: false,
        removable: false,
        is_rotational: false,
        is_durable: false,
        write_cache: false,
        provisioning: None,
        step_bytes: None,
        best_bytes: None,
        physical_exponent: 0,
        ports: Arc::default(),
        shared: Arc::default(),
    }
}
