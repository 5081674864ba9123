//! Kernel stamps of a socket's own bytes: SO_TIMESTAMPING, software, both directions.
//!
//! Receive: the stamp of the last packet that a `recvmsg` returned bytes of. Send: the stamp of the packet
//! carrying the last byte of a `send`, read back from the socket's error queue; the kernel identifies it by
//! that byte's offset (SOF_TIMESTAMPING_OPT_ID, linux Documentation/networking/timestamping.rst).

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

/// Identifiers count from the first byte written after the option was set, also where earlier bytes are
/// unacknowledged (SOF_TIMESTAMPING_OPT_ID_TCP, Linux 6.2; missing in nix).
const OPT_ID_TCP: u32 = 1 << 16;

/// Enabled stamping of one socket.
#[derive(Debug)]
pub struct Stamps {
    /// Stream offset of the first byte that the kernel counts from.
    base: u64,
    /// Offset of the last stamped byte, to extend the kernel's 32-bit identifiers.
    last: u64,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedReceive {
    /// Bytes received; 0 at the end of the stream.
    pub bytes: usize,
    /// Arrival time of the last of them, nanoseconds since the epoch.
    pub ns: Option<u64>,
}

impl Stamps {
    /// Enables stamping. `sent` is the number of bytes sent on the socket before; older kernels count correctly only if
    /// all of them have been acknowledged.
    ///
    /// # Errors
    /// When the kernel does not support the option.
    pub fn enable(socket: &TcpStream, sent: u64) -> io::Result<Self> {
        let basic = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        let with_tcp = TimestampingFlag::from_bits_retain(basic.bits() | OPT_ID_TCP);
        setsockopt(socket, sockopt::Timestamping, &with_tcp)
            .or_else(|_| setsockopt(socket, sockopt::Timestamping, &basic))?;
        Ok(Self { base: sent, last: sent })
    }

    /// Receives without blocking, with the stamp.
    ///
    /// # Errors
    /// As recv(2); `WouldBlock` when no data is available.
    pub fn receive(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<StampedReceive> {
        let mut slices = [IoSliceMut::new(buffer)];
        let mut space = cmsg_space!([TimeSpec; 3]);
        let message =
            recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
        let ns = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::ScmTimestampsns(t) => stamp_ns(t.system),
            _ => None,
        });
        Ok(StampedReceive { bytes: message.bytes, ns })
    }

    /// Reads the available send stamps: calls `mark(end, ns)` when all bytes before stream offset `end`
    /// had left at `ns`.
    ///
    /// # Errors
    /// When the socket fails; an empty queue is not an error.
    pub fn sent(&mut self, socket: &TcpStream, mut mark: impl FnMut(u64, u64)) -> io::Result<()> {
        loop {
            let mut space = cmsg_space!([TimeSpec; 3], libc::sock_extended_err, libc::sockaddr_in6);
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let message =
                match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut [], Some(&mut space), flags) {
                    Ok(message) => message,
                    Err(Errno::EAGAIN) => return Ok(()),
                    Err(Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                };
            let (mut ns, mut id) = (None, None);
            for c in message.cmsgs()? {
                match c {
                    ControlMessageOwned::ScmTimestampsns(t) => ns = stamp_ns(t.system),
                    ControlMessageOwned::Ipv4RecvErr(e, _) | ControlMessageOwned::Ipv6RecvErr(e, _)
                        if e.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING =>
                    {
                        id = Some(e.ee_data);
                    }
                    _ => {}
                }
            }
            if let (Some(ns), Some(id)) = (ns, id) {
                mark(self.extend(id) + 1, ns);
            }
        }
    }

    /// The stream offset after a 32-bit identifier: the one nearest to the last.
    fn extend(&mut self, id: u32) -> u64 {
        let counted = self.last - self.base;
        let ahead = id.wrapping_sub(counted as u32).cast_signed();
        let counted = counted.saturating_add_signed(ahead.into());
        self.last = self.last.max(self.base + counted);
        self.base + counted
    }
}

fn stamp_ns(t: TimeSpec) -> Option<u64> {
    let ns = u64::try_from(t.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(t.tv_nsec()).ok()?;
    (ns > 0).then_some(ns)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn identifiers_are_extended_beyond_32_bits() {
        let mut stamps = Stamps { base: 100, last: 100 };
        assert_eq!(stamps.extend(47), 147);
        assert_eq!(stamps.extend(4_000_000_000_u32.wrapping_sub(2_000_000_000)), 2_000_000_100);
        assert_eq!(stamps.extend(4_000_000_000), 4_000_000_100);
        assert_eq!(stamps.extend(5), (1_u64 << 32) + 105);
    }

    #[test]
    fn the_kernel_stamps_both_directions_of_a_real_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"login").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        let mut stamps = Stamps::enable(&client, 5).unwrap();
        Stamps::enable(&server, 0).unwrap();
        let before = crate::clock::realtime_ns();
        client.write_all(&[1; 48]).unwrap();
        client.write_all(&[2; 48]).unwrap();
        let (mut got, mut received_ns) = (0, None);
        let mut buffer = [0; 256];
        while got < 96 {
            match Stamps::receive(&server, &mut buffer) {
                Ok(r) => {
                    got += r.bytes;
                    received_ns = r.ns.or(received_ns);
                }
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let mut marks = Vec::new();
        stamps.sent(&client, |end, ns| marks.push((end, ns))).unwrap();
        assert_eq!(marks.iter().map(|m| m.0).collect::<Vec<_>>(), [5 + 48, 5 + 96]);
        let now = crate::clock::realtime_ns();
        assert!(marks.iter().all(|m| (before..=now).contains(&m.1)), "{before} {marks:?} {now}");
        // A receive stamp may be missing for the very first packets after the option is set.
        assert!(received_ns.is_none_or(|ns| (before..=now).contains(&ns)));
    }
}
