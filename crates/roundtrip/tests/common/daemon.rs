//! A server program of a test, on an address that no other test has.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit for a server to listen: a database makes its files first.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; ended with SIGTERM when dropped.
pub struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts a program and waits until it listens on this address.
    pub fn start(command: &mut Command, address: SocketAddr) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{program}: {e}; `make setup` installs it"));
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = child.try_wait().expect("its state") {
                panic!("{program} ended with {status} before it listened on {address}");
            }
            assert!(began.elapsed() < PATIENCE, "{program} does not listen on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}
