//! An event loop that has no time left hands connections to one that has, with everything that is under way.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{Client, INITIATOR, Login, lun_field, start};
use iscsi::opcode::target as opcode;
use iscsi::pdu::ScsiCommand;
use iscsi_target::{LunConfig, RunningTarget, Threads};
use store::layer::{Delay, Layered, Work};
use store::{Ram, Store};

const CLIENTS: u8 = 8;
/// The tests of this file use both processors, and judge how busy loops are.
static ALONE: Mutex<()> = Mutex::new(());
/// Reads of a disk that takes the loop's time, and one of a disk that is waited for.
const QUICK: u32 = 32;
const WORK: Duration = Duration::from_micros(100);
const DELAY: Duration = Duration::from_millis(1);

/// Disks whose blocks hold their numbers.
fn disks() -> Vec<LunConfig> {
    let ram = Arc::new(Ram::new(1 << 20));
    for block in 0..2048_u32 {
        ram.write_at(u64::from(block) * 512, &block.to_be_bytes().repeat(128)).unwrap();
    }
    let quick = Layered::new(Work(WORK), Arc::clone(&ram) as Arc<dyn Store>);
    let slow = Layered::new(Delay(DELAY), ram as Arc<dyn Store>);
    vec![LunConfig::new(0, Arc::new(quick)), LunConfig::new(1, Arc::new(slow))]
}

/// A target with two loops, and clients that have logged in.
fn begin() -> (RunningTarget, Vec<Client>) {
    let target = start(disks(), |config| config.threads = Threads::Loops(2));
    let log_in = |isid| {
        let mut client = Client::log_in(target.address(), &Login { isid, ..Login::default() });
        client.attentions(0);
        client.attentions(1);
        client
    };
    let clients = (1..=CLIENTS).map(log_in).collect();
    (target, clients)
}

/// The threads that serve the clients.
fn threads(target: &RunningTarget, clients: &[std::net::SocketAddr]) -> Vec<i32> {
    let statistics = target.statistics();
    let thread = |client| statistics.iter().find(|own| own.open && own.peer == client).unwrap().thread;
    clients.iter().map(|&client| thread(client)).collect()
}

/// Reads blocks of both disks at once, and checks what comes.
fn read_all(client: &mut Client, round: u32) {
    let mut expected = BTreeMap::new();
    for number in 0..=QUICK {
        let block = (round * 61 + number * 7) % 2048;
        let mut cdb = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        cdb[2..6].copy_from_slice(&block.to_be_bytes());
        let tag = 100 + number;
        let lun = lun_field(u8::from(number == QUICK / 2));
        client.issue(&ScsiCommand { lun, ..client.command(tag, &cdb, 512) }, &[]);
        expected.insert(tag, block);
    }
    while !expected.is_empty() {
        let pdu = client.receive().expect("a connection");
        assert_eq!((pdu.opcode(), pdu.bhs.0[1] & 1), (opcode::DATA_IN, 1));
        client.exp_stat_sn = client.exp_stat_sn.max(pdu.u32(24).wrapping_add(1));
        let block = expected.remove(&pdu.u32(16)).expect("each is answered once");
        assert_eq!(pdu.data, block.to_be_bytes().repeat(128));
    }
}

/// Round after round, only the clients of the fuller loop have work; the other loop has to take some of them over.
#[test]
fn connections_move_to_a_loop_that_has_time() {
    if !testing::require("two processors", socket::cpu::allowed().unwrap().len() > 1) {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (target, mut clients) = begin();
    let peers: Vec<_> = clients.iter().map(|client| client.socket.local_addr().unwrap()).collect();
    let clients_count = clients.len();
    let works: Vec<AtomicBool> = clients.iter().map(|_| AtomicBool::new(false)).collect();
    let (is_over, batches) = (AtomicBool::new(false), clients.iter().map(|_| AtomicU64::new(0)));
    let batches: Vec<AtomicU64> = batches.collect();
    std::thread::scope(|scope| {
        for ((client, works), batches) in clients.iter_mut().zip(&works).zip(&batches) {
            let is_over = &is_over;
            scope.spawn(move || {
                for round in 0.. {
                    while !works.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    read_all(client, round);
                    batches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..6 {
                let before = threads(&target, &peers);
                let on = |thread| before.iter().filter(|&&own| own == thread).count();
                let fuller = *before.iter().max_by_key(|&&thread| on(thread)).unwrap();
                for (works, thread) in works.iter().zip(&before) {
                    works.store(*thread == fuller, Ordering::Relaxed);
                }
                let until = Instant::now() + Duration::from_secs(20);
                // A look at the load of the round before may still move others.
                let moved = loop {
                    let now = threads(&target, &peers);
                    let has_left = |&client: &usize| before[client] == fuller && now[client] != fuller;
                    let left: Vec<usize> = (0..clients_count).filter(has_left).collect();
                    if !left.is_empty() {
                        assert!(now.contains(&fuller), "all have moved: {now:?}");
                        break left;
                    }
                    assert!(Instant::now() < until, "round {round}: none has moved: {before:?}");
                    std::thread::sleep(Duration::from_millis(5));
                };
                // What has moved is served where it is now, with what was under way.
                for client in moved {
                    let done = batches[client].load(Ordering::Relaxed);
                    while batches[client].load(Ordering::Relaxed) < done + 5 {
                        assert!(Instant::now() < until, "round {round}: reads are not answered");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(why) = ended {
            std::panic::resume_unwind(why);
        }
    });
    // Mail of other threads finds them where they are.
    assert_eq!(target.ask_to_log_out(INITIATOR, Duration::from_secs(5)), clients.len());
    for client in &mut clients {
        assert_eq!(client.until(opcode::ASYNC).1.bhs.0[36], 1, "log out");
        assert_eq!(client.log_out(0, 0), 0);
    }
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    target.stop();
}

/// Loops that have time keep what they have, however uneven it is.
#[test]
fn connections_stay_on_a_loop_that_has_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (target, mut clients) = begin();
    let peers: Vec<_> = clients.iter().map(|client| client.socket.local_addr().unwrap()).collect();
    let before = threads(&target, &peers);
    let until = Instant::now() + Duration::from_millis(1500);
    for round in 0.. {
        // One loop has all the work, and most of its time left.
        for (client, _) in clients.iter_mut().zip(&before).filter(|(_, thread)| **thread == before[0]) {
            read_all(client, round);
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(threads(&target, &peers), before);
    target.stop();
}
