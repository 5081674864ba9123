//! A capture on a thread of its own, from start to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use record::{Op, Side};

use crate::error::CaptureError;
use crate::live::{LiveCapture, LiveConfig};
use crate::observer::StreamHole;
use crate::record::Counters;
use crate::tap::{Tap, TapReport};

/// How long after a stop the last packets may take to arrive: several block time-outs.
const DRAIN: Duration = Duration::from_millis(120);

/// The report of a capture point.
#[derive(Debug)]
pub struct SideReport {
    /// The side of the capture point.
    pub side: Side,
    /// The operations.
    pub ops: Vec<Op>,
    /// Counters.
    pub counters: Counters,
    /// Where bytes of streams are missing, the first 10,000 times.
    pub holes: Vec<StreamHole>,
}

/// The report of a capture.
#[derive(Debug)]
pub struct WatchReport {
    /// The interface.
    pub interface: String,
    /// One entry for each side, in the order asked for.
    pub sides: Vec<SideReport>,
    /// Packets that passed the kernel's filter.
    pub packets: u64,
    /// Packets dropped because the ring was full.
    pub drops: u64,
    /// CPU time of the capturing thread, nanoseconds.
    pub cpu_ns: u64,
    /// The capturing thread, as in /proc/self/task.
    pub thread_id: i32,
}

/// A running capture. Dropping it stops it.
#[derive(Debug)]
pub struct Watch {
    interface: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<WatchReport, CaptureError>>>,
    /// The capturing thread, as in /proc/self/task.
    pub thread_id: i32,
}

impl Watch {
    /// Starts a capture for the given sides. `enter` runs first on the new thread, to enter a network
    /// namespace or to set a CPU. Returns when the capture has begun.
    ///
    /// # Errors
    /// When the capture cannot be opened.
    pub fn start(
        config: LiveConfig,
        sides: &[Side],
        mtu_bytes: u32,
        limit: usize,
        enter: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<Self, CaptureError> {
        let taps = sides.iter().map(|&side| Tap::new(side, config.port, mtu_bytes, limit)).collect();
        Self::start_taps(config, taps, enter)
    }

    /// As [`Watch::start`], for taps that were made for the port of `config`.
    ///
    /// # Errors
    /// When the capture cannot be opened.
    pub fn start_taps(
        config: LiveConfig,
        taps: Vec<Tap>,
        enter: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<Self, CaptureError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_thread = Arc::clone(&stop);
        let (opened, is_open) = mpsc::channel();
        let interface = config.interface.clone();
        let io = |what| {
            let interface = interface.clone();
            move |source| CaptureError::Io { interface, what, source }
        };
        let thread = std::thread::Builder::new()
            .name(format!("capture {}", config.interface))
            .spawn({
                let enter_failed = io("entering the network namespace or CPU of the capture");
                move || {
                    let open = enter().map_err(enter_failed).and_then(|()| LiveCapture::open(&config));
                    match open {
                        Ok(capture) => {
                            let _ = opened.send(Ok(socket::cpu::thread_id()));
                            run(capture, taps, &stop_thread)
                        }
                        Err(error) => {
                            let _ = opened.send(Err(error));
                            Ok(WatchReport {
                                interface: config.interface,
                                sides: Vec::new(),
                                packets: 0,
                                drops: 0,
                                cpu_ns: 0,
                                thread_id: socket::cpu::thread_id(),
                            })
                        }
                    }
                }
            })
            .map_err(io("starting a thread"))?;
        let gone = || io("opening")(io::Error::other("the capturing thread ended"));
        let thread_id = is_open.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { interface, stop, thread: Some(thread), thread_id })
    }

    /// Stops after the last packets, and returns the report.
    ///
    /// # Errors
    /// When the capture has failed.
    pub fn stop(mut self) -> Result<WatchReport, CaptureError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(report)) => report,
            _ => Err(CaptureError::Io {
                interface: std::mem::take(&mut self.interface),
                what: "stopping",
                source: io::Error::other("the capturing thread panicked"),
            }),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut capture: LiveCapture, mut taps: Vec<Tap>, stop: &AtomicBool) -> Result<WatchReport, CaptureError> {
    // Time of the stop request, on the monotonic clock and on the clock of the stamps; blocks taken since.
    let mut stopped: Option<(Instant, u64, usize)> = None;
    loop {
        let mut newest_ns = 0;
        let came = capture.poll(Duration::from_millis(20), |packet| {
            newest_ns = packet.time_ns;
            for tap in &mut taps {
                tap.packet(packet);
            }
        })?;
        if stop.load(Ordering::Relaxed) {
            let (since, stop_ns, blocks) =
                stopped.get_or_insert_with(|| (Instant::now(), socket::clock::realtime_ns(), 0));
            *blocks += usize::from(came);
            // Continuing traffic must not prevent the end: the capture ends when its packets are newer
            // than the stop request, or (if the clock was set back) when the whole ring has been read.
            let is_drained = !came || newest_ns >= *stop_ns || *blocks > capture.blocks();
            if is_drained && since.elapsed() >= DRAIN {
                break;
            }
        }
    }
    let statistics = capture.statistics();
    let sides = taps
        .into_iter()
        .map(|tap| {
            let side = tap.side();
            let TapReport { ops, counters, holes } = tap.finish();
            SideReport { side, ops, counters, holes }
        })
        .collect();
    Ok(WatchReport {
        interface: capture.interface().to_owned(),
        sides,
        packets: statistics.packets,
        drops: statistics.drops,
        cpu_ns: socket::clock::thread_cpu_ns(),
        thread_id: socket::cpu::thread_id(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use iscsi::pdu::{ScsiCommand, ScsiResponse};

    use super::*;

    #[test]
    fn a_live_capture_on_loopback_sees_an_operation_at_all_four_points() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = LiveConfig { interface: "lo".into(), port, ring_bytes: 4 << 20, snap_bytes: 65_535 };
        let watch = match Watch::start(config, &[Side::Client, Side::Server], 65_536, 100, || Ok(())) {
            Ok(watch) => watch,
            Err(CaptureError::NotPermitted { .. }) => {
                assert!(!testing::require("CAP_NET_RAW", false));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let command = ScsiCommand { write_data: true, is_final: true, tag: 11, ..ScsiCommand::default() };
        client.write_all(&command.write().0).unwrap();
        let mut header = [0; 48];
        server.read_exact(&mut header).unwrap();
        server.write_all(&ScsiResponse { tag: 11, ..ScsiResponse::default() }.write().0).unwrap();
        client.read_exact(&mut header).unwrap();
        let report = watch.stop().unwrap();
        assert_eq!(report.drops, 0);
        let [client, server] = [&report.sides[0].ops, &report.sides[1].ops].map(|s| s.first().copied());
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!((client.tag, server.tag), (11, 11));
        let order = [client.c1, server.s1, server.s2, client.c2];
        assert!(order.windows(2).all(|pair| pair[1].since(pair[0]).unwrap() >= 0), "{order:?}");
    }
}
