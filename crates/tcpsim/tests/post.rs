//! The POST of the note on Nagle's algorithm and small requests: every frame at the client's capture point, to the microsecond.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use record::Side;
use tcpsim::preset::Preset;
use tcpsim::{Frame, Observer, Setup, simulate};

/// A frame as the note prints it: its time within the minute, microseconds, its bytes on the wire, its sender.
#[derive(Clone, Copy)]
struct Noted {
    at_us: u64,
    wire_bytes: u32,
    sender: Side,
}

const fn noted(at_us: u64, wire_bytes: u32, sender: Side) -> Noted {
    Noted { at_us, wire_bytes, sender }
}

/// Frames 25 to 28: 14:19:27 and these microseconds.
const NAGLE: [Noted; 4] = [
    noted(160_472, 349, Side::Client),
    noted(323_342, 60, Side::Server),
    noted(323_389, 791, Side::Client),
    noted(365_973, 360, Side::Server),
];

/// Frames 9 to 12: 14:24:12 and these microseconds.
const NODELAY: [Noted; 4] = [
    noted(346_146, 349, Side::Client),
    noted(348_661, 791, Side::Client),
    noted(349_052, 60, Side::Server),
    noted(395_271, 360, Side::Server),
];

/// Headers of Ethernet, IPv4 and TCP without options.
const HEADERS: u32 = 54;
/// An empty segment's frame is padded to this.
const FRAME_LEAST: u32 = 60;

/// The frames of the client's capture point.
#[derive(Default)]
struct AtClient(Vec<Frame>);

impl Observer for AtClient {
    const FRAMES: bool = true;

    fn frame(&mut self, frame: &Frame) {
        if frame.point == Side::Client {
            self.0.push(*frame);
        }
    }
}

/// The frames of some exchanges after the first ones.
fn exchanges(preset: &str) -> Vec<Vec<Frame>> {
    let setup = Setup::read(Preset::named(preset).unwrap().text).unwrap();
    let mut seen = AtClient::default();
    let result = simulate(&Setup { operations: 20, ..setup }, &mut seen);
    assert!(result.is_complete);
    seen.0.sort_by_key(|frame| frame.at);
    let mut exchanges: Vec<Vec<Frame>> = Vec::new();
    for frame in seen.0 {
        if frame.sender == Side::Client && frame.segment.bytes == 295 {
            exchanges.push(Vec::new());
        }
        exchanges.last_mut().unwrap().push(frame);
    }
    // The last one may be incomplete.
    exchanges.pop();
    exchanges
}

/// A frame's bytes, its sender, and its time after the first frame, us.
type Seen = (u32, Side, u64);

#[track_caller]
fn agree(preset: &str, note: [Noted; 4]) {
    let exchanges = exchanges(preset);
    assert!(exchanges.len() >= 20);
    let published: Vec<Seen> =
        note.iter().map(|frame| (frame.wire_bytes, frame.sender, frame.at_us - note[0].at_us)).collect();
    for frames in exchanges {
        let first = frames[0].at;
        let us = |at: u64| (at - first + 500) / 1000;
        let bytes = |payload: u32| (payload + HEADERS).max(FRAME_LEAST);
        let simulated: Vec<Seen> =
            frames.iter().map(|frame| (bytes(frame.segment.bytes), frame.sender, us(frame.at))).collect();
        assert_eq!(simulated, published, "{preset}");
    }
}

/// With Nagle the body waits for the delayed acknowledgement: 162.870 ms, and 205.501 ms in all.
#[test]
fn nagle_has_the_frames_of_the_note() {
    agree("post", NAGLE);
    let total_us = NAGLE[3].at_us - NAGLE[0].at_us;
    let gap_us = NAGLE[2].at_us - NAGLE[0].at_us;
    assert_eq!((total_us, gap_us), (205_501, 162_917));
}

/// Without Nagle the body follows after 2.515 ms, and its acknowledgement is at once, as every second segment's is.
#[test]
fn without_nagle_it_has_the_frames_of_the_note() {
    agree("post-nodelay", NODELAY);
    let total_us = NODELAY[3].at_us - NODELAY[0].at_us;
    let gap_us = NODELAY[1].at_us - NODELAY[0].at_us;
    assert_eq!((total_us, gap_us), (49_125, 2_515));
}

/// The payloads of the note's frames are those of a connection without timestamps: frame 11 acknowledges 737 bytes more than
/// frame 26 does, and frame 10 is 54 bytes larger than that.
#[test]
fn frames_of_the_note_carry_no_timestamps() {
    assert_eq!(1390 - 653, NODELAY[1].wire_bytes - HEADERS);
    for preset in ["post", "post-nodelay"] {
        let setup = Setup::read(Preset::named(preset).unwrap().text).unwrap();
        assert!(!setup.wire.timestamps && setup.mss_bytes() == 1460, "{preset}");
    }
}

/// The presets differ only where the note's two halves do.
#[test]
fn the_halves_differ_in_nagle_and_in_the_service_alone() {
    let read = |preset| Setup::read(Preset::named(preset).unwrap().text).unwrap();
    let (nagle, mut nodelay) = (read("post"), read("post-nodelay"));
    assert_eq!(nodelay.server.service - nagle.server.service, 4_026_000, "46 610 - 42 584 us");
    nodelay.server.service = nagle.server.service;
    nodelay.load.nagle = true;
    assert_eq!(nodelay, nagle);
}

/// What a user reads: mean round trips.
#[test]
fn round_trips_are_those_of_the_note() {
    for (preset, published_ms) in [("post", 205.501), ("post-nodelay", 49.125)] {
        let setup = Setup::read(Preset::named(preset).unwrap().text).unwrap();
        let ms = simulate(&Setup { operations: 50, ..setup }, &mut ()).rtt_us.mean / 1e3;
        // The client's own work before the first frame and after the last is in addition.
        assert!((published_ms..published_ms + 0.05).contains(&ms), "{preset}: {ms}");
    }
}
