//! Full TCP segments to the peer's port: do they arrive?
//!
//! Each probe is a connection of its own that sends one segment and waits for its acknowledgement, which the kernel reports
//! (SOF_TIMESTAMPING_TX_ACK). So the answer needs neither ICMP nor a service that answers, and retransmissions rule out a
//! single loss. The bytes are empty lines, which HTTP servers skip; other services may close the connection.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, send, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use socket::clock::monotonic_ns;
use socket::options::TcpOptions;

use super::mtu_of;
use super::search::{Fate, narrow};
use crate::facts::path::SegmentFacts;

/// SOF_TIMESTAMPING_TX_ACK (linux/net_tstamp.h); nix lacks it.
const TX_ACK: u32 = 1 << 9;

/// SCM_TSTAMP_ACK (linux/errqueue.h): this stamp is that of an acknowledgement.
const ACKNOWLEDGED: u32 = 2;

/// close(2) resets the connection.
const LINGER_NOT: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };

/// Every host must take packets of this size (RFC 791: 576; IPv6 paths carry 1280), bytes.
const SURE_BYTES: u32 = 552;

/// Whether all bytes were acknowledged in time; `None` where the connection ended before.
fn wait_for_acknowledgement(stream: &TcpStream, wait: Duration) -> io::Result<Option<bool>> {
    let deadline = monotonic_ns() + wait.as_nanos() as u64;
    loop {
        // An acknowledgement may have come before the reset of a service that rejects the bytes.
        if take_acknowledgement(stream)? {
            return Ok(Some(true));
        }
        let left = deadline.saturating_sub(monotonic_ns());
        if left == 0 {
            return Ok(Some(false));
        }
        let timeout =
            PollTimeout::try_from(Duration::from_nanos(left.max(1_000_000))).unwrap_or(PollTimeout::MAX);
        // No events: the error queue and the end of the connection are always reported.
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = fds[0].revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLHUP) || stream.take_error()?.is_some() {
            return Ok(if take_acknowledgement(stream)? { Some(true) } else { None });
        }
    }
}

/// Reads the error queue: whether an acknowledgement is in it.
fn take_acknowledgement(stream: &TcpStream) -> io::Result<bool> {
    let mut found = false;
    loop {
        let mut space = cmsg_space!([TimeSpec; 3], libc::sock_extended_err, libc::sockaddr_in6);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(stream.as_raw_fd(), &mut [], Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(found),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) =
                control
            {
                found |= error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING && error.ee_info == ACKNOWLEDGED;
            }
        }
    }
}

/// Probes with segments of one address.
pub(super) struct Prober {
    address: SocketAddr,
    /// Whether this host asks for timestamps, which take 12 bytes of each segment.
    timestamps: bool,
    /// How long to wait for an acknowledgement.
    wait: Duration,
    /// When to give up, on the monotonic clock.
    deadline_ns: u64,
    probes: u32,
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// Acknowledged; the largest packet that the kernel then allowed itself, bytes.
    Acknowledged { mtu_bytes: u32 },
    /// Not acknowledged, with its retransmissions.
    Lost,
    /// The connection ended before.
    Ended,
}

impl Prober {
    pub(super) fn new(address: SocketAddr, timestamps: bool, rtt_us: f64, patience: Duration) -> Self {
        // Retransmissions leave after 0.2, 0.6 and 1.4 s (RTO 0.2 s at least, doubled each time), those of long paths later.
        let wait = Duration::from_millis(1000) + Duration::from_micros((rtt_us.clamp(0.0, 1e6) * 4.0) as u64);
        Self {
            address,
            timestamps,
            wait,
            deadline_ns: monotonic_ns() + patience.as_nanos() as u64,
            probes: 0,
        }
    }

    /// The sizes that arrive and that do not, and how many connections it took; no sizes where the peer's service ends
    /// connections before a segment is acknowledged.
    pub(super) fn measure(mut self) -> io::Result<(Option<SegmentFacts>, u32)> {
        let stream = self.connect()?;
        let mss = nix::sys::socket::getsockopt(&stream, sockopt::TcpMaxSeg)?;
        let mtu = mtu_of(&stream, self.address);
        drop(stream);
        let headers = self.headers(mss, mtu);
        let full = mss + headers;
        let mut facts = SegmentFacts { full_bytes: full, ..SegmentFacts::default() };
        match self.deliver(mss)? {
            Delivery::Acknowledged { mtu_bytes } => facts.largest_delivered_bytes = Some(full.min(mtu_bytes)),
            Delivery::Ended => return Ok((None, self.probes)),
            Delivery::Lost => {
                let (passes, lost) = self.search(headers, full)?;
                (facts.largest_delivered_bytes, facts.smallest_lost_bytes) = (passes, Some(lost));
            }
        }
        Ok((Some(facts), self.probes))
    }

    /// IP's and TCP's headers of each segment, bytes. Where the peer's MSS is not the limit, the route's MTU tells.
    fn headers(&self, mss: u32, mtu: Option<u32>) -> u32 {
        let plain = if self.address.is_ipv4() { 40 } else { 60 };
        match mtu.map(|mtu| mtu.saturating_sub(mss)) {
            Some(rest) if rest == plain || rest == plain + 12 => rest,
            _ => plain + if self.timestamps { 12 } else { 0 },
        }
    }

    fn search(&mut self, headers: u32, full: u32) -> io::Result<(Option<u32>, u32)> {
        let sure = SURE_BYTES.min(full / 2).max(headers + 1);
        if !matches!(self.deliver(sure - headers)?, Delivery::Acknowledged { .. }) {
            return Ok((None, sure));
        }
        let mut failure = None;
        let (passes, lost) = narrow(sure, full, |bytes| {
            if monotonic_ns() > self.deadline_ns {
                return Fate::Unknown;
            }
            match self.deliver(bytes - headers) {
                Ok(Delivery::Acknowledged { mtu_bytes }) if mtu_bytes >= bytes => Fate::Passed,
                Ok(Delivery::Lost) => Fate::Lost,
                Ok(_) => Fate::Unknown,
                Err(error) => {
                    failure = Some(error);
                    Fate::Unknown
                }
            }
        });
        failure.map_or(Ok((Some(passes), lost)), Err)
    }

    fn connect(&mut self) -> io::Result<TcpStream> {
        self.probes += 1;
        let stream = TcpOptions { nodelay: true, ..TcpOptions::default() }
            .connect(&self.address, Duration::from_secs(2))?;
        // The connection ends with a reset: nothing is retransmitted after the probe.
        setsockopt(&stream, sockopt::Linger, &LINGER_NOT)?;
        Ok(stream)
    }

    /// Sends one segment with `payload` bytes and waits for its acknowledgement.
    fn deliver(&mut self, payload: u32) -> io::Result<Delivery> {
        let stream = self.connect()?;
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(
            &stream,
            sockopt::Timestamping,
            &TimestampingFlag::from_bits_retain(flags.bits() | TX_ACK),
        )?;
        let lines = b"\r\n".repeat(payload as usize / 2 + 1);
        match send(
            stream.as_raw_fd(),
            &lines[..payload as usize],
            MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
        ) {
            Ok(sent) if sent == payload as usize => {}
            // The peer closed, or its window is smaller than a segment.
            Ok(_) | Err(_) => return Ok(Delivery::Ended),
        }
        let acknowledged = wait_for_acknowledgement(&stream, self.wait)?;
        Ok(match acknowledged {
            // After ICMP or the kernel's own search, the bytes arrived in smaller segments.
            Some(true) => {
                Delivery::Acknowledged { mtu_bytes: mtu_of(&stream, self.address).unwrap_or(u32::MAX) }
            }
            Some(false) => Delivery::Lost,
            None => Delivery::Ended,
        })
    }
}
