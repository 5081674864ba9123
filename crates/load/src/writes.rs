//! Writing a message of a header and a body.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, send, sendmsg};
use record::Writes;

/// MSG_MORE (send(2)), which nix does not name.
const MSG_MORE: i32 = 0x8000;

/// Writes a message.
///
/// # Errors
/// When the connection is gone.
pub fn write(writes: Writes, stream: &mut TcpStream, header: &[u8], body: &[u8]) -> io::Result<()> {
    write_within(writes, stream, header, body, None)
}

/// Writes a message. A peer that takes longer than `patience` to receive it fails the write, also if it receives a few bytes
/// now and then; for that the stream needs a write timeout, after which the time is looked at.
///
/// # Errors
/// When the connection is gone or the time is up.
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

/// A message on its way out.
struct Out<'a> {
    stream: &'a TcpStream,
    patience: Option<Duration>,
    begun: Option<Instant>,
}

impl Out<'_> {
    /// Sends all bytes; `more` promises the kernel that others follow.
    fn all(&self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(if more { MSG_MORE } else { 0 });
        while !bytes.is_empty() {
            let count = self.sent(send(self.stream.as_raw_fd(), bytes, flags), bytes.len())?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Sends header and body in one call where the socket buffer takes them.
    fn together(&self, header: &[u8], body: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(header), IoSlice::new(body)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let outcome = sendmsg::<SockaddrStorage>(self.stream.as_raw_fd(), &parts, &[], flags, None);
        let sent = self.sent(outcome, header.len() + body.len())?;
        self.all(header.get(sent..).unwrap_or_default(), false)?;
        self.all(&body[sent.saturating_sub(header.len())..], false)
    }

    /// Returns how much of `asked` bytes a call sent, unless the time is up.
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
