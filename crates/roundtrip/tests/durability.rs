//! The guarantees of an acknowledged write hold when the target is killed and when the power is lost.
//! docs/durability.md states them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::nbd::Server;
use common::{IQN, Target};
use iscsi::initiator::Direction;
use iscsi_target::{LunConfig, RunningTarget, TargetConfig};
use load::initiator::session::{Session, SessionOptions};
use store::layer::Crash;
use store::{Ram, Store};

/// Records of the disk, each of eight sectors that carry the number of their write.
const RECORDS: usize = 64;
const RECORD_SECTORS: usize = 8;
const SECTOR: usize = 512;

/// A sector of write `generation` of record `record`.
fn sector(record: usize, generation: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    for (index, word) in sector.chunks_exact_mut(16).enumerate() {
        word[..8].copy_from_slice(&generation.to_be_bytes());
        word[8..].copy_from_slice(&((record * 1000 + index) as u64).to_be_bytes());
    }
    sector
}

fn cdb(code: u8, flags: u8, record: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[8]) = (code, flags, RECORD_SECTORS as u8);
    cdb[2..6].copy_from_slice(&((record * RECORD_SECTORS) as u32).to_be_bytes());
    cdb
}

/// A writer's state for one record.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last write that was sent.
    sent: u64,
    /// The last write that was acknowledged.
    acknowledged: u64,
    /// The last write that must have survived a power loss.
    stable: u64,
}

/// Writes records until the session ends or `stop` is set. Every fourth write is forced (FUA), and after
/// every seventh the cache is flushed.
fn write_on(
    session: &mut Session,
    known: &mut [Known],
    mine: std::ops::Range<usize>,
    random: &mut fastrand::Rng,
    mut goes_on: impl FnMut() -> bool,
) {
    while goes_on() {
        let record = random.usize(mine.clone());
        let fua = random.u8(0..4) == 0;
        known[record].sent += 1;
        let generation = known[record].sent;
        let data: Vec<u8> = (0..RECORD_SECTORS).flat_map(|_| sector(record, generation)).collect();
        match session.write(cdb(0x2a, if fua { 8 } else { 0 }, record), &data) {
            Ok(reply) => assert_eq!(reply.status, 0, "{:x?}", reply.sense),
            Err(_) => return,
        }
        known[record].acknowledged = generation;
        if fua {
            known[record].stable = generation;
        }
        if random.u8(0..7) == 0 {
            let before: Vec<u64> = known.iter().map(|known| known.acknowledged).collect();
            let mut flush = [0; 16];
            flush[0] = 0x35;
            match session.command(flush, Direction::None) {
                Ok(reply) => assert_eq!(reply.status, 0),
                Err(_) => return,
            }
            for record in mine.clone() {
                known[record].stable = known[record].stable.max(before[record]);
            }
        }
    }
}

/// Asserts that every sector is of a write that was sent, and not older than `oldest`; the next round begins from there.
fn judge(session: &mut Session, known: &mut [Known], oldest: impl Fn(&Known) -> u64, round: u64) {
    for (record, known) in known.iter_mut().enumerate() {
        // The first command of a session may get the unit attention of a power on.
        let mut reply = session.command(cdb(0x28, 0, record), Direction::In(4096)).unwrap();
        if reply.status != 0 {
            reply = session.command(cdb(0x28, 0, record), Direction::In(4096)).unwrap();
        }
        assert_eq!(reply.status, 0, "{:x?}", reply.sense);
        let mut least = u64::MAX;
        for there in reply.data.chunks_exact(SECTOR) {
            let generation = u64::from_be_bytes(there[..8].try_into().unwrap());
            assert!(
                (oldest(known)..=known.sent).contains(&generation),
                "round {round}, record {record}: write {generation} is there, {known:?}"
            );
            assert!(generation == 0 || there == sector(record, generation), "round {round}: a torn sector");
            least = least.min(generation);
        }
        // The current content is stable.
        known.acknowledged = least;
        known.stable = least;
    }
}

fn open(url: &str) -> Session {
    Session::open(&url.parse().unwrap(), &SessionOptions::default()).unwrap()
}

/// Two hundred times: four writers at work, the target killed (SIGKILL) at a time that a seed chooses, started
/// again, and everything read back. Acknowledged data survives: it is in the page cache or on the disk. Each
/// time the file is opened in another way: with or without the page cache, by the ring or by threads.
#[test]
fn no_acknowledged_write_is_lost_when_the_target_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("0=file:{},size=1M", folder.path().join("disk").display());
    let ways = ["", ",direct", ",engine=threads", ",direct,engine=threads"];
    let writes = survives_kills(200, |round| format!("{file}{}", ways[round as usize % ways.len()]));
    assert!(writes > 5_000, "{writes} writes in 200 rounds");
}

/// The same where the disk is an export of nbdkit, with one connection and with four.
#[test]
fn no_acknowledged_write_to_an_export_is_lost_when_the_target_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = exported(folder.path());
    let disk = format!("0={}", server.disk(""));
    let writes =
        survives_kills(60, |round| format!("{disk}{}", if round % 2 == 0 { "" } else { ",connections=4" }));
    assert!(writes > 1_500, "{writes} writes in 60 rounds");
}

/// Serves a file of 1 MiB by nbdkit.
fn exported(folder: &std::path::Path) -> Server {
    let file = folder.join("disk");
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    Server::nbdkit(folder, &["file", file.to_str().unwrap()])
}

/// The server of the disk is killed and started again under four writers, forty times: no write fails, and none that was
/// acknowledged is lost.
#[test]
fn no_write_fails_or_is_lost_when_the_server_of_the_disk_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = exported(folder.path());
    let mut known = vec![Known::default(); RECORDS];
    for connections in [1, 4] {
        let target = Target::start(&["--lun", &format!("0={},connections={connections}", server.disk(""))]);
        let url = target.url(0);
        judge(&mut open(&url), &mut known, |known| known.acknowledged, 0);
        let before: u64 = known.iter().map(|known| known.sent).sum();
        let mut random = fastrand::Rng::with_seed(connections);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let quarter = RECORDS / 4;
            let writers: Vec<_> = known
                .chunks_mut(quarter)
                .enumerate()
                .map(|(writer, own)| {
                    let (url, is_over, mut random) =
                        (&url, &is_over, fastrand::Rng::with_seed(writer as u64));
                    scope.spawn(move || {
                        let mine = writer * quarter..(writer + 1) * quarter;
                        let mut all = vec![Known::default(); RECORDS];
                        all[mine.clone()].copy_from_slice(own);
                        let options =
                            SessionOptions { session_number: writer as u16 + 1, ..SessionOptions::default() };
                        let mut session = Session::open(&url.parse().unwrap(), &options).unwrap();
                        let _ = session.command([0; 16], Direction::None);
                        let goes_on = || !is_over.load(Ordering::Relaxed);
                        write_on(&mut session, &mut all, mine.clone(), &mut random, goes_on);
                        assert!(is_over.load(Ordering::Relaxed), "a writer has ended early");
                        own.copy_from_slice(&all[mine]);
                    })
                })
                .collect();
            for _ in 0..20 {
                std::thread::sleep(Duration::from_micros(random.u64(500..200_000)));
                server.kill();
                std::thread::sleep(Duration::from_micros(random.u64(0..30_000)));
                server.restart();
            }
            std::thread::sleep(Duration::from_millis(50));
            is_over.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let writes = known.iter().map(|known| known.sent).sum::<u64>() - before;
        assert!(writes > 200, "{writes} writes");
        judge(&mut open(&url), &mut known, |known| known.acknowledged, 1);
        assert!(target.stop().contains("connecting again"));
    }
}

/// Kills the target as often as asked under four writers, opens `disk` again, and reads everything back. Returns how many were written.
fn survives_kills(rounds: u64, disk: impl Fn(u64) -> String) -> u64 {
    let mut known = vec![Known::default(); RECORDS];
    let mut random = fastrand::Rng::with_seed(42);
    let mut writes = 0;
    for round in 0..rounds {
        let mut target = Target::start(&["--lun", &disk(round)]);
        let url = target.url(0);
        judge(&mut open(&url), &mut known, |known| known.acknowledged, round);
        let before: u64 = known.iter().map(|known| known.sent).sum();
        let kill_after = Duration::from_micros(random.u64(500..25_000));
        std::thread::scope(|scope| {
            let quarter = RECORDS / 4;
            for (writer, own) in known.chunks_mut(quarter).enumerate() {
                let mut random = fastrand::Rng::with_seed(random.u64(..));
                let url = &url;
                scope.spawn(move || {
                    let mut all = vec![Known::default(); RECORDS];
                    let mine = writer * quarter..(writer + 1) * quarter;
                    all[mine.clone()].copy_from_slice(own);
                    let options =
                        SessionOptions { session_number: writer as u16 + 1, ..SessionOptions::default() };
                    // A target that is killed before the login has no sessions.
                    if let Ok(mut session) = Session::open(&url.parse().unwrap(), &options) {
                        let _ = session.command([0; 16], Direction::None);
                        write_on(&mut session, &mut all, mine.clone(), &mut random, || true);
                    }
                    own.copy_from_slice(&all[mine]);
                });
            }
            std::thread::sleep(kill_after);
            target.kill();
        });
        writes += known.iter().map(|known| known.sent).sum::<u64>() - before;
    }
    writes
}

/// Power losses, 200 times: any sector that was not flushed may be lost, but none that was
/// forced or flushed. One writer and one seed, so that failures are reproducible.
#[test]
fn no_stable_write_is_lost_with_the_power() {
    let medium: Arc<dyn Store> = Arc::new(Ram::new(1 << 20));
    let mut known = vec![Known::default(); RECORDS];
    let mut lost = 0;
    for round in 0..200 {
        let store = Arc::new(Crash::new(Arc::clone(&medium)));
        let lun = LunConfig::new(0, Arc::clone(&store) as Arc<dyn Store>);
        let target =
            RunningTarget::start(TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, vec![lun])).unwrap();
        let url = format!("iscsi://{}/{IQN}/0", target.address());
        let mut session = open(&url);
        judge(&mut session, &mut known, |known| known.stable, round);
        let mut random = fastrand::Rng::with_seed(round);
        let mut left = random.u32(1..80);
        write_on(&mut session, &mut known, 0..RECORDS, &mut random, || {
            left -= 1;
            left > 0
        });
        lost += store.lose_power(round).unwrap();
    }
    assert!(lost > 1_000, "{lost} sectors were lost: the simulated power loss must lose data");
}

/// With the cache switched off (WCE of the caching page) every acknowledged write is a stable one.
#[test]
fn a_disk_whose_cache_is_off_loses_nothing_with_the_power() {
    let medium: Arc<dyn Store> = Arc::new(Ram::new(1 << 20));
    let mut known = vec![Known::default(); RECORDS];
    for round in 0..50 {
        let store = Arc::new(Crash::new(Arc::clone(&medium)));
        let lun = LunConfig::new(0, Arc::clone(&store) as Arc<dyn Store>);
        let target =
            RunningTarget::start(TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, vec![lun])).unwrap();
        let mut session = open(&format!("iscsi://{}/{IQN}/0", target.address()));
        judge(&mut session, &mut known, |known| known.acknowledged, round);
        let mut select = [0; 16];
        (select[0], select[1], select[4]) = (0x15, 0x10, 24);
        let list = [&[0, 0, 0, 0, 0x08, 18, 0][..], &[0; 17]].concat();
        assert_eq!(session.write(select, &list).unwrap().status, 0);
        let mut random = fastrand::Rng::with_seed(round);
        let mut left = random.u32(1..60);
        write_on(&mut session, &mut known, 0..RECORDS, &mut random, || {
            left -= 1;
            left > 0
        });
        assert_eq!(store.lose_power(round).unwrap(), 0);
    }
}

/// Containers commonly forbid io_uring. Then threads are used, the log reports it, and `engine=ring`
/// fails with the reason.
#[test]
fn target_without_io_uring_uses_threads() {
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("0=file:{},size=1M,direct", folder.path().join("disk").display());
    // The filter holds for this thread and what it starts.
    std::thread::spawn(move || {
        let denied = seccompiler::SeccompAction::Errno(nix::errno::Errno::EPERM as u32);
        let rules = [(nix::libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
        let filter = seccompiler::SeccompFilter::new(
            rules,
            seccompiler::SeccompAction::Allow,
            denied,
            std::env::consts::ARCH.try_into().unwrap(),
        )
        .unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        let target = Target::start(&["--lun", &disk]);
        let mut session = open(&target.url(0));
        let _ = session.command([0; 16], Direction::None);
        let mut known = vec![Known::default(); RECORDS];
        let (mut random, mut left) = (fastrand::Rng::with_seed(1), 50);
        write_on(&mut session, &mut known, 0..RECORDS, &mut random, || {
            left -= 1;
            left > 0
        });
        judge(&mut session, &mut known, |known| known.acknowledged, 0);
        let stderr = target.stop();
        assert!(
            stderr.contains("io_uring is not available") && stderr.contains("using threads instead"),
            "{stderr}"
        );
        let insists = format!("{disk},engine=ring");
        let output = common::roundtrip().args(["target", "--lun", &insists]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("engine=ring"), "{stderr}");
    })
    .join()
    .unwrap();
}
