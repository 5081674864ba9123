//! Writing a message of a header and a body.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{MsgFlags, send};
use ring::Writes;

/// MSG_MORE (send(2)), which nix does not name.
const MSG_MORE: i32 = 0x8000;

/// Writes a message.
///
/// # Errors
/// When the connection is gone.
pub fn write(writes: Writes, stream: &mut TcpStream, header: &[u8], body: &[u8]) -> io::Result<()> {
    match writes {
        Writes::One => together(stream, header, body),
        Writes::Apart => {
            stream.write_all(header)?;
            stream.write_all(body)
        }
        Writes::More => {
            promise(stream, header)?;
            stream.write_all(body)
        }
        Writes::MoreUnfinished => {
            promise(stream, header)?;
            promise(stream, body)
        }
        Writes::Cork | Writes::CorkUnfinished => {
            rustix::net::sockopt::set_tcp_cork(&*stream, true)?;
            stream.write_all(header)?;
            stream.write_all(body)?;
            if writes == Writes::Cork {
                rustix::net::sockopt::set_tcp_cork(&*stream, false)?;
            }
            Ok(())
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
