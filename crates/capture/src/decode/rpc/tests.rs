//! Messages are built as RFC 5531, RFC 1813 and RFC 7530 describe them.

use super::*;
use crate::decode::Shown;
use crate::decode::play::Play;

use Side::{Client, Server};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut opaque = words(&[bytes.len() as u32]);
    opaque.extend(bytes);
    opaque.resize(opaque.len().next_multiple_of(4), 0);
    opaque
}

/// A record of fragments of at most so many bytes.
fn fragments(record: &[u8], most: usize) -> Vec<u8> {
    let count = record.len().div_ceil(most);
    let mark = |place, bytes: &[u8]| bytes.len() as u32 | if place + 1 == count { LAST } else { 0 };
    let parts = record.chunks(most).enumerate();
    parts.flat_map(|(place, bytes)| [words(&[mark(place, bytes)]), bytes.to_vec()].concat()).collect()
}

fn call_body(xid: u32, program: [u32; 3], arguments: &[u8]) -> Vec<u8> {
    let credentials = opaque(&words(&[1, 0, 0, 0, 0]));
    let head = words(&[xid, 0, 2, program[0], program[1], program[2], 1]);
    [head, credentials, words(&[0, 0]), arguments.to_vec()].concat()
}

fn asks(xid: u32, program: [u32; 3], arguments: &[u8]) -> Vec<u8> {
    fragments(&call_body(xid, program, arguments), usize::MAX)
}

fn nfs3(xid: u32, procedure: u32) -> Vec<u8> {
    asks(xid, [100_003, 3, procedure], &opaque(&[9; 28]))
}

/// A compound of these operations with their arguments.
fn nfs4(xid: u32, operations: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut arguments = [opaque(b""), words(&[1, operations.len() as u32])].concat();
    for (number, own) in operations {
        arguments.extend(words(&[*number]));
        arguments.extend(own);
    }
    asks(xid, [100_003, 4, 1], &arguments)
}

fn answers(xid: u32, accepted: u32, results: &[u8]) -> Vec<u8> {
    fragments(&[words(&[xid, 1, 0, 0, 0, accepted]), results.to_vec()].concat(), usize::MAX)
}

fn done(xid: u32, status: u32) -> Vec<u8> {
    answers(xid, 0, &words(&[status, 0, 0]))
}

#[test]
fn calls_are_paired_by_their_numbers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        play.say(
            Client,
            [nfs3(7, 6), nfs3(8, 3), nfs3(9, 0), asks(10, [100_005, 3, 1], &opaque(b"/x"))].concat(),
        );
        play.say(Client, asks(11, [100_000, 2, 3], &[]));
        play.say(Server, [done(8, 2), answers(7, 0, &[0; 9000]), answers(9, 0, &[])].concat());
        play.say(Server, [answers(11, 0, &words(&[2049])), answers(10, 0, &words(&[13]))].concat());
        let told = play.end();
        let expected = ["LOOKUP  NOENT", "READ  ok", "NULL  ok", "portmap2/3  ok", "mount3/1  ACCESS"];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!(told.exchanges[1].op.response_bytes, 4 + 24 + 9000);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_compound_has_the_name_of_what_it_is_for() {
    let (handle, sequence) = (opaque(&[1; 26]), vec![0; 32]);
    let attributes = words(&[2, 1, 2]);
    let begin = [(53, sequence), (22, handle)];
    let of = |rest: &[(u32, Vec<u8>)]| [&begin, rest].concat();
    let look = (15, opaque(b"name"));
    for (name, operations) in [
        ("READ", of(&[(25, vec![0; 28])])),
        ("WRITE", of(&[(38, vec![0; 2000]), (9, attributes.clone())])),
        ("OPEN", of(&[(18, vec![0; 60]), (10, vec![]), (9, attributes.clone())])),
        ("GETATTR", of(&[(9, attributes.clone())])),
        ("LOOKUP", of(&[look, (10, vec![]), (9, attributes.clone())])),
        ("ACCESS", of(&[(3, words(&[31])), (9, attributes.clone())])),
        ("SEQUENCE", begin[..1].to_vec()),
        ("PUTFH", of(&[(9999, vec![])])),
        ("COMPOUND", vec![]),
    ] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, nfs4(1, &operations)).say(Server, answers(1, 0, &words(&[10_013, 0, 0])));
        let told = play.end();
        assert_eq!(told.lines(), [format!("{name}  GRACE")]);
        assert!(told.exchanges[0].error.is_some());
    }
}

#[test]
fn records_may_come_in_fragments() {
    for most in [8, 24, 100] {
        let mut play = Play::new(&ENTRY);
        let call = call_body(1, [100_003, 3, 7], &[opaque(&[9; 28]), vec![0; 500]].concat());
        let reply = [words(&[1, 1, 0, 0, 0, 0, 28]), vec![0; 80]].concat();
        let (call, reply) = (fragments(&call, most), fragments(&reply, most));
        play.say(Client, &call).say(Server, &reply).say(Client, nfs3(2, 1)).say(Server, done(2, 0));
        let told = play.end();
        assert_eq!(told.lines(), ["WRITE  NOSPC", "GETATTR  ok"], "{most}");
    }
}

#[test]
fn a_call_that_is_sent_again_is_the_same() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, nfs3(1, 6)).say(Client, nfs3(1, 6)).say(Server, done(1, 0));
    let told = play.end();
    assert_eq!(told.lines(), ["READ  ok"]);
    assert_eq!(told.exchanges[0].response.ended.since(told.exchanges[0].request.began), Some(2000));
}

#[test]
fn the_server_calls_back() {
    let mut play = Play::new(&ENTRY);
    let arguments = [opaque(b""), words(&[1, 0, 2, 11]), vec![0; 36], words(&[4]), vec![0; 60]].concat();
    // The numbers of both sides' calls are the same.
    play.say(Client, nfs3(5, 1)).say(Server, asks(5, [0x4000_0000, 1, 1], &arguments));
    play.say(Client, done(5, 0)).say(Server, done(5, 70));
    let told = play.end();
    assert_eq!(told.lines(), ["CB_RECALL  ok", "GETATTR  STALE"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn calls_that_are_not_carried_out_say_why() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [nfs3(1, 1), nfs3(2, 1), nfs3(3, 1)].concat());
    let denied = fragments(&words(&[3, 1, 1, 1, 2]), usize::MAX);
    play.say(Server, [answers(1, 5, &[]), answers(2, 2, &words(&[3, 4])), denied].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["GETATTR  SYSTEM_ERR", "GETATTR  PROG_MISMATCH", "GETATTR  AUTH_ERROR"]);
    let errors: Vec<bool> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
    assert_eq!(errors, [true, false, false]);
}

#[test]
fn protected_arguments_are_not_read() {
    for (protection, name) in [(1, "GETATTR"), (2, "GETATTR"), (3, "COMPOUND")] {
        let compound = [opaque(b""), words(&[0, 2, 24, 9, 1, 2])].concat();
        let arguments = if protection == 2 { [words(&[40, 1]), compound].concat() } else { compound };
        let credentials = opaque(&[words(&[1, 0, 7, protection]), opaque(&[5; 8])].concat());
        let head = words(&[1, 0, 2, 100_003, 4, 1, names::GSS]);
        let verifier = [words(&[names::GSS]), opaque(&[8; 28])].concat();
        let call = [head, credentials, verifier, arguments].concat();
        let mut play = Play::new(&ENTRY);
        play.say(Client, fragments(&call, usize::MAX)).say(Server, done(1, 0));
        assert_eq!(play.end().lines(), [format!("{name}  ok")]);
    }
}

#[test]
fn a_hole_costs_what_was_in_flight() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [nfs3(1, 6), nfs3(2, 6)].concat()).lose(Server, done(1, 0).len() as u64);
    play.say(Server, b"data\0\0\0\x01of a reply").say(Server, done(2, 0));
    play.say(Client, nfs3(3, 1)).say(Server, done(3, 0));
    let told = play.end();
    assert_eq!(told.lines(), ["READ  ok", "GETATTR  ok"]);
    assert_eq!((told.counted.abandoned, told.unanswered.len()), (1, 0));
}

/// A number that may have been used again where the capture has a hole is no proof.
#[test]
fn holes_of_both_sides_invent_no_times() {
    for is_servers_first in [true, false] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, [nfs3(1, 6), nfs3(2, 6)].concat());
        let (reply, call) = (done(1, 0).len() as u64, nfs3(1, 6).len() as u64);
        if is_servers_first {
            play.lose(Server, reply).lose(Client, call);
        } else {
            play.lose(Client, call).lose(Server, reply);
        }
        play.pause(1_000_000_000).say(Server, done(1, 0)).say(Server, done(2, 0));
        play.say(Client, nfs3(3, 1)).say(Server, done(3, 0));
        let told = play.end();
        assert_eq!(told.lines(), ["GETATTR  ok"], "{is_servers_first}");
        assert_eq!((told.counted.abandoned, told.unanswered.len()), (2, 0));
    }
    // A later answer shows that the earlier ones were in the hole: none is in flight for the rest of the capture.
    let mut play = Play::new(&ENTRY);
    play.say(Client, [nfs3(1, 6), nfs3(2, 6)].concat()).lose(Server, 2 * done(1, 0).len() as u64);
    for xid in 3..6 {
        play.say(Client, nfs3(xid, 1)).say(Server, done(xid, 0));
    }
    let told = play.end();
    let depths: Vec<u32> = told.exchanges.iter().map(|e| e.op.queue_depth).collect();
    assert_eq!((told.lines(), depths), (vec!["GETATTR  ok".to_owned(); 3], vec![3, 1, 1]));
}

#[test]
fn a_lost_answer_costs_its_own_request() {
    Play::assert_a_lost_answer_costs_one(
        || Play::new(&ENTRY),
        |id| nfs3(id.into(), 1),
        |id| done(id.into(), 0),
    );
}

#[test]
fn in_the_middle_records_are_found() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Server, vec![0; 600]).say(Client, vec![1; 90]).say(Client, nfs3(1, 1));
    play.say(Server, [done(1, 0), done(2, 0)].concat());
    assert_eq!(play.end().lines(), ["GETATTR  ok"]);
}

#[test]
fn it_begins_with_a_call() {
    let is_begun = |side, bytes: &[u8], port| begins(&Start::new(side, bytes, port, true));
    assert!(is_begun(Client, &nfs3(1, 1), 9999));
    assert!(is_begun(Server, &done(1, 0), 2049));
    assert!(!is_begun(Server, &done(1, 0), 9999));
    // The length has a segment of its own.
    assert!(is_begun(Client, &nfs3(1, 1)[..4], 2049));
    assert!(!is_begun(Client, b"\x80\0\0\x07", 2049) && !is_begun(Client, &nfs3(1, 1)[..4], 9999));
    let broken = |at: usize, byte| {
        let mut bytes = nfs3(1, 1);
        bytes[at] = byte;
        bytes
    };
    for bytes in [
        broken(0, 0),
        broken(3, 1),
        broken(11, 2),
        broken(15, 3),
        broken(16, 0xff),
        vec![0; 80],
        vec![0xff; 80],
        b"GET / HTTP/1.1\r\nHost: example.com and more of its name\r\n\r\n".to_vec(),
        b"220 mail.example.com ESMTP ready at noon, and go on\r\n".to_vec(),
        [vec![0x41, 0x81, 0, 0], vec![0; 44]].concat(),
    ] {
        for side in [Client, Server] {
            assert!(!is_begun(side, &bytes, 2049), "{bytes:?}");
        }
    }
}

#[test]
fn what_only_looks_like_rpc_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for xid in 0..4 {
        play.say(Client, nfs3(xid, 1)).say(Server, vec![0xee; 64]).say(Server, done(xid, 0));
        play.say(Server, vec![0xee; 64]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_are_bounded() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, nfs3(1, 1)).say(Server, words(&[LAST | 0x7fff_ffff, 1, 1, 0, 0, 0, 0]));
    play.say(Server, words(&[0]).repeat(10_000)).say(Server, words(&[LAST, LAST, LAST]));
    assert!(play.end().exchanges.is_empty());
    let endless = [words(&[1200]), call_body(2, [100_003, 3, 7], &[0; 1128])].concat();
    let mut play = Play::new(&ENTRY);
    for _ in 0..100 {
        play.say(Client, &endless);
    }
    assert!(play.end().exchanges.is_empty());
}
