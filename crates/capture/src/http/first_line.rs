//! The first line of a message (RFC 9112 3 and 4), which shows that a stream is HTTP even where the rest of the head was not
//! captured.

use record::{Side, Word};

use crate::http::message::Start;

/// The request that a response answers, as far as it decides about the response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// HEAD: no body (RFC 9110 9.3.2).
    Head,
    /// CONNECT: no body if it succeeds (RFC 9110 9.3.6).
    Connect,
    /// Any other, or unknown.
    Other,
}

/// Methods that are recognised by themselves, where the line's end was not captured.
const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE"];
/// Longest method of any registry.
const METHOD_MAX: usize = 24;
/// Longest first line that is searched for its end.
const LINE_MAX: usize = 8 << 10;

/// Whether the bytes may begin a message of that side. A complete line must be one of HTTP/1; of one that is cut, what there is.
pub(super) fn may_begin(side: Side, bytes: &[u8]) -> bool {
    match side {
        Side::Server => {
            const VERSION: &[u8] = b"HTTP/1.";
            let after = bytes.get(VERSION.len()..).unwrap_or_default();
            let is_minor = |b: Option<&u8>| b.is_none_or(u8::is_ascii_digit);
            let is_code = |b: &[u8]| b.iter().take(3).all(u8::is_ascii_digit);
            bytes.starts_with(VERSION)
                && is_minor(after.first())
                && after.get(1).is_none_or(|&b| b == b' ')
                && after.get(2..).is_none_or(is_code)
        }
        Side::Client => {
            // An empty line may precede a request (RFC 9112 2.2). The first byte refutes most other data.
            let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
            if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
                return false;
            }
            let line = bytes.get(..LINE_MAX).unwrap_or(bytes);
            let Some(space) = line.iter().take(METHOD_MAX).position(|&b| b == b' ') else { return false };
            let (method, target) = (&line[..space], &line[space + 1..]);
            match target.iter().position(|&b| b == b'\n') {
                Some(end) => {
                    let is_token = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'-' | b'_');
                    let line = target[..end].trim_ascii_end();
                    let version = line.len().checked_sub(9).and_then(|at| line.get(at..));
                    method.iter().all(is_token) && version.is_some_and(|v| v.starts_with(b" HTTP/1."))
                }
                None => METHODS.contains(&method) && target.iter().all(|&b| b >= b' ' && b != 0x7f),
            }
        }
    }
}

/// What a first line says of which only the beginning was captured; status 0: not visible.
pub(super) fn read(side: Side, bytes: &[u8]) -> Option<Start> {
    if !may_begin(side, bytes) {
        return None;
    }
    Some(match side {
        Side::Client => {
            let method = Word::new(bytes.split(|&b| b == b' ').next()?);
            Start::Request { method, awaits_continue: false, asks_websocket: None }
        }
        Side::Server => {
            let code = bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            Start::Response { status: code.unwrap_or(0), is_websocket: None }
        }
    })
}

/// The target of a request, if its first line has all of it.
pub(super) fn target(side: Side, line: &[u8]) -> Option<&[u8]> {
    let (_, rest) = line.split_at(line.iter().position(|&b| b == b' ')? + 1);
    let end = rest.iter().position(|b| matches!(b, b' ' | b'\r' | b'\n'))?;
    (side == Side::Client).then_some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use record::Side::{Client, Server};

    use super::*;

    #[test]
    fn lines_of_other_protocols_are_none_of_http() {
        let http: [&[u8]; 7] = [
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"PROPFIND /a HTTP/1.0\n",
            b"GET /a-path-that-was-cu",
            b"POST ",
            b"M-SEARCH * HTTP/1.1\r\n",
            b"CONNECT a:443 HTTP/1.1\r\n\r\n",
            b"\r\nGET / HTTP/1.1\r\n",
        ];
        for line in http {
            assert!(may_begin(Client, line), "{line:?}");
        }
        let other: [&[u8]; 9] = [
            b"GET key\r\n",
            b"GET\r\n",
            b"OPTIONS rtsp://a RTSP/1.0\r\n",
            b"INVITE sip:a SIP/2.0\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"USER anonymous\r\n",
            b"get / HTTP/1.1\r\n",
            b"GET \x00\x01",
            b"",
        ];
        for line in other {
            assert!(!may_begin(Client, line), "{line:?}");
        }
        let answers: [(&[u8], bool); 6] = [
            (b"HTTP/1.1 200 OK\r\n", true),
            (b"HTTP/1.0 4", true),
            (b"HTTP/1.", true),
            (b"HTTP/1.1 ok", false),
            (b"HTTP/2.0 200", false),
            (b"RTSP/1.0 200 OK", false),
        ];
        for (line, is_http) in answers {
            assert_eq!(may_begin(Server, line), is_http, "{line:?}");
        }
    }

    #[test]
    fn a_cut_line_shows_method_and_status() {
        let response = |status| Start::Response { status, is_websocket: None };
        let delete =
            Start::Request { method: Word::new(b"DELETE"), awaits_continue: false, asks_websocket: None };
        assert_eq!(read(Client, b"DELETE /x"), Some(delete));
        assert_eq!(read(Server, b"HTTP/1.1 503 Serv"), Some(response(503)));
        assert_eq!(read(Server, b"HTTP/1.1 50"), Some(response(0)));
        assert_eq!(read(Server, b"junk"), None);
    }
}
