//! Packets in, operations out.
//!
//! A packet source ([`live`]) delivers frames with the kernel's nanosecond stamps; [`packet`] finds the
//! TCP segment in a frame, [`stream`] puts segments in order, [`follow`] cuts the stream into PDUs, and
//! requests are paired with responses into [`record::Exchange`]s. [`tap`] is the chain of all of
//! them for one capture point, [`watch`] runs it on a thread.
//!
//! All missing data is reported: lost packets, holes in streams, bytes without a known PDU boundary
//! and operations beyond a limit are counted ([`Counters`], [`StreamHole`]).

#![deny(unsafe_code)]

mod application;
mod chain;
mod chunks;
mod connection;
mod contents;
pub mod decode;
mod encapsulation;
pub mod error;
pub mod file;
pub mod follow;
mod held;
mod http;
mod in_flight;
mod ip;
mod iscsi;
pub mod link;
pub mod live;
mod login_text;
pub mod observer;
mod opening;
pub mod packet;
mod plausible;
mod proven;
pub mod record;
pub mod record_to_file;
mod recovery;
mod roles;
mod room;
mod settling;
pub mod stream;
mod table;
pub mod tap;
mod tcp;
mod tenants;
mod tls;
mod trial;
mod turns;
pub mod vantage;
pub mod watch;

pub use application::Protocol;
pub use contents::Contents;
pub use decode::Shown;
pub use encapsulation::Tag;
pub use error::CaptureError;
pub use follow::{Digests, Flow};
pub use link::Link;
pub use live::{LiveCapture, LiveConfig, Packet};
pub use observer::{Counted, Observer, StreamHole};
pub use packet::At;
pub use record::Counters;
pub use stream::{Missing, MissingReason};
pub use tap::{Tap, TapReport};
pub use tls::keys::{KeyLog, KeyLogError, Keys, SECRETS_MAX};
pub use vantage::{FrameCounters, Selection, Vantage};
pub use watch::{SideReport, Watch, WatchReport};
