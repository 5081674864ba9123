//! Alerts (RFC 8446 6.2, RFC 5246 7.2): why an end has given up, or that it has closed.

use record::Status;

/// Of an alert's two bytes, the level of those that end a connection.
const FATAL: u8 = 2;
/// The alerts with which a connection ends as it should.
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
/// A client or a server declines to renegotiate; the connection goes on.
const NO_RENEGOTIATION: u8 = 100;

/// The status of an alert that ends the connection with an error.
pub(super) fn error(content: &[u8], is_13: bool) -> Option<Status> {
    let &[level, description] = content else { return None };
    let is_closing = matches!(description, CLOSE_NOTIFY | USER_CANCELED | NO_RENEGOTIATION);
    // In TLS 1.3 the level has no meaning.
    (!is_closing && (is_13 || level == FATAL)).then_some(Status::Alert(description))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_a_connection_is_an_error() {
        assert_eq!(error(&[2, 40], false), Some(Status::Alert(40)));
        assert_eq!(error(&[1, 40], false), None, "a warning");
        assert_eq!(error(&[1, 48], true), Some(Status::Alert(48)));
        for content in [&[1, 0][..], &[2, 0], &[1, 90], &[1, 100], &[], &[2], &[2, 40, 0]] {
            assert_eq!(error(content, true), None, "{content:?}");
        }
        assert_eq!(Status::Alert(40).text(), "tls handshake_failure");
        assert_eq!(Status::Alert(7).text(), "tls alert 7");
    }
}
