//! The configuration file of `roundtrip target --config`. Read again on SIGHUP: disks come, go and change their
//! size, and who may log in changes, while sessions go on. All of a file takes effect, or nothing. Portals, name,
//! limits and the state folder need a restart.
//!
//! ```toml
//! iqn = "iqn.2026-11.example.roundtrip:target"
//! state = "/var/lib/roundtrip"        # what initiators ask to be kept over a restart
//!
//! [[portal]]
//! listen = "192.0.2.1:3260"
//! group = 1                           # connections of a session share a group; each is a target port
//! advertise = "198.51.100.1:3260"     # what initiators are told, behind a router
//! moved = { address = "192.0.2.9:3260", permanent = true }   # logins are sent there
//!
//! [luns]                              # luns = "none" serves no disk
//! 0 = "ram:1G"
//!
//! [access]                            # as an access file has it; access = "open" lets everybody in
//! initiators = [{ name = "iqn.1993-08.org.debian:01:abc", luns = [0] }]
//!
//! [limits]
//! sessions = 64
//! login_time = "5s"
//! ```

#![forbid(unsafe_code)]

pub mod access;
pub mod file;
pub mod limits;
mod open_disks;
mod served;
mod text;
mod word_or;

pub use file::{TargetFile, lun};
pub use open_disks::{Next, OpenDisks};
pub use served::Served;
