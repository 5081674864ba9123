//! The kernel's responses to a process in the sandbox: this test program runs itself again, enters the sandbox there, and
//! reports the result of each attempt.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::Pid;
use sandbox::{DiskAccess, Mode, Place, Plan};

const FOLDER: &str = "SANDBOX_TEST_FOLDER";
const MODE: &str = "SANDBOX_TEST_MODE";

/// The errno of an attempt, 0 for success.
fn code<T>(result: nix::Result<T>) -> i32 {
    result.map_or_else(|error| error as i32, |_| 0)
}

fn io<T>(result: std::io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

fn open_for_writing(path: &Path) -> i32 {
    io(OpenOptions::new().write(true).create(true).truncate(true).open(path))
}

/// In the sandbox: attempts everything, and prints the results.
fn attempt(folder: &Path, mode: Mode) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let plan = Plan {
        mode,
        disks: vec![
            Place::disk(&folder.join("read"), DiskAccess::Read),
            Place::disk(&folder.join("made"), DiskAccess::Create),
            Place::folder(&folder.join("disks")),
        ],
        ..Plan::default()
    };
    let prepared = plan.prepare().unwrap();
    // A thread from between the two steps, such as the one of io_uring.
    let (go, wait) = mpsc::channel::<()>();
    let early = std::thread::spawn(move || {
        wait.recv().unwrap();
        (io(File::open("/etc/passwd")), code(nix::sched::unshare(CloneFlags::CLONE_FILES)))
    });
    let sandbox = prepared.lock().unwrap();
    let report = |name: &str, code: i32| println!("\nattempt {name} {code}");
    println!("\n{sandbox}");
    go.send(()).unwrap();
    let (open, unshare) = early.join().unwrap();
    report("early-open", open);
    report("early-unshare", unshare);
    report("open", io(File::open("/etc/passwd")));
    report("read", io(File::open(folder.join("read"))));
    report("read-write", open_for_writing(&folder.join("read")));
    report("made-write", open_for_writing(&folder.join("made")));
    report("inside-create", open_for_writing(&folder.join("disks/new")));
    report("outside-create", open_for_writing(&folder.join("new")));
    report("thread", std::thread::spawn(|| 0).join().unwrap());
    report("packet", code(packets()));
    report("connect", io(TcpStream::connect(address)));
    report("bind", io(TcpListener::bind("127.0.0.1:0")));
    report("unshare", code(nix::sched::unshare(CloneFlags::CLONE_FILES)));
    // ESRCH if the call is allowed, as nothing is traced.
    report("ptrace", code(nix::sys::ptrace::cont(Pid::from_raw(1), None)));
    let (text, mut copy) = ([1_u8; 8], [0_u8; 8]);
    let remote = [nix::sys::uio::RemoteIoVec { base: text.as_ptr() as usize, len: 8 }];
    let copied = nix::sys::uio::process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut copy)], &remote);
    report("process-vm-readv", code(copied));
    let written = nix::sys::uio::process_vm_writev(Pid::this(), &[IoSlice::new(&copy)], &remote);
    report("process-vm-writev", code(written));
    report("kill", code(nix::sys::signal::kill(Pid::parent(), None)));
    report("setns", code(nix::sched::setns(&listener, CloneFlags::empty())));
    let flags = nix::mount::MsFlags::empty();
    report(
        "mount",
        code(nix::mount::mount(Some("none"), &folder.join("disks"), Some("none"), flags, None::<&str>)),
    );
    report("spawn", io(Command::new("/bin/true").status()));
    let arguments = [c"/bin/echo", c"attempt exec 0"];
    report("exec", code(nix::unistd::execv(c"/bin/echo", &arguments)));
}

fn packets() -> nix::Result<std::os::fd::OwnedFd> {
    socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
}

/// Runs this program again in a mode and returns the result of each attempt.
fn answers(mode: &str) -> (String, BTreeMap<String, i32>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("read"), "x").unwrap();
    std::fs::create_dir(folder.path().join("disks")).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "denies_unneeded_access", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .env(MODE, mode)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs = text.lines().filter_map(|line| {
        let (name, code) = line.strip_prefix("attempt ")?.split_once(' ')?;
        Some((name.to_owned(), code.parse().ok()?))
    });
    let pairs: BTreeMap<_, _> = pairs.collect();
    assert!(pairs.contains_key("exec"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    (text, pairs)
}

#[test]
fn denies_unneeded_access() {
    if let (Some(folder), Ok(mode)) = (std::env::var_os(FOLDER), std::env::var(MODE)) {
        return attempt(Path::new(&folder), mode.parse().unwrap());
    }
    let (text, inside) = answers("on");
    // The same attempts without the sandbox, to exclude other causes.
    let (_, outside) = answers("off");
    let (denied, refused) = (Errno::EACCES as i32, Errno::EPERM as i32);
    let mut expected = vec![("thread", 0, 0), ("read", 0, 0), ("made-write", 0, 0), ("inside-create", 0, 0)];
    if testing::require("a kernel with Landlock", text.contains("Landlock ABI")) {
        let files = ["early-open", "open", "read-write", "outside-create"];
        expected.extend(files.map(|name| (name, denied, 0)));
    }
    if testing::require("a kernel with seccomp", !text.contains("no seccomp")) {
        let calls = [
            "connect",
            "bind",
            "unshare",
            "early-unshare",
            "process-vm-readv",
            "process-vm-writev",
            "kill",
            "spawn",
            "exec",
        ];
        expected.extend(calls.map(|name| (name, refused, 0)));
        expected.push(("ptrace", refused, Errno::ESRCH as i32));
        expected.push(("setns", refused, Errno::EINVAL as i32));
        // Without root they are refused anyway.
        if testing::require_root("packet sockets and mounts") {
            expected.push(("packet", refused, 0));
            expected.push(("mount", refused, Errno::ENODEV as i32));
        }
    }
    for (name, within, without) in expected {
        assert_eq!((inside[name], outside[name]), (within, without), "{name}: {text}");
    }
}
