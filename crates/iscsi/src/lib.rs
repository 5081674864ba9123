//! iSCSI (RFC 7143): PDUs, text keys, the login and the full feature phase of both sides.
//!
//! No I/O and no clock: bytes and PDUs are arguments, PDUs and requests to the caller are results. So the protocol can be
//! tested byte by byte.

#![forbid(unsafe_code)]

pub mod bhs;
pub mod digest;
pub mod fault;
pub mod frame;
pub mod initiator;
pub mod login;
pub mod opcode;
pub mod parameters;
pub mod pdu;
pub mod receive;
pub mod replay;
pub mod sequence;
pub mod spares;
pub mod status;
pub mod target;
pub mod task_management;
pub mod text;
pub mod transmit;
pub mod write_task;

pub use bhs::{BHS_BYTES, Bhs, NO_TAG};
pub use digest::Digests;
pub use fault::Fault;
pub use frame::{Cut, Frame, Framer};
pub use parameters::{Parameters, Wishes};
pub use receive::ReceiveBuffer;
pub use sequence::CommandSequence;
pub use spares::Spares;
pub use transmit::TransmitBuffer;
