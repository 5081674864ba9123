//! Sockets of programs, read from the kernel and changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};

use host::check::findings;
use host::facts::socket::{AcceptQueue, SocketFacts, SocketState};
use host::facts::{Facts, Unseen};
use host::live::{SocketName, SocketRecord, plan};
use host::read::{Roots, Wanted, socket};
use host::undo::Overwrite;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};

fn own(port: u16) -> (Vec<SocketFacts>, Vec<Unseen>) {
    let wanted = Wanted { pid: Some(std::process::id()), port: Some(port), ..Wanted::default() };
    let mut unseen = Vec::new();
    let sockets = socket::list(&Roots::default(), &wanted, &mut unseen);
    (sockets, unseen)
}

/// A connection within this process.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn facts_of(stream: &TcpStream) -> SocketFacts {
    let (sockets, unseen) = own(stream.local_addr().unwrap().port());
    assert!(unseen.is_empty(), "{unseen:?}");
    let local = stream.local_addr().unwrap();
    sockets.into_iter().find(|s| s.ends.local == local && s.ends.peer.is_some()).unwrap()
}

#[test]
fn the_kernel_reports_own_sockets_with_their_options_and_counters() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let bound = TcpListener::bind(address);
        if !testing::require("IPv6 on the loopback interface", bound.is_ok()) {
            continue;
        }
        let listener = bound.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 400]).unwrap();
        setsockopt(&server, sockopt::RcvBuf, &50_000).unwrap();

        let (client_facts, server_facts) = (facts_of(&client), facts_of(&server));
        assert_eq!(client_facts.ends.peer, Some(client.peer_addr().unwrap()));
        assert!(!client_facts.options.unwrap().nagle && server_facts.options.unwrap().nagle);
        let sent = client_facts.transfer.unwrap().counters;
        assert_eq!((sent.bytes_sent, sent.data_segments_out, sent.data_segments_in), (1000, 1, 0));
        let received = server_facts.transfer.unwrap().counters;
        assert_eq!((received.bytes_received, received.data_segments_in), (1000, 1));
        assert_eq!(server_facts.buffers.unread_bytes, 600);
        assert_eq!(server_facts.buffers.receive_bytes, 100_000);
        let locks = |facts: &SocketFacts| facts.options.unwrap().receive_buffer_locked;
        assert!(matches!(
            (locks(&client_facts), locks(&server_facts)),
            (Some(false), Some(true)) | (None, None)
        ));
        assert!(client_facts.transfer.unwrap().rtt_min_us.is_some());
        assert!(client_facts.congestion_control.is_some());
        let owner = &server_facts.owners[0];
        assert_eq!((owner.pid, owner.fd), (std::process::id(), server.as_raw_fd()));
        let (sockets, _) = own(port);
        assert_eq!(sockets.len(), 3, "{sockets:?}");
        let listening = sockets.iter().find(|s| s.state == SocketState::Listen).unwrap();
        assert_eq!(listening.accept_queue.unwrap().length, 0);
        assert!(listening.transfer.is_none());
    }
}

#[test]
fn unread_and_unsent_bytes_are_those_of_the_queues() {
    let (client, server) = connection();
    client.set_nonblocking(true).unwrap();
    // Until the peer's window is full.
    let mut written = 0;
    while let Ok(bytes) = (&client).write(&[0; 65_536]) {
        written += bytes;
    }
    let (sender, receiver) = (facts_of(&client), facts_of(&server));
    let buffers = &sender.buffers;
    assert!(buffers.unsent_bytes > 0 && buffers.unsent_bytes <= buffers.queued_bytes, "{buffers:?}");
    assert_eq!(buffers.unacknowledged_bytes(), buffers.queued_bytes - buffers.unsent_bytes);
    // The receiver, which was read later, has at least what was acknowledged by then.
    let acknowledged = written - buffers.queued_bytes as usize;
    let unread = receiver.buffers.unread_bytes as usize;
    assert!((acknowledged..written).contains(&unread), "{unread} of {written}: {buffers:?}");
    assert!(acknowledged > 0);
}

#[test]
fn connections_that_no_one_accepts_fill_the_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Again, with a limit of 1: the kernel lets two wait.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let _waiting = [TcpStream::connect(to).unwrap(), TcpStream::connect(to).unwrap()];
    let (sockets, _) = own(to.port());
    let queue = sockets.iter().find_map(|s| s.accept_queue).unwrap();
    assert_eq!(queue, AcceptQueue { length: 2, limit: 1 });
    let found = findings(&Facts { sockets, ..Facts::default() });
    assert!(found.iter().any(|finding| finding.id == "accept-queue-full"), "{found:?}");
}

#[test]
fn a_process_that_does_not_exist_is_reported_as_unseen() {
    let mut unseen = Vec::new();
    let wanted = Wanted { pid: Some(u32::MAX), ..Wanted::default() };
    assert!(socket::list(&Roots::default(), &wanted, &mut unseen).is_empty());
    assert_eq!(unseen.len(), 1);
    assert_eq!(unseen[0].why, "there is no such process");
}

#[test]
fn sockets_whose_process_is_not_visible_are_listed_and_reported_as_unseen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let empty = tempfile::tempdir().unwrap();
    let wanted = Wanted { port: Some(listener.local_addr().unwrap().port()), ..Wanted::default() };
    let mut unseen = Vec::new();
    let sockets = socket::list(&Roots::below(empty.path()), &wanted, &mut unseen);
    assert_eq!((sockets.len(), unseen.len()), (1, 1), "{unseen:?}");
    assert_eq!(unseen[0].what, "processes of 1 TCP socket");
    assert!(sockets[0].options.is_none() && sockets[0].owners.is_empty());
}

fn name_of(stream: &TcpStream) -> SocketName {
    SocketName::of(&facts_of(stream), Some(stream.as_raw_fd())).unwrap()
}

#[test]
fn every_option_is_set_and_restored_with_its_autotuning() {
    let state = tempfile::tempdir().unwrap();
    let (client, _server) = connection();
    let name = name_of(&client);
    let before = facts_of(&client);
    let wishes = [
        ("nodelay=on", "on"),
        ("cork=on", "on"),
        ("quickack=off", "off"),
        ("sndbuf=64k", "131072 bytes"),
        ("rcvbuf=32k", "65536 bytes"),
        ("notsent-lowat=16k", "16384 bytes"),
        ("congestion=reno", "reno"),
    ];
    let mut record = SocketRecord::open(state.path()).unwrap();
    for (wish, after) in wishes {
        let planned = plan(&name, &[wish.parse().unwrap()]).unwrap();
        let changed = record.apply(&planned[0]).unwrap();
        assert_eq!(changed.after.unwrap().to_string(), after, "{wish}");
    }
    assert!(client.nodelay().unwrap());
    drop(record);
    // Another run of the program restores: the latest first.
    let mut record = SocketRecord::open(state.path()).unwrap();
    let restored = std::iter::from_fn(|| record.undo_latest()).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(restored.len(), wishes.len());
    assert_eq!(restored[0].option.name(), "congestion");
    let after = facts_of(&client);
    assert_eq!((after.options, after.buffers), (before.options, before.buffers));
    assert_eq!(after.congestion_control, before.congestion_control);
    drop(record);
    assert!(SocketRecord::open(state.path()).unwrap().undo_latest().is_none());
}

#[test]
fn a_rejected_value_changes_nothing_and_leaves_no_record() {
    let state = tempfile::tempdir().unwrap();
    let (client, _server) = connection();
    let mut record = SocketRecord::open(state.path()).unwrap();
    let planned = plan(&name_of(&client), &["congestion=nonexistent".parse().unwrap()]).unwrap();
    let error = record.apply(&planned[0]).unwrap_err().to_string();
    assert!(error.contains("congestion=nonexistent"), "{error}");
    assert!(record.changes().is_empty());
}

#[test]
fn a_change_whose_record_cannot_be_written_is_not_made() {
    let state = tempfile::tempdir().unwrap();
    let (client, _server) = connection();
    let planned = plan(&name_of(&client), &["nodelay=on".parse().unwrap()]).unwrap();
    let mut record = SocketRecord::open(&state.path().join("gone")).unwrap();
    std::fs::remove_dir_all(state.path().join("gone")).unwrap();
    let error = record.apply(&planned[0]).unwrap_err().to_string();
    assert!(error.contains("sockets.json") && error.contains("--state"), "{error}");
    assert!(!client.nodelay().unwrap());
}

#[test]
fn a_descriptor_that_means_another_socket_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let (client, _server) = connection();
    let name = name_of(&client);
    let planned = plan(&name, &["nodelay=on".parse().unwrap()]).unwrap();
    let mut record = SocketRecord::open(state.path()).unwrap();
    record.apply(&planned[0]).unwrap();
    // The same descriptor, another socket.
    let (other, _kept) = connection();
    let mut descriptor = std::os::fd::OwnedFd::from(client);
    nix::unistd::dup2(&other, &mut descriptor).unwrap();
    let error = record.apply(&planned[0]).unwrap_err().to_string();
    assert!(error.contains("the descriptor means another socket; nothing was changed"), "{error}");
    let error = record.undo_latest().unwrap().unwrap_err().to_string();
    assert!(error.contains("the descriptor means another socket; nothing was changed"), "{error}");
    assert!(!getsockopt(&other, sockopt::TcpNoDelay).unwrap());
    assert!(record.undo_latest().is_none(), "a change that cannot be restored is forgotten");
}

#[test]
fn an_option_that_the_program_has_changed_since_is_left_unless_it_is_forced() {
    let (state, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (client, _server) = connection();
    let name = name_of(&client);
    let set = |folder: &tempfile::TempDir, wish: &str| {
        let planned = plan(&name, &[wish.parse().unwrap()]).unwrap();
        SocketRecord::open(folder.path()).unwrap().apply(&planned[0]).unwrap().before
    };
    let first = set(&state, "notsent-lowat=16k");
    set(&state, "nodelay=on");
    set(&state, "notsent-lowat=32k");
    // Somebody else's change, which this record does not have.
    set(&other, "notsent-lowat=48k");
    let undone = SocketRecord::open(state.path()).unwrap().undo_all(Overwrite::Own);
    let failures: Vec<String> = undone.failures.iter().map(ToString::to_string).collect();
    let said = "notsent-lowat was changed since, from 32768 bytes to 49152 bytes, and was left; --force restores 16384 bytes";
    assert!(failures.len() == 1 && failures[0].contains(said), "{failures:?}");
    assert_eq!((undone.restored.len(), client.nodelay().unwrap()), (1, false), "the others are restored");
    let now = || plan(&name, &["notsent-lowat=0".parse().unwrap()]).unwrap()[0].before.clone();
    assert_eq!(now().to_string(), "49152 bytes");
    assert_eq!(SocketRecord::open(state.path()).unwrap().changes().len(), 2, "both stay in the record");
    let undone = SocketRecord::open(state.path()).unwrap().undo_all(Overwrite::All);
    assert!(undone.failures.is_empty(), "{:?}", undone.failures);
    let was: Vec<String> =
        undone.restored.iter().map(|one| one.after.as_ref().unwrap().to_string()).collect();
    assert_eq!(was, ["49152 bytes", "16384 bytes"], "the values that were in force");
    assert_eq!(now(), first);
}

#[test]
fn a_pid_or_a_boot_that_differs_is_refused() {
    let (client, _server) = connection();
    let planned = plan(&name_of(&client), &["nodelay=on".parse().unwrap()]).unwrap();
    for (key, value, expected) in [
        ("start_ticks", serde_json::json!(1), "the pid belongs to another process"),
        ("boot", serde_json::json!("an older one"), "the host has restarted since"),
        ("cookie", serde_json::json!(1), "the descriptor means another socket"),
    ] {
        let state = tempfile::tempdir().unwrap();
        SocketRecord::open(state.path()).unwrap().apply(&planned[0]).unwrap();
        let path = state.path().join("sockets.json");
        let mut changes: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        changes[0][key] = value;
        std::fs::write(&path, changes.to_string()).unwrap();
        let error = SocketRecord::open(state.path()).unwrap().undo_latest().unwrap().unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
        assert!(client.nodelay().unwrap(), "{key}");
        client.set_nodelay(false).unwrap();
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for text in [
        "nodelay",
        "nodelay=yes",
        "nagle=on",
        "sndbuf=0",
        "sndbuf=-1",
        "sndbuf=4G",
        "congestion=",
        "congestion=0123456789abcdef",
    ] {
        assert!(text.parse::<::socket::foreign::Wish>().is_err(), "{text}");
    }
    assert!("notsent-lowat=0".parse::<::socket::foreign::Wish>().is_ok());
}

#[test]
fn options_are_set_all_or_none() {
    use ::socket::foreign::Wish;
    let state = tempfile::tempdir().unwrap();
    let ((client, _server), (closed, _other), (replaced, _another)) =
        (connection(), connection(), connection());
    let wishes = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Wish>>();
    let mut planned =
        plan(&name_of(&client), &wishes(&["nodelay=on", "cork=on", "congestion=no-such-thing"])).unwrap();
    let before = facts_of(&client).options.unwrap();
    let mut record = SocketRecord::open(state.path()).unwrap();
    let error = record.apply_all(&planned).unwrap_err().to_string();
    assert!(
        error.contains("congestion=no-such-thing")
            && error.contains("the 2 changes before it were taken back"),
        "{error}"
    );
    assert!(record.changes().is_empty());
    assert_eq!(facts_of(&client).options.unwrap(), before);
    // A socket that was closed meanwhile does not keep the others from being changed.
    planned.pop();
    planned.splice(0..0, plan(&name_of(&closed), &wishes(&["nodelay=on"])).unwrap());
    planned.splice(0..0, plan(&name_of(&replaced), &wishes(&["nodelay=on"])).unwrap());
    drop(closed);
    // The descriptor of another is that of a file by now.
    let mut replaced = OwnedFd::from(replaced);
    nix::unistd::dup2(File::open("/proc/self/stat").unwrap(), &mut replaced).unwrap();
    let applied = record.apply_all(&planned).unwrap();
    assert_eq!((applied.changed.len(), applied.gone.len()), (2, 2), "{applied:?}");
    assert!(getsockopt(&client, sockopt::TcpNoDelay).unwrap());
}
