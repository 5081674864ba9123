//! Simulated runs and what the analysis of their packets finds, with the operations and their ledger as the truth.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub, reason = "each test file uses a part")]

use analyzer::{Analysis, AnalysisResult, Input, Options};
use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};
use record::{Op, Side};
use report::simulated::Packets;
use tcpsim::preset::Preset;
use tcpsim::{Part, RunResult, Setup, SimOp, simulate};

/// A simulated run.
pub struct Run {
    pub ops: Vec<SimOp>,
    pub result: RunResult,
    /// Its capture, an interface for each side.
    pub pcapng: Vec<u8>,
}

/// The capture points of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Both, in one file.
    Both,
    /// Both, in a file each.
    Apart,
    /// That of one side.
    From(Side),
}

impl Run {
    pub fn of(preset: &str, settings: &[&str]) -> Self {
        let source = Preset::named(preset).map_or("", |preset| preset.text);
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let setup = Setup::read_with(source, &settings).unwrap();
        let mut ops = Vec::new();
        let mut keep = |op: &SimOp| ops.push(*op);
        let mut packets = Packets::new(Vec::new(), &setup, Some(&mut keep), &|| false).unwrap();
        let result = simulate(&setup, &mut packets);
        let pcapng = packets.finish().unwrap();
        Self { ops, result, pcapng }
    }

    /// What the analysis finds.
    pub fn analysed(&self, seen: Seen) -> AnalysisResult {
        let files: Vec<Vec<u8>> = match seen {
            Seen::Both => vec![self.pcapng.clone()],
            Seen::Apart => vec![self.of_side(Side::Client), self.of_side(Side::Server)],
            Seen::From(side) => vec![self.of_side(side)],
        };
        let sides = match seen {
            Seen::Both => [None; 2],
            Seen::Apart => [Some(Side::Client), Some(Side::Server)],
            Seen::From(side) => [Some(side); 2],
        };
        let inputs = files.into_iter().zip(sides).map(|(bytes, place)| Input { file: read(bytes), place });
        let options = Options { modes: false, ..Options::default() };
        Analysis::run(inputs.collect(), &options, None, &mut |_| (), &|| false).unwrap()
    }

    /// The same from both sides, where one side's capture lacks a third of the time in the middle.
    pub fn analysed_without_a_third(&self, blind: Side) -> AnalysisResult {
        let times: Vec<u64> = self.ops.iter().filter_map(|op| op.op.c1.ns()).collect();
        let third = [times[times.len() / 3], times[2 * times.len() / 3]];
        let inputs = [Side::Client, Side::Server].map(|side| {
            let dark = if side == blind { third } else { [0, 0] };
            Input { file: read(self.of_side_without(side, dark)), place: Some(side) }
        });
        let options = Options { modes: false, ..Options::default() };
        Analysis::run(inputs.into(), &options, None, &mut |_| (), &|| false).unwrap()
    }

    /// The capture of one side.
    fn of_side(&self, side: Side) -> Vec<u8> {
        self.of_side_without(side, [0, 0])
    }

    /// The capture of one side without the frames between two times.
    fn of_side_without(&self, side: Side, [from_ns, to_ns]: [u64; 2]) -> Vec<u8> {
        let mut out = PcapngWriter::new(Vec::new(), "test").unwrap();
        out.interface(&InterfaceDescription {
            name: side.name().into(),
            description: None,
            link: 1,
            snap_bytes: 0,
            bits_per_second: None,
        })
        .unwrap();
        let mut file = read(self.pcapng.clone());
        while let Some(frame) = file.next_frame().unwrap() {
            if frame.interface == side as u32 && !(from_ns..to_ns).contains(&frame.time_ns) {
                out.frame(0, frame.time_ns, None, frame.data, frame.wire_bytes, None).unwrap();
            }
        }
        out.finish().unwrap()
    }

    /// The time of all operations as their user sees it, microseconds.
    pub fn seen_us(&self) -> f64 {
        let of = |op: &Op| op.finish.since(op.start).unwrap();
        self.ops.iter().map(|op| of(&op.op)).sum::<i64>() as f64 / 1000.0
    }
}

fn read(bytes: Vec<u8>) -> CaptureFile {
    CaptureFile::read("simulated", Box::new(std::io::Cursor::new(bytes))).unwrap()
}

/// The ledger's time in some parts, microseconds.
pub fn ledger_us(ops: &[SimOp], parts: &[Part]) -> f64 {
    let of = |op: &SimOp| {
        parts.iter().map(|&part| op.request[part as usize] + op.response[part as usize]).sum::<u64>()
    };
    ops.iter().map(of).sum::<u64>() as f64 / 1000.0
}
