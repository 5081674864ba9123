//! tgt, another target, for a test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{IQN, tool};

/// tgt on a port of its own with one target; ended when dropped.
pub struct Tgt {
    pub port: u16,
    child: Child,
    control: String,
}

impl Tgt {
    /// Starts tgt with this file as LUN 1.
    pub fn start(image: &Path) -> Self {
        // Below the ephemeral ports, in a range of this process.
        let port = 20_000 + (std::process::id() % 10_000) as u16;
        // tgt keeps it in 15 bits.
        let control = (port - 10_000).to_string();
        let child = Command::new("tgtd")
            .args(["-f", "-C", &control, "--iscsi", &format!("portal=127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tgtd; `make setup` installs it");
        let tgt = Self { port, child, control };
        let began = Instant::now();
        while !tgt.admin(&["--mode", "target", "--op", "new", "--tid", "1", "-T", IQN]) {
            assert!(began.elapsed() < Duration::from_secs(20), "tgtd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        let image = image.to_str().expect("UTF-8");
        let unit = ["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", image];
        assert!(tgt.admin(&unit), "LUN 1");
        assert!(
            tgt.admin(&["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"]),
            "every initiator"
        );
        tgt
    }

    /// Runs tgtadm, and returns whether it succeeded.
    pub fn admin(&self, arguments: &[&str]) -> bool {
        let all = [&["-C", &self.control, "--lld", "iscsi"], arguments].concat();
        tool("tgtadm", &all).status.success()
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
