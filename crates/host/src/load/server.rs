//! The server of load tests: one run at a time, within limits, and no word to a stranger.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::counted::{LinkWatch, ProcessorWatch, Watch};
use super::stream::{self, Part};
use super::wire::{BUSY, FULL, READY, RECEIVED, REQUEST_BYTES, Report, Request};

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most connections that may be open, each with a thread: one that is served, and others that have sent no request yet.
const CONNECTIONS_MAX: usize = 16;

/// Pause after a failed accept(2): without free descriptors each further call fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What the connections share.
#[derive(Debug, Default)]
struct Shared {
    open: AtomicUsize,
    is_serving: AtomicBool,
}

/// Serves load tests on a thread of its own until the process ends.
///
/// # Errors
/// When the thread cannot start.
pub fn start(listener: TcpListener) -> io::Result<()> {
    std::thread::Builder::new().spawn(move || accept_all(&listener, &Arc::default())).map(drop)
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(slot) = Slot::take(shared) else {
            // A few bytes into an empty buffer: they do not wait.
            let _ = (&stream).write_all(FULL.as_bytes());
            continue;
        };
        let thread = std::thread::Builder::new().spawn(move || {
            let outcome = serve(&stream, &slot.0);
            match outcome {
                Ok(request) => tracing::info!("{peer}: {} ended", request.line().trim_end()),
                Err(error) => tracing::info!("{peer}: {error}"),
            }
        });
        // If the thread cannot start, the closure is dropped: that closes the connection and frees its slot.
        let _: io::Result<_> = thread;
    }
}

/// The place of an open connection.
struct Slot(Arc<Shared>);

impl Slot {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let slot = Self(Arc::clone(shared));
        (shared.open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The one run that may be in progress.
struct Turn<'shared>(&'shared Shared);

impl<'shared> Turn<'shared> {
    fn take(shared: &'shared Shared) -> Option<Self> {
        (!shared.is_serving.swap(true, Ordering::AcqRel)).then_some(Self(shared))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_serving.store(false, Ordering::Release);
    }
}

fn serve(mut stream: &TcpStream, shared: &Shared) -> io::Result<Request> {
    let request = read_request(stream)?;
    let report = run(stream, shared, request)?;
    let mut line = serde_json::to_vec(&report).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(request)
}

/// Serves the run of a request, in its turn. The turn ends before the report is sent: a tester that has the report begins its next
/// run at once, and must not find its own last one in progress.
fn run(mut stream: &TcpStream, shared: &Shared, request: Request) -> io::Result<Report> {
    let Some(_turn) = Turn::take(shared) else {
        stream.write_all(BUSY.as_bytes())?;
        return Err(io::Error::other("refused: another test is in progress"));
    };
    stream.set_nodelay(true)?;
    let (link, processors) = (LinkWatch::begin(stream), ProcessorWatch::begin());
    let mut watch = Watch::new(stream)?;
    stream.write_all(READY.as_bytes())?;
    let part = Part {
        sends: request.direction.server_sends(),
        receives: request.direction.tester_sends(),
        time: request.time,
        bytes: request.bytes,
    };
    let traffic = stream::run(stream, part, &mut watch)?;
    confirm(stream, &traffic.rest)?;
    let sent = if part.sends { watch.sent() } else { None };
    let processors = processors.end();
    Ok(Report { received: traffic.received, sent, link: link.and_then(LinkWatch::end), processors })
}

/// Reads a request, byte by byte from what has arrived: nothing may follow it before the answer.
fn read_request(mut stream: &TcpStream) -> io::Result<Request> {
    let begun = Instant::now();
    let mut line = Vec::new();
    let mut piece = [0; REQUEST_BYTES];
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no request in time"));
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        line.extend_from_slice(&piece[..count]);
        match line.iter().position(|byte| *byte == b'\n') {
            Some(end) if end + 1 == line.len() => {
                return Request::parse(&line[..end]).ok_or_else(not_a_request);
            }
            None if count > 0 && line.len() < REQUEST_BYTES => {}
            _ => return Err(not_a_request()),
        }
    }
}

fn not_a_request() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it sent no request of a load test")
}

/// Waits until the tester has confirmed that it received everything.
fn confirm(mut stream: &TcpStream, rest: &[u8]) -> io::Result<()> {
    let mut mark = [0];
    match rest {
        [] => stream.read_exact(&mut mark)?,
        [first, ..] => mark = [*first],
    }
    if mark == [RECEIVED] && rest.len() <= 1 { Ok(()) } else { Err(not_a_request()) }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Direction, LAST};
    use super::*;

    #[test]
    fn the_turn_is_free_before_the_tester_has_its_report() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tester = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let shared = Shared::default();
        tester.write_all(&[LAST, RECEIVED]).unwrap();
        let request =
            Request { direction: Direction::FromServer, time: Duration::from_millis(100), bytes: 1 };
        let report = run(&stream, &shared, request).unwrap();
        assert!(report.sent.is_some());
        assert!(Turn::take(&shared).is_some(), "the next run finds the last one in progress");
        drop(stream);
        let mut said = Vec::new();
        tester.read_to_end(&mut said).unwrap();
        assert!(said.starts_with(READY.as_bytes()) && said.ends_with(&[LAST]), "no report was sent yet");
    }
}
