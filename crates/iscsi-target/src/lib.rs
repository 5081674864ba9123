//! The target: portals, connections, threads, send policies, statistics.
//!
//! One thread accepts connections, and event loops (or a thread for each) serve them. Several target nodes share them. Crate `iscsi` implements the
//! protocol, `scsi` the commands and `store` the blocks; this crate schedules the I/O between them.

#![forbid(unsafe_code)]

mod admission;
mod budget;
mod clock;
pub mod config;
mod connection;
mod context;
mod core;
pub mod counters;
mod disks;
mod done;
mod doorbell;
mod effects;
pub mod error;
mod event_loop;
mod execute;
mod fence;
mod gate;
mod gathering;
mod inbound;
mod jobs;
pub mod kept;
mod lock;
mod mailbox;
pub mod medium;
mod memory;
mod node;
mod open_units;
mod ordering;
pub mod overview;
mod placement;
mod planted;
mod read;
mod room;
mod sense;
pub mod server;
mod session;
mod sessions;
mod shared;
#[cfg(test)]
mod simulation;
mod sockets;
pub mod stages;
mod state;
pub mod statistics;
mod table;
mod tasks;
mod transport;
mod unit;
mod waiting;

pub use config::{
    Access, ActsFor, DiskNames, Initiator, Limits, LunConfig, NodeConfig, Portal, Shown, TargetConfig,
    Threads, User,
};
pub use counters::{DiskCounts, Operation};
pub use error::{ConnectionEnd, TargetError};
pub use kept::{Kept, KeptError};
pub use overview::{DiskOverview, LimitUse, NodeOverview, ReservationsOverview, SessionOverview};
pub use policy::{BusyCount, SendPolicy};
pub use scsi::ports::AccessState;
pub use server::{BoundTarget, RunningTarget};
pub use stages::{Stage, Stages};
pub use statistics::{ConnectionStatistics, Totals};
