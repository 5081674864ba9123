//! A capture in which nothing happens for a long time is read with progress, and can be interrupted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::cell::Cell;
use std::io::Cursor;

use analyzer::{Analysis, Input, Options};
use capture::file::CaptureFile;
use common::{ACK, Capture, ONE};

/// Frames of the capture.
const FRAMES: u64 = 50_000;

fn input() -> Vec<Input> {
    let mut capture = Capture::new(9000);
    for _ in 0..FRAMES {
        // No request, no response.
        capture.send(0, ACK, b"", &ONE);
    }
    let file = CaptureFile::read("test", Box::new(Cursor::new(capture.bytes()))).unwrap();
    vec![Input { file, place: None }]
}

#[test]
fn the_progress_of_a_capture_without_operations_is_shown() {
    let shown = Cell::new(0);
    let result =
        Analysis::run(input(), &Options::default(), None, &mut |_| shown.set(shown.get() + 1), &|| false)
            .unwrap();
    assert_eq!((result.frames.frames, result.operations), (FRAMES, 0));
    assert!(shown.get() > 50, "{}", shown.get());
}

#[test]
fn a_capture_without_operations_can_be_interrupted() {
    // Later than the first batch, which has the beginning of the capture point.
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) >= 3;
    let result = Analysis::run(input(), &Options::default(), None, &mut |_| (), &stop).unwrap();
    assert!((1..FRAMES / 2).contains(&result.frames.frames), "{}", result.frames.frames);
}
