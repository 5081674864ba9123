//! The analysis of packets while they are captured.

use std::sync::Arc;
use std::time::Duration;

use analyzer::AnalysisError;
use anyhow::{Context as _, anyhow};
use capture::file::CaptureFile;
use capture::record_to_file::{RecordSpec, Seen, record};

use crate::Failure;
use crate::analyze::classify;

/// Bytes kept of each packet: enough for the headers of a few messages, also in a jumbo frame.
const SNAP_BYTES: u32 = 262_144;
/// Size of the ring that the kernel fills while the analysis is busy.
const RING_BYTES: usize = 64 << 20;

/// What to capture.
pub(crate) struct Spec<'a> {
    pub(crate) interfaces: &'a [String],
    /// 0: all ports.
    pub(crate) port: u16,
    /// For how long; otherwise until it is stopped.
    pub(crate) duration: Option<Duration>,
    /// Where to count meanwhile.
    pub(crate) seen: Option<Arc<Seen>>,
}

/// Captures into a pipe, on a separate thread, and has the other end of the pipe analysed. Calls `ready` when the capture has begun.
pub(crate) fn analyse<R>(
    spec: &Spec<'_>,
    ready: &(dyn Fn() + Sync),
    stop: &(dyn Fn() -> bool + Sync),
    analyse: impl FnOnce(CaptureFile) -> Result<R, AnalysisError>,
) -> Result<R, Failure> {
    let (reader, writer) = std::io::pipe().context("cannot create a pipe").map_err(Failure::Work)?;
    let record_spec = RecordSpec {
        interfaces: spec.interfaces.to_vec(),
        port: spec.port,
        snap_bytes: SNAP_BYTES,
        ring_bytes: RING_BYTES,
        duration: spec.duration,
        bytes_max: None,
        baseline: Duration::ZERO,
        application: "roundtrip".to_owned(),
        seen: spec.seen.clone(),
    };
    std::thread::scope(|scope| {
        let capturing = scope.spawn(|| record(&record_spec, writer, &|| ready(), stop));
        let opened = CaptureFile::read(&spec.interfaces.join(", "), Box::new(reader));
        let result = opened.map_err(AnalysisError::from).and_then(analyse);
        match capturing.join() {
            Ok(Ok(_)) => result.map_err(classify),
            Ok(Err(error)) if error.is_usage() => Err(Failure::Usage(error.into())),
            Ok(Err(error)) => Err(Failure::Work(error.into())),
            Err(_) => Err(Failure::Work(anyhow!("the capturing thread panicked"))),
        }
    })
}
