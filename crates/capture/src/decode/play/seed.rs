//! Conversations of the tests as seeds for the fuzz target `streams`.

use std::path::PathBuf;

use record::Side;

use crate::decode::{PROTOCOLS, ProtocolEntry, hash_of};

/// Names the folder that seeds are written to.
const FOLDER: &str = "ROUNDTRIP_WRITE_FUZZ_SEEDS";

/// Longer seeds make the fuzzer slow.
const MOST_BYTES: usize = 4096;

/// A conversation in the form of `fuzz/fuzz_targets/streams.rs`.
pub(super) struct Seed {
    folder: PathBuf,
    protocol: &'static str,
    bytes: Vec<u8>,
    /// Bytes of each side that are missing before its next ones, at most what a segment can state.
    missing: [u8; 2],
    /// Units of 2^20 ns before the next segment.
    later: u8,
}

impl Seed {
    /// Nothing, unless seeds are asked for.
    pub(super) fn new(entry: &ProtocolEntry) -> Option<Self> {
        let folder = std::env::var_os(FOLDER)?.into();
        let place = PROTOCOLS.iter().position(|known| known == entry)?;
        let decoded = [3, u8::try_from(place).ok()?];
        Some(Self { folder, protocol: entry.name, bytes: decoded.into(), missing: [0; 2], later: 0 })
    }

    pub(super) fn segment(&mut self, side: Side, bytes: &[u8]) {
        for piece in bytes.chunks(usize::from(u8::MAX)) {
            let missing = std::mem::take(&mut self.missing[side as usize]);
            let later = std::mem::take(&mut self.later);
            let how = side as u8 | if missing > 0 { 2 } else { 0 };
            self.bytes.extend([how, 0x18, missing, later, piece.len() as u8]);
            self.bytes.extend(piece);
        }
    }

    pub(super) fn lose(&mut self, side: Side, count: u64) {
        let missing = &mut self.missing[side as usize];
        *missing = u64::from(*missing).saturating_add(count).min(127) as u8;
    }

    pub(super) fn pause(&mut self, ns: u64) {
        self.later = (ns >> 20).min(255) as u8;
    }

    pub(super) fn write(&self) {
        if self.bytes.len() <= MOST_BYTES {
            let name = format!("{}-{:016x}", self.protocol.replace('/', "-"), hash_of(&self.bytes));
            std::fs::write(self.folder.join(name), &self.bytes).expect("the folder of the seeds");
        }
    }
}
