//! Round trip times by TCP's handshake.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket::clock::monotonic_ns;
use socket::options::TcpOptions;

use crate::facts::path::{RttFacts, RttSource};

/// Handshakes to take the shortest of.
const SAMPLES: usize = 7;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connects several times, one after another. A refusal is a round trip, too.
pub(super) fn handshakes(address: SocketAddr) -> io::Result<RttFacts> {
    let mut times = Vec::new();
    let mut by = RttSource::Handshake;
    for _ in 0..SAMPLES {
        let begin = monotonic_ns();
        match TcpOptions::default().connect(&address, PATIENCE) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => by = RttSource::Refusal,
            // The first failure decides; a later one is a lost packet.
            Err(error) if times.is_empty() => return Err(error),
            Err(_) => continue,
        }
        times.push(monotonic_ns().saturating_sub(begin) as f64 / 1e3);
    }
    Ok(summary(times, by))
}

fn summary(mut times: Vec<f64>, by: RttSource) -> RttFacts {
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(0.0);
    RttFacts { min_us: at(0), median_us: at(times.len() / 2), samples: times.len() as u32, by }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_shortest_and_the_median_are_kept() {
        let rtt = summary(vec![300.0, 100.0, 900.0], RttSource::Handshake);
        assert_eq!((rtt.min_us, rtt.median_us, rtt.samples), (100.0, 300.0, 3));
    }

    #[test]
    fn open_and_closed_ports_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = handshakes(address).unwrap();
        drop(listener);
        let closed = handshakes(address).unwrap();
        assert_eq!((open.by, closed.by), (RttSource::Handshake, RttSource::Refusal));
        assert!(open.min_us > 0.0 && open.min_us <= open.median_us && open.samples == 7, "{open:?}");
    }
}
