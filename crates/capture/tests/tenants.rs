//! Two tenants of a real network with the same addresses and ports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use capture::{At, Counted, Link, Observer, Selection, StreamHole, Vantage};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use record::{ConnectionFacts, Exchange};

/// A network namespace, which ends with this handle.
struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Self(made.join().unwrap())
    }

    /// Runs `work` on a thread inside.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// A path by which `ip` finds it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `ip` inside.
    fn ip(&self, arguments: &str) {
        let ran = self.run(|| Command::new("ip").args(arguments.split(' ')).output().expect("ip"));
        assert!(ran.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// The networks' numbers and the requests of each tenant.
const TENANTS: [(u32, u64); 2] = [(10, 20), (20, 35)];
/// The client's port in both tenants.
const CLIENT_PORT: u16 = 40_000;

/// One end of the cable, and of each tenant's network.
struct End {
    host: Namespace,
    tenants: Vec<Namespace>,
}

/// Two hosts with a cable between them, and a network of each tenant over it.
fn network() -> [End; 2] {
    let ends = [(), ()].map(|()| End {
        host: Namespace::new(),
        tenants: TENANTS.iter().map(|_| Namespace::new()).collect(),
    });
    let other = ends[1].host.path();
    ends[0].host.ip(&format!("link add cable type veth peer name cable netns {other}"));
    for (number, end) in (1..).zip(&ends) {
        end.host.ip(&format!("address add 192.0.2.{number}/24 dev cable"));
        end.host.ip("link set cable up");
        let far = 3 - number;
        for ((id, _), tenant) in TENANTS.iter().zip(&end.tenants) {
            let ends = format!("local 192.0.2.{number} remote 192.0.2.{far} dstport 4789 dev cable");
            end.host.ip(&format!("link add tenant{id} type vxlan id {id} {ends}"));
            end.host.ip(&format!("link set tenant{id} netns {}", tenant.path()));
            tenant.ip(&format!("address add 10.0.0.{number}/24 dev tenant{id}"));
            tenant.ip(&format!("link set tenant{id} up"));
        }
    }
    ends
}

/// A socket that receives what passes a host's devices from now on, without loss.
fn tap(host: &Namespace) -> OwnedFd {
    let socket = host.run(|| {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap()
    });
    setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    socket
}

/// The frames that have passed.
fn frames(tap: &OwnedFd) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 1 << 17];
    let mut frames = Vec::new();
    loop {
        match recv(tap.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(bytes) => frames.push(buffer[..bytes].to_vec()),
            Err(Errno::EAGAIN) => return frames,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Answers every request of one connection.
fn serve(listener: &TcpListener) {
    let (mut connection, _) = listener.accept().unwrap();
    let mut requests = BufReader::new(connection.try_clone().unwrap());
    let mut line = String::new();
    while requests.read_line(&mut line).unwrap() > 0 {
        if line == "\r\n" {
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
        line.clear();
    }
}

/// Sends requests one by one.
fn ask(connection: &mut TcpStream, requests: u64) {
    for _ in 0..requests {
        connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 40];
        connection.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(b"ok"));
    }
}

/// Requests in both tenants, whose connections are open at the same time.
fn talk(ends: &[End; 2]) {
    let [clients, servers] = ends;
    let both_open = Barrier::new(TENANTS.len());
    thread::scope(|scope| {
        for ((client, server), (_, requests)) in clients.tenants.iter().zip(&servers.tenants).zip(TENANTS) {
            let listener = server.run(|| TcpListener::bind("10.0.0.2:80").unwrap());
            let both_open = &both_open;
            scope.spawn(move || serve(&listener));
            scope.spawn(move || {
                client.run(|| {
                    let range = format!("{CLIENT_PORT} {CLIENT_PORT}");
                    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).unwrap();
                    let mut connection = TcpStream::connect("10.0.0.2:80").unwrap();
                    connection.set_nodelay(true).unwrap();
                    both_open.wait();
                    ask(&mut connection, requests);
                    both_open.wait();
                });
            });
        }
    });
}

#[derive(Default)]
struct Seen {
    facts: Vec<ConnectionFacts>,
    holes: usize,
}

impl Observer for Seen {
    fn exchange(&mut self, _: &Exchange) {}
    fn hole(&mut self, _: StreamHole) {
        self.holes += 1;
    }
    fn counted(&mut self, _: &Counted) {}
    fn connection(&mut self, facts: &ConnectionFacts) {
        self.facts.push(*facts);
    }
}

#[test]
fn two_tenants_of_vxlan_with_the_same_addresses_and_ports_are_two_connections() {
    if !testing::require_root("network namespaces") {
        return;
    }
    // In a namespace of its own, so that nothing stays.
    let probe = Namespace::new();
    let made = probe.run(|| {
        Command::new("ip")
            .args(["link", "add", "probe", "type", "vxlan", "id", "1", "dstport", "4789"])
            .output()
    });
    if !testing::require("VXLAN devices of the kernel", made.is_ok_and(|ran| ran.status.success())) {
        return;
    }
    let ends = network();
    let tap = tap(&ends[0].host);
    talk(&ends);
    // What the clients have received has passed the tap.
    let (mut vantage, mut seen) = (Vantage::new(Selection::default()), Seen::default());
    for (number, frame) in (1..).zip(frames(&tap)) {
        let at = At { ns: number * 10_000, frame: number };
        vantage.frame(Link::Ethernet, at, &frame, frame.len() as u32, &mut seen);
    }
    let hidden: Vec<String> = vantage.contents.not_read().map(|(name, _)| name.to_owned()).collect();
    let names = vantage.contents.other_frames.clone();
    vantage.finish(&mut seen);
    let mut exchanges: Vec<u64> = seen.facts.iter().map(|facts| facts.exchanges).collect();
    exchanges.sort_unstable();
    assert_eq!((exchanges, seen.holes), (TENANTS.map(|(_, requests)| requests).to_vec(), 0), "{names:?}");
    assert_eq!(hidden, Vec::<String>::new());
    assert!(names.contains_key("ARP in VXLAN"), "{names:?}");
}
