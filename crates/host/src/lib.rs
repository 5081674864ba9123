//! What a host does to a round trip: found, explained, changed and undone.
//!
//! ```text
//! read/     the kernel, /proc and /sys            ─► facts/     what was read, as data
//! facts/    ─► check/   rules without I/O          ─► finding    what is wrong, what it costs, what mends it
//! load/     two hosts fill the path between them ─► facts/load
//! finding   ─► change   settings and their values  ─► apply      journal first, then the kernel; undo; persist/
//! ```

#![forbid(unsafe_code)]

pub mod apply;
pub mod change;
pub mod check;
pub mod error;
pub mod explain;
pub mod facts;
pub mod finding;
pub mod journal;
pub mod lifeline;
pub mod live;
pub mod lldp;
pub mod load;
mod patience;
pub mod persist;
pub mod profile;
pub mod read;
pub mod report;
pub mod rollback;
pub mod set;
pub mod undo;
pub mod verify;
