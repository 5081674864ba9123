//! A bulk copy over plain TCP: from one side's memory to the other's.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket::clock;

use crate::accept::{Limits, accept_all};
use crate::endpoint::EndpointOptions;
use crate::pattern::{Pattern, Submit};
use crate::result::RunResult;

/// The size of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySpec {
    /// Bytes in total.
    pub bytes: u64,
    /// Bytes per write.
    pub block_bytes: usize,
}

/// The result of a copy, on the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopyResult {
    /// Received bytes.
    pub bytes: u64,
    /// Time from the first to the last byte, seconds.
    pub seconds: f64,
    /// Millions of bytes each second.
    pub megabytes_per_second: f64,
}

/// The URL of a receiver of copies: `tcp://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyUrl(String);

impl CopyUrl {
    /// Returns host and port.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CopyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.0)
    }
}

impl FromStr for CopyUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let place = url.strip_prefix("tcp://").unwrap_or_default().trim_end_matches('/');
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self(place.to_owned()))
            }
            _ => Err(format!("'{url}': write tcp://host:port")),
        }
    }
}

/// A run of concurrent copies, each on its own connection and thread.
#[derive(Clone, Debug)]
pub struct CopyRun {
    /// The size of each copy.
    pub spec: CopySpec,
    /// The socket options of each connection.
    pub side: EndpointOptions,
    /// The number of concurrent copies.
    pub copies: u32,
}

impl CopyRun {
    /// Runs the copies until the receiver has read all of them. A block counts as an operation.
    ///
    /// # Errors
    /// When a connection cannot be made or is lost.
    pub fn run(&self, to: SocketAddr) -> io::Result<RunResult> {
        let begun = Instant::now();
        let one = || {
            let before_ns = clock::thread_cpu_ns();
            send(to, &self.spec, &self.side).map(|()| clock::thread_cpu_ns() - before_ns)
        };
        let lost = || io::Error::other("the thread panicked");
        let cpu_ns: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.copies).map(|_| scope.spawn(one)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(lost())))
                .collect::<io::Result<_>>()
        })?;
        let (seconds, copies) = (begun.elapsed().as_secs_f64(), u64::from(self.copies));
        let operations = copies * self.spec.bytes.div_ceil(self.spec.block_bytes.max(1) as u64);
        let iops = operations as f64 / seconds.max(1e-9);
        Ok(RunResult {
            rw: Pattern::Write,
            block_size_bytes: self.spec.block_bytes as u64,
            queue_depth: self.copies,
            sessions: self.copies,
            submit: Submit::Each,
            seconds,
            operations,
            iops,
            slowest_session_iops: iops / f64::from(self.copies.max(1)),
            transferred_bytes: self.spec.bytes * copies,
            bytes_per_second: (self.spec.bytes * copies) as f64 / seconds.max(1e-9),
            client_cpu_us: cpu_ns.iter().sum::<u64>() as f64 / 1000.0 / operations.max(1) as f64,
            // A block has no round trip.
            ..RunResult::default()
        })
    }
}

/// A peer that neither sends nor receives for this time is considered lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes per read of a copy.
const PIECE_BYTES: usize = 1 << 20;

/// Receives copies, each on its own thread, until the process ends. The data is counted and discarded: a copy has no
/// header that could request memory.
///
/// # Errors
/// When the socket options cannot be set or the accepting thread cannot be started.
pub fn take_all(listener: TcpListener, side: EndpointOptions, limits: Limits) -> io::Result<()> {
    side.tcp().apply(&listener)?;
    let silence = limits.silence;
    let serve = Arc::new(move |stream: TcpStream| {
        // A failed connection is closed; others continue.
        let _ = stream.set_read_timeout(Some(silence)).and_then(|()| take(stream, &side));
    });
    std::thread::Builder::new()
        .spawn(move || accept_all(&listener, &limits, &AtomicBool::new(false), &serve, drop))?;
    Ok(())
}

/// Receives a copy.
///
/// # Errors
/// When the connection fails.
pub fn receive(listener: &TcpListener, side: &EndpointOptions) -> io::Result<CopyResult> {
    // Options are set on the listener and inherited: the window scale is negotiated before accept(2) returns.
    side.tcp().apply(listener)?;
    take(listener.accept()?.0, side)
}

fn take(mut stream: TcpStream, side: &EndpointOptions) -> io::Result<CopyResult> {
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut bytes, mut begun) = (0, None);
    loop {
        let count = stream.read(&mut buffer)?;
        side.received(&stream)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        begun.get_or_insert_with(Instant::now);
    }
    let seconds = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
    let megabytes_per_second = if seconds > 0.0 { bytes as f64 / seconds / 1e6 } else { 0.0 };
    // The sender waits for this byte: its measured time must end when everything was received.
    stream.write_all(&[1])?;
    Ok(CopyResult { bytes, seconds, megabytes_per_second })
}

/// Sends a copy, and waits until all of it was received.
///
/// # Errors
/// When the connection cannot be made or is lost.
pub fn send(server: SocketAddr, spec: &CopySpec, side: &EndpointOptions) -> io::Result<()> {
    let mut stream = side.connect(&server)?;
    stream.set_write_timeout(Some(SILENCE))?;
    let block = vec![5; spec.block_bytes.max(1)];
    let mut left = spec.bytes;
    while left > 0 {
        let count = left.min(block.len() as u64) as usize;
        stream.write_all(&block[..count])?;
        left -= count as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(SILENCE))?;
    if stream.read(&mut [0])? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the receiver closed the connection before it had received everything",
        ));
    }
    Ok(())
}
