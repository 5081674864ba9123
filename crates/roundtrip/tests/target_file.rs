//! `roundtrip target --config`: changes of disks and access while the target serves, seen by real clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Target, random_file, succeed};
use iscsi::initiator::Direction;
use load::initiator::session::{Session, SessionOptions};

/// The logical units that a client finds, once there are `count` of them.
fn luns(target: &Target, count: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        // It aborts if a disk changes during the scan; the unit attention that reports the change is not a failure.
        let output = common::tool("iscsi-ls", &["-s", &format!("iscsi://{}", target.address)]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && text.matches("Lun:").count() == count {
            return text;
        }
        assert!(Instant::now() < deadline, "{count} are to be there: {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn reload_changes_disks_and_an_invalid_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let disk = folder.path().join("disk").display().to_string();
    let write =
        |luns: &str| std::fs::write(&file, format!("state = '{disk}.state'\n[luns]\n{luns}")).unwrap();
    write("0 = 'ram:1M'\n");
    let disks = folder.path().to_str().unwrap();
    let options = ["--config", file.to_str().unwrap(), "--limit", "sessions=16", "--disks", disks];
    let target = Target::start(&options);
    luns(&target, 1);
    write(&format!("0 = 'ram:2M'\n3 = 'file:{disk},size=8M'\n"));
    target.hang_up();
    let text = luns(&target, 2);
    assert!(text.contains("Lun:3"), "{text}");
    let capacity = succeed("iscsi-readcapacity16", &[&target.url(0)]);
    assert!(capacity.contains("Total size:2097152"), "{capacity}");
    // A file keeps what is written to it.
    let image = folder.path().join("image");
    random_file(&image, 8 << 20);
    let image = image.to_str().unwrap();
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &target.url(3)]);
    write("3 = 'floppy:1M'\n");
    target.hang_up();
    std::thread::sleep(Duration::from_millis(300));
    luns(&target, 2);
    let stderr = target.stop();
    assert!(stderr.contains("floppy"), "{stderr}");
    assert!(std::fs::read(&disk).unwrap() == std::fs::read(image).unwrap());
}

#[test]
fn a_limit_that_does_not_exist_is_named() {
    let output =
        common::roundtrip().args(["target", "--lun", "0=ram:1M", "--limit", "sesions=1"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("'sesions' is not a limit") && stderr.contains("connections_per_address"),
        "{stderr}"
    );
}

/// Repeats a command until no unit attention precedes it, and returns the number of unit attentions.
fn drain_attentions(run: &mut dyn FnMut() -> (u8, Vec<u8>, Vec<u8>)) -> (Vec<u8>, u32) {
    for attentions in 0..8 {
        let (status, sense, data) = run();
        if status == 0 {
            return (data, attentions);
        }
        assert_eq!((status, sense[2] & 15), (2, 6), "only unit attentions: {sense:x?}");
    }
    panic!("unit attentions without end");
}

/// A disk under load while others are added, removed and resized, and it is resized itself: operations fail only with the
/// unit attention of a change, everything reads back, and no session is dropped.
#[test]
fn disks_change_under_load_and_no_session_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let write = |luns: &str| std::fs::write(&file, format!("[luns]\n{luns}")).unwrap();
    write("0 = 'ram:4M'\n");
    let target = Target::start(&["--config", file.to_str().unwrap()]);
    let until = Instant::now() + Duration::from_millis(2500);
    let load = &|number: u16| {
        let options = SessionOptions { session_number: number, ..SessionOptions::default() };
        let mut session = Session::open(&target.url(0).parse().unwrap(), &options).unwrap();
        let (mut done, mut attentions) = (0, 0);
        while Instant::now() < until {
            let mut cdb = [0; 16];
            (cdb[4], cdb[5], cdb[8]) = (number as u8 + 1, (done % 200) as u8, 1);
            let block = [(done % 251) as u8; 512];
            cdb[0] = 0x2a;
            let (_, before) = drain_attentions(&mut || {
                let reply = session.write(cdb, &block).unwrap();
                (reply.status, reply.sense, Vec::new())
            });
            cdb[0] = 0x28;
            let (there, between) = drain_attentions(&mut || {
                let reply = session.command(cdb, Direction::In(512)).unwrap();
                (reply.status, reply.sense, reply.data)
            });
            assert!(there == block, "what was written a moment ago");
            done += 1;
            attentions += before + between;
        }
        (done, attentions)
    };
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..3).map(|number| scope.spawn(move || load(number))).collect();
        for round in 1..12 {
            std::thread::sleep(Duration::from_millis(150));
            let other = if round % 2 == 0 { "1 = 'ram:1M'\n" } else { "" };
            write(&format!("0 = 'ram:{}M'\n{other}2 = 'ram:{round}M'\n", 4 + round));
            target.hang_up();
        }
        for load in loads {
            let (done, attentions) = load.join().unwrap();
            assert!(
                done > 200 && (2..60).contains(&attentions),
                "{done} writes, {attentions} changes reported"
            );
        }
    });
    let stderr = target.stop();
    assert!(!stderr.contains("dropped") && !stderr.contains("reload failed"), "{stderr}");
}

/// A target with a configuration file that is written again and again.
struct Configured {
    folder: tempfile::TempDir,
    target: Target,
}

impl Configured {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("target.toml"), text).unwrap();
        let target = Target::start(&["--config", folder.path().join("target.toml").to_str().unwrap()]);
        Self { folder, target }
    }

    fn session(&self, initiator: &str) -> Result<Session, load::initiator::InitiatorError> {
        let url = self.target.url(0);
        let options = SessionOptions { initiator_name: initiator.to_owned(), ..SessionOptions::default() };
        Session::open(&url.parse().unwrap(), &options)
    }

    /// Makes the target reload another file, and waits.
    fn reload(&self, text: &str) {
        std::fs::write(self.folder.path().join("target.toml"), text).unwrap();
        self.target.hang_up();
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The content of the last block of a disk of 2 MiB.
fn last_block(session: &mut Session) -> Vec<u8> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[4], cdb[5], cdb[8]) = (0x28, 0x0f, 0xff, 1);
    drain_attentions(&mut || {
        let reply = session.command(cdb, Direction::In(512)).unwrap();
        (reply.status, reply.sense, reply.data)
    })
    .0
}

/// Fills the last block of a disk of 2 MiB with 5Ah.
fn write_last_block(session: &mut Session) {
    let mut cdb = [0; 16];
    (cdb[0], cdb[4], cdb[5], cdb[8]) = (0x2a, 0x0f, 0xff, 1);
    drain_attentions(&mut || {
        let reply = session.write(cdb, &[0x5a; 512]).unwrap();
        (reply.status, reply.sense, Vec::new())
    });
}

#[test]
fn a_refused_reload_changes_no_size_and_loses_no_data() {
    let configured = Configured::start("[luns]\n0 = 'ram:2M'\n1 = 'zero:1M'\n");
    let mut session = configured.session("iqn.2026-11.example:a").unwrap();
    write_last_block(&mut session);
    // The first disk could be made smaller, the second cannot be made larger.
    configured.reload("[luns]\n0 = 'ram:1M'\n1 = 'zero:2M'\n");
    assert_eq!(session.capacity().unwrap().blocks, 4096);
    assert_eq!(last_block(&mut session), [0x5a; 512]);
    configured.reload("[luns]\n0 = 'ram:2M'\n1 = 'zero:1M'\n");
    assert_eq!(last_block(&mut session), [0x5a; 512]);
    drop(session);
    let stderr = configured.target.stop();
    assert_eq!(stderr.matches("reload failed").count(), 1, "{stderr}");
    assert!(stderr.contains("LUN 1") && stderr.contains("keeping the old configuration"), "{stderr}");
}

/// An append-only file cannot be cut. The disk before it must not be cut either, as its data would not come back.
#[test]
fn no_disk_shrinks_if_another_one_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("append-only");
    std::fs::write(&path, vec![0; 2 << 20]).unwrap();
    let luns = |size: &str| format!("[luns]\n0 = 'ram:{size}'\n1 = 'file:{},size={size}'\n", path.display());
    let configured = Configured::start(&luns("2M"));
    let mut session = configured.session("iqn.2026-11.example:a").unwrap();
    write_last_block(&mut session);
    let change = |flag: &str| {
        let status = std::process::Command::new("chattr").arg(flag).arg(&path).status();
        status.is_ok_and(|status| status.success())
    };
    if !testing::require("chattr +a (root, and a file system that has it)", change("+a")) {
        return;
    }
    configured.reload(&luns("1M"));
    assert!(change("-a"));
    assert_eq!(last_block(&mut session), [0x5a; 512]);
    drop(session);
    let stderr = configured.target.stop();
    assert!(stderr.contains("reload failed: LUN 1") && stderr.contains("not permitted"), "{stderr}");
}

#[test]
fn a_file_size_limit_fails_writes_and_does_not_end_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let mut target = Target::start(&["--lun", &format!("0=file:{}", path.display())]);
    let limit = std::process::Command::new("prlimit")
        .args(["--fsize=1048576", "--pid", &target.id().to_string()])
        .status();
    assert!(limit.is_ok_and(|status| status.success()), "prlimit (util-linux)");
    let url = target.url(0);
    let mut session = Session::open(&url.parse().unwrap(), &SessionOptions::default()).unwrap();
    let mut write = |lba: [u8; 2]| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[4], cdb[5], cdb[8]) = (0x2a, lba[0], lba[1], 1);
        (0..3).map(|_| session.write(cdb, &[0x5a; 512]).unwrap().status).last()
    };
    assert_eq!((write([0x40, 0]), write([0, 0])), (Some(2), Some(0)));
    assert!(!target.has_ended());
}

#[test]
fn truncated_configuration_admits_no_further_initiator() {
    let rules = "[access]\ninitiators = ['iqn.a:alice']\n";
    let disks = "[luns]\n0 = 'ram:2M'\n";
    let configured = Configured::start(&format!("{disks}{rules}"));
    let logs_in = |name: &str| configured.session(name).is_ok();
    assert!(logs_in("iqn.a:alice") && !logs_in("iqn.a:mallory"));
    // Cut off before the rules, before the disks, and empty.
    for text in [disks, rules, ""] {
        configured.reload(text);
        assert!(logs_in("iqn.a:alice") && !logs_in("iqn.a:mallory"), "{text}");
    }
    configured.reload(&format!("access = 'open'\n{disks}"));
    assert!(logs_in("iqn.a:mallory"), "by intent");
    configured.reload("access = 'open'\nluns = 'none'\n");
    assert!(logs_in("iqn.a:mallory"), "no disks, but the target accepts the login");
    configured
        .reload("[luns]\n0 = 'ram:1M'\n[access]\ninitiators = [{ name = 'iqn.a:alice', luns = [7] }]\n");
    assert!(logs_in("iqn.a:mallory"), "a mask of a disk that is not there");
    let stderr = configured.target.stop();
    assert_eq!(stderr.matches("reload failed").count(), 4, "{stderr}");
    for word in ["access = \"open\"", "luns = \"none\"", "LUN 7"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

/// A file that ends between two rules is as valid as a whole one.
#[test]
fn configuration_cut_between_rules_admits_no_further_initiator() {
    let disks = "[luns]\n0 = 'ram:2M'\n1 = 'ram:2M'\n";
    let list = "[[access.initiators]]\nname = 'iqn.a:alice'\n";
    let mask = "luns = [0]\n";
    let chap = "[[access.chap]]\nname = 'alice'\nsecret = 'wonderland-12'\ninitiators = ['iqn.a:alice']\n";
    let configured = Configured::start(&format!("{disks}{list}{mask}{chap}"));
    let is_refused = |name: &str| configured.session(name).is_err();
    // Without the secrets, without the mask, without the list.
    for text in [format!("{disks}{list}{mask}"), format!("{disks}{chap}{list}"), format!("{disks}{chap}")] {
        configured.reload(&text);
        assert!(is_refused("iqn.a:alice") && is_refused("iqn.a:mallory"), "{text}");
    }
    let stderr = configured.target.stop();
    assert_eq!(stderr.matches("reload failed").count(), 3, "{stderr}");
    for word in ["access.chap", "no luns any more", "lists no initiators"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn reload_rejects_settings_that_need_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| format!("state = '{}'\n", folder.path().join(name).display());
    let rest = "[luns]\n0 = 'ram:2M'\n";
    let configured = Configured::start(&(state("a") + rest));
    configured.reload(&format!("{}[luns]\n0 = 'ram:1M'\n", state("b")));
    configured.reload(&format!("{}[[portal]]\nlisten = '127.0.0.1:0'\n[luns]\n0 = 'ram:1M'\n", state("a")));
    configured.reload(&format!("{}[limits]\nsessions = 2\n[luns]\n0 = 'ram:1M'\n", state("a")));
    let mut session = configured.session("iqn.2026-11.example:a").unwrap();
    assert_eq!(session.capacity().unwrap().blocks, 4096);
    drop(session);
    assert!(!folder.path().join("b").exists());
    let stderr = configured.target.stop();
    assert_eq!(stderr.matches("restart the target").count(), 3, "{stderr}");
    for key in ["state:", "portal:", "limits:"] {
        assert!(stderr.contains(key), "{key}: {stderr}");
    }
}

#[test]
fn fifo_as_configuration_blocks_neither_the_target_nor_its_end() {
    let configured = Configured::start("[luns]\n0 = 'ram:2M'\n");
    let path = configured.folder.path().join("target.toml");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    configured.target.hang_up();
    std::thread::sleep(Duration::from_millis(300));
    assert!(configured.session("iqn.2026-11.example:a").is_ok());
    let stderr = configured.target.stop();
    assert!(stderr.contains("is a FIFO"), "{stderr}");
    let mut start = common::roundtrip();
    let mut child = start.args(["target", "--config"]).arg(&path).spawn().unwrap();
    assert_eq!(common::wait(&mut child, Duration::from_secs(5)).code(), Some(2), "at the start too");
}

#[test]
fn a_user_logs_in_only_as_its_own_initiators() {
    let file = "[luns]\n0 = 'ram:2M'\n[access]\n[[access.chap]]\nname = 'alice'\nsecret = 'wonderland-12'\n\
                initiators = ['iqn.a:alice']\n[[access.chap]]\nname = 'ops'\nsecret = 'operations-12'\ninitiators = 'any'\n";
    let configured = Configured::start(file);
    let logs_in = |name: &str, user: &str| {
        let url = configured.target.url(0).replace("iscsi://", &format!("iscsi://{user}@"));
        common::tool("iscsi-inq", &["-i", name, &url]).status.success()
    };
    assert!(logs_in("iqn.a:alice", "alice%wonderland-12"));
    assert!(!logs_in("iqn.b:bob", "alice%wonderland-12"), "another's name");
    assert!(logs_in("iqn.b:bob", "ops%operations-12"));
    assert!(!logs_in("iqn.a:alice", "ops%operations-12"), "a name that alice owns");
}
