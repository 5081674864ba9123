//! Packets in, operations out.
//!
//! A packet source ([`live`]) hands over frames with the kernel's nanosecond stamps; [`packet`] finds the
//! TCP segment in a frame, [`stream`] puts segments in order, [`follow`] cuts the stream into PDUs, and
//! [`operations`] pairs requests with responses into [`ring::Sighting`]s. [`tap`] is the chain of all of
//! them for one capture point, [`watch`] runs it on a thread.

#![deny(unsafe_code)]

pub mod error;
pub mod follow;
pub mod live;
pub mod operations;
pub mod packet;
pub mod stream;
pub mod tap;
pub mod watch;

pub use error::CaptureError;
pub use live::{LiveCapture, LiveConfig, Packet};
pub use tap::{Counters, Role, Tap};
pub use watch::{Watch, WatchReport};
