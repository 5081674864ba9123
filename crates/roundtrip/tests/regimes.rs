//! Regimes through the command line: a capture at both ends of a wire in which a part of the operations is slow in one place.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ops::Range;
use std::path::Path;

use capture::file::{InterfaceDescription, PcapngWriter};
use common::roundtrip;
use serde_json::Value;

/// A captured run of a ring of depth 1 on one TCP connection.
struct Capture {
    writer: PcapngWriter<Vec<u8>>,
    now_ns: u64,
    /// Sequence numbers of both sides.
    sent: [u32; 2],
    random: fastrand::Rng,
}

/// The sides, as interfaces of the file.
const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Capture {
    /// Begins with the handshake.
    fn begin() -> Self {
        let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
        for name in ["client", "server"] {
            let description =
                InterfaceDescription { name: name.to_owned(), link: 1, ..InterfaceDescription::default() };
            writer.interface(&description).unwrap();
        }
        let random = fastrand::Rng::with_seed(11);
        let mut own = Self { writer, now_ns: 1_700_000_000_000_000_000, sent: [100, 900], random };
        own.segment(CLIENT, 0x02, 0, 20_000);
        own.segment(SERVER, 0x12, 0, 20_000);
        own.segment(CLIENT, 0x10, 0, 20_000);
        own
    }

    /// A segment that one side sends, and that reaches the other after a time.
    fn segment(&mut self, from: usize, flags: u8, payload: usize, way_ns: u64) {
        let to = 1 - from;
        let acknowledged = if flags & 0x10 == 0 { 0 } else { self.sent[to] };
        let mut frame = vec![2, 0, 0, 0, 0, to as u8, 2, 0, 0, 0, 0, from as u8, 8, 0];
        let length = (40 + payload) as u16;
        frame.extend([0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        let (address, port) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [40_000_u16, 5000]);
        frame.extend(address[from]);
        frame.extend(address[to]);
        frame.extend(port[from].to_be_bytes());
        frame.extend(port[to].to_be_bytes());
        frame.extend(self.sent[from].to_be_bytes());
        frame.extend(acknowledged.to_be_bytes());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.resize(frame.len() + payload, 0x7e);
        for (interface, at_ns) in [(from, self.now_ns), (to, self.now_ns + way_ns)] {
            self.writer.frame(interface as u32, at_ns, None, &frame, frame.len() as u32, None).unwrap();
        }
        self.now_ns += way_ns;
        self.sent[from] = self.sent[from].wrapping_add(payload as u32 + u32::from(flags & 0x02 != 0));
    }

    /// About a time, nanoseconds.
    fn about(&mut self, us: f64) -> u64 {
        ((us + 2.0 * self.random.f64()) * 1000.0) as u64
    }

    /// An operation whose request takes this long to the server.
    fn operation(&mut self, request_us: f64) {
        let [request, server, response, client] = [request_us, 33.0, 60.0, 32.0].map(|us| self.about(us));
        self.segment(CLIENT, 0x18, 48, request);
        self.now_ns += server;
        self.segment(SERVER, 0x18, 4144, response);
        self.now_ns += client;
    }
}

/// A capture whose every fifth operation takes 119 us longer in the request path in these ranges.
fn captured(file: &Path, operations: usize, slow: &[Range<usize>]) {
    let mut capture = Capture::begin();
    for index in 0..operations {
        let is_slow = index % 5 == 0 && slow.iter().any(|range| range.contains(&index));
        capture.operation(if is_slow { 141.0 } else { 22.0 });
    }
    std::fs::write(file, capture.writer.finish().unwrap()).unwrap();
}

/// The paper's 4096 B chart as a capture: the text and the JSON name the stretch, every fifth, 119 us, and the request path.
#[test]
fn analyze_names_the_regimes_of_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.pcapng");
    for slow in [4000..8000, 0..4000, 8000..12_000, 10_000..10_600] {
        captured(&file, 12_000, std::slice::from_ref(&slow));
        let output = roundtrip().arg("analyze").arg(&file).arg("--json").output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = result["modes"].as_array().unwrap();
        let row = rows.iter().find(|row| row["kind"] == "regimes").unwrap_or_else(|| panic!("{rows:#?}"));
        assert_eq!(row["segment"], "request_path", "{row:#}");
        let regimes = row["regimes"].as_array().unwrap();
        let fifth: Vec<&Value> =
            regimes.iter().filter(|regime| !regime["patterns"].as_array().unwrap().is_empty()).collect();
        let [fifth] = fifth[..] else { panic!("{slow:?}: {regimes:#?}") };
        let number = |key: &str| fifth[key].as_f64().unwrap();
        assert!((number("from_operation") - slow.start as f64).abs() <= 10.0, "{slow:?}: {fifth:#}");
        assert!((number("to_operation") - slow.end as f64).abs() <= 10.0, "{slow:?}: {fifth:#}");
        assert!((number("share") - slow.len() as f64 / 12_000.0).abs() < 0.002, "{slow:?}: {fifth:#}");
        let pattern = &fifth["patterns"][0];
        assert_eq!((&pattern["n"], &pattern["segment"]), (&5.into(), &"request_path".into()), "{pattern:#}");
        assert!((pattern["longer_us"].as_f64().unwrap() - 119.0).abs() < 1.0, "{pattern:#}");
        let output = roundtrip().arg("analyze").arg(&file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // A line of a regime goes on in deeper ones.
        let text = text.replace("\n    ", " ");
        let line = text.lines().find(|line| line.contains("every fifth operation takes 119 us longer"));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(
            line.contains("in the request path") && line.contains(" ms (") && line.contains("% of the"),
            "{line}"
        );
    }
}

/// A capture of one mode has no regimes.
#[test]
fn analyze_names_no_regimes_where_there_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.pcapng");
    for slow in [0..0, 0..12_000] {
        captured(&file, 12_000, std::slice::from_ref(&slow));
        let output = roundtrip().arg("analyze").arg(&file).arg("--json").output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let kinds: Vec<&Value> = result["modes"].as_array().unwrap().iter().map(|row| &row["kind"]).collect();
        assert!(!kinds.contains(&&"regimes".into()), "{slow:?}: {kinds:?}");
        assert_eq!(kinds.contains(&&"every_nth".into()), !slow.is_empty(), "{slow:?}: {kinds:?}");
    }
}
