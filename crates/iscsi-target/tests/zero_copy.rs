//! Zero-copy reads: borrowed data equals copied data for every store, digest setting and length, and is a snapshot of the
//! time of the response.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Client, Login, start};
use iscsi::opcode::target as opcode;
use iscsi_target::LunConfig;
use store::file::{Engine, OpenOptions};
use store::{FileStore, Ram, Store, Zero};

const SIZE: u64 = 8 << 20;

fn read_cdb(lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = 0x28;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Returns stores with holes and identical contents, except for the one of zeros.
fn stores(folder: &std::path::Path) -> Vec<(&'static str, Arc<dyn Store>)> {
    let file = |name: &str, direct, engine| -> Arc<dyn Store> {
        let how = OpenOptions { size_bytes: Some(SIZE), direct, engine, ..OpenOptions::default() };
        Arc::new(FileStore::open(&folder.join(name), how).unwrap())
    };
    let stores: Vec<(&str, Arc<dyn Store>)> = vec![
        ("zero", Arc::new(Zero::new(SIZE))),
        ("ram", Arc::new(Ram::new(SIZE))),
        ("file", file("file", false, Engine::Auto)),
        ("direct, ring", file("ring", true, Engine::Auto)),
        ("direct, threads", file("threads", true, Engine::Threads)),
    ];
    let mut random = fastrand::Rng::with_seed(5);
    let pieces: Vec<(u64, Vec<u8>)> = (0..40)
        .map(|_| {
            let data = (0..random.usize(1..200_000)).map(|_| random.u8(..)).collect();
            (random.u64(..SIZE - 200_000), data)
        })
        .collect();
    for (_, store) in &stores {
        pieces.iter().for_each(|(at, data)| store.write_at(*at, data).unwrap());
    }
    stores
}

#[test]
fn borrowed_data_equals_copied_data() {
    let folder = tempfile::tempdir().unwrap();
    let stores = stores(folder.path());
    let luns = stores.iter().zip(0..).map(|((_, store), n)| LunConfig::new(n, Arc::clone(store))).collect();
    let target = start(luns, |_| ());
    for (isid, keys) in [
        "",
        "MaxRecvDataSegmentLength=262144 MaxBurstLength=16776192",
        "HeaderDigest=CRC32C MaxRecvDataSegmentLength=65536 MaxBurstLength=1048576",
        "HeaderDigest=CRC32C DataDigest=CRC32C MaxRecvDataSegmentLength=262144",
        "ErrorRecoveryLevel=1 MaxRecvDataSegmentLength=262144",
    ]
    .into_iter()
    .enumerate()
    {
        let login = Login { isid: isid as u8 + 1, keys, ..Login::default() };
        let mut client = Client::log_in(target.address(), &login);
        let mut random = fastrand::Rng::with_seed(isid as u64);
        for (lun, (name, store)) in stores.iter().enumerate() {
            client.attentions(lun as u8);
            for blocks in [1_u16, 31, 32, 64, 256, 2047, 2048, 2049, 4096] {
                let lba = random.u32(..(SIZE / 512) as u32 - u32::from(blocks));
                let bytes = u32::from(blocks) * 512;
                // The whole range, less, and more than the command requests.
                for expected in [bytes, bytes - 99, bytes + 1000] {
                    let (data, status, _) = client.read(lun as u8, &read_cdb(lba, blocks), expected);
                    let mut there = vec![0; bytes.min(expected) as usize];
                    store.read_at(u64::from(lba) * 512, &mut there).unwrap();
                    assert!(
                        status == 0 && data == there,
                        "{name}, {keys}: {blocks} blocks, {expected} bytes"
                    );
                }
            }
        }
        assert_eq!(client.log_out(0, 0), 0);
    }
}

/// The initiator does not read for a while: borrowed data is queued in parts and sent in order.
#[test]
fn borrowed_data_waits_for_a_slow_reader() {
    let folder = tempfile::tempdir().unwrap();
    for (name, store) in stores(folder.path()) {
        let target = start(vec![LunConfig::new(0, Arc::clone(&store))], |_| ());
        let keys = "MaxRecvDataSegmentLength=262144";
        let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
        client.attentions(0);
        let reads: Vec<(u32, u16)> = (0..24).map(|n| (n * 97, 2048 + n as u16)).collect();
        for (tag, (lba, blocks)) in (0..).zip(&reads) {
            let read = client.command(tag, &read_cdb(*lba, *blocks), u32::from(*blocks) * 512);
            client.issue(&read, &[]);
        }
        std::thread::sleep(Duration::from_millis(150));
        let mut data: Vec<Vec<u8>> = vec![Vec::new(); reads.len()];
        let mut open = reads.len();
        while open > 0 {
            let pdu = client.until(opcode::DATA_IN).1;
            data[pdu.u32(16) as usize].extend_from_slice(&pdu.data);
            open -= usize::from(pdu.bhs.0[1] & 1 != 0);
        }
        for ((lba, blocks), data) in reads.iter().zip(&data) {
            let mut there = vec![0; usize::from(*blocks) * 512];
            store.read_at(u64::from(*lba) * 512, &mut there).unwrap();
            assert!(*data == there, "{name}: {blocks} blocks at {lba}");
        }
    }
}

/// A read of memory that is overwritten while its response is queued returns the data of the time of the response.
#[test]
fn memory_read_is_a_consistent_snapshot() {
    let store = Arc::new(Ram::new(SIZE));
    store.write_at(0, &vec![1; SIZE as usize]).unwrap();
    let target = start(vec![LunConfig::new(0, Arc::clone(&store) as Arc<dyn Store>)], |_| ());
    let keys = "MaxRecvDataSegmentLength=262144";
    let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
    client.attentions(0);
    for round in 2..20 {
        let read = client.command(round.into(), &read_cdb(0, 8192), 4 << 20);
        client.issue(&read, &[]);
        let first = client.until(opcode::DATA_IN).1;
        store.write_at(0, &vec![round; SIZE as usize]).unwrap();
        let mut data = first.data;
        while data.len() < 4 << 20 {
            data.extend(client.until(opcode::DATA_IN).1.data);
        }
        assert!(data.iter().all(|&byte| byte == round - 1), "round {round}");
    }
}

/// Many large reads with a small send buffer: responses continue whenever the socket has taken bytes.
#[test]
fn large_reads_complete_with_a_small_send_buffer() {
    let folder = tempfile::tempdir().unwrap();
    for (name, store) in stores(folder.path()) {
        let target = start(vec![LunConfig::new(0, store)], |config| config.limits.unsent_bytes = 64 << 10);
        let keys = "MaxRecvDataSegmentLength=262144";
        let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
        client.attentions(0);
        let (mut open, mut issued) = (0, 0);
        while issued < 300 || open > 0 {
            while open < 16 && issued < 300 {
                let read = client.command(issued, &read_cdb(0, 1024), 1024 * 512);
                client.issue(&read, &[]);
                (open, issued) = (open + 1, issued + 1);
            }
            let pdu = client.until(opcode::DATA_IN).1;
            open -= u32::from(pdu.bhs.0[1] & 1 != 0);
        }
        assert_eq!(client.log_out(0, 0), 0, "{name}");
    }
}
