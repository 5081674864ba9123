//! The configuration file of `roundtrip target --config`. SIGHUP reloads it while sessions continue: disks can be
//! added, removed and resized, and the access rules can change. A reload takes effect completely or not at all. Changes of
//! portals, name, limits and the state folder need a restart.
//!
//! ```toml
//! iqn = "iqn.2026-11.example.roundtrip:target"
//! state = "/var/lib/roundtrip"        # durable reservations and mode pages
//!
//! [[portal]]
//! listen = "192.0.2.1:3260"
//! group = 1                           # connections of a session share a group; each is a target port
//! advertise = "198.51.100.1:3260"     # the address reported to initiators, behind a router
//! moved = { address = "192.0.2.9:3260", permanent = true }   # redirects logins
//!
//! [luns]                              # luns = "none" serves no disk
//! 0 = "ram:1G"
//!
//! [access]                            # like an access file; access = "open" admits every initiator
//! initiators = [{ name = "iqn.1993-08.org.debian:01:abc", luns = [0] }]
//!
//! [limits]
//! sessions = 64
//! login_time = "5s"
//! ```

#![forbid(unsafe_code)]

pub mod access;
pub mod diff;
pub mod disk;
pub mod file;
pub mod limits;
mod open_disks;
pub mod served;
mod text;
mod word_or;
pub mod written;

pub use disk::{DiskSpec, lun};
pub use file::{DEFAULT_IQN, NodeFile, TargetFile};
pub use open_disks::{DiskKey, Next, OpenDisks, Which};
pub use served::Served;
pub use text::read_text;
