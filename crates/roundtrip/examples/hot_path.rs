//! Runs one command COUNT times against a target in this process, to count the
//! instructions of the target's thread (scripts/bench-instructions.sh).
//!
//!     hot_path read|write BLOCK_BYTES COUNT

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

use std::sync::Arc;

use iscsi::initiator::Direction;
use iscsi_target::{LunConfig, RunningTarget, SendPolicy, TargetConfig};
use load::initiator::session::{Session, SessionOptions};
use store::{Ram, Store};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, block, count] = &arguments[..] else { panic!("hot_path read|write BLOCK_BYTES COUNT") };
    let (block, count): (usize, usize) = (block.parse().unwrap(), count.parse().unwrap());
    let store: Arc<dyn Store> = Arc::new(Ram::new(1 << 20));
    store.write_at(0, &vec![7; 1 << 20]).unwrap();
    let lun = LunConfig::new(0, store);
    let iqn = "iqn.2026-11.example.roundtrip:hot";
    let mut config = TargetConfig::new("127.0.0.1:0".parse().unwrap(), iqn, vec![lun]);
    config.send = SendPolicy::Nodelay;
    let target = RunningTarget::start(config).unwrap();
    let url = format!("iscsi://{}/{iqn}/0", target.address()).parse().unwrap();
    let mut session = Session::open(&url, &SessionOptions::default()).unwrap();
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (if what == "read" { 0x28 } else { 0x2a }, (block / 512) as u8);
    let data = vec![1; block];
    // The first command gets the unit attention of the power on.
    let _ = session.command([0; 16], Direction::None);
    for _ in 0..count {
        let reply = match what.as_str() {
            "read" => session.command(cdb, Direction::In(block as u32)),
            _ => session.write(cdb, &data),
        };
        assert_eq!(reply.unwrap().status, 0);
    }
}
