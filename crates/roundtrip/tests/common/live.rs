//! Captures during a workload, and their analysis.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capture::record_to_file::{RecordSpec, Recorded, record};

/// Captures are made one at a time: on a busy machine they would lose packets.
static ALONE: Mutex<()> = Mutex::new(());

/// The exclusive right to capture; `None`, with a message, without root.
pub fn may_capture() -> Option<MutexGuard<'static, ()>> {
    if !testing::require_root("captures and namespaces") {
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Ends a capture when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Captures a port on an interface while `work` runs; `enter` moves the capturing thread first.
pub fn captured<T>(
    interface: &str,
    port: u16,
    file: &Path,
    enter: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> T,
) -> (T, Recorded) {
    let over = AtomicBool::new(false);
    let ready = AtomicBool::new(false);
    let spec = RecordSpec {
        interfaces: vec![interface.to_owned()],
        port,
        snap_bytes: 262_144,
        ring_bytes: 256 << 20,
        duration: None,
        bytes_max: None,
        baseline: Duration::ZERO,
        application: "test".to_owned(),
        seen: None,
    };
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            enter().expect("entering");
            let out = io::BufWriter::new(std::fs::File::create(file).expect("a file"));
            let stop = || {
                ready.store(true, Ordering::Relaxed);
                over.load(Ordering::Relaxed)
            };
            record(&spec, out, &|| (), &stop)
        });
        // The first check of the stop condition happens when the interface is open.
        while !ready.load(Ordering::Relaxed) && !recording.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(30));
        // Also if the work fails: the thread is waited for.
        let ends = Ends(&over);
        let result = work();
        drop(ends);
        (result, recording.join().expect("no panic").expect("captured"))
    })
}

/// The result of `roundtrip analyze --json`; exit code 0 without a verdict, 1 with one.
pub fn analyze(arguments: &[&str]) -> serde_json::Value {
    let output = super::roundtrip().args(["analyze", "--json"]).args(arguments).output().expect("analyze");
    let text = String::from_utf8_lossy(&output.stderr);
    let result: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"));
    let verdicts = result["verdicts"].as_array().expect("a list").len();
    assert_eq!(output.status.code(), Some(i32::from(verdicts > 0)), "{text}");
    result
}

/// The kinds of its verdicts.
pub fn kinds(result: &serde_json::Value) -> Vec<String> {
    let verdicts = result["verdicts"].as_array().expect("a list");
    verdicts.iter().map(|v| v["kind"].as_str().expect("a word").to_owned()).collect()
}
