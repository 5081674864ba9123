//! What a store is told of reads and writes that follow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::{Client, Login, start};
use iscsi_target::LunConfig;
use store::{Ram, Store, StoreError};

/// A store that notes what it is told.
struct Told(Ram, Arc<Mutex<Vec<(u64, usize)>>>);

impl Store for Told {
    fn kind(&self) -> &'static str {
        "told"
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn has_volatile_cache(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.0.write_at(offset, data)
    }
    fn foresee(&self, offset: u64, length: usize) {
        self.1.lock().unwrap().push((offset, length));
        self.0.foresee(offset, length);
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The reads and writes of a segment are foreseen while the one before them is executed; what is neither is not, and all are
/// answered.
#[test]
fn reads_and_writes_behind_a_pdu_are_foreseen() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let store: Arc<dyn Store> = Arc::new(Told(Ram::new(1 << 20), Arc::clone(&told)));
    let target = start(vec![LunConfig::new(3, store)], |_| {});
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(3);
    told.lock().unwrap().clear();
    // READ (10) of blocks 9 and 11, TEST UNIT READY, READ (10) of block 13, WRITE (10) of block 15, and a READ far outside.
    let read = |block: u8| [0x28, 0, 0, 0, 0, block, 0, 0, 1, 0];
    let outside = [0x28, 0, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0];
    let write = [0x2a, 0, 0, 0, 0, 15, 0, 0, 1, 0];
    let cdbs = [read(9), read(11), [0; 10], read(13), write, outside];
    let mut bytes = Vec::new();
    for (tag, cdb) in (1..).zip(&cdbs) {
        let (is_write, length) = (cdb[0] == 0x2a, if cdb[0] == 0 { 0 } else { 512 });
        let mut command = client.command(tag, cdb, length);
        (command.read, command.write_data) = (length > 0 && !is_write, is_write);
        (command.lun, command.cmd_sn) = ([0, 3, 0, 0, 0, 0, 0, 0], client.cmd_sn);
        bytes.extend(client.encode(command.write(), if is_write { &[7; 512] } else { &[] }));
        client.cmd_sn = client.cmd_sn.wrapping_add(1);
    }
    client.socket.write_all(&bytes).unwrap();
    let statuses: Vec<u8> = cdbs.iter().map(|_| client.receive().unwrap().bhs.0[3]).collect();
    assert_eq!(statuses, [0, 0, 0, 0, 0, 2]);
    let outside = (0xffff_ffff * 512, 0xffff * 512);
    assert_eq!(*told.lock().unwrap(), [(11 * 512, 512), (13 * 512, 512), (15 * 512, 512), outside]);
}
