//! Captures of connections between two hosts, as bytes of a file.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::Cursor;

use analyzer::{Analysis, AnalysisResult, Input, Options};
use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};
use record::wire::Wire;

pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
/// LINKTYPE_RAW.
const RAW: u32 = 101;

/// A capture of connections between 10.0.0.1 and 10.0.0.2, at one or two interfaces.
pub(crate) struct Capture {
    writer: PcapngWriter<Vec<u8>>,
    /// Of client and server.
    pub(crate) ports: [u16; 2],
    /// The next sequence number of each.
    pub(crate) next: [u32; 2],
    pub(crate) ns: u64,
    /// From one packet to the next.
    pub(crate) step_ns: u64,
}

impl Capture {
    pub(crate) fn new(server_port: u16) -> Self {
        Self::of(server_port, &["a", "b"])
    }

    /// The same, with these interfaces.
    pub(crate) fn of(server_port: u16, names: &[&str]) -> Self {
        let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
        for &name in names {
            let interface = InterfaceDescription { name: name.into(), link: RAW, ..Default::default() };
            writer.interface(&interface).unwrap();
        }
        Self {
            writer,
            ports: [40_000, server_port],
            next: [100, 900],
            ns: 1_700_000_000_000_000_000,
            step_ns: 1_000_000,
        }
    }

    /// A packet at these interfaces, each with a shift of its time.
    pub(crate) fn send(&mut self, who: usize, flags: u8, payload: &[u8], at: &[(u32, i64)]) {
        let mut all = vec![0x45, 0];
        all.extend_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        all.extend_from_slice(&[
            0,
            0,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1 + who as u8,
            10,
            0,
            0,
            2 - who as u8,
        ]);
        all.extend_from_slice(&self.ports[who].to_be_bytes());
        all.extend_from_slice(&self.ports[1 - who].to_be_bytes());
        all.extend_from_slice(&self.next[who].to_be_bytes());
        all.extend_from_slice(&self.next[1 - who].to_be_bytes());
        all.extend_from_slice(&[0x50, flags, 1, 0xf4, 0, 0, 0, 0]);
        all.extend_from_slice(payload);
        for (interface, shift) in at {
            let ns = self.ns.saturating_add_signed(*shift);
            self.writer.frame(*interface, ns, None, &all, all.len() as u32, None).unwrap();
        }
        let taken = payload.len() as u32 + u32::from(flags & SYN != 0);
        self.next[who] = self.next[who].wrapping_add(taken);
        self.ns += self.step_ns;
    }

    pub(crate) fn open(&mut self, at: &[(u32, i64)]) {
        self.send(0, SYN, b"", at);
        self.send(1, SYN | ACK, b"", at);
        self.send(0, ACK, b"", at);
    }

    pub(crate) fn talk(&mut self, times: usize, at: &[(u32, i64)]) {
        for _ in 0..times {
            self.send(0, ACK, b"question", at);
            self.send(1, ACK, b"answer", at);
        }
    }

    pub(crate) fn analyse(self) -> AnalysisResult {
        analyse(self.bytes())
    }

    /// The file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.writer.finish().unwrap()
    }
}

pub(crate) fn analyse(file: Vec<u8>) -> AnalysisResult {
    analyse_on(file, None)
}

/// The same, with a link of a known rate.
pub(crate) fn analyse_on(file: Vec<u8>, wire: Option<Wire>) -> AnalysisResult {
    let file = CaptureFile::read("test", Box::new(Cursor::new(file))).unwrap();
    let inputs = vec![Input { file, place: None }];
    let options = Options { wire, ..Options::default() };
    Analysis::run(inputs, &options, None, &mut |_| (), &|| false).unwrap()
}

/// The operations of a file, in the order in which they are told.
pub(crate) fn operations(file: Vec<u8>) -> Vec<record::Observed> {
    let file = CaptureFile::read("test", Box::new(Cursor::new(file))).unwrap();
    let mut all = Vec::new();
    let mut take = |observed: &record::Observed, _: &analyzer::Named<'_>| all.push(*observed);
    let inputs = vec![Input { file, place: None }];
    Analysis::run(inputs, &Options::default(), Some(&mut take), &mut |_| (), &|| false).unwrap();
    all
}

pub(crate) fn has_note(result: &AnalysisResult, words: &str) -> bool {
    result.notes.iter().any(|note| note.contains(words))
}

pub(crate) const ONE: [(u32, i64); 1] = [(0, 0)];
