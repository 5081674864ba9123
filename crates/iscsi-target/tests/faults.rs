//! Failing stores: the initiator gets accurate sense data and keeps its session, and other disks are unaffected.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Client, Login, start};
use iscsi::opcode::target as opcode;
use iscsi_target::{LunConfig, RunningTarget, Threads};
use store::Operation;
use store::file::{Engine, OpenOptions};
use store::layer::{Delay, ErrorAt, Layered};
use store::{Fault, FileStore, Ram, Store, StoreError};

fn serve(store: Arc<dyn Store>) -> (RunningTarget, Client) {
    let target = start(vec![LunConfig::new(0, store)], |_| ());
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    (target, client)
}

fn failing(operation: Operation, fault: Fault, bytes: std::ops::Range<u64>) -> Arc<dyn Store> {
    let hook = ErrorAt::new(operation, fault, 1.0, bytes, 0);
    Arc::new(Layered::new(hook, Arc::new(Ram::new(1 << 20))))
}

/// Returns sense key, code and qualifier; zeros for GOOD.
fn sense((_, status, sense): &(Vec<u8>, u8, Vec<u8>)) -> (u8, u8, u8) {
    if *status == 0 { (0, 0, 0) } else { (sense[2] & 15, sense[12], sense[13]) }
}

/// WRITE (10) of one block with immediate data.
fn write(client: &mut Client, lba: u8, flags: u8) -> (u8, u8, u8) {
    let cdb = [0x2a, flags, 0, 0, 0, lba, 0, 0, 1, 0];
    let command = iscsi::pdu::ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: 512,
        ..client.command(client.cmd_sn, &cdb, 0)
    };
    client.issue(&command, &[7; 512]);
    let response = client.until(opcode::SCSI_RESPONSE).1;
    let sense_data = response.data.get(2..).unwrap_or_default().to_vec();
    sense(&(Vec::new(), response.bhs.0[3], sense_data))
}

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];
const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const MEDIUM_READ: (u8, u8, u8) = (3, 0x11, 0);
const MEDIUM_WRITE: (u8, u8, u8) = (3, 0x0c, 0);
const NO_SPACE: (u8, u8, u8) = (7, 0x27, 7);

#[test]
fn each_fault_is_reported_with_its_sense_and_the_session_continues() {
    for (fault, expected) in
        [(Fault::Medium, MEDIUM_READ), (Fault::Hardware, (4, 0x44, 0)), (Fault::NotReady, (2, 0x04, 0))]
    {
        let (_target, mut client) = serve(failing(Operation::Read, fault, 4608..5120));
        assert_eq!(sense(&client.read(0, &READ, 512)), expected);
        assert_eq!(write(&mut client, 9, 0), (0, 0, 0));
        // The second of four blocks is bad: sense data follows no data or partial data.
        let mut four = READ;
        (four[5], four[8]) = (8, 4);
        assert_eq!(sense(&client.read(0, &four, 2048)), expected);
        assert_eq!(client.attentions(0), []);
    }
    let (_target, mut client) = serve(failing(Operation::Write, Fault::NoSpace, 0..1 << 20));
    assert_eq!(write(&mut client, 9, 0), NO_SPACE);
    assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0));
}

#[test]
fn failed_flush_is_not_acknowledged() {
    let (_target, mut client) = serve(failing(Operation::Flush, Fault::Medium, 0..1 << 20));
    assert_eq!(write(&mut client, 9, 0), (0, 0, 0));
    assert_eq!(sense(&client.read(0, &FLUSH, 0)), MEDIUM_WRITE);
    assert_eq!(write(&mut client, 9, 8), MEDIUM_WRITE, "FUA");
    assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0));
}

/// A store whose flush fails once, as the kernel reports a lost write once.
struct OnceBroken(Ram, std::sync::atomic::AtomicBool);

impl Store for OnceBroken {
    fn kind(&self) -> &'static str {
        "once"
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn has_volatile_cache(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.0.write_at(offset, data)
    }
    fn flush(&self) -> Result<(), StoreError> {
        if self.1.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        Err(StoreError::Injected(Fault::Medium))
    }
}

#[test]
fn multi_burst_write_reports_the_first_failure_and_consumes_all_data() {
    let (_target, mut client) = serve(failing(Operation::Write, Fault::Medium, 70_000..70_001));
    // 256 KiB with one R2T after another; the initiator sends all data before the failure is reported.
    let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 2, 0, 0];
    let command = iscsi::pdu::ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: 262_144,
        ..client.command(77, &cdb, 0)
    };
    client.issue(&command, &[]);
    let mut pieces = 0;
    let response = loop {
        let pdu = client.receive().unwrap();
        if pdu.opcode() == opcode::SCSI_RESPONSE {
            break pdu;
        }
        let (transfer_tag, at, bytes) = (pdu.u32(20), pdu.u32(40), pdu.u32(44));
        for (data_sn, from) in (at..at + bytes).step_by(8192).enumerate() {
            let is_final = from + 8192 >= at + bytes;
            let data_out = iscsi::pdu::DataOut {
                tag: 77,
                transfer_tag,
                data_sn: data_sn as u32,
                buffer_offset: from,
                is_final,
                ..Default::default()
            };
            client.send(data_out.write(), &vec![1; 8192.min(at + bytes - from) as usize]);
            pieces += 1;
        }
    };
    assert_eq!((response.bhs.0[3], response.data[4] & 15, pieces), (2, 3, 32));
    assert_eq!(client.attentions(0), []);
}

#[test]
fn failed_flush_is_reported_to_the_requester() {
    let store = OnceBroken(Ram::new(1 << 20), std::sync::atomic::AtomicBool::new(false));
    let (_target, mut client) = serve(Arc::new(store));
    assert_eq!(sense(&client.read(0, &FLUSH, 0)), MEDIUM_WRITE);
    assert_eq!(sense(&client.read(0, &FLUSH, 0)), (0, 0, 0));
}

/// Returns every combination of direct I/O and engine.
fn ways() -> impl Iterator<Item = (bool, Engine)> {
    [false, true]
        .into_iter()
        .flat_map(|direct| [Engine::Auto, Engine::Threads].map(|engine| (direct, engine)))
}

#[test]
fn truncated_file_is_a_medium_error_and_keeps_the_session() {
    for (direct, engine) in ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let how = OpenOptions { size_bytes: Some(1 << 20), direct, engine, ..OpenOptions::default() };
        let (_target, mut client) = serve(Arc::new(FileStore::open(&path, how).unwrap()));
        assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(sense(&client.read(0, &READ, 512)), MEDIUM_READ, "{direct} {engine:?}");
        // Half of the range exists: a short read.
        let mut half = READ;
        (half[5], half[8]) = (0, 16);
        assert_eq!(sense(&client.read(0, &half, 8192)), MEDIUM_READ, "{direct} {engine:?}");
        // Large enough to be sent with sendfile(2).
        let mut large = READ;
        (large[5], large[7]) = (0, 1);
        assert_eq!(sense(&client.read(0, &large, 131_072)), MEDIUM_READ, "{direct} {engine:?}");
        let mut first = READ;
        first[5] = 0;
        assert_eq!(sense(&client.read(0, &first, 512)), (0, 0, 0));
    }
}

/// A loop device over a file, detached when dropped.
struct Loop(String);

impl Loop {
    fn over(file: &std::path::Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok();
        let output = output.filter(|output| output.status.success());
        if !testing::require("a loop device (root, and the loop driver)", output.is_some()) {
            return None;
        }
        let output = output?;
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }

    fn open(&self, direct: bool, engine: Engine) -> Arc<dyn Store> {
        let how = OpenOptions { device: true, direct, engine, ..OpenOptions::default() };
        Arc::new(FileStore::open(std::path::Path::new(&self.0), how).unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// The kernel reports lost writes once, on the next fsync(2). The target reports that error to the requester, and fails
/// every later flush until the disk is reopened.
#[test]
fn lost_kernel_write_is_reported_until_reopened() {
    for engine in [Engine::Auto, Engine::Threads] {
        let folder = tempfile::tempdir().unwrap();
        if !small_file_system(folder.path()) {
            return;
        }
        // A device of 4 MiB on a file system of 1 MiB: the page cache accepts writes that the disk has no space for.
        let path = folder.path().join("device");
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let Some(device) = Loop::over(&path) else { return };
        let store = device.open(false, engine);
        let (_target, mut client) = serve(Arc::clone(&store));
        store.write_at(0, &vec![7; 2 << 20]).unwrap();
        assert_eq!(sense(&client.read(0, &FLUSH, 0)), MEDIUM_WRITE, "{engine:?}");
        assert_eq!(sense(&client.read(0, &FLUSH, 0)), MEDIUM_WRITE, "second flush: {engine:?}");
        assert_eq!(write(&mut client, 9, 8), MEDIUM_WRITE, "FUA: {engine:?}");
        assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0), "the session continues");
    }
}

/// A device that is truncated while it is open.
#[test]
fn missing_device_is_a_medium_error_and_keeps_the_session() {
    for (direct, engine) in ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let Some(device) = Loop::over(&path) else { return };
        let (_target, mut client) = serve(device.open(direct, engine));
        assert_eq!(write(&mut client, 9, 8), (0, 0, 0), "{direct} {engine:?}");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        // A block that is not in the page cache.
        let mut far = READ;
        far[4] = 9;
        assert_eq!(sense(&client.read(0, &far, 512)), MEDIUM_READ, "{direct} {engine:?}");
        let mut large = far;
        large[7] = 1;
        assert_eq!(sense(&client.read(0, &large, 131_072)), MEDIUM_READ, "{direct} {engine:?}");
        assert_eq!(client.attentions(0), [], "the session continues");
        assert_eq!(client.log_out(0, 0), 0);
    }
}

#[test]
fn slow_disk_does_not_slow_other_sessions() {
    let slow = Layered::new(Delay(Duration::from_millis(400)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
    let luns = vec![LunConfig::new(0, Arc::new(slow)), LunConfig::new(1, Arc::new(Ram::new(1 << 20)))];
    let target = start(luns, |_| ());
    let [mut patient, mut other] =
        [1, 2].map(|isid| Client::log_in(target.address(), &Login { isid, ..Login::default() }));
    patient.attentions(0);
    other.attentions(1);
    let read = patient.command(5, &READ, 512);
    let begun = Instant::now();
    patient.issue(&read, &[]);
    let mut reads = 0;
    while begun.elapsed() < Duration::from_millis(200) {
        assert_eq!(sense(&other.read(1, &READ, 512)), (0, 0, 0));
        reads += 1;
    }
    assert!(reads > 20, "{reads} reads while another disk is slow");
    patient.until(opcode::DATA_IN);
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

/// Mounts a file system of 1 MiB in a mount namespace of this thread.
fn small_file_system(folder: &std::path::Path) -> bool {
    if !testing::require_root("a file system of its own") {
        return false;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let mount =
        |arguments: &[&str]| std::process::Command::new("mount").args(arguments).status().unwrap().success();
    // Private propagation: the mount must not be visible elsewhere.
    if !testing::require("'/' to be a mount, which it is not in a chroot", mount(&["--make-rprivate", "/"])) {
        return false;
    }
    assert!(mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs", folder.to_str().unwrap()]));
    true
}

#[test]
fn full_file_system_fails_the_write_and_keeps_the_session() {
    for engine in [Engine::Auto, Engine::Threads] {
        full(engine);
    }
}

fn full(engine: Engine) {
    let folder = tempfile::tempdir().unwrap();
    if !small_file_system(folder.path()) {
        return;
    }
    // Sparse: larger than the file system.
    let how = OpenOptions { size_bytes: Some(4 << 20), engine, ..OpenOptions::default() };
    let (_target, mut client) = serve(Arc::new(FileStore::open(&folder.path().join("disk"), how).unwrap()));
    let fill = |client: &mut Client| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[12]) = (0x93, 1, 16);
        let (_, status, sense_data) = client.read(0, &cdb, 0);
        sense(&(Vec::new(), status, sense_data))
    };
    // WRITE SAME of 2 MiB of zeros.
    assert_eq!(fill(&mut client), NO_SPACE);
    assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0));
    // A large FUA write, submitted as one operation, is partly written and fails.
    let cdb = [0x2a, 8, 0, 0, 0x08, 0, 0, 0, 128, 0];
    let command = iscsi::pdu::ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: 65_536,
        ..client.command(78, &cdb, 0)
    };
    client.issue(&command, &[1; 65_536]);
    let response = client.until(opcode::SCSI_RESPONSE).1;
    assert_eq!((response.bhs.0[3], response.data[4] & 15, response.data[14]), (2, 7, 0x27), "{engine:?}");
    // UNMAP frees space.
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(0_u64.to_be_bytes());
    list.extend(8192_u32.to_be_bytes());
    list.extend([0; 4]);
    let unmap = iscsi::pdu::ScsiCommand {
        read: false,
        write_data: true,
        expected_bytes: 24,
        ..client.command(client.cmd_sn, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0)
    };
    client.issue(&unmap, &list);
    assert_eq!(client.until(opcode::SCSI_RESPONSE).1.bhs.0[3], 0);
    assert_eq!(write(&mut client, 9, 8), (0, 0, 0));
}

fn slow(milliseconds: u64) -> LunConfig {
    let delay = Delay(Duration::from_millis(milliseconds));
    LunConfig::new(0, Arc::new(Layered::new(delay, Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>)))
}

#[test]
fn commands_of_one_connection_wait_for_a_slow_disk_concurrently() {
    let target = start(vec![slow(100)], |_| ());
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    let begun = Instant::now();
    for tag in 1..=16 {
        let read = client.command(tag, &READ, 512);
        client.issue(&read, &[]);
    }
    let mut tags: Vec<u32> = (0..16).map(|_| client.until(opcode::DATA_IN).1.u32(16)).collect();
    // Sequentially they would take 1.6 s.
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
    tags.sort_unstable();
    assert_eq!(tags, (1..=16).collect::<Vec<u32>>());
    // WRITE, WRITE with FUA, COMPARE AND WRITE: each answered once.
    assert_eq!(write(&mut client, 9, 8), (0, 0, 0));
    assert_eq!(client.read(0, &READ, 512).0, [7; 512]);
    assert_eq!(sense(&client.read(0, &FLUSH, 0)), (0, 0, 0));
}

/// A reset waits for operations that can end and abandons hung ones, within the bound that docs/target.md states.
#[test]
fn reset_completes_within_its_bound_on_a_hung_disk() {
    for (delay, longest) in [(300, 2), (60_000, 8)] {
        let luns = vec![slow(delay), common::ram(1, 1)];
        let target = start(luns, |_| ());
        let mut client = Client::log_in(target.address(), &Login::default());
        client.attentions(1);
        let _ = client.read(0, &[0; 6], 0);
        let read = client.command(99, &READ, 512);
        client.issue(&read, &[]);
        let begun = Instant::now();
        assert_eq!(client.task_management(5, 0), 0, "function complete");
        assert!(begun.elapsed() < Duration::from_secs(longest), "{:?}", begun.elapsed());
        assert_eq!(sense(&client.read(1, &READ, 512)), (0, 0, 0), "the session continues");
        assert_eq!(client.log_out(0, 0), 0);
    }
}

#[test]
fn ordered_task_waits_for_earlier_tasks_and_blocks_later_ones() {
    let target = start(vec![slow(60)], |_| ());
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    for tag in 1..=6 {
        let (attribute_1, attribute_2) = (tag != 4, tag == 4);
        let read = iscsi::pdu::ScsiCommand { attribute_1, attribute_2, ..client.command(tag, &READ, 512) };
        client.issue(&read, &[]);
    }
    let tags: Vec<u32> = (0..6).map(|_| client.until(opcode::DATA_IN).1.u32(16)).collect();
    assert_eq!(tags.iter().position(|&tag| tag == 4), Some(3), "{tags:?}");
    assert!(tags[..3].iter().all(|&tag| tag < 4), "{tags:?}");
}

/// CPU time of a thread of this process, nanoseconds.
fn cpu_ns(thread: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn waiting_for_a_slow_disk_costs_no_cpu() {
    for threads in [Threads::PerConnection, Threads::Loops(1)] {
        let target = start(vec![slow(1500)], |config| config.threads = threads);
        let mut client = Client::log_in(target.address(), &Login { isid: 77, ..Login::default() });
        client.attentions(0);
        let tag = client.cmd_sn;
        let read = client.command(tag, &READ, 512);
        client.issue(&read, &[]);
        client.until(opcode::DATA_IN);
        let busy = cpu_ns(target.statistics()[0].thread);
        assert!(
            busy > 0 && busy < 700_000_000,
            "{threads:?}: busy for {busy} ns while it waited for its disk"
        );
    }
}

#[test]
fn log_pages_and_the_self_test_tell_what_failed() {
    let log = |client: &mut Client, page: u8| {
        let answer = client.read(0, &[0x4d, 0, 0x40 | page, 0, 0, 0, 0, 1, 0, 0], 256);
        assert_eq!(answer.1, 0, "{answer:?}");
        let counters = answer.0[4..].chunks_exact(12);
        counters.map(|one| u64::from_be_bytes(one[4..12].try_into().unwrap())).collect::<Vec<_>>()
    };
    const SELF_TEST: [u8; 6] = [0x1d, 4, 0, 0, 0, 0];
    let (_target, mut client) = serve(Arc::new(Ram::new(1 << 20)));
    assert_eq!(sense(&client.read(0, &READ, 512)), (0, 0, 0));
    assert_eq!(write(&mut client, 9, 0), (0, 0, 0));
    assert_eq!(sense(&client.read(0, &SELF_TEST, 0)), (0, 0, 0));
    // What a connection counts is added to the disk's counters some 20 times a second.
    let begun = Instant::now();
    while log(&mut client, 3)[1] < 512 && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((log(&mut client, 3), log(&mut client, 2)), (vec![0, 512, 0], vec![0, 512, 0]));
    // The last block cannot be read.
    let last = (1 << 20) - 512..1 << 20;
    let (_target, mut client) = serve(failing(Operation::Read, Fault::Medium, last));
    assert_eq!(sense(&client.read(0, &SELF_TEST, 0)), (4, 0x3e, 3));
    assert_eq!(sense(&client.read(0, &[0x28, 0, 0, 0, 7, 0xff, 0, 0, 1, 0], 512)), MEDIUM_READ);
    assert_eq!((log(&mut client, 3)[2], log(&mut client, 2)[2], log(&mut client, 6)[0]), (1, 0, 1));
}
