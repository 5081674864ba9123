//! Streams: what a request is, and how far its answer has come.

use record::{Status, Word};

use super::frame;
use super::hpack::{Content, Head};
use super::windows::OfStream;
use crate::decode::Shown;
use crate::http::path::Path;

/// Longest path that is shown.
pub(super) const PATH_MAX: usize = 96;
/// Bytes before a gRPC message, the last four of which are its length.
const GRPC_PREFIX: usize = 5;

/// A request in flight.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) flows: [OfStream; 2],
    pub(super) is_grpc: bool,
    pub(super) is_tunnel: bool,
    /// Whether the answer is a stream of events, which ends when there are no more.
    pub(super) is_events: bool,
    /// Whether its operation is unknown.
    pub(super) is_unknown: bool,
    pub(super) status: Status,
    pub(super) grpc_status: Option<u8>,
    pub(super) is_answered: bool,
    pub(super) reply: Reply,
}

/// The first message of a gRPC answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Reply {
    #[default]
    None,
    /// So many bytes of it are still to come.
    Left(u64),
    Unknown,
}

impl Reply {
    /// Data of the answer has passed.
    pub(super) fn data(self, bytes: u64, data: Option<&[u8]>) -> Self {
        match (self, data.and_then(|data| data.get(1..GRPC_PREFIX))) {
            (Reply::Left(left), _) => Reply::Left(left.saturating_sub(bytes)),
            (Reply::None, Some(length)) => {
                let whole = u64::from(frame::number(length)) + GRPC_PREFIX as u64;
                Reply::Left(whole.saturating_sub(bytes))
            }
            _ => Reply::Unknown,
        }
    }
}

impl Stream {
    pub(super) fn status(&self) -> Status {
        match (self.grpc_status, self.status) {
            (Some(code), _) => Status::Grpc(code),
            (None, Status::Http(200)) if self.is_grpc => Status::Unknown,
            (None, status) => status,
        }
    }
}

/// The operation of a request's head.
pub(super) fn operation(head: &Head) -> Word {
    match head.content {
        Some(Content::Grpc) => Word::new(b"gRPC"),
        // It may be gRPC.
        None if head.is_partial && head.method == Some(Word::new(b"POST")) => Word::default(),
        _ => head.method.unwrap_or_default(),
    }
}

/// What a request is for.
pub(super) fn key(path: &[u8], is_grpc: bool, shown: Shown) -> String {
    if shown.verbatim {
        return path.get(..path.len().min(PATH_MAX)).unwrap_or_default().escape_ascii().to_string();
    }
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/');
    let parts = path.iter().filter(|&&b| b == b'/').count();
    match std::str::from_utf8(path) {
        Ok(method) if is_grpc && parts == 2 && path.len() <= PATH_MAX && path.iter().all(is_name) => {
            method.to_owned()
        }
        _ => Path::of(path).text().to_owned(),
    }
}
