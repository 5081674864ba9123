//! Shared by the behaviour tests: a target in a process of its own, and programs run to their end.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part")]

pub mod ceph;
pub mod daemon;
pub mod guest;
pub mod host;
pub mod live;
pub mod manager;
pub mod nbd;
pub mod nginx;
pub mod references;
pub mod tgt;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const IQN: &str = "iqn.2026-11.example.roundtrip:test";

pub fn roundtrip() -> Command {
    Command::new(env!("CARGO_BIN_EXE_roundtrip"))
}

/// Waits until the process has this many sockets: when all sessions of a load are there.
pub fn until_sockets(pid: u32, count: usize) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:")).count();
        if sockets >= count {
            return;
        }
        assert!(Instant::now() < until, "{sockets} of {count} sockets");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A target process; killed when dropped.
pub struct Target {
    pub address: String,
    child: Child,
}

impl Target {
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--iqn", IQN])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the target starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", address, IQN] = words[..] else {
            let mut text = String::new();
            let _ = child.stderr.as_mut().expect("piped").read_to_string(&mut text);
            panic!("'{line}' {text}");
        };
        Self { address: address.to_owned(), child }
    }

    pub fn url(&self, lun: u16) -> String {
        format!("iscsi://{}/{IQN}/{lun}", self.address)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it runs").is_some()
    }

    /// Makes it reload its configuration.
    pub fn hang_up(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).expect("it runs");
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    /// Ends it as a service manager would, and returns its stderr.
    pub fn stop(mut self) -> String {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).expect("it runs");
        let status = wait(&mut self.child, Duration::from_secs(10));
        assert!(status.success(), "SIGTERM must end the target cleanly: {status}");
        let mut text = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `roundtrip serve`, until it is dropped.
pub struct Served {
    pub child: Child,
    pub address: String,
}

impl Served {
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = roundtrip()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("ready ").expect("it listens").to_owned();
        Self { child, address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server that prints `ready ADDRESS` first.
pub fn ready(arguments: &[&str]) -> Served {
    let mut child =
        roundtrip().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    let Some(address) = line.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next()) else {
        let mut text = String::new();
        let _ = child.stderr.as_mut().expect("piped").read_to_string(&mut text);
        panic!("{arguments:?}: '{line}' {text}");
    };
    let address = address.to_owned();
    Served { child, address }
}

/// Waits for a process, at most this long.
pub fn wait(child: &mut Child, limit: Duration) -> std::process::ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("waiting") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Stops a process (SIGSTOP), and waits until each of its threads stands still: the signal is heard by one of them first.
pub fn stand_still(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let stands = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
        stat.is_ok_and(|stat| {
            stat.rsplit(')').next().is_some_and(|behind| behind.trim_start().starts_with('T'))
        })
    };
    while !std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(stands) {
        assert!(Instant::now() < until, "process {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a program that must be installed; `make test` sees to that.
pub fn tool(program: &str, arguments: &[&str]) -> Output {
    // A program that takes longer hangs.
    within("60", program, arguments)
}

fn within(seconds: &str, program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg(seconds)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// Runs a program that must succeed, and returns its output.
pub fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = tool(program, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {} (127: not installed; `make setup` installs it)\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout) + &text(&output.stderr)
}

/// Reads and writes 4096 bytes this often with QEMU's own initiator, which has some commands of its own beside them, the same each time.
pub fn qemu_io(url: &str, reads: usize, writes: usize) {
    let commands = |count, command| std::iter::repeat_n(["-c", command], count).flatten();
    let mut words = vec!["-f", "raw", "-t", "none"];
    words.extend(commands(reads, "read 0 4096").chain(commands(writes, "write 8192 4096")));
    words.push(url);
    succeed("qemu-io", &words);
}

/// Runs `roundtrip bench` and returns its JSON.
pub fn bench(url: &str, arguments: &[&str]) -> serde_json::Value {
    let output = roundtrip().args(["bench", url, "--json"]).args(arguments).output().expect("bench");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn random_file(path: &Path, bytes: usize) {
    let mut data = vec![0; bytes];
    fastrand::Rng::with_seed(1).fill(&mut data);
    std::fs::write(path, data).expect("writing");
}

/// Tests that contradict the standards: docs/compliance.md proves it from both texts.
pub const UNMAP_SINGLE: &str = "GetLBAStatus.UnmapSingle";
pub const UNMAP_UNTIL_END: &str = "WriteSame10.UnmapUntilEnd";

/// A test that expects no unit attention of the cold resets that ran before it; alone it passes.
#[allow(dead_code, reason = "not every test program runs the suite")]
pub const PREVENT_TWO_NEXUSES: &str = "PreventAllow.2ITNexuses";

/// Runs a family of libiscsi's own test suite: all its tests pass except those in `contradict`. Returns the number of
/// lines that report a missing feature.
#[track_caller]
pub fn suite_passes_but(contradict: &[&str], family: &str, urls: &[&str]) -> usize {
    let arguments = [&["-d", "--allow-sanitize", "-n", "-t", family], urls].concat();
    // On disks across a network it takes half a minute where nothing else runs.
    let output = within("300", "iscsi-test-cu", &arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tests = text.lines().find(|line| line.trim_start().starts_with("tests ")).unwrap_or_default();
    let counts: Vec<u32> = tests.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [_, ran, passed, failed, ..] = counts[..] else { panic!("{family}: no summary in {text}") };
    assert!(ran > 0 && passed + failed == ran, "{family} {urls:?}: {text}");
    let failure = |line: &str| {
        let names = line.strip_prefix("Suite ")?.strip_suffix(" had failures:")?;
        Some(names.replace(", Test ", "."))
    };
    let wrong: Vec<String> = text.lines().filter_map(failure).collect();
    assert_eq!(wrong, contradict, "{family} {urls:?}: {text}");
    text.matches("[SKIPPED]").count()
}

/// The exit code of a study with these stanzas. Beside other tests the machine may be disturbed: at every point, or so much that the
/// service times are longer than the time at queue depth 1, which is a contradiction. Any other failed closure is a defect.
#[allow(dead_code, reason = "not every test file has studies")]
#[track_caller]
pub fn code_of_study(stanzas: &serde_json::Value) -> i32 {
    let stanzas = stanzas.as_array().unwrap();
    let outcome = |stanza: &serde_json::Value| stanza["closure"]["outcome"].as_str().unwrap().to_owned();
    let failed: Vec<_> = stanzas.iter().filter(|stanza| outcome(stanza) == "fails").collect();
    for stanza in &failed {
        let reasons = stanza["closure"]["reasons"].to_string();
        let is_known = reasons.contains("contradiction: ") || reasons.contains("its service times come from");
        assert!(is_known, "{reasons}");
    }
    i32::from(!failed.is_empty() || stanzas.iter().all(|stanza| outcome(stanza) == "unreliable"))
}

/// The records of a CSV file of operations, by column.
pub fn records(file: &Path) -> Vec<std::collections::HashMap<String, String>> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        heading.iter().map(ToString::to_string).zip(line.split(',').map(str::to_owned)).collect()
    };
    lines.map(row).collect()
}
