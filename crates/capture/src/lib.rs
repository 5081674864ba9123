//! Packets in, operations out.
//!
//! A packet source ([`live`]) hands over frames with the kernel's nanosecond stamps; [`packet`] finds the
//! TCP segment in a frame, [`stream`] puts segments in order, [`follow`] cuts the stream into PDUs, and
//! [`operations`] pairs requests with responses into [`ring::Sighting`]s. [`tap`] is the chain of all of
//! them for one capture point, [`watch`] runs it on a thread.
//!
//! Nothing that is missing goes unsaid: lost packets, holes in streams, bytes without a known PDU boundary
//! and operations beyond a limit are all counted ([`Counters`], [`StreamHole`]).

#![deny(unsafe_code)]

mod connection;
pub mod error;
pub mod follow;
pub mod live;
pub mod operations;
pub mod packet;
mod plausible;
pub mod record;
pub mod stream;
pub mod tap;
pub mod watch;

pub use error::CaptureError;
pub use follow::{Digests, Flow};
pub use live::{LiveCapture, LiveConfig, Packet};
pub use record::{Counters, StreamHole};
pub use tap::{Role, Tap, TapReport};
pub use watch::{RoleReport, Watch, WatchReport};
