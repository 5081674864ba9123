//! TCP sockets as the kernel reports them: sock_diag(7).
//!
//! The request and the socket's identity are the library's. TCP_INFO is parsed here, because its length differs by kernel: the
//! library rejects one that is shorter than its own.

use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NlasIterator, Parseable as _,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags, Timer,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as KernelAddress};

pub use self::tcp_info::TcpInfo;

#[path = "tcp_info.rs"]
mod tcp_info;

/// Larger than the 32 KiB that the kernel puts into one answer of a dump.
const ANSWER_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 16;
/// Length of `struct inet_diag_msg`, which the attributes follow.
const DIAG_BYTES: usize = 72;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const ENOENT: i32 = 2;
/// INET_DIAG_NOCOOKIE, twice: whichever socket it is.
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// A TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// What the kernel calls it; names it in [`Diag::socket`].
    pub id: SocketId,
    /// AF_INET or AF_INET6.
    pub family: u8,
    /// Its state, as in include/net/tcp_states.h: 1 established, 10 listening.
    pub state: u8,
    /// Whether the timer that probes a closed window is running.
    pub is_probing: bool,
    /// Bytes that the program has not read; of a listener, connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes written and not acknowledged, sent or not; of a listener, the most connections that may wait.
    pub send_queue: u32,
    /// The user who made it.
    pub uid: u32,
    /// Its inode, as in `/proc/PID/fd`; 0 for one that no program has a descriptor of.
    pub inode: u32,
    /// Name of the congestion control.
    pub congestion: Option<String>,
    /// Memory and its limits.
    pub memory: Option<Memory>,
    /// TCP_INFO.
    pub info: Option<TcpInfo>,
}

impl TcpSocket {
    /// This end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.id.source_address, self.id.source_port)
    }

    /// The other end; port 0 of a listener.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.id.destination_address, self.id.destination_port)
    }
}

/// Memory of a socket, bytes (INET_DIAG_SKMEMINFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Held by received segments.
    pub receive_allocated: u32,
    /// Limit of it: what SO_RCVBUF returns.
    pub receive_limit: u32,
    /// Held by segments that are being sent.
    pub send_allocated: u32,
    /// Limit of it: what SO_SNDBUF returns.
    pub send_limit: u32,
    /// Segments that were dropped for lack of memory or because the accept queue was full.
    pub drops: Option<u32>,
}

/// Asks the kernel for sockets of the network namespace in which it was opened.
pub struct Diag {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens the interface in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel has no sock_diag, or a filter forbids it.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&KernelAddress::new(0, 0))?;
        Ok(Self { socket, buffer: Vec::with_capacity(ANSWER_BYTES) })
    }

    /// Gives each TCP socket of IPv4 and IPv6 to `each`, without those in TIME_WAIT, in constant memory. A socket that begins or
    /// ends meanwhile may be missing.
    ///
    /// # Errors
    /// When the kernel refuses, or its answer cannot be parsed.
    pub fn each_tcp(&mut self, each: &mut dyn FnMut(TcpSocket)) -> io::Result<()> {
        self.dump(AF_INET, each)?;
        match self.dump(AF_INET6, each) {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(()),
            outcome => outcome,
        }
    }

    fn dump(&mut self, family: u8, each: &mut dyn FnMut(TcpSocket)) -> io::Result<()> {
        let id = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
        self.ask(family, id, NLM_F_REQUEST | NLM_F_DUMP)?;
        loop {
            if self.receive(each)? == Answer::Last {
                return Ok(());
            }
        }
    }

    /// A socket that an earlier call reported, as it is now; `None` if it has ended.
    ///
    /// # Errors
    /// As [`Self::each_tcp`].
    pub fn socket(&mut self, earlier: &TcpSocket) -> io::Result<Option<TcpSocket>> {
        self.one(earlier.family, earlier.id.clone())
    }

    /// The connection between two addresses; `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::each_tcp`].
    pub fn connection(&mut self, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<TcpSocket>> {
        let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
        let scope = match local {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(local) => local.scope_id(),
        };
        let id = SocketId {
            source_address: local.ip(),
            source_port: local.port(),
            destination_address: peer.ip(),
            destination_port: peer.port(),
            // A link-local address is one of an interface.
            interface_id: scope,
            cookie: ANY_COOKIE,
        };
        self.one(family, id)
    }

    fn one(&mut self, family: u8, id: SocketId) -> io::Result<Option<TcpSocket>> {
        self.ask(family, id, NLM_F_REQUEST)?;
        let mut found = None;
        match self.receive(&mut |socket| found = Some(socket)) {
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(found),
        }
    }

    fn ask(&mut self, family: u8, socket_id: SocketId, flags: u16) -> io::Result<()> {
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO | ExtensionFlags::CONG | ExtensionFlags::SKMEMINFO,
            // A socket in TIME_WAIT has no program and no TCP_INFO, and there may be very many.
            states: StateFlags::all() - StateFlags::TIME_WAIT,
            socket_id,
        };
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    fn receive(&mut self, each: &mut dyn FnMut(TcpSocket)) -> io::Result<Answer> {
        self.buffer.clear();
        while let Err(error) = self.socket.recv(&mut self.buffer, 0) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        parse(&self.buffer, each)
    }
}

/// Whether further answers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    More,
    Last,
}

/// Parses the messages of one answer.
fn parse(mut bytes: &[u8], each: &mut dyn FnMut(TcpSocket)) -> io::Result<Answer> {
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0).map_or(0, |length| length as usize);
        let message = bytes.get(..length).filter(|m| m.len() >= HEADER_BYTES).ok_or_else(malformed)?;
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        let flags = u16::from_ne_bytes([message[6], message[7]]);
        let payload = &message[HEADER_BYTES..];
        if flags & NLM_F_DUMP_INTR != 0 {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the list of sockets changed meanwhile"));
        }
        match kind {
            NLMSG_DONE => return Ok(Answer::Last),
            NLMSG_ERROR => {
                let code = u32_at(payload, 0).ok_or_else(malformed)?.cast_signed();
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            SOCK_DIAG_BY_FAMILY => each(parse_socket(payload)?),
            _ => {}
        }
        // Messages are aligned to 4 bytes; the last may lack its padding.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Answer::More)
}

fn parse_socket(payload: &[u8]) -> io::Result<TcpSocket> {
    let header = InetResponseHeader::parse(payload).map_err(io::Error::other)?;
    let mut socket = TcpSocket {
        id: header.socket_id,
        family: header.family,
        state: header.state,
        is_probing: matches!(header.timer, Some(Timer::Probe(_))),
        receive_queue: header.recv_queue,
        send_queue: header.send_queue,
        uid: header.uid,
        inode: header.inode,
        congestion: None,
        memory: None,
        info: None,
    };
    for attribute in NlasIterator::new(payload.get(DIAG_BYTES..).unwrap_or_default()) {
        let attribute = attribute.map_err(io::Error::other)?;
        let value = attribute.value();
        match attribute.kind() {
            INET_DIAG_INFO => socket.info = TcpInfo::parse(value),
            INET_DIAG_SKMEMINFO => socket.memory = parse_memory(value),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion = Some(String::from_utf8_lossy(name).into_owned());
            }
            _ => {}
        }
    }
    Ok(socket)
}

fn parse_memory(value: &[u8]) -> Option<Memory> {
    Some(Memory {
        receive_allocated: u32_at(value, 0)?,
        receive_limit: u32_at(value, 4)?,
        send_allocated: u32_at(value, 8)?,
        send_limit: u32_at(value, 12)?,
        drops: u32_at(value, 32),
    })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "sock_diag: a message of the kernel ends early")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = HEADER_BYTES + payload.len();
        let mut bytes = u32::try_from(length).expect("short").to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    /// `struct inet_diag_msg` of a connection of IPv4, with attributes.
    fn socket_message(timer: u8) -> Vec<u8> {
        let mut diag = vec![AF_INET, 1, timer, 0, 0x0c, 0xbc, 0x1f, 0x40];
        diag.extend([10, 0, 0, 1].into_iter().chain([0; 12]));
        diag.extend([10, 0, 0, 2].into_iter().chain([0; 12]));
        diag.extend([0; 4]);
        diag.extend([7, 0, 0, 0, 9, 0, 0, 0]);
        for word in [0_u32, 11, 22, 1000, 4711] {
            diag.extend(word.to_ne_bytes());
        }
        assert_eq!(diag.len(), DIAG_BYTES);
        let mut attribute = |kind: u16, value: &[u8]| {
            diag.extend(u16::try_from(value.len() + 4).expect("short").to_ne_bytes());
            diag.extend(kind.to_ne_bytes());
            diag.extend(value);
            diag.resize(diag.len().next_multiple_of(4), 0);
        };
        attribute(INET_DIAG_CONG, b"cubic\0");
        let memory: Vec<u8> = (1..=9_u32).flat_map(u32::to_ne_bytes).collect();
        attribute(INET_DIAG_SKMEMINFO, &memory);
        // One of a kernel that is older than the library's structure.
        attribute(INET_DIAG_INFO, &[3; 192]);
        // One that this program does not know.
        attribute(99, &[1]);
        diag
    }

    fn parsed(bytes: &[u8]) -> (io::Result<Answer>, Vec<TcpSocket>) {
        let mut sockets = Vec::new();
        let answer = parse(bytes, &mut |socket| sockets.push(socket));
        (answer, sockets)
    }

    #[test]
    fn a_socket_is_read_with_its_attributes_whatever_the_kernel_s_age() {
        let mut bytes = message(SOCK_DIAG_BY_FAMILY, 2, &socket_message(4));
        bytes.extend(message(SOCK_DIAG_BY_FAMILY, 2, &socket_message(0)));
        let (answer, sockets) = parsed(&bytes);
        assert_eq!((answer.expect("well-formed"), sockets.len()), (Answer::More, 2));
        let socket = &sockets[0];
        assert_eq!(socket.local(), "10.0.0.1:3260".parse().expect("an address"));
        assert_eq!(socket.peer(), "10.0.0.2:8000".parse().expect("an address"));
        assert_eq!((socket.state, socket.receive_queue, socket.send_queue), (1, 11, 22));
        assert_eq!((socket.uid, socket.inode), (1000, 4711));
        assert_eq!(socket.congestion.as_deref(), Some("cubic"));
        let memory = Memory {
            receive_allocated: 1,
            receive_limit: 2,
            send_allocated: 3,
            send_limit: 4,
            drops: Some(9),
        };
        assert_eq!(socket.memory, Some(memory));
        let info = socket.info.expect("TCP_INFO");
        assert_eq!((info.rtt_us, info.bytes_sent), (0x0303_0303, None));
        assert!(socket.is_probing && !sockets[1].is_probing);
    }

    #[test]
    fn errors_and_ends_of_a_dump_are_told_apart() {
        let (answer, _) = parsed(&message(NLMSG_ERROR, 0, &(-ENOENT).to_ne_bytes()));
        assert_eq!(answer.expect_err("an error").raw_os_error(), Some(ENOENT));
        let (answer, _) = parsed(&message(NLMSG_DONE, 0, &[0; 4]));
        assert_eq!(answer.expect("well-formed"), Answer::Last);
        let (answer, _) = parsed(&message(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP_INTR, &socket_message(0)));
        assert_eq!(answer.expect_err("an error").kind(), io::ErrorKind::Interrupted);
        let whole = message(SOCK_DIAG_BY_FAMILY, 0, &socket_message(0));
        for length in [1, 15, 16, 40, whole.len() - 4] {
            assert!(parsed(&whole[..length]).0.is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_hang(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            length in 0_u32..400,
            kind in prop_oneof![Just(SOCK_DIAG_BY_FAMILY), Just(NLMSG_ERROR), any::<u16>()],
        ) {
            if bytes.len() >= HEADER_BYTES {
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                bytes[6..8].fill(0);
            }
            let _ = parsed(&bytes);
        }
    }

    #[test]
    fn the_kernel_lists_a_connection_and_finds_it_again_by_its_cookie() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let local = client.local_addr().expect("an address");
        let mut diag = Diag::open().expect("sock_diag");
        let mut found = None;
        diag.each_tcp(&mut |socket| {
            if socket.local() == local {
                found = Some(socket);
            }
        })
        .expect("a list");
        let found = found.expect("the connection");
        assert_eq!(found.peer(), client.peer_addr().expect("an address"));
        let again = diag.socket(&found).expect("an answer").expect("the connection");
        assert_eq!(again.id.cookie, found.id.cookie);
        drop((client, server));
        // Its addresses with the cookie of another: the kernel compares both.
        let other = TcpSocket { id: SocketId { cookie: [1; 8], ..found.id.clone() }, ..found };
        assert_eq!(diag.socket(&other).expect("an answer"), None);
    }
}
