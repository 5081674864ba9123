//! Limits of the transmit buffer, and the choice between copying and borrowing data.

use iscsi::TransmitBuffer;
use iscsi::target::TargetConnection;

/// Shorter data is copied into the response: a copy costs less than a separate send.
const BORROWED_BYTES_MIN: usize = 16 << 10;

/// Returns whether a response borrows its data instead of copying it.
#[inline]
pub(crate) fn may_borrow_bytes(bytes: usize, connection: &TargetConnection, out: &TransmitBuffer) -> bool {
    bytes >= BORROWED_BYTES_MIN && connection.may_borrow(out)
}

/// Factor of the unsent limit for own and borrowed bytes together: borrowed bytes need no buffer memory.
const BORROWED_TIMES: usize = 4;

/// Returns whether the transmit buffer has room for more responses.
#[inline]
pub(crate) fn has_room(out: &TransmitBuffer, unsent_bytes: usize) -> bool {
    out.own_bytes() < unsent_bytes && out.waiting_bytes() < BORROWED_TIMES * unsent_bytes
}
