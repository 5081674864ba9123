//! The mode parameters that initiators can change (SPC-4 7.5, SBC-3 6.5).

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

/// The changeable values: on the control page, and on the caching page of a disk with a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeValues {
    /// SWP: writes are rejected.
    pub write_protected: bool,
    /// D_SENSE: sense data has the descriptor format.
    pub descriptor_sense: bool,
    /// WCE is 0 on a disk with a volatile cache: a write is acknowledged when it is on stable storage.
    #[serde(default)]
    pub write_through: bool,
}

/// The mode parameters of a disk, one set for all initiators.
#[derive(Debug, Default)]
pub struct ModeParameters {
    current: AtomicU8,
    /// The saved values, with [`ModeValues::PRESENT`] set if there are any.
    saved: AtomicU8,
}

impl ModeValues {
    const PROTECTED: u8 = 1;
    const DESCRIPTOR: u8 = 2;
    const PRESENT: u8 = 4;
    const THROUGH: u8 = 8;

    fn bits(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.write_protected, Self::PROTECTED)
            | bit(self.descriptor_sense, Self::DESCRIPTOR)
            | bit(self.write_through, Self::THROUGH)
    }

    fn of(bits: u8) -> Self {
        let has = |bit: u8| bits & bit != 0;
        Self {
            write_protected: has(Self::PROTECTED),
            descriptor_sense: has(Self::DESCRIPTOR),
            write_through: has(Self::THROUGH),
        }
    }
}

impl ModeParameters {
    /// The current values.
    #[inline]
    #[must_use]
    pub fn values(&self) -> ModeValues {
        ModeValues::of(self.current.load(Ordering::Relaxed))
    }

    /// The saved values, if any were saved.
    #[must_use]
    pub fn saved(&self) -> Option<ModeValues> {
        let bits = self.saved.load(Ordering::Relaxed);
        (bits & ModeValues::PRESENT != 0).then_some(ModeValues::of(bits))
    }

    /// Restores saved values.
    pub(crate) fn restore(&self, values: ModeValues) {
        self.save(values);
        self.current.store(values.bits(), Ordering::Relaxed);
    }

    /// Makes values current. Returns whether any of them changed.
    pub(crate) fn set(&self, values: ModeValues) -> bool {
        self.current.swap(values.bits(), Ordering::Relaxed) != values.bits()
    }

    /// Records the saved values.
    pub(crate) fn save(&self, values: ModeValues) {
        self.saved.store(values.bits() | ModeValues::PRESENT, Ordering::Relaxed);
    }
}
