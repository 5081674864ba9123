//! Capture settings of a study, and limits of what it keeps.

use capture::LiveConfig;

/// Memory of one capture's ring, bytes: half a second of a saturated gigabit.
const RING_BYTES: usize = 48 << 20;

/// Operations kept per run; bounds the memory of a study.
pub(crate) const OPERATIONS_MAX: usize = 1_000_000;

/// Operations whose records are fetched from another host.
pub(crate) const REMOTE_OPERATIONS_MAX: usize = 400_000;

/// The capture of a port on an interface.
pub(crate) fn capture_of(interface: &str, port: u16) -> LiveConfig {
    LiveConfig {
        interface: interface.to_owned(),
        port,
        ring_bytes: RING_BYTES,
        snap_bytes: LiveConfig::SNAP_NOTHING,
    }
}
