//! The open files that the connections of a target need: many systems allow a process 1024 unless it asks for more.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a target needs besides its connections: portals, disks, rings, event loops.
const OTHERS: u64 = 256;

/// The soft limit to set, and whether the hard one allows what is needed.
fn limit_for(connections: u64, soft: u64, hard: u64) -> (u64, bool) {
    // A connection has a socket, and a descriptor that wakes its thread if it has one. Four times as many wait for admission at most.
    let needed = connections.saturating_mul(2).saturating_add(OTHERS);
    let wanted = connections.saturating_mul(6).saturating_add(OTHERS);
    (soft.max(wanted.min(hard)), needed <= hard.max(soft))
}

/// Raises the limit of open files as far as the connections need; the log says if it stays below.
pub fn provide(connections: usize) {
    let set = || -> nix::Result<()> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let (wanted, is_enough) = limit_for(connections as u64, soft, hard);
        if !is_enough {
            tracing::warn!(
                "{hard} files may be open, which is too few for connections={connections}: raise the limit (LimitNOFILE= of systemd, \
                 ulimit -n)"
            );
        }
        if wanted > soft {
            setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
        }
        Ok(())
    };
    if let Err(error) = set() {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_allowed() {
        assert_eq!(limit_for(1024, 1024, 524_288), (6400, true));
        assert_eq!(limit_for(10_000, 1024, 30_000), (30_000, true));
        assert_eq!(limit_for(10_000, 1024, 4096), (4096, false));
        assert_eq!(limit_for(100, 1024, 1024), (1024, true), "never lowered");
        assert_eq!(limit_for(u64::MAX, 1024, u64::MAX), (u64::MAX, true));
    }
}
