//! The privileges of `roundtrip target` while it serves: user, capabilities, files and system calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::IQN;
use iscsi::initiator::Direction;
use load::initiator::session::{Session, SessionOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A target that logs its life cycle; killed when dropped.
struct Served {
    address: String,
    child: Child,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut child = common::roundtrip()
            .env("ROUNDTRIP_LOG", "info")
            .args(["target", "--portal", "127.0.0.1:0", "--iqn", IQN])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.split_whitespace().nth(1) else {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("not ready: '{line}' {text}");
        };
        Self { address: address.to_owned(), child }
    }

    fn session(&self, lun: u16) -> Session {
        let url = format!("iscsi://{}/{IQN}/{lun}", self.address);
        let mut session = Session::open(&url.parse().unwrap(), &SessionOptions::default()).unwrap();
        // The unit attention of a new session.
        let _ = session.command([0; 16], Direction::None);
        session
    }

    /// The capacity of a disk, blocks; `None` if the disk does not exist.
    fn blocks(&self, lun: u16) -> Option<u32> {
        let mut cdb = [0; 16];
        cdb[0] = 0x25;
        let reply = self.session(lun).command(cdb, Direction::In(8)).unwrap();
        (reply.status == 0).then(|| u32::from_be_bytes(reply.data[..4].try_into().unwrap()) + 1)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// The threads by name, each with the fields of /proc/PID/task/TID/status.
    fn threads(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let statuses = tasks.map(|task| {
            let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
        });
        statuses.map(|status: BTreeMap<String, String>| (status["Name"].clone(), status)).collect()
    }

    /// Ends it and returns its stderr.
    fn stop(mut self) -> String {
        self.signal(Signal::SIGTERM);
        let status = common::wait(&mut self.child, Duration::from_secs(10));
        assert!(status.success(), "{status}");
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a block and reads it back.
fn write_and_read(session: &mut Session) {
    let (mut cdb, block) = ([0; 16], [7; 4096]);
    (cdb[0], cdb[8]) = (0x2a, 8);
    let reply = session.write(cdb, &block).unwrap();
    assert_eq!(reply.status, 0, "{:x?}", reply.sense);
    cdb[0] = 0x28;
    let reply = session.command(cdb, Direction::In(4096)).unwrap();
    assert!(reply.status == 0 && reply.data == block, "{:x?}", reply.sense);
}

/// The line of the log about the restrictions in force.
fn in_force(log: &str) -> &str {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("sandbox: user")).collect();
    let [line] = lines[..] else { panic!("not one line: {log}") };
    line
}

#[test]
fn confines_every_thread_and_logs_the_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("0=file:{},size=8M,direct", folder.path().join("disk").display());
    for (mode, filter) in [("on", "2"), ("off", "0")] {
        let target = Served::start(&["--lun", &disk, "--sandbox", mode]);
        let mut session = target.session(0);
        write_and_read(&mut session);
        let until = Instant::now() + Duration::from_secs(10);
        // A thread has its name once it runs, which on a busy machine may be later than the first command.
        let threads = loop {
            let threads = target.threads();
            if threads.contains_key("portal") && threads.contains_key("loop 0") {
                break threads;
            }
            assert!(Instant::now() < until, "{:?}", threads.keys());
            std::thread::sleep(Duration::from_millis(5));
        };
        // The program, the portal, the connections, and what waits for the disk: the ring, or a thread of the pool.
        assert!(threads.keys().any(|name| name.starts_with("disk")), "{:?}", threads.keys());
        for (name, status) in &threads {
            assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("1", filter), "{mode}: {name}");
            // The capabilities kept to open files of other users; neither CAP_SYS_ADMIN nor CAP_NET_RAW.
            let capabilities = u64::from_str_radix(&status["CapEff"], 16).unwrap();
            let expected = (1 << 1) | (1 << 14);
            assert!(mode == "off" || capabilities & !expected == 0, "{name}: {capabilities:x}");
        }
        drop(session);
        let log = target.stop();
        let line = in_force(&log);
        assert!(line.contains("no_new_privs"), "{line}");
        assert_eq!(line.contains("calls allowed"), mode == "on", "{line}");
    }
}

#[test]
fn changes_the_user_of_every_thread_without_capabilities() {
    if !testing::require_root("--user") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Another user has to reach the state folder.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let disk = format!("0=file:{},size=8M,direct", path("disk"));
    let start = ["--lun", &disk, "--user", "65534:65533"];
    let target = Served::start(&[&start[..], &["--state", &path("state")]].concat());
    let mut session = target.session(0);
    write_and_read(&mut session);
    // PERSISTENT RESERVE OUT, REGISTER with APTPL: it is in the state folder before it is answered.
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x5f, 24);
    let mut parameters = [0; 24];
    (parameters[15], parameters[20]) = (1, 1);
    let reply = session.write(cdb, &parameters).unwrap();
    assert_eq!(reply.status, 0, "{:x?}", reply.sense);
    let kept = std::fs::read_dir(path("state")).unwrap().next().unwrap().unwrap();
    assert_eq!((kept.metadata().unwrap().uid(), kept.metadata().unwrap().gid()), (65534, 65533));
    for (name, status) in target.threads() {
        let ids = |key: &str| status[key].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((ids("Uid"), ids("Gid")), (vec!["65534".to_owned(); 4], vec!["65533".to_owned(); 4]));
        assert_eq!(ids("Groups"), ["65533"], "{name}");
        for key in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&status[key], 16), Ok(0), "{name}: {key}");
        }
    }
    drop(session);
    let log = target.stop();
    assert!(in_force(&log).contains("user 65534:65533"), "{log}");
    // A state folder of root's.
    std::fs::create_dir(path("roots")).unwrap();
    let output =
        common::roundtrip().arg("target").args(start).args(["--state", &path("roots")]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write it") && stderr.contains("roots"), "{stderr}");
}

#[test]
fn refuses_users_that_do_not_exist_root_and_changes_without_root() {
    for (user, word) in [("no-such-user", "no user 'no-such-user'"), ("root", "root keeps all privileges")] {
        let output = common::roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M", "--user", user])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(word), "{stderr}");
    }
    let mut command = common::roundtrip();
    if nix::unistd::geteuid().is_root() {
        let program = command.get_program().to_owned();
        command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups"]).arg(program);
    }
    let output = match command.args(["target", "--lun", "0=ram:1M", "--user", "65533:65533"]).output() {
        Ok(output) => output,
        Err(error) => panic!("setpriv: {error}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !testing::require("a checkout that other users can reach", !stderr.contains("failed to execute")) {
        return;
    }
    assert!(output.status.code() == Some(2) && stderr.contains("only root"), "{stderr}");
}

/// Whether the kernel confines files here.
fn has_landlock() -> bool {
    let target = Served::start(&["--lun", "0=ram:1M"]);
    let log = target.stop();
    testing::require("a kernel with Landlock", in_force(&log).contains("Landlock ABI"))
}

#[test]
fn a_reload_opens_disks_in_allowed_folders_only() {
    if !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in ["etc", "disks", "other"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let file = path("etc/target.toml");
    // As editors do: another file of the same name.
    let write = |luns: &str| {
        std::fs::write(path("etc/new"), format!("[luns]\n0 = 'ram:1M'\n{luns}")).unwrap();
        std::fs::rename(path("etc/new"), &file).unwrap();
    };
    let until = |target: &Served, lun: u16, blocks: Option<u32>| {
        let deadline = Instant::now() + Duration::from_secs(5);
        while target.blocks(lun) != blocks {
            assert!(Instant::now() < deadline, "LUN {lun}: {:?} instead of {blocks:?}", target.blocks(lun));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let first = format!("1 = 'file:{},size=1M'\n", path("other/first"));
    write(&first);
    let target = Served::start(&["--config", &file, "--disks", &path("disks")]);
    until(&target, 1, Some(2048));
    let inside = format!("{first}2 = 'file:{},size=2M'\n", path("disks/second"));
    write(&inside);
    target.signal(Signal::SIGHUP);
    until(&target, 2, Some(4096));
    write_and_read(&mut target.session(2));
    // One that is there, and one that a link makes look as if it were inside.
    std::fs::write(path("other/third"), [0; 4096]).unwrap();
    std::os::unix::fs::symlink(path("other/third"), path("disks/link")).unwrap();
    for outside in ["other/third", "disks/link"] {
        write(&format!("{inside}3 = 'file:{}'\n", path(outside)));
        target.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!([0, 1, 2, 3].map(|lun| target.blocks(lun)), [Some(2048), Some(2048), Some(4096), None]);
    }
    // A refused reload removes what it has made.
    write(&format!("{inside}3 = 'file:{},size=1M'\n4 = 'file:{}'\n", path("disks/new"), path("disks/none")));
    target.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(target.blocks(3).is_none() && !Path::new(&path("disks/new")).exists());
    // A disk of the start may change its size.
    write(&format!("1 = 'file:{},size=3M'\n", path("other/first")));
    target.signal(Signal::SIGHUP);
    until(&target, 1, Some(6144));
    assert_eq!(target.blocks(2), None);
    let log = target.stop();
    for outside in ["other/third", "disks/link"] {
        let reason = format!("LUN 3 of {IQN}: {}: outside the folders", path(outside));
        assert!(log.contains(&reason) && log.contains("--disks"), "{log}");
    }
}

/// A configuration is often a link that is replaced as a whole.
#[test]
fn a_link_to_the_configuration_can_be_replaced_by_a_file() {
    if !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let settings = |mebibytes: u32| format!("[luns]\n0 = 'ram:{mebibytes}M'\n");
    for (name, mebibytes) in [("first", 1), ("later", 3)] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(name).join("target.toml"), settings(mebibytes)).unwrap();
    }
    std::fs::create_dir(path("etc")).unwrap();
    let link = path("etc/target.toml");
    std::os::unix::fs::symlink(path("first/target.toml"), &link).unwrap();
    let target = Served::start(&["--config", link.to_str().unwrap()]);
    let reload = |blocks: u32| {
        target.signal(Signal::SIGHUP);
        let deadline = Instant::now() + Duration::from_secs(5);
        while target.blocks(0) != Some(blocks) {
            assert!(Instant::now() < deadline, "{:?} instead of {blocks}", target.blocks(0));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    std::fs::remove_file(&link).unwrap();
    std::fs::write(&link, settings(2)).unwrap();
    reload(4096);
    // A link that leads to a folder that it did not lead to at the start is refused, and says so.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(path("later/target.toml"), &link).unwrap();
    target.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(target.blocks(0), Some(4096));
    let log = target.stop();
    assert!(log.contains("reload failed") && log.contains("Permission denied"), "{log}");
}

#[test]
fn reports_unavailable_restrictions_and_stops_if_required() {
    // The filter holds for this thread and what it starts.
    std::thread::spawn(|| {
        let denied = seccompiler::SeccompAction::Errno(nix::errno::Errno::ENOSYS as u32);
        let rules = [(nix::libc::SYS_landlock_create_ruleset, Vec::new())].into_iter().collect();
        let allow = seccompiler::SeccompAction::Allow;
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = seccompiler::SeccompFilter::new(rules, allow, denied, architecture).unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        let target = Served::start(&["--lun", "0=ram:1M"]);
        write_and_read(&mut target.session(0));
        let log = target.stop();
        assert!(log.contains("WARN") && log.contains("Landlock is not available"), "{log}");
        assert!(in_force(&log).contains("no Landlock"), "{log}");
        let arguments = ["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M", "--sandbox", "require"];
        let mut child = common::roundtrip().args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let status = common::wait(&mut child, Duration::from_secs(10));
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(!status.success() && stderr.contains("Landlock is not available"), "{stderr}");
    })
    .join()
    .unwrap();
}

#[test]
fn a_folder_for_disks_must_exist() {
    let missing = Path::new("/no/such/folder").display().to_string();
    let output =
        common::roundtrip().args(["target", "--lun", "0=ram:1M", "--disks", &missing]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && stderr.contains("--disks /no/such/folder"), "{stderr}");
}

/// Many systems allow a process 1024 open files unless it asks for more.
#[test]
fn the_limit_of_open_files_is_raised_for_the_connections() {
    let program = common::roundtrip().get_program().to_owned();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "ulimit -S -n 64; exec \"$0\" target --portal 127.0.0.1:0 --lun 0=ram:1M"])
        .arg(program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(line.starts_with("ready") && soft >= 2 * 1024 + 256, "{files}");
}
