//! What the two ends of a load test say to each other. No I/O; all of it may come from a stranger.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BYTES_MAX, TIME_MAX, TIME_MIN};
use crate::facts::load::{LoadedLink, LoadedProcessors, Received, Sent};

/// How a request begins: the protocol and its version.
pub const PREAMBLE: &str = "roundtrip-load/1";

/// The longest request, bytes.
pub const REQUEST_BYTES: usize = 80;

/// The longest report, bytes.
pub const REPORT_BYTES: usize = 16 << 10;

/// Length of a block of data.
pub const BLOCK_BYTES: usize = 64 << 10;

/// The first byte of a block.
pub const MORE: u8 = b'+';
/// Ends the data of one side.
pub const LAST: u8 = b'.';
/// The tester has received all data of the server.
pub const RECEIVED: u8 = b'!';

/// The server's answer to a request that it serves.
pub const READY: &str = "ready\n";
/// The server's answer to a request while it serves another.
pub const BUSY: &str = "busy\n";
/// The server's word to a connection beyond the most that it holds: it reads no request then.
pub const FULL: &str = "full\n";

/// The longest name of an interface (IFNAMSIZ less its zero), bytes.
const INTERFACE_BYTES: usize = 15;
/// The most counters of a report, and the longest name of one, bytes.
const COUNTERS_MAX: usize = 128;
const COUNTER_BYTES: usize = 64;
/// The most processors that a process can keep busy (the kernel's largest NR_CPUS).
const PROCESSORS_MAX: f64 = 8192.0;

/// Who sends in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The tester.
    ToServer,
    /// The server.
    FromServer,
    /// Both at once.
    Both,
}

impl Direction {
    const ALL: [Self; 3] = [Self::ToServer, Self::FromServer, Self::Both];

    fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to",
            Self::FromServer => "from",
            Self::Both => "both",
        }
    }

    /// Whether the tester sends.
    #[must_use]
    pub fn tester_sends(self) -> bool {
        self != Self::FromServer
    }

    /// Whether the server sends.
    #[must_use]
    pub fn server_sends(self) -> bool {
        self != Self::ToServer
    }
}

/// What a tester asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who sends.
    pub direction: Direction,
    /// For how long.
    pub time: Duration,
    /// The most bytes of each direction.
    pub bytes: u64,
}

impl Request {
    /// The request as it is sent, with its line end.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{PREAMBLE} {} {} {}\n", self.direction.name(), self.time.as_millis(), self.bytes)
    }

    /// Parses a line without its end; `None` where it is no request, or one beyond the limits.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let is_ours = words.next()? == PREAMBLE;
        let name = words.next()?;
        let direction = Direction::ALL.into_iter().find(|direction| direction.name() == name)?;
        let time = Duration::from_millis(words.next()?.parse().ok()?);
        let bytes: u64 = words.next()?.parse().ok()?;
        let is_within = (TIME_MIN..=TIME_MAX).contains(&time) && (1..=BYTES_MAX).contains(&bytes);
        (is_ours && is_within && words.next().is_none()).then_some(Self { direction, time, bytes })
    }
}

/// The stream has something else than a mark where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sends something else than a load test's data")]
pub struct BadMark;

/// Where the blocks of a stream begin, and where the last one ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Bytes of the current block that are still to come.
    left: usize,
}

impl Blocks {
    /// Takes the next bytes of the stream: how many of them are data with marks, and whether the last mark was among them. What
    /// follows the last mark is no data.
    ///
    /// # Errors
    /// When a block begins with another byte than a mark.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), BadMark> {
        let mut at = 0;
        loop {
            let skipped = self.left.min(bytes.len() - at);
            (at, self.left) = (at + skipped, self.left - skipped);
            match bytes.get(at) {
                None => return Ok((at, false)),
                Some(&LAST) => return Ok((at + 1, true)),
                Some(&MORE) => self.left = BLOCK_BYTES,
                Some(_) => return Err(BadMark),
            }
        }
    }
}

/// What the server reports at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What it received, where the tester sent.
    pub received: Option<Received>,
    /// What it sent, where it did and its kernel reports it.
    pub sent: Option<Sent>,
    /// Its interface.
    pub link: Option<LoadedLink>,
    /// Its processors; missing where it cannot read them.
    #[serde(default)]
    pub processors: Option<LoadedProcessors>,
}

impl Report {
    /// Parses a report.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if let Some(received) = report.received {
            let figures = [received.seconds, received.bits_per_second];
            if received.bytes > BYTES_MAX || figures.iter().any(|figure| !figure.is_finite() || *figure < 0.0)
            {
                return Err("its figures cannot be".to_owned());
            }
        }
        if let Some(LoadedProcessors { busy_share, softirq_share, process_share }) = report.processors {
            let is_share = |share: f64| (0.0..=1.0).contains(&share);
            if !is_share(busy_share)
                || !is_share(softirq_share)
                || !(0.0..=PROCESSORS_MAX).contains(&process_share)
            {
                return Err("its processors cannot be".to_owned());
            }
        }
        match &report.link {
            Some(link) if !is_plausible(link) => Err("its interface cannot be".to_owned()),
            _ => Ok(report),
        }
    }
}

fn is_plausible(link: &LoadedLink) -> bool {
    let is_name = |name: &String| {
        name.len() <= COUNTER_BYTES && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_interface =
        link.interface.len() <= INTERFACE_BYTES && !link.interface.chars().any(char::is_control);
    let is_time = link.seconds.is_finite() && link.seconds >= 0.0;
    is_interface && is_time && link.counters.len() <= COUNTERS_MAX && link.counters.keys().all(is_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_parsed_as_it_is_sent_and_none_beyond_the_limits() {
        for direction in Direction::ALL {
            let request = Request { direction, time: Duration::from_millis(5000), bytes: BYTES_MAX };
            let line = request.line();
            assert!(line.len() <= REQUEST_BYTES && line.ends_with('\n'), "{line}");
            assert_eq!(Request::parse(line.trim_end().as_bytes()), Some(request));
        }
        assert!(Request::parse(b"roundtrip-load/1 both 100 1").is_some());
        for wrong in [
            "",
            "GET / HTTP/1.1",
            "roundtrip-load/2 both 5000 1000",
            "roundtrip-load/1 all 5000 1000",
            "roundtrip-load/1 both 99 1000",
            "roundtrip-load/1 both 60001 1000",
            "roundtrip-load/1 both -1 1000",
            "roundtrip-load/1 both 5000 0",
            "roundtrip-load/1 both 5000 137438953473",
            "roundtrip-load/1 both 5000",
            "roundtrip-load/1 both 5000 1000 1",
            " roundtrip-load/1 both 5000 1000",
            "roundtrip-load/1  both 5000 1000",
        ] {
            assert_eq!(Request::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    fn report() -> Report {
        Report {
            received: Some(Received { bytes: 1000, seconds: 2.0, bits_per_second: 4000.0 }),
            sent: Some(Sent { segments: 9, retransmitted_segments: 1, ..Sent::default() }),
            link: Some(LoadedLink {
                interface: "eth0".to_owned(),
                seconds: 2.5,
                counters: [("rx_crc_errors".to_owned(), 3)].into(),
                ..LoadedLink::default()
            }),
            processors: Some(LoadedProcessors { busy_share: 0.5, softirq_share: 1.0, process_share: 1.9 }),
        }
    }

    #[test]
    fn a_report_survives_its_way_and_one_that_cannot_be_is_refused() {
        let json = |report: &Report| serde_json::to_vec(report).unwrap();
        assert_eq!(Report::parse(&json(&report())), Ok(report()));
        assert_eq!(Report::parse(b"{}"), Ok(Report::default()));
        assert!(Report::parse(b"[]").is_err() && Report::parse(b"").is_err());
        assert!(Report::parse(br#"{"received":{"bytes":1,"seconds":1e999,"bits_per_second":1}}"#).is_err());
        let broken: [fn(&mut Report); 7] = [
            |report| report.received.as_mut().unwrap().seconds = -1.0,
            |report| report.received.as_mut().unwrap().bytes = BYTES_MAX + 1,
            |report| report.processors.as_mut().unwrap().busy_share = 1.01,
            |report| report.processors.as_mut().unwrap().process_share = -0.1,
            |report| report.link.as_mut().unwrap().interface = "e\x1b[31m".to_owned(),
            |report| report.link.as_mut().unwrap().interface = "e".repeat(16),
            |report| {
                report.link.as_mut().unwrap().counters.insert("a b".to_owned(), 1);
            },
        ];
        for breaks in broken {
            let mut report = report();
            breaks(&mut report);
            assert!(Report::parse(&json(&report)).is_err(), "{report:?}");
        }
        let mut many = report();
        many.link.as_mut().unwrap().counters =
            (0..=COUNTERS_MAX as u64).map(|n| (format!("c{n}"), n)).collect();
        assert!(Report::parse(&json(&many)).is_err());
    }

    #[test]
    fn a_stream_that_is_no_load_test_is_refused() {
        assert_eq!(Blocks::default().take(b"HTTP/1.1"), Err(BadMark));
        let mut block = vec![MORE; BLOCK_BYTES];
        block.push(b'x');
        assert_eq!(Blocks::default().take(&block), Err(BadMark));
    }

    proptest! {
        #[test]
        fn the_last_mark_is_found_however_the_stream_is_cut(
            blocks in 0_usize..4,
            rest in proptest::collection::vec(any::<u8>(), 0..20),
            cuts in proptest::collection::vec(1_usize..100_000, 1..8),
        ) {
            // Data may hold any byte, marks included.
            let mut block = vec![LAST; BLOCK_BYTES];
            block[0] = MORE;
            let mut stream = block.repeat(blocks);
            stream.push(LAST);
            stream.extend(&rest);
            let (mut state, mut at, mut is_last, mut turn) = (Blocks::default(), 0, false, 0);
            while !is_last {
                let end = (at + cuts[turn % cuts.len()]).min(stream.len());
                turn += 1;
                let (taken, last) = state.take(&stream[at..end]).unwrap();
                prop_assert!(last || taken == end - at);
                (at, is_last) = (at + taken, last);
            }
            prop_assert_eq!(&stream[at..], &rest[..]);
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Request::parse(&bytes), Report::parse(&bytes), Blocks::default().take(&bytes));
        }
    }
}
