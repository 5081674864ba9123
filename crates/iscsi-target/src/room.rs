//! How much may wait in a connection's transmit buffer, and what is sent without a copy.

use iscsi::TransmitBuffer;
use iscsi::target::TargetConnection;

/// Data shorter than this is copied into the response: that costs less than to send it by itself.
const BORROWED_BYTES_MIN: usize = 16 << 10;

/// Whether a response refers to its data rather than holding it.
#[inline]
pub(crate) fn may_borrow_bytes(bytes: usize, connection: &TargetConnection, out: &TransmitBuffer) -> bool {
    bytes >= BORROWED_BYTES_MIN && connection.may_borrow(out)
}

/// How many times the bytes that a connection may hold unsent may be borrowed ones, which cost it no memory.
const BORROWED_TIMES: usize = 4;

/// Whether answers that wait to be sent leave room for others.
#[inline]
pub(crate) fn has_room(out: &TransmitBuffer, unsent_bytes: usize) -> bool {
    out.own_bytes() < unsent_bytes && out.waiting_bytes() < BORROWED_TIMES * unsent_bytes
}
