//! Ctrl-C and SIGTERM as a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};

/// Makes a write beyond the file size limit (RLIMIT_FSIZE) fail with EFBIG instead of ending the process.
pub(crate) fn survive_file_size_limit() -> std::io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Raised by SIGINT, SIGTERM or SIGHUP. A second signal ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn on_signals() -> std::io::Result<Self> {
        Self::on(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// A stop flag raised by SIGINT or SIGTERM, and a second flag raised by each SIGHUP.
    pub(crate) fn and_hangup() -> std::io::Result<(Self, Arc<AtomicBool>)> {
        let hangup = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&hangup))?;
        Ok((Self::on(&[SIGINT, SIGTERM])?, hangup))
    }

    /// A flag raised by each SIGUSR1, which would end the process.
    pub(crate) fn user_signal() -> std::io::Result<Arc<AtomicBool>> {
        let raised = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&raised))?;
        Ok(raised)
    }

    fn on(signals: &[i32]) -> std::io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            // Registered first, so that it acts only if the flag is already raised, on the second signal.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
