//! Capabilities of the calling thread, which its threads inherit.

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{SandboxError, failed};

/// Operations of a process that need capabilities when it runs as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) change_user: bool,
    pub(crate) low_port: bool,
    pub(crate) tune_network: bool,
}

impl Needs {
    /// Opening other users' files, registered memory of io_uring, binding, changing the user.
    pub(crate) fn for_start(self) -> CapabilitySet {
        let mut set = Self::for_reloads();
        set.set(CapabilitySet::SETUID | CapabilitySet::SETGID, self.change_user);
        set.set(CapabilitySet::NET_BIND_SERVICE, self.low_port);
        set.set(CapabilitySet::NET_ADMIN, self.tune_network);
        set
    }

    /// Opening other users' files, and registered memory of io_uring.
    pub(crate) fn for_reloads() -> CapabilitySet {
        CapabilitySet::DAC_OVERRIDE | CapabilitySet::IPC_LOCK
    }
}

/// No capability.
pub(crate) fn none() -> CapabilitySet {
    CapabilitySet::empty()
}

/// Removes all other capabilities from the bounding set. `no_new_privs` already keeps a program from gaining any; the removal
/// needs CAP_SETPCAP, which an ordinary user lacks.
pub(crate) fn limit_bounding(keep: CapabilitySet) {
    let bits = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    for one in bits.filter(|&one| !keep.contains(one)) {
        let _ = rustix::thread::remove_capability_from_bounding_set(one);
    }
}

/// Drops all other capabilities irreversibly.
pub(crate) fn limit(keep: CapabilitySet) -> Result<(), SandboxError> {
    let io = |error: rustix::io::Errno| failed("capabilities", error.into());
    let _ = rustix::thread::clear_ambient_capability_set();
    let now = rustix::thread::capabilities(None).map_err(io)?;
    let permitted = now.permitted & keep;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: none() };
    rustix::thread::set_capabilities(None, sets).map_err(io)
}

/// The capabilities of the calling thread, for the log.
pub(crate) fn describe() -> String {
    match rustix::thread::capabilities(None) {
        Ok(sets) if sets.permitted.is_empty() => "none".to_owned(),
        Ok(sets) => {
            let names = sets.permitted.iter_names().map(|(name, _)| name.to_lowercase());
            names.collect::<Vec<_>>().join("+")
        }
        Err(_) => "unknown".to_owned(),
    }
}
