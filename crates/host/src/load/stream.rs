//! The data of a run, on either end: one thread sends, one receives, and the caller's reads what the kernel counts.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::counted::Watch;
use super::wire::{BLOCK_BYTES, Blocks, LAST, MORE};
use super::{DRAIN, SILENCE};
use crate::facts::load::Received;

/// Time between two readings of the round trip time.
const READING: Duration = Duration::from_millis(50);

/// Bytes of a receive.
const PIECE_BYTES: usize = 256 << 10;

/// What one end does in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) sends: bool,
    pub(super) receives: bool,
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Traffic {
    /// What arrived, where this end receives.
    pub(super) received: Option<Received>,
    /// Bytes behind the other end's data.
    pub(super) rest: Vec<u8>,
}

/// Sends and receives the data of a run, until both directions have ended.
pub(super) fn run(stream: &TcpStream, part: Part, watch: &mut Watch) -> io::Result<Traffic> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let (over, ends) = mpsc::channel::<()>();
    let begun = Instant::now();
    let cause = Mutex::new(None);
    let cause = &cause;
    let traffic = std::thread::scope(|scope| {
        let also_over = over.clone();
        let sends = scope.spawn(move || {
            let _over = over;
            or_end(stream, cause, send(stream, part, begun))
        });
        let receives = scope.spawn(move || {
            let _over = also_over;
            or_end(stream, cause, receive(stream, part, begun))
        });
        // Both threads end within the run's time, DRAIN and SILENCE: then the channel has no sender.
        while ends.recv_timeout(READING) == Err(mpsc::RecvTimeoutError::Timeout) {
            if part.sends && begun.elapsed() < part.time {
                watch.read();
            }
        }
        let (sent, received) = (sends.join(), receives.join());
        sent.ok().flatten().and(received.ok().flatten())
    });
    match (traffic, cause.lock().unwrap_or_else(PoisonError::into_inner).take()) {
        (Some(traffic), None) => Ok(traffic),
        (_, Some(error)) => Err(error),
        (None, None) => Err(io::Error::other("a thread panicked")),
    }
}

/// A direction that fails ends the other one, too, whose failure then is no cause.
fn or_end<T>(stream: &TcpStream, cause: &Mutex<Option<io::Error>>, outcome: io::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
            None
        }
    }
}

fn send(mut stream: &TcpStream, part: Part, begun: Instant) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    block[0] = MORE;
    let mut left = if part.sends { part.bytes } else { 0 };
    while left > 0 && begun.elapsed() < part.time {
        stream.write_all(&block)?;
        left = left.saturating_sub(BLOCK_BYTES as u64);
    }
    stream.write_all(&[LAST])
}

fn receive(mut stream: &TcpStream, part: Part, begun: Instant) -> io::Result<Traffic> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut blocks = Blocks::default();
    let mut arrivals = Arrivals::new(part.time);
    loop {
        if begun.elapsed() > part.time + DRAIN {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its data did not end in time"));
        }
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = &piece[..count];
        let (taken, is_last) = blocks.take(bytes).map_err(io::Error::other)?;
        arrivals.note(taken as u64, begun.elapsed());
        if is_last {
            let received = part.receives.then(|| arrivals.received());
            return Ok(Traffic { received, rest: bytes[taken..].to_vec() });
        }
    }
}

/// Bytes that arrive within the time of a run. The time begins with the first of them; what comes later has waited in a queue, and
/// would make the rate depend on the queue's length.
#[derive(Debug)]
struct Arrivals {
    time: Duration,
    first: Option<Duration>,
    last: Duration,
    bytes: u64,
}

impl Arrivals {
    fn new(time: Duration) -> Self {
        Self { time, first: None, last: Duration::ZERO, bytes: 0 }
    }

    fn note(&mut self, bytes: u64, at: Duration) {
        let since = at.saturating_sub(*self.first.get_or_insert(at));
        if since <= self.time {
            self.bytes += bytes;
            self.last = since;
        }
    }

    fn received(&self) -> Received {
        Received::new(self.bytes, self.last.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_time_of_the_run_and_not_of_the_queue_that_drains_after_it() {
        let mut arrivals = Arrivals::new(Duration::from_secs(2));
        let at = Duration::from_millis;
        for (bytes, ms) in [(500, 1000), (500, 2000), (1000, 3000), (9999, 3001), (9999, 5000)] {
            arrivals.note(bytes, at(ms));
        }
        let received = arrivals.received();
        assert_eq!((received.bytes, received.seconds, received.bits_per_second), (2000, 2.0, 8000.0));
        assert_eq!(Arrivals::new(at(1)).received(), Received::default());
    }

    #[test]
    fn data_that_ends_before_a_rate_can_be_measured_has_none() {
        let rate = |last_us: u64| {
            let mut arrivals = Arrivals::new(Duration::from_secs(60));
            arrivals.note(1 << 19, Duration::from_micros(7));
            arrivals.note(1 << 19, Duration::from_micros(7 + last_us));
            arrivals.received().rate()
        };
        assert_eq!(rate(80), None, "1 MiB in 80 us is no rate of 105 Gb/s");
        assert_eq!(rate(49_999), None);
        assert_eq!(rate(50_000), Some(8.0 * 1_048_576.0 / 0.05));
    }
}
