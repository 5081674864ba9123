//! SCSI block devices: commands come in, and out comes an answer or the work to be done on a store.
//!
//! A logical unit *plans* (see [`Luns::plan`]): it reads a command descriptor block and yields a [`Plan`].
//! Commands about the device itself are finished by then; commands about its data say which bytes to read,
//! write or flush, and whoever owns the store does that. No I/O and no clock. Names follow SPC-4, SBC-3
//! and SAM-5.

#![forbid(unsafe_code)]

pub mod capacity;
pub mod cdb;
pub mod copy;
pub mod disk;
pub mod inquiry;
pub mod loading;
pub mod lun;
pub mod luns;
pub mod medium;
pub mod mode;
pub mod nexus;
pub mod ports;
pub mod report_luns;
pub mod reservations;
pub mod sense;
pub mod status;
mod supported;
pub mod vpd;

pub use disk::{Disk, Durable, Identity, Provisioning, Shared};
pub use lun::Lun;
pub use luns::{Luns, Plan};
pub use nexus::{Nexus, UnitAttention};
pub use reservations::{Effects, Reservations};
pub use sense::{Sense, SenseKey};
