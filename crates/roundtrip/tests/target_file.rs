//! `roundtrip target --config`: disks and access that change while the target serves, as real clients see it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Target, random_file, succeed};
use initiator::session::{Session, SessionOptions};
use iscsi::initiator::Direction;

/// The logical units that a client finds, once there are `count` of them.
fn luns(target: &Target, count: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        // It gives up where a disk changes while it looks: the unit attention that tells of it is no failure.
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
fn a_file_that_is_read_again_changes_disks_and_a_wrong_one_changes_nothing() {
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
    let said = target.stop();
    assert!(said.contains("floppy"), "{said}");
    assert!(std::fs::read(&disk).unwrap() == std::fs::read(image).unwrap());
}

#[test]
fn a_limit_that_does_not_exist_is_named() {
    let output =
        common::roundtrip().args(["target", "--lun", "0=ram:1M", "--limit", "sesions=1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'sesions' is no limit") && said.contains("connections_per_address"), "{said}");
}

/// Runs a command until the target has nothing more to tell before it; how often it had.
fn told(run: &mut dyn FnMut() -> (u8, Vec<u8>, Vec<u8>)) -> (Vec<u8>, u32) {
    for attentions in 0..8 {
        let (status, sense, data) = run();
        if status == 0 {
            return (data, attentions);
        }
        assert_eq!((status, sense[2] & 15), (2, 6), "only unit attentions: {sense:x?}");
    }
    panic!("unit attentions without end");
}

/// A disk under load while others come, go and grow beside it, and it grows itself: no operation fails but to tell of
/// a change, everything reads back, and no session is dropped.
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
            let (_, before) = told(&mut || {
                let reply = session.write(cdb, &block).unwrap();
                (reply.status, reply.sense, Vec::new())
            });
            cdb[0] = 0x28;
            let (there, between) = told(&mut || {
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
            assert!(done > 200 && (2..60).contains(&attentions), "{done} writes, {attentions} changes told");
        }
    });
    let said = target.stop();
    assert!(!said.contains("dropped") && !said.contains("not taken"), "{said}");
}
