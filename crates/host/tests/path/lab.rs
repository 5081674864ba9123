//! Three network namespaces in a row: a client, a router, a server.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace that ends with its last holder.
#[derive(Clone)]
pub(crate) struct Namespace(Arc<File>);

impl Namespace {
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
            File::open("/proc/thread-self/ns/net").expect("its file")
        });
        let namespace = Self(Arc::new(made.join().expect("the thread")));
        // An address is usable at once: no duplicate is looked for.
        namespace.sh(
            "for which in all default; do
               echo 0 > /proc/sys/net/ipv6/conf/$which/accept_dad; echo 0 > /proc/sys/net/ipv6/conf/$which/dad_transmits
             done
             ip link set lo up",
        );
        namespace
    }

    /// Runs `work` on a thread inside.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let own = self.0.clone();
        let inside = move || {
            setns(&*own, CloneFlags::CLONE_NEWNET).expect("entering the namespace");
            work()
        };
        std::thread::spawn(inside).join().expect("the thread")
    }

    /// Runs shell commands inside.
    pub(crate) fn sh(&self, commands: &str) {
        let commands = commands.to_owned();
        self.run(move || {
            let path = "/usr/sbin:/sbin:/usr/bin:/bin";
            let output = Command::new("sh").args(["-ec", &commands]).env("PATH", path).output().expect("sh");
            assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
        });
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Joins an interface here to one there.
    pub(crate) fn cable(&self, name: &str, other: &Self, other_name: &str) {
        self.sh(&format!("ip link add {name} type veth peer name {other_name} netns {}", other.path()));
    }

    /// A server inside that reads what comes; it ends with the process.
    pub(crate) fn serve(&self, address: &'static str) {
        let listener = self.run(move || TcpListener::bind(address).expect("a port"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let mut buffer = [0; 65_536];
                    while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
                });
            }
        });
    }
}

/// A client, a router whose link to the server may be small, and a server that does not know.
pub(crate) struct Lab {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) server: Namespace,
}

/// The server, with the port that it serves.
pub(crate) const SERVER: &str = "10.77.2.2";
pub(crate) const SERVER_PORT: &str = "10.77.2.2:4000";
pub(crate) const SERVER_PORT_6: &str = "[fd77:2::2]:4000";

impl Lab {
    /// `ends` is the MTU of the client's and the server's interface, `middle` that of the router towards the server, bytes.
    pub(crate) fn new(ends: u32, middle: u32) -> Self {
        let lab = Self { client: Namespace::new(), router: Namespace::new(), server: Namespace::new() };
        lab.client.cable("c0", &lab.router, "r0");
        lab.router.cable("r1", &lab.server, "s0");
        lab.router.sh(&format!(
            "ip link set r0 mtu {ends} up; ip link set r1 mtu {middle} up
             ip addr add 10.77.1.1/24 dev r0; ip addr add 10.77.2.1/24 dev r1
             ip addr add fd77:1::1/64 dev r0 nodad; ip addr add fd77:2::1/64 dev r1 nodad
             echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
        ));
        for (end, name, subnet) in [(&lab.client, "c0", 1), (&lab.server, "s0", 2)] {
            end.sh(&format!(
                "ip link set {name} mtu {ends} up
                 ip addr add 10.77.{subnet}.2/24 dev {name}; ip route add default via 10.77.{subnet}.1
                 ip addr add fd77:{subnet}::2/64 dev {name} nodad; ip route add default via fd77:{subnet}::1"
            ));
        }
        lab.server.serve("10.77.2.2:4000");
        lab.server.serve("[fd77:2::2]:4000");
        lab
    }

    /// Drops what the router would send or forward, by a match of nft.
    pub(crate) fn drop(&self, matches: &str) {
        self.router.sh(&format!(
            "nft add table inet lab
             nft 'add chain inet lab out {{ type filter hook output priority 0; }}'
             nft 'add chain inet lab through {{ type filter hook forward priority 0; }}'
             nft add rule inet lab out {matches} drop; nft add rule inet lab through {matches} drop"
        ));
    }
}

/// Whether a test with namespaces can run.
#[track_caller]
pub(crate) fn can_run() -> bool {
    testing::require_root("network namespaces")
        && testing::require("nft (package nftables)", std::path::Path::new("/usr/sbin/nft").exists())
}
