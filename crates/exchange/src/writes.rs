//! How a message of a header and a body is written.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{MsgFlags, send};
use serde::{Deserialize, Serialize};

/// MSG_MORE (send(2)), which nix does not name.
const MSG_MORE: i32 = 0x8000;

/// How header and body leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// In one call.
    #[default]
    One,
    /// In a call each.
    Apart,
    /// In a call each, the header with MSG_MORE.
    More,
    /// The same, and the body with MSG_MORE too: a promise that is not kept.
    MoreUnfinished,
    /// Between setting and lifting TCP_CORK.
    Cork,
    /// After setting TCP_CORK, which is never lifted.
    CorkUnfinished,
}

impl Writes {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::One, Self::Apart, Self::More, Self::MoreUnfinished, Self::Cork, Self::CorkUnfinished];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Apart => "apart",
            Self::More => "more",
            Self::MoreUnfinished => "more-unfinished",
            Self::Cork => "cork",
            Self::CorkUnfinished => "cork-unfinished",
        }
    }

    /// Writes a message.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn write(self, stream: &mut TcpStream, header: &[u8], body: &[u8]) -> io::Result<()> {
        match self {
            Self::One => together(stream, header, body),
            Self::Apart => {
                stream.write_all(header)?;
                stream.write_all(body)
            }
            Self::More => {
                promise(stream, header)?;
                stream.write_all(body)
            }
            Self::MoreUnfinished => {
                promise(stream, header)?;
                promise(stream, body)
            }
            Self::Cork | Self::CorkUnfinished => {
                rustix::net::sockopt::set_tcp_cork(&*stream, true)?;
                stream.write_all(header)?;
                stream.write_all(body)?;
                if self == Self::Cork {
                    rustix::net::sockopt::set_tcp_cork(&*stream, false)?;
                }
                Ok(())
            }
        }
    }
}

fn together(stream: &mut TcpStream, header: &[u8], body: &[u8]) -> io::Result<()> {
    let mut sent = stream.write_vectored(&[IoSlice::new(header), IoSlice::new(body)])?;
    if sent < header.len() {
        stream.write_all(&header[sent..])?;
        sent = header.len();
    }
    stream.write_all(&body[sent - header.len()..])
}

/// Sends with the promise of more.
fn promise(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(stream.as_raw_fd(), bytes, MsgFlags::from_bits_retain(MSG_MORE) | MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
