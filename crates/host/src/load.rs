//! The load test: two hosts fill the path between them, each direction alone and then both at once.
//!
//! A run is one TCP connection from the tester to the server:
//!
//! ```text
//! tester   PREAMBLE DIRECTION MILLISECONDS BYTES \n              blocks ... last  received              (end)
//! server                                          ready \n       blocks ... last            report \n   (end)
//! ```
//!
//! A block is [`wire::BLOCK_BYTES`] long and begins with [`wire::MORE`]; [`wire::LAST`] stands where a block would begin and ends a
//! side's data. A side that has received the other's last mark confirms it, so that every segment is acknowledged when the server
//! reads what its kernel counted.

use std::time::Duration;

pub mod client;
mod counted;
pub mod server;
mod stream;
pub mod wire;

/// The port of the server where none is named.
pub const PORT: u16 = 7433;

/// The longest time of a run.
pub const TIME_MAX: Duration = Duration::from_secs(60);

/// The shortest time of a run: TCP needs some round trips to find the rate.
pub const TIME_MIN: Duration = Duration::from_millis(100);

/// The most bytes of a direction in a run: ten seconds of 100 Gb/s.
pub const BYTES_MAX: u64 = 128 << 30;

/// How long data may take to arrive after the time of a run: a slow link with a long queue.
const DRAIN: Duration = Duration::from_secs(30);

/// A connection that carries nothing for this time has ended.
const SILENCE: Duration = Duration::from_secs(10);

/// What a load test is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// The server's port.
    pub port: u16,
    /// The time of each of the three runs.
    pub time: Duration,
    /// The most bytes of each direction in each run.
    pub bytes: u64,
}
