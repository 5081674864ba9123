//! Why a request failed.

use std::fmt;

/// The class of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpFailure {
    /// A response whose status is not 2xx. Redirects are not followed.
    Status(u16),
    /// No complete response within the time allowed.
    Timeout,
    /// The connection could not be made.
    CannotConnect,
    /// The TLS handshake failed.
    Handshake,
    /// The server closed the connection before the first byte of the response.
    ClosedBefore,
    /// The server reset the connection before the first byte of the response.
    Reset,
    /// The connection ended within the response.
    ClosedWithin,
    /// The bytes received are no valid response.
    Malformed,
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Status(status) => return write!(f, "HTTP {status}"),
            Self::Timeout => "timeout",
            Self::CannotConnect => "cannot connect",
            Self::Handshake => "TLS handshake failed",
            Self::ClosedBefore => "connection closed before the response",
            Self::Reset => "connection reset before the response",
            Self::ClosedWithin => "connection closed within the response",
            Self::Malformed => "malformed response",
        };
        f.write_str(text)
    }
}

/// A failed request: its class, and what is known beyond that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) class: HttpFailure,
    pub(super) detail: String,
}

impl Failed {
    pub(super) fn new(class: HttpFailure, detail: impl fmt::Display) -> Self {
        Self { class, detail: detail.to_string() }
    }

    pub(super) fn plain(class: HttpFailure) -> Self {
        Self { class, detail: String::new() }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.class.fmt(f) } else { write!(f, "{}: {}", self.class, self.detail) }
    }
}
