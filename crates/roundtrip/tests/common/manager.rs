//! A target under a service manager, which holds its listening socket and, over a restart, its sessions.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::IQN;

/// A script beside this file.
pub fn script(name: &str) -> String {
    format!("{}/tests/common/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A service manager (service.py), and what it prints.
pub struct Manager {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    input: Option<ChildStdin>,
    /// Where the portal is, and the first process.
    pub address: String,
    pub pid: String,
}

impl Manager {
    pub fn start(address: &str, arguments: &[&str]) -> Self {
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut process = Command::new("python3")
            .args([&script("service.py"), host, port, env!("CARGO_BIN_EXE_roundtrip"), "target"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let input = process.stdin.take();
        let mut manager = Self { process, lines, input, address: String::new(), pid: String::new() };
        let listening = manager.until("listening ");
        let words: Vec<&str> = listening.split(' ').collect();
        (manager.address, manager.pid) = (words[1].to_owned(), words[3].to_owned());
        manager.until("READY=1");
        manager
    }

    /// Returns the next line that begins so.
    pub fn until(&mut self, start: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}"))
    }

    pub fn url(&self) -> String {
        format!("iscsi://{}/{IQN}/0", self.address)
    }

    /// Has the program restarted; returns how many descriptors were in the store between.
    pub fn restart(&mut self, how: &str) -> usize {
        writeln!(self.input.as_mut().unwrap(), "{how}").unwrap();
        let stored = self.until("stored ")["stored ".len()..].parse().unwrap();
        self.until("READY=1");
        stored
    }

    /// Has the program restarted, and again when it has failed and `mend` was called; returns how it failed.
    pub fn fail(&mut self, mend: impl FnOnce()) -> String {
        writeln!(self.input.as_mut().unwrap(), "fail").unwrap();
        let failed = self.until("failed ");
        mend();
        writeln!(self.input.as_mut().unwrap(), "start").unwrap();
        self.until("READY=1");
        failed
    }

    pub fn stop(mut self) {
        drop(self.input.take());
        self.until("STOPPING=1");
        assert_eq!(self.until("ended"), "ended 0");
        self.process.wait().unwrap();
    }
}
