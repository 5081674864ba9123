//! Reads facts from the kernel, /proc and /sys. The only place with I/O besides applying changes.

pub mod cpu;
pub mod initiator;
pub mod link;
pub mod path;
pub mod peer;
pub mod socket;
pub mod system;
pub mod tcp;
