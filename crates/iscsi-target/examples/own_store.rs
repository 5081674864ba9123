//! A store of one's own, exported over iSCSI: a disk whose blocks hold their own offsets.
//!
//!     cargo run -p iscsi-target --example own_store
//!     iscsi-inq iscsi://127.0.0.1:3260/iqn.2026-11.example:offsets/0

use std::sync::Arc;

use iscsi_target::{LunConfig, RunningTarget, TargetConfig};
use store::{Store, StoreError};

/// Each eight bytes hold their own offset.
struct Offsets;

impl Store for Offsets {
    fn kind(&self) -> &'static str {
        "offsets"
    }

    fn size_bytes(&self) -> u64 {
        1 << 30
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        for (word, at) in buffer.chunks_mut(8).zip((offset..).step_by(8)) {
            word.copy_from_slice(&at.to_be_bytes()[..word.len()]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let portal = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3260".to_owned()).parse()?;
    let disk = LunConfig::new(0, Arc::new(Offsets));
    let target = RunningTarget::start(TargetConfig::new(portal, "iqn.2026-11.example:offsets", vec![disk]))?;
    eprintln!("serving at {}; Enter ends it", target.address());
    std::io::stdin().read_line(&mut String::new())?;
    target.stop();
    Ok(())
}
