//! Why a request failed.

use std::fmt;
use std::time::Duration;

use crate::failure::FailureClass;

/// The class of a failed request, beside a status and a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpFailure {
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
        f.write_str(match self {
            Self::CannotConnect => "cannot connect",
            Self::Handshake => "TLS handshake failed",
            Self::ClosedBefore => "connection closed before the response",
            Self::Reset => "connection reset before the response",
            Self::ClosedWithin => "connection closed within the response",
            Self::Malformed => "malformed response",
        })
    }
}

/// A failed request: its class, and what is known beyond that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) class: FailureClass,
    pub(super) detail: String,
}

impl Failed {
    pub(super) fn new(class: HttpFailure, detail: impl fmt::Display) -> Self {
        Self { class: FailureClass::Http(class), detail: detail.to_string() }
    }

    pub(super) fn plain(class: HttpFailure) -> Self {
        Self { class: FailureClass::Http(class), detail: String::new() }
    }

    /// A response whose status is not 2xx. Redirects are not followed.
    pub(super) fn status(status: u16) -> Self {
        Self { class: FailureClass::HttpStatus(status), detail: String::new() }
    }

    /// No complete response within the time allowed.
    pub(super) fn timeout(patience: Duration) -> Self {
        let detail = format!("the server takes too long to answer: more than {patience:?}");
        Self { class: FailureClass::Timeout, detail }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.class.fmt(f) } else { write!(f, "{}: {}", self.class, self.detail) }
    }
}
