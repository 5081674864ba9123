//! A disk: a direct-access logical unit (SBC-3).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::copy::Copies;
use crate::loading::Loading;
use crate::mode::{ModeParameters, ModeValues};
use crate::ports::Ports;
use crate::reservations::{Reservations, SavedReservations};

/// How a disk names itself; fixed-length ASCII fields are padded or cut when reported.
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
}

/// What is fixed about a disk while it is presented, and who has reserved it.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its names.
    pub identity: Identity,
    /// Logical block length, bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Its medium can be ejected and loaded (RMB).
    pub removable: bool,
    /// It has heads that must move.
    pub is_rotational: bool,
    /// What initiators ask to be kept over a power loss is kept: mode pages, persistent reservations.
    pub is_durable: bool,
    /// Written data may be lost by a power failure until the cache is synchronised (WCE).
    pub write_cache: bool,
    /// How blocks are given memory and lose it; nothing for a disk that has all of it always.
    pub provisioning: Option<Provisioning>,
    /// Logical blocks of a physical one, as a power of two: 3 for 512 bytes on 4096.
    pub physical_exponent: u8,
    /// The target ports through which it is reached.
    pub ports: Arc<Ports>,
    /// What initiators change about it.
    pub shared: Arc<Shared>,
}

/// What initiators change about a disk; one for all that see it.
#[derive(Debug, Default)]
pub struct Shared {
    /// Mode parameters.
    pub mode: ModeParameters,
    /// Who has it to himself.
    pub reservations: Reservations,
    /// Whether the medium is there.
    pub loading: Loading,
    /// How its copies ended.
    pub copies: Copies,
    /// Held while what is kept of the disk is saved, so that no save overtakes another.
    saving: Mutex<()>,
}

/// What is kept of a disk over a power loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durable {
    /// Mode parameters, where they were saved (SP).
    pub mode: Option<ModeValues>,
    /// Persistent reservations, where an initiator asked for it (APTPL).
    pub reservations: Option<SavedReservations>,
}

impl Shared {
    /// What was kept comes back, before anybody sees the disk.
    pub fn restore(&self, kept: &Durable) {
        if let Some(mode) = kept.mode {
            self.mode.restore(mode);
        }
        if let Some(reservations) = &kept.reservations {
            self.reservations.restore(reservations);
        }
    }

    /// Keeps other changes of what is saved away until it is dropped, so that no save overtakes another.
    pub(crate) fn saving(&self) -> MutexGuard<'_, ()> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Thin provisioning (SBC-3 4.7): unmapped blocks read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisioning {
    /// Bytes that are given memory together: unmapping less frees nothing.
    pub granularity_bytes: u32,
}

impl Disk {
    /// MAXIMUM TRANSFER LENGTH of the block limits page, bytes: bounds what one command moves.
    pub const TRANSFER_BYTES_MAX: u32 = 64 << 20;

    /// Whether writes are refused, by the store or by an initiator.
    #[must_use]
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.shared.mode.values().write_protected
    }

    /// Whether a write is to be on stable storage before it is acknowledged, without being asked (WCE is 0).
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

    /// An identifier of 60 bits that follows from the names: the same disk gets it again after a restart.
    #[must_use]
    pub fn designator(&self) -> u64 {
        let text = [self.identity.target_name.as_bytes(), b"\0", self.identity.serial.as_bytes()].concat();
        fnv_1a(text) >> 4
    }
}

/// The 64-bit FNV-1a hash: identifiers made with it stay the same across versions.
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
            target_name: "iqn.2026-11.example:t".into(),
        },
        block_bytes: 512,
        blocks: 2048,
        read_only: false,
        removable: false,
        is_rotational: false,
        is_durable: false,
        write_cache: false,
        provisioning: None,
        physical_exponent: 0,
        ports: Arc::default(),
        shared: Arc::default(),
    }
}
