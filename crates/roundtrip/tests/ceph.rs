//! Images of a real Ceph cluster: one monitor and one object store in memory. `make test-ceph` runs these.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::ceph::Cluster;
use common::{Target, UNMAP_UNTIL_END, random_file, succeed};
use iscsi::initiator::Direction;
use load::initiator::session::{Session, SessionOptions};
use nix::sys::signal::Signal;

const WRITE: [u8; 16] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
const READ: [u8; 16] = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

fn cluster() -> Cluster {
    assert!(common::ceph::is_installed(), "Ceph is missing: make test-ceph installs it");
    Cluster::start(1 << 30)
}

fn serve(disk: &str) -> Target {
    Target::start(&["--lun", &format!("0={disk}")])
}

fn open(target: &Target) -> Session {
    let mut session = Session::open(&target.url(0).parse().unwrap(), &SessionOptions::default()).unwrap();
    let _ = session.command([0; 16], Direction::None);
    session
}

#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn data_copied_to_an_image_reads_back_and_the_suite_passes() {
    let cluster = cluster();
    let disk = cluster.image("copied", 16);
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (folder.path().join("image"), folder.path().join("back"));
    random_file(&image, 16 << 20);
    let [image, back] = [&image, &back].map(|path| path.to_str().unwrap());
    let target = serve(&disk);
    let url = target.url(0);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    target.stop();
    // What Ceph's own tool reads is what was written.
    cluster.rbd(&["export", "rbd/copied", back]);
    let (image, back) = (std::fs::read(image).unwrap(), std::fs::read(back).unwrap());
    assert!(image[..] == back[..image.len()]);
    for family in ["SCSI", "iSCSI"] {
        let target = serve(&disk);
        let url = target.url(0);
        let contradict = if family == "SCSI" { &[UNMAP_UNTIL_END][..] } else { &[] };
        common::suite_passes_but(contradict, family, &[&url, &url]);
    }
    // Used by others, too: what librbd compares and writes in one step is one sector.
    let target = serve(&format!("{disk},shared=yes"));
    let url = target.url(0);
    common::suite_passes_but(&[], "SCSI.CompareAndWrite", &[&url, &url]);
}

/// Two targets increment a counter in one sector by COMPARE AND WRITE: none is lost.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn compare_and_write_is_one_step_for_two_targets() {
    let cluster = cluster();
    let disk = format!("{},shared=yes", cluster.image("counter", 4));
    let targets = [serve(&disk), serve(&disk)];
    std::thread::scope(|scope| {
        for target in &targets {
            scope.spawn(|| {
                let mut session = open(target);
                let mut left = 200;
                while left > 0 {
                    let before = session.command(READ, Direction::In(512)).unwrap().data;
                    let count = u64::from_be_bytes(before[..8].try_into().unwrap());
                    let mut after = before.clone();
                    after[..8].copy_from_slice(&(count + 1).to_be_bytes());
                    let mut cdb = [0; 16];
                    (cdb[0], cdb[9], cdb[13]) = (0x89, 8, 1);
                    let reply = session.write(cdb, &[before, after].concat()).unwrap();
                    match reply.status {
                        0 => left -= 1,
                        _ => assert_eq!(reply.sense[2] & 15, 0x0e, "MISCOMPARE"),
                    }
                }
            });
        }
    });
    let there = open(&targets[0]).command(READ, Direction::In(512)).unwrap().data;
    assert_eq!(u64::from_be_bytes(there[..8].try_into().unwrap()), 400);
}

/// An object store that stands still is waited for, and so is a monitor that is killed; nothing that was acknowledged is lost when the
/// target is killed.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn a_cluster_that_stands_still_is_waited_for() {
    let mut cluster = cluster();
    let disk = cluster.image("waits", 4);
    let mut target = serve(&disk);
    let mut session = open(&target);
    for round in 1..=3 {
        common::stand_still(cluster.store.id());
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let begun = Instant::now();
                let reply = session.write(WRITE, &[round; 512]).unwrap();
                (reply.status, reply.sense, begun.elapsed())
            });
            std::thread::sleep(Duration::from_secs(1));
            cluster.signal_store(Signal::SIGCONT);
            let (status, sense, time) = writing.join().unwrap();
            assert_eq!(status, 0, "round {round}: {sense:x?}");
            assert!(time >= Duration::from_millis(900), "round {round}: {time:?}");
        });
        cluster.restart_monitor();
        assert_eq!(session.command(READ, Direction::In(512)).unwrap().data, [round; 512]);
    }
    target.kill();
    let begun = Instant::now();
    let target = serve(&disk);
    assert_eq!(open(&target).command(READ, Direction::In(512)).unwrap().data, [3; 512]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// The allocation is the image's, a snapshot is read-only and does not change, and a clone shows its parent.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn snapshots_and_clones_are_served() {
    let cluster = cluster();
    let disk = cluster.image("original", 32);
    let target = serve(&disk);
    let mut session = open(&target);
    let descriptors = |session: &mut Session| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[12]) = (0x9e, 0x12, 2);
        let data = session.command(cdb, Direction::In(512)).unwrap().data;
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        data[8..]
            .chunks_exact(16)
            .map(|one| (number(&one[..8]), number(&one[8..12]), one[12]))
            .collect::<Vec<_>>()
    };
    assert_eq!(descriptors(&mut session), [(0, 65536, 1)]);
    assert_eq!(session.write(WRITE, &[1; 512]).unwrap().status, 0);
    // The first object of 4 MiB.
    assert_eq!(descriptors(&mut session), [(0, 8192, 0), (8192, 57344, 1)]);
    cluster.rbd(&["snap", "create", "rbd/original@before"]);
    cluster.rbd(&["snap", "protect", "rbd/original@before"]);
    cluster.rbd(&["clone", "rbd/original@before", "rbd/clone"]);
    assert_eq!(session.write(WRITE, &[2; 512]).unwrap().status, 0);
    let snapshot = serve(&format!("rbd:rbd/original@before,conf={}", cluster.conf().display()));
    let mut frozen = open(&snapshot);
    assert_eq!(frozen.command(READ, Direction::In(512)).unwrap().data, [1; 512]);
    let reply = frozen.write(WRITE, &[9; 512]).unwrap();
    assert_eq!((reply.sense[2] & 15, reply.sense[12]), (7, 0x27), "WRITE PROTECTED");
    let clone = serve(&cluster.disk("clone"));
    let mut cloned = open(&clone);
    assert_eq!(cloned.command(READ, Direction::In(512)).unwrap().data, [1; 512]);
    assert_eq!(cloned.write(WRITE, &[3; 512]).unwrap().status, 0);
    assert_eq!(session.command(READ, Direction::In(512)).unwrap().data, [2; 512]);
}

/// What cannot be served is refused at the start with its reason, in bounded time.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn refuses_what_cannot_be_served() {
    let cluster = cluster();
    let conf = cluster.conf();
    let conf = conf.display();
    for (disk, reason) in [
        (format!("rbd:rbd/none,conf={conf}"), "image 'none': No such file"),
        (format!("rbd:none/x,conf={conf}"), "pool 'none': No such file"),
        ("rbd:rbd/x,conf=/nowhere".to_owned(), "/nowhere: No such file"),
        (format!("rbd:rbd,conf={conf}"), "'rbd' is not an image"),
    ] {
        let begun = Instant::now();
        let output = common::roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--lun", &format!("0={disk}")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{disk}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    // The sandbox cannot confine Ceph's library, and says so.
    let disk = cluster.image("confined", 4);
    let output = common::roundtrip()
        .args(["target", "--portal", "127.0.0.1:0", "--sandbox", "require", "--lun", &format!("0={disk}")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("connects to every monitor"), "{text}");
}

/// An image that is resized by Ceph's own tool: initiators are told, and use what is new.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn a_size_that_changes_is_told() {
    let cluster = cluster();
    let disk = cluster.image("grows", 8);
    let target = serve(&disk);
    let mut session = open(&target);
    let blocks = |session: &mut Session| {
        let mut cdb = [0; 16];
        cdb[0] = 0x25;
        let data = session.command(cdb, Direction::In(8)).unwrap().data;
        u64::from(u32::from_be_bytes(data[..4].try_into().unwrap())) + 1
    };
    assert_eq!(blocks(&mut session), 16384);
    for (size, now) in [("16", 32768), ("12", 24576)] {
        cluster.rbd(&["resize", "--size", size, "--allow-shrink", "rbd/grows"]);
        let until = Instant::now() + Duration::from_secs(10);
        let reply = loop {
            let reply = session.command([0; 16], Direction::None).unwrap();
            if reply.status != 0 {
                break reply;
            }
            assert!(Instant::now() < until, "nobody was told");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(
            (reply.sense[2] & 15, reply.sense[12], reply.sense[13]),
            (6, 0x2a, 9),
            "CAPACITY DATA HAS CHANGED"
        );
        assert_eq!(blocks(&mut session), now);
    }
    let mut last = WRITE;
    last[2..6].copy_from_slice(&24575_u32.to_be_bytes());
    assert_eq!(session.write(last, &[5; 512]).unwrap().status, 0);
    last[2..6].copy_from_slice(&24576_u32.to_be_bytes());
    assert_eq!(session.write(last, &[5; 512]).unwrap().sense[12], 0x21, "LBA OUT OF RANGE");
}

/// A target that was fenced (another gateway has put its client on the cluster's blocklist) writes nothing more, says that its path is
/// in standby, and does not accuse the medium.
#[test]
#[ignore = "needs Ceph: make test-ceph"]
fn a_fenced_target_writes_nothing_and_points_to_the_other_path() {
    let cluster = cluster();
    let disk = cluster.image("fenced", 4);
    let target = serve(&disk);
    let mut session = open(&target);
    assert_eq!(session.write(WRITE, &[1; 512]).unwrap().status, 0);
    let status = cluster.rbd_says(&["status", "rbd/fenced"]);
    let watcher =
        status.split_whitespace().find_map(|word| word.strip_prefix("watcher=")).expect(&status).to_owned();
    cluster.ceph(&["osd", "blocklist", "add", &watcher]);
    let until = Instant::now() + Duration::from_secs(20);
    let sense = loop {
        let reply = session.write(WRITE, &[2; 512]).unwrap();
        if reply.status != 0 {
            break (reply.sense[2] & 15, reply.sense[12], reply.sense[13]);
        }
        assert!(Instant::now() < until, "it still writes");
    };
    assert_eq!(sense, (2, 4, 0x0b));
    // Nothing of what failed is there.
    let next = serve(&disk);
    let mut there = open(&next);
    let before = there.command(READ, Direction::In(512)).unwrap().data;
    assert_eq!(there.write(WRITE, &[3; 512]).unwrap().status, 0);
    let reply = session.write(WRITE, &[4; 512]).unwrap();
    assert_eq!((reply.status, reply.sense[2] & 15), (2, 2));
    assert_eq!(there.command(READ, Direction::In(512)).unwrap().data, [3; 512]);
    assert!(before == [1; 512] || before == [2; 512]);
}
