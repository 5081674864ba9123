//! Datagrams of a chosen size and TTL to closed ports of the peer, and the ICMP answers to them (ip(7), IP_RECVERR). No
//! privilege is needed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket::clock::monotonic_ns;

use super::peer::port_of;
use super::walk::{Answer, Network};

/// Traceroute's ports: nothing listens there.
const FIRST_PORT: u16 = 33_434;
const PORTS: u16 = 100;

/// How long an answer may take, until others have shown how far the hosts are.
const WAIT: Duration = Duration::from_millis(500);

/// The least and the multiple of the slowest answer to wait for then.
const LEAST_WAIT: Duration = Duration::from_millis(150);
const SLOWER: f64 = 8.0;

/// At most this many datagrams are sent.
const LIMIT: u32 = 400;

/// A socket that sends probes to one address.
pub(super) struct Prober {
    socket: UdpSocket,
    peer: IpAddr,
    /// The same address with the interface of a link-local one.
    address: SocketAddr,
    sent: u32,
    deadline_ns: u64,
    /// The slowest answer, microseconds; 0 before the first.
    slowest_us: f64,
}

/// An entry of the socket's error queue.
struct Report {
    /// The port that the datagram went to.
    port: Option<u16>,
    from: Option<IpAddr>,
    kind: ReportKind,
}

#[derive(Clone, Copy)]
enum ReportKind {
    /// The interface is too small.
    Local {
        mtu_bytes: u32,
    },
    /// A router's next link is too small; 0 from routers before RFC 1191.
    TooBig {
        mtu_bytes: u32,
    },
    TimeExceeded,
    PortUnreachable,
    /// Another destination unreachable: a firewall's, or no route.
    Rejected,
}

impl Prober {
    /// # Errors
    /// When the kernel refuses the socket or its options.
    pub(super) fn new(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let peer = address.ip();
        let any: IpAddr =
            if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        // PROBE: DF is set, and what the kernel knows of the path is ignored.
        if peer.is_ipv4() {
            rustix::net::sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        } else {
            rustix::net::sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        }
        // A datagram of 64 KiB must fit.
        setsockopt(&socket, sockopt::SndBuf, &200_000)?;
        Ok(Self {
            socket,
            peer,
            address,
            sent: 0,
            deadline_ns: monotonic_ns() + patience.as_nanos() as u64,
            slowest_us: 0.0,
        })
    }

    /// How many datagrams left.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// IP's and UDP's headers, bytes.
    fn headers(&self) -> u32 {
        if self.peer.is_ipv4() { 28 } else { 48 }
    }

    fn send(&self, number: u32, ttl: u8, packet_bytes: u32) -> io::Result<()> {
        if self.peer.is_ipv4() {
            rustix::net::sockopt::set_ip_ttl(&self.socket, ttl.into())?;
        } else {
            rustix::net::sockopt::set_ipv6_unicast_hops(&self.socket, Some(ttl))?;
        }
        let payload = vec![0; packet_bytes.saturating_sub(self.headers()) as usize];
        let mut to = self.address;
        to.set_port(port(number));
        // An answer to an earlier datagram is returned as an error of the next call, once.
        let mut sent = self.socket.send_to(&payload, to);
        for _ in 0..4 {
            match &sent {
                Err(error) if is_from_the_network(error) => sent = self.socket.send_to(&payload, to),
                _ => break,
            }
        }
        sent.map(drop)
    }

    /// Empties the error queue.
    fn reports(&self) -> Vec<Report> {
        let mut all = Vec::new();
        // As many as there can be datagrams: more are of no use.
        for _ in 0..LIMIT {
            let mut space = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let Ok(message) = recvmsg::<SockaddrStorage>(fd, &mut [], Some(&mut space), flags) else { break };
            let port = message.address.as_ref().and_then(port_of);
            let Ok(controls) = message.cmsgs() else { continue };
            all.extend(controls.filter_map(|control| {
                let (error, from) = match control {
                    ControlMessageOwned::Ipv4RecvErr(error, from) => {
                        (error, from.map(|from| IpAddr::from(from.sin_addr.s_addr.to_ne_bytes())))
                    }
                    ControlMessageOwned::Ipv6RecvErr(error, from) => {
                        (error, from.map(|from| IpAddr::from(from.sin6_addr.s6_addr)))
                    }
                    _ => return None,
                };
                Some(Report { port, from, kind: kind(&error)? })
            }));
        }
        all
    }

    /// Waits for the answer to the datagram `number`.
    fn answer(&mut self, number: u32) -> Answer {
        let begin = monotonic_ns();
        let wait = if self.slowest_us > 0.0 {
            Duration::from_micros((self.slowest_us * SLOWER) as u64).clamp(LEAST_WAIT, WAIT)
        } else {
            WAIT
        };
        let deadline = begin + wait.as_nanos() as u64;
        loop {
            let rtt_us = monotonic_ns().saturating_sub(begin) as f64 / 1e3;
            let mut own = self.reports().into_iter().filter(|report| report.port == Some(port(number)));
            if let Some(report) = own.next() {
                self.slowest_us = self.slowest_us.max(rtt_us);
                return self.judge(&report, rtt_us);
            }
            let mut buffer = [0; 16];
            // A datagram in return: a service listens there.
            if self.socket.recv_from(&mut buffer).is_ok_and(|(_, from)| from.ip() == self.peer) {
                return Answer::Arrived { from: Some(self.peer), rtt_us };
            }
            let left = deadline.saturating_sub(monotonic_ns());
            if left == 0 {
                return Answer::Silence;
            }
            let timeout =
                PollTimeout::try_from(Duration::from_nanos(left.max(1_000_000))).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            if !matches!(poll(&mut fds, timeout), Ok(_) | Err(Errno::EINTR)) {
                return Answer::Over;
            }
        }
    }

    fn judge(&self, report: &Report, rtt_us: f64) -> Answer {
        match report.kind {
            ReportKind::Local { mtu_bytes } | ReportKind::TooBig { mtu_bytes } => {
                Answer::TooBig { from: report.from, mtu_bytes }
            }
            ReportKind::TimeExceeded => Answer::TimeExceeded { from: report.from, rtt_us },
            ReportKind::PortUnreachable => Answer::Arrived { from: report.from, rtt_us },
            ReportKind::Rejected if report.from == Some(self.peer) => {
                Answer::Arrived { from: report.from, rtt_us }
            }
            ReportKind::Rejected => Answer::Rejected { from: report.from },
        }
    }
}

impl Network for Prober {
    fn probe(&mut self, ttl: u8, packet_bytes: u32) -> Answer {
        if self.sent >= LIMIT || monotonic_ns() > self.deadline_ns {
            return Answer::Over;
        }
        let number = self.sent;
        self.sent += 1;
        self.reports();
        match self.send(number, ttl, packet_bytes) {
            Ok(()) => self.answer(number),
            Err(error) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                let own = |report: &Report| match report.kind {
                    ReportKind::Local { mtu_bytes } => Some(mtu_bytes),
                    _ => None,
                };
                let mtu_bytes = self.reports().iter().find_map(own).unwrap_or(0);
                Answer::TooBig { from: None, mtu_bytes }
            }
            Err(_) => Answer::Over,
        }
    }

    fn pause(&mut self) {
        // Linux answers six datagrams at once and then one in a second (icmp_ratelimit).
        std::thread::sleep(Duration::from_millis(1050));
    }
}

fn port(number: u32) -> u16 {
    FIRST_PORT + (number % u32::from(PORTS)) as u16
}

/// Whether an error of send(2) is an answer to an earlier datagram.
fn is_from_the_network(error: &io::Error) -> bool {
    let answers =
        [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EACCES, Errno::EPROTO];
    answers.iter().any(|answer| error.raw_os_error() == Some(*answer as i32))
}

/// What an entry of the error queue says (RFC 792, RFC 1191, RFC 4443).
fn kind(error: &libc::sock_extended_err) -> Option<ReportKind> {
    let mtu_bytes = error.ee_info;
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_LOCAL, _, _) if error.ee_errno == Errno::EMSGSIZE as u32 => {
            Some(ReportKind::Local { mtu_bytes })
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => {
            Some(ReportKind::TooBig { mtu_bytes })
        }
        (libc::SO_EE_ORIGIN_ICMP, 11, _) | (libc::SO_EE_ORIGIN_ICMP6, 3, _) => Some(ReportKind::TimeExceeded),
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => {
            Some(ReportKind::PortUnreachable)
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Some(ReportKind::Rejected),
        _ => None,
    }
}
