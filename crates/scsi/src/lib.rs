//! SCSI block devices: plans commands for stores that it does not know.
//!
//! [`Luns::plan`] decodes a command descriptor block and returns a [`Plan`]. Commands about the device are complete
//! then; commands about its data name the bytes to read, write or flush, and the owner of the store does that. No I/O
//! and no clock. Names follow SPC-4, SBC-3 and SAM-5.

#![forbid(unsafe_code)]

pub mod capacity;
pub mod cdb;
pub mod command;
mod copy;
pub mod copy_results;
mod designator;
pub mod disk;
pub mod inquiry;
pub mod limits;
pub mod loading;
pub mod log_sense;
pub mod lun;
pub mod luns;
mod medium;
pub mod mode;
mod mode_page;
mod mode_select;
mod mode_sense;
pub mod names;
pub mod nexus;
pub mod plan;
pub mod ports;
pub mod report_luns;
pub mod reservations;
pub mod sense;
mod start_stop;
pub mod status;
mod supported;
mod transfer;
pub mod vpd;

pub use command::Command;
pub use disk::{Carried, Disk, Durable, Identity, Provisioning, Shared};
pub use lun::Lun;
pub use luns::Luns;
pub use nexus::{Nexus, UnitAttention};
pub use plan::{Action, ByteRange, Place, Plan, Segment};
pub use reservations::{Effects, Reservations};
pub use sense::{Sense, SenseKey};
