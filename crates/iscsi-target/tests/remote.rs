//! A store with asynchronous operations, any number in flight, each completed later by its own thread. It stands in for a
//! network store (Ceph RBD, object storage).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{Client, IQN, Login, set, start};
use iscsi::opcode::target as opcode;
use iscsi_target::LunConfig;
use store::Operation;
use store::layer::{Hook, Layered};
use store::{Done, Ended, Limits, Ram, Request, Store, StoreError, Ticket, request};

/// The latency of an operation.
const JOURNEY: Duration = Duration::from_millis(60);

type Journeys = Mutex<HashMap<u64, (Request, Done)>>;

struct Remote {
    there: Arc<Ram>,
    journeys: Arc<Journeys>,
    next: AtomicU64,
    under_way_most: AtomicUsize,
    cancelled: Arc<AtomicUsize>,
    /// Operations never complete.
    is_cut: bool,
    /// The lock for atomic operations of all its users.
    step: Arc<Mutex<()>>,
    step_bytes: Option<u32>,
}

impl Remote {
    fn new(is_cut: bool) -> Self {
        Self {
            there: Arc::new(Ram::new(1 << 20)),
            journeys: Arc::default(),
            next: AtomicU64::new(0),
            under_way_most: AtomicUsize::new(0),
            cancelled: Arc::default(),
            is_cut,
            step: Arc::default(),
            step_bytes: None,
        }
    }

    fn end(
        journeys: &Weak<Journeys>,
        id: u64,
        outcome: impl FnOnce(&mut Request) -> Result<(), StoreError>,
    ) -> bool {
        let Some((mut request, done)) = journeys.upgrade().and_then(|all| all.lock().unwrap().remove(&id))
        else {
            return false;
        };
        let outcome = outcome(&mut request);
        done(Ended::new(outcome, request));
        true
    }
}

impl Store for Remote {
    fn kind(&self) -> &'static str {
        "remote"
    }
    fn size_bytes(&self) -> u64 {
        self.there.size_bytes()
    }
    fn has_volatile_cache(&self) -> bool {
        true
    }
    // Synchronous operations submit and wait.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let ended = request::wait_for(self, Request::Read { offset, buffer: self.buffer(buffer.len()) });
        ended.outcome?;
        buffer.copy_from_slice(&ended.buffer.unwrap());
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        request::wait_for(self, Request::Write { offset, data: data.into(), is_stable: false }).outcome
    }
    fn flush(&self) -> Result<(), StoreError> {
        request::wait_for(self, Request::Flush).outcome
    }
    fn may_wait(&self, _: Operation) -> bool {
        true
    }
    fn takes(&self, _: &Request) -> bool {
        true
    }
    fn begin(&self, request: Request, done: Done) -> Ticket {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut journeys = self.journeys.lock().unwrap();
        journeys.insert(id, (request, done));
        self.under_way_most.fetch_max(journeys.len(), Ordering::Relaxed);
        drop(journeys);
        let weak = Arc::downgrade(&self.journeys);
        if !self.is_cut {
            let (weak, there, step) = (weak.clone(), Arc::clone(&self.there), Arc::clone(&self.step));
            std::thread::spawn(move || {
                std::thread::sleep(JOURNEY);
                Self::end(&weak, id, |request| match request {
                    Request::Read { offset, buffer } => there.read_at(*offset, buffer),
                    Request::Write { offset, data, .. } => there.write_at(*offset, data),
                    Request::Discard { offset, length } | Request::Zero { offset, length } => {
                        there.discard(*offset, *length)
                    }
                    Request::CompareAndWrite { offset, expected, data } => {
                        let _alone = step.lock().unwrap();
                        let mut now = vec![0; expected.len()];
                        there.read_at(*offset, &mut now)?;
                        match now.iter().zip(&*expected).position(|(a, b)| a != b) {
                            Some(at) => Err(StoreError::Miscompare(at as u64)),
                            None => there.write_at(*offset, data),
                        }
                    }
                    Request::Flush => Ok(()),
                });
            });
        }
        let cancelled = Arc::clone(&self.cancelled);
        Ticket::new(move || {
            if Self::end(&weak, id, |_| Err(StoreError::Cancelled)) {
                cancelled.fetch_add(1, Ordering::Relaxed);
            }
        })
    }
    fn limits(&self) -> Limits {
        Limits { step_bytes: self.step_bytes, ..Limits::default() }
    }
    fn compare_and_write(&self, offset: u64, expected: &[u8], data: &[u8]) -> Result<(), StoreError> {
        let expected = expected.to_vec();
        request::wait_for(self, Request::CompareAndWrite { offset, expected, data: data.into() }).outcome
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.there.resize(size_bytes)
    }
}

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];

fn lun(store: &Arc<Remote>) -> LunConfig {
    LunConfig::new(0, Arc::clone(store) as Arc<dyn Store>)
}

#[test]
fn all_commands_are_in_flight_at_the_store_without_waiting_threads() {
    let store = Arc::new(Remote::new(false));
    // One pool thread: if it had to wait for each, they would take 64 latencies.
    let target = start(vec![lun(&store)], |config| config.limits.disk_threads = 1);
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    let begun = Instant::now();
    for tag in 1..=64 {
        let command = if tag % 2 == 0 {
            client.command(tag, &READ, 512)
        } else {
            let write =
                client.command(tag, &[0x2a, if tag % 3 == 0 { 8 } else { 0 }, 0, 0, 0, 9, 0, 0, 1, 0], 0);
            iscsi::pdu::ScsiCommand { read: false, write_data: true, expected_bytes: 512, ..write }
        };
        let data = if tag % 2 == 0 { &[][..] } else { &[7; 512][..] };
        client.issue(&command, data);
    }
    for _ in 0..64 {
        let pdu = client.receive().unwrap();
        assert_eq!(pdu.bhs.0[3], 0, "GOOD");
    }
    assert!(begun.elapsed() < 8 * JOURNEY, "{:?}", begun.elapsed());
    assert!(store.under_way_most.load(Ordering::Relaxed) >= 32);
    assert_eq!(client.read(0, &READ, 512).0, [7; 512]);
}

#[test]
fn task_management_cancels_hung_operations() {
    let store = Arc::new(Remote::new(true));
    let target = start(vec![lun(&store)], |_| ());
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    for tag in 1..=5 {
        client.issue(&client.command(tag, &READ, 512), &[]);
    }
    let begun = Instant::now();
    // ABORT TASK of a task, of an unknown task, and LOGICAL UNIT RESET.
    assert_eq!(client.task_management(1, 3), 0);
    assert_eq!((store.cancelled.load(Ordering::Relaxed), store.journeys.lock().unwrap().len()), (1, 4));
    assert_eq!(client.task_management(1, 3), 1, "it is no more");
    assert_eq!(client.task_management(5, 0), 0);
    assert_eq!((store.cancelled.load(Ordering::Relaxed), store.journeys.lock().unwrap().len()), (5, 0));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // Aborted commands get no response.
    let (_, _, sense) = client.read(0, &[0; 6], 0);
    assert_eq!((sense[12], sense[13]), (0x29, 3), "the unit attention of the reset");
    assert_eq!(client.log_out(0, 0), 0);
}

#[test]
fn reset_waits_for_in_flight_writes_of_other_sessions() {
    let store = Arc::new(Remote::new(false));
    let target = start(vec![lun(&store)], |_| ());
    let [mut one, mut other] =
        [1, 2].map(|isid| Client::log_in(target.address(), &Login { isid, ..Login::default() }));
    one.attentions(0);
    other.attentions(0);
    let write = iscsi::pdu::ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: 512,
        ..other.command(9, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0], 0)
    };
    other.issue(&write, &[7; 512]);
    while store.journeys.lock().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(one.task_management(5, 0), 0);
    assert!(store.journeys.lock().unwrap().is_empty(), "the other's write has ended");
}

#[test]
fn two_targets_share_a_store_and_its_atomic_operations() {
    let store = Arc::new(Remote { step_bytes: Some(512), ..Remote::new(false) });
    let targets = [(); 2].map(|()| start(vec![lun(&store)], |_| ()));
    // Four sessions increment a counter in one block with COMPARE AND WRITE.
    std::thread::scope(|scope| {
        for n in 0..4_u8 {
            let address = targets[usize::from(n) % 2].address();
            scope.spawn(move || {
                let mut client = Client::log_in(address, &Login { isid: n + 1, ..Login::default() });
                client.attentions(0);
                let mut left = 10;
                while left > 0 {
                    let before = client.read(0, &READ, 512).0;
                    let count = u64::from_be_bytes(before[..8].try_into().unwrap());
                    let mut after = before.clone();
                    after[..8].copy_from_slice(&(count + 1).to_be_bytes());
                    let cdb = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0];
                    let swap = iscsi::pdu::ScsiCommand {
                        read: false,
                        write_data: true,
                        expected_bytes: 1024,
                        ..client.command(client.cmd_sn, &cdb, 0)
                    };
                    client.issue(&swap, &[before, after].concat());
                    let response = client.until(opcode::SCSI_RESPONSE).1;
                    match response.bhs.0[3] {
                        0 => left -= 1,
                        _ => assert_eq!(response.data[4] & 15, 0x0e, "MISCOMPARE"),
                    }
                }
            });
        }
    });
    let mut there = [0; 8];
    store.there.read_at(9 * 512, &mut there).unwrap();
    assert_eq!(u64::from_be_bytes(there), 40);
    // The store grows: each target notifies its initiators.
    for target in &targets {
        let mut client = Client::log_in(target.address(), &Login::default());
        client.attentions(0);
        store.resize(store.size_bytes() + (1 << 20)).unwrap();
        set(target, &[lun(&store)], None);
        client.until(opcode::ASYNC);
        assert_eq!(client.attentions(0), [(0x2a, 9)], "{IQN}");
    }
}

/// Takes 3 seconds for each operation, and counts those that have begun.
struct Slow(Arc<AtomicUsize>);

impl Hook for Slow {
    fn before(&self, _: Operation, _: u64, _: u64) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    }

    fn may_wait(&self, _: Operation) -> bool {
        true
    }
}

/// A session that repeatedly sends and aborts commands for a hung disk holds a bounded amount of memory: above it, the
/// disk is BUSY.
#[test]
fn abandoned_operations_are_bounded() {
    let begun = Arc::new(AtomicUsize::new(0));
    let slow = Layered::new(Slow(Arc::clone(&begun)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
    let luns = vec![LunConfig::new(0, Arc::new(slow)), common::ram(1, 1)];
    let target = start(luns, |config| {
        config.limits.disk_threads = 2;
        config.limits.abandoned_bytes = 64 << 10;
    });
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(1);
    let _ = client.read(0, &[0; 6], 0);
    for tag in 1..=24 {
        client.issue(&client.command(tag, &READ, 512), &[]);
    }
    // Once this command is answered, the target has taken them all. Then the connection is dropped with its commands.
    assert_eq!(client.read(1, &READ, 512).1, 0);
    // What is abandoned before the disk has begun anything is free at once.
    while begun.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    let mut again = Client::log_in(target.address(), &Login { isid: 2, ..Login::default() });
    again.attentions(1);
    let _ = again.read(0, &[0; 6], 0);
    assert_eq!(again.read(0, &READ, 512).1, 8, "BUSY");
    assert_eq!(again.read(1, &READ, 512).1, 0, "another disk is not BUSY");
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(again.read(0, &READ, 512).1, 0, "the disk serves again after it has completed them");
}
