//! The NBD protocol from the side of a client, as the NBD project describes it (`doc/proto.md` and `doc/uri.md`): addresses, the
//! negotiation, requests and replies. It opens no socket and reads no clock. What a server says is checked before it is used: no
//! length that it sends decides how much memory is taken.

#![forbid(unsafe_code)]

pub mod address;
pub mod negotiate;
pub mod wire;

pub use address::{Address, AddressError, Place};
pub use negotiate::{Export, NegotiateError, Query};
pub use wire::{Command, Head, Protocol};
