//! A target of this build that a program for measurements starts, and what it uses.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The name of its target.
pub(crate) const IQN: &str = "iqn.2026-11.example.roundtrip:bench";

/// A running target; ended when dropped.
pub(crate) struct Served {
    /// Its first portal.
    pub(crate) address: String,
    child: Child,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    /// Memory that belongs to it alone, bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    /// CPU time so far, seconds.
    pub(crate) cpu_s: f64,
}

impl Served {
    /// Starts `roundtrip target` with these arguments, and a free port of loopback.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(built("roundtrip"))
            .args(["target", "--portal", "127.0.0.1:0", "--iqn", IQN])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_whitespace().nth(1).expect("the target did not start").to_owned();
        Self { address, child }
    }

    pub(crate) fn url(&self, lun: u16) -> load::initiator::IscsiUrl {
        format!("iscsi://{}/{IQN}/{lun}", self.address).parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn uses(&self) -> Uses {
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let status = read("status");
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0)
        };
        let stat = read("stat");
        let ticks: Vec<f64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        Uses {
            memory_bytes: field("RssAnon:") << 10,
            threads: field("Threads:"),
            descriptors: std::fs::read_dir(folder.join("fd")).unwrap().count() as u64,
            // The state, the first field, is no number: utime and stime are the 14th and 15th of all.
            cpu_s: (ticks[10] + ticks[11]) / 100.0,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program of this build: this is target/PROFILE/examples/NAME.
fn built(name: &str) -> PathBuf {
    let examples = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    examples.parent().unwrap().join(name)
}
