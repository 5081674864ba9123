//! Captures all packets of a run to a file, and reads that file.

use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use analysis::verdict::Verdict;
use analyzer::{Analysis, AnalysisError, Input, Options};
use capture::file::CaptureFile;
use capture::packet::{Segment, decode};
use capture::record_to_file::{RecordError, RecordSpec, record};
use record::Wire;
use serde::{Deserialize, Serialize};

use crate::error::StudyError;

/// Most bytes of a file. Later packets are still captured, so that the observer's cost stays the same, and not written.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Bytes kept of a packet: its headers, and those of a message.
const SNAP_BYTES: u32 = 320;
/// Size of the ring, bytes.
const RING_BYTES: usize = 16 << 20;

/// Calls `work` while the packets of a port on an interface are captured to a file. `enter` moves the capturing thread to
/// the interface's namespace.
pub(crate) fn traced<T: Send>(
    interface: &str,
    port: u16,
    file: &Path,
    enter: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let failed = |what| move |source| StudyError::machine(what, source);
    let draft = output::Draft::in_own_folder(file).map_err(failed("making the file of a trace"))?;
    let out = draft.handle().map_err(failed("making the file of a trace"))?;
    let spec = RecordSpec {
        interfaces: vec![interface.to_owned()],
        port,
        snap_bytes: SNAP_BYTES,
        ring_bytes: RING_BYTES,
        duration: None,
        bytes_max: Some(FILE_BYTES_MAX),
        baseline: std::time::Duration::ZERO,
        application: concat!("roundtrip ", env!("CARGO_PKG_VERSION")).to_owned(),
        seen: None,
    };
    let (is_over, (opened, is_open)) = (AtomicBool::new(false), mpsc::sync_channel(1));
    std::thread::scope(|scope| {
        let over = &is_over;
        let capturing = scope.spawn(move || -> Result<(), StudyError> {
            enter().map_err(failed("entering the place of a capture"))?;
            let ready = || {
                let _ = opened.send(());
            };
            let recorded = record(&spec, BufWriter::new(out), &ready, &|| over.load(Ordering::Relaxed));
            recorded.map(drop).map_err(|error| match error {
                RecordError::Capture(error) => error.into(),
                RecordError::Write(error) => failed("writing a trace")(error),
            })
        });
        // An error means that the capture could not be opened; its thread returns the reason.
        let outcome = is_open.recv().ok().map(|()| work());
        over.store(true, Ordering::Relaxed);
        let lost = || failed("keeping a trace")(io::Error::other("the thread panicked"));
        capturing.join().map_err(|_| lost())??;
        let outcome = outcome.unwrap_or_else(|| Err(lost()))?;
        draft.commit().map_err(failed("writing a trace"))?;
        Ok(outcome)
    })
}

/// A frame of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceFrame {
    /// Since the first one that is shown, us.
    pub at_us: f64,
    /// From client to server.
    pub is_clients: bool,
    /// Bytes above TCP.
    pub bytes: usize,
    /// Its kind: `data`, `ACK`, `data, FIN`.
    pub what: String,
    /// Its first byte, counted from the connection's first one.
    pub from_byte: u32,
    /// The acknowledged offset, counted alike.
    pub acknowledges: u32,
}

/// The verdicts of the analysis of a client's trace.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn verdicts(file: &Path, wire: Option<Wire>) -> Result<Vec<Verdict>, AnalysisError> {
    let inputs = vec![Input { file: CaptureFile::open(file)?, place: None }];
    let options = Options { wire, ..Options::default() };
    Ok(Analysis::run(inputs, &options, None, &mut |_| (), &|| false)?.verdicts)
}

/// Exchanges that are skipped: a connection's first acknowledgements are not delayed.
const PASSED: usize = 8;
/// Exchanges that are shown.
const SHOWN: usize = 2;
/// Most frames that are shown.
const FRAMES_MAX: usize = 16;

/// Two exchanges of a trace, frame by frame; empty when the file has no separate exchanges.
pub(crate) fn exchanges(file: &Path) -> Vec<TraceFrame> {
    let Ok(mut file) = CaptureFile::open(file) else { return Vec::new() };
    let mut shown: Vec<TraceFrame> = Vec::new();
    let (mut server, mut first, mut last_was_server, mut turns, mut begun) = (None, [0_u32; 2], true, 0, 0);
    while let Ok(Some(frame)) = file.next_frame() {
        // Loopback shows each packet twice.
        if frame.interface > 0 {
            continue;
        }
        let Ok(segment) = decode(frame.data, frame.wire_bytes) else { continue };
        let is_first = segment.flags & Segment::SYN != 0;
        if is_first && segment.flags & Segment::ACK == 0 {
            (server, first[0], turns) = (Some(segment.destination), segment.seq, 0);
            continue;
        }
        let Some(server) = server else { continue };
        let is_clients = segment.destination == server;
        if !is_clients && segment.source != server {
            continue;
        }
        if is_first {
            first[1] = segment.seq;
            continue;
        }
        if segment.payload_bytes > 0 {
            // Client data after server data begins an exchange.
            if is_clients && last_was_server {
                turns += 1;
            }
            last_was_server = !is_clients;
        }
        if turns > PASSED + SHOWN || shown.len() == FRAMES_MAX {
            break;
        }
        if turns > PASSED {
            if shown.is_empty() {
                begun = frame.time_ns;
            }
            let [own, other] = if is_clients { first } else { [first[1], first[0]] };
            let fin = segment.flags & Segment::FIN != 0;
            shown.push(TraceFrame {
                at_us: frame.time_ns.saturating_sub(begun) as f64 / 1e3,
                is_clients,
                bytes: segment.payload_bytes,
                what: match (segment.payload_bytes > 0, fin) {
                    (true, false) => "data",
                    (true, true) => "data, FIN",
                    (false, true) => "FIN",
                    (false, false) => "ACK",
                }
                .into(),
                from_byte: segment.seq.wrapping_sub(own.wrapping_add(1)),
                acknowledges: segment.ack.wrapping_sub(other.wrapping_add(1)),
            });
        }
    }
    shown
}
