//! Writing of messages with header and body, in one or several calls.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, send, sendmsg};
use record::Writes;

/// MSG_MORE (send(2)), which nix does not name.
pub(crate) const MSG_MORE: i32 = 0x8000;

/// Writes a message.
///
/// # Errors
/// When the connection has failed.
pub fn write(writes: Writes, stream: &mut TcpStream, header: &[u8], body: &[u8]) -> io::Result<()> {
    write_within(writes, stream, header, body, None)
}

/// Writes a message. The write fails when the peer takes longer than `patience` to receive it, even with slow progress. The
/// stream needs a write timeout: the deadline is checked after it.
///
/// # Errors
/// When the connection has failed or the deadline has passed.
pub(crate) fn write_within(
    writes: Writes,
    stream: &TcpStream,
    header: &[u8],
    body: &[u8],
    patience: Option<Duration>,
) -> io::Result<()> {
    let out = Out { stream, patience, begun: patience.map(|_| Instant::now()) };
    match writes {
        Writes::One => out.together(header, body),
        Writes::Apart => {
            out.all(header, false)?;
            out.all(body, false)
        }
        Writes::More => {
            out.all(header, true)?;
            out.all(body, false)
        }
        Writes::MoreUnfinished => {
            out.all(header, true)?;
            out.all(body, true)
        }
        Writes::Cork | Writes::CorkUnfinished => {
            rustix::net::sockopt::set_tcp_cork(stream, true)?;
            out.all(header, false)?;
            out.all(body, false)?;
            if writes == Writes::Cork {
                rustix::net::sockopt::set_tcp_cork(stream, false)?;
            }
            Ok(())
        }
    }
}

/// A message being written.
struct Out<'a> {
    stream: &'a TcpStream,
    patience: Option<Duration>,
    begun: Option<Instant>,
}

impl Out<'_> {
    /// Sends all bytes; `more` sets MSG_MORE: further bytes follow.
    fn all(&self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(if more { MSG_MORE } else { 0 });
        while !bytes.is_empty() {
            let count = self.sent(send(self.stream.as_raw_fd(), bytes, flags), bytes.len())?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Sends header and body in one call if the socket buffer has room for both.
    fn together(&self, header: &[u8], body: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(header), IoSlice::new(body)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let outcome = sendmsg::<SockaddrStorage>(self.stream.as_raw_fd(), &parts, &[], flags, None);
        let sent = self.sent(outcome, header.len() + body.len())?;
        self.all(header.get(sent..).unwrap_or_default(), false)?;
        self.all(&body[sent.saturating_sub(header.len())..], false)
    }

    /// Returns how many of `asked` bytes a call sent, or an error when the deadline has passed.
    fn sent(&self, outcome: nix::Result<usize>, asked: usize) -> io::Result<usize> {
        let count = match outcome {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if count < asked
            && let (Some(begun), Some(patience)) = (self.begun, self.patience)
            && begun.elapsed() >= patience
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not receive"));
        }
        Ok(count)
    }
}
