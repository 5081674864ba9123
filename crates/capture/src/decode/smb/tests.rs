//! Messages are built as MS-SMB2 describes them.

use super::*;
use crate::decode::play::Play;

use Side::{Client, Server};

const SESSION_SETUP: u16 = 1;
const READ: u16 = 8;
const WRITE: u16 = 9;
const ECHO: u16 = 13;
const QUERY_INFO: u16 = 16;
const OPLOCK_BREAK: u16 = 18;
const ASYNC: u32 = 2;
const RELATED: u32 = 4;

/// A header and a body.
fn message(side: Side, command: u16, id: u64, status: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xfe, b'S', b'M', b'B', 64, 0, 1, 0];
    bytes.extend(status.to_le_bytes());
    bytes.extend(command.to_le_bytes());
    bytes.extend([127, 0]);
    bytes.extend((flags | u32::from(side == Server)).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(id.to_le_bytes());
    bytes.resize(64, 0xcc);
    bytes.extend(body);
    bytes
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// A frame of several messages, each at a multiple of eight bytes.
fn chain(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        if place + 1 < messages.len() {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = (message.len() as u32).to_le_bytes();
            message[20..24].copy_from_slice(&next);
        }
        all.extend(message);
    }
    frame(&all)
}

fn request(command: u16, id: u64, body: &[u8]) -> Vec<u8> {
    message(Client, command, id, 0, 0, body)
}

fn response(command: u16, id: u64, status: u32) -> Vec<u8> {
    message(Server, command, id, status, 0, &[9, 0, 0, 0, 0, 0, 0, 0])
}

fn create(id: u64, name: &str) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut body = vec![0; 56];
    body[0] = 57;
    body[44..46].copy_from_slice(&120_u16.to_le_bytes());
    body[46..48].copy_from_slice(&(name.len() as u16).to_le_bytes());
    body.extend(name);
    request(names::CREATE, id, &body)
}

fn file(number: u8) -> [u8; 16] {
    [number; 16]
}

fn created(id: u64, number: u8) -> Vec<u8> {
    let body = [&[89, 0][..], &[0; 62], &file(number), &[0; 8]].concat();
    message(Server, names::CREATE, id, 0, 0, &body)
}

/// A request whose file is at a place in the body, and what follows.
fn of_file(command: u16, id: u64, number: u8, flags: u32, rest: &[u8]) -> Vec<u8> {
    let place = match command {
        READ | WRITE => 16,
        QUERY_INFO => 24,
        _ => 8,
    };
    let mut body = vec![0; place];
    body[0] = 49;
    body.extend(file(number));
    body.extend(rest);
    message(Client, command, id, 0, flags, &body)
}

fn read(id: u64, number: u8) -> Vec<u8> {
    of_file(READ, id, number, 0, &[0; 17])
}

fn data(id: u64, count: usize) -> Vec<u8> {
    message(Server, READ, id, 0, 0, &[&[17, 0, 80, 0][..], &vec![7; 12 + count]].concat())
}

#[test]
fn requests_are_paired_by_their_numbers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let connect: Vec<u8> = r"\\server\data".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let connect = [&[9, 0, 0, 0, 72, 0, connect.len() as u8, 0][..], &connect].concat();
        for (asked, answer) in [
            (request(names::NEGOTIATE, 0, &[36, 0]), response(names::NEGOTIATE, 0, 0)),
            (request(SESSION_SETUP, 1, &[25, 0]), response(SESSION_SETUP, 1, 0xc000_0016)),
            (request(names::TREE_CONNECT, 2, &connect), response(names::TREE_CONNECT, 2, 0)),
            (create(3, r"dir\file17.txt"), created(3, 3)),
            (create(4, "none"), {
                let mut failed = created(4, 9);
                failed[8..12].copy_from_slice(&0xc000_0034_u32.to_le_bytes());
                failed
            }),
        ] {
            play.say(Client, frame(&asked)).say(Server, frame(&answer));
        }
        let write = of_file(WRITE, 8, 3, 0, &[1; 9000]);
        let asked =
            [read(6, 3), read(7, 3), write, read(9, 3), read(10, 9), of_file(names::CLOSE, 11, 3, 0, &[])];
        play.say(Client, asked.map(|message| frame(&message)).concat());
        let answers = [
            data(7, 8000),
            response(WRITE, 8, 0xc000_007f),
            data(6, 100),
            response(READ, 9, 0xc000_0011),
            response(READ, 10, 0xc000_0128),
            response(names::CLOSE, 11, 0),
        ];
        play.say(Server, answers.map(|message| frame(&message)).concat());
        // Its number means nothing any more.
        play.say(Client, frame(&read(12, 3))).say(Server, frame(&response(READ, 12, 0xc123_4567)));
        let told = play.end();
        let expected = [
            "NEGOTIATE  ok",
            "SESSION_SETUP  MORE_PROCESSING",
            "TREE_CONNECT /data ok",
            "CREATE /dir/file:n.txt ok",
            "CREATE /none NAME_NOT_FOUND",
            "READ /dir/file:n.txt ok",
            "WRITE /dir/file:n.txt DISK_FULL",
            "READ /dir/file:n.txt ok",
            "READ /dir/file:n.txt END_OF_FILE",
            "READ  FILE_CLOSED",
            "CLOSE /dir/file:n.txt ok",
            "READ  0xC1234567",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let kinds: Vec<_> = told.exchanges.iter().map(|e| e.op.kind).collect();
        assert_eq!(kinds[5..7], [record::OpKind::Read, record::OpKind::Write]);
        assert_eq!((told.exchanges[5].op.response_bytes, told.exchanges[6].op.request_bytes), (8084, 9100));
        let errors: Vec<usize> = (0..12).filter(|&at| told.exchanges[at].error.is_some()).collect();
        assert_eq!(errors, [6]);
        let failed: Vec<usize> =
            (0..12).filter(|&at| told.exchanges[at].op.outcome == record::Outcome::Failed).collect();
        assert_eq!(failed, [4, 6, 9, 11], "the end of a file is an answer");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn each_message_of_a_chain_is_a_request() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let asked = [
            create(4, "report"),
            of_file(QUERY_INFO, 5, 0xff, RELATED, &[0; 3]),
            of_file(WRITE, 6, 0xff, RELATED, &[5; 3001]),
            of_file(names::CLOSE, 7, 0xff, RELATED, &[]),
        ];
        play.say(Client, chain(&asked));
        let answers = [
            created(4, 1),
            response(QUERY_INFO, 5, 0x8000_0005),
            response(WRITE, 6, 0),
            response(names::CLOSE, 7, 0),
        ];
        play.say(Server, chain(&answers));
        // The file was closed in the chain, and another may have its number. A chain may be about an open file.
        play.say(Client, frame(&read(8, 1))).say(Server, frame(&data(8, 10)));
        play.say(Client, frame(&create(9, "x"))).say(Server, frame(&created(9, 2)));
        let on_open = [read(12, 7), read(10, 2), of_file(READ, 11, 0xff, RELATED, &[0; 17])];
        play.say(Client, chain(&on_open)).say(Server, frame(&data(11, 10)));
        play.say(Server, chain(&[data(12, 10), data(10, 3000)]));
        // No chain is at hand.
        play.say(Client, frame(&of_file(READ, 13, 0xff, RELATED, &[0; 17]))).say(Server, frame(&data(13, 1)));
        // It does not refer to the one before.
        let asked = chain(&[read(14, 2), of_file(READ, 15, 0xff, 0, &[0; 17])]);
        play.say(Client, asked).say(Server, chain(&[data(14, 1), data(15, 1)]));
        let told = play.end();
        let expected = [
            "CREATE /report ok",
            "QUERY_INFO /report BUFFER_OVERFLOW",
            "WRITE /report ok",
            "CLOSE /report ok",
            "READ  ok",
            "CREATE /x ok",
            "READ /x ok",
            "READ  ok",
            "READ /x ok",
            "READ  ok",
            "READ /x ok",
            "READ  ok",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let bytes: Vec<_> = told.exchanges.iter().map(|e| e.op.request_bytes).take(4).collect();
        assert_eq!(bytes, [4 + 136, 112, 3104, 64 + 24]);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn the_last_response_is_the_answer() {
    let mut play = Play::new(&ENTRY);
    let pending = |command, id| message(Server, command, id, status::PENDING, ASYNC, &[9, 0, 0, 0]);
    let done = |command, id, status| message(Server, command, id, status, ASYNC, &[9, 0, 0, 0]);
    for (command, id) in [(READ, 1), (names::LOCK, 2), (names::CHANGE_NOTIFY, 3), (names::LOCK, 4)] {
        play.say(Client, frame(&of_file(command, id, 5, 0, &[0; 8])));
    }
    for (command, id) in [(READ, 1), (names::LOCK, 2), (names::CHANGE_NOTIFY, 3)] {
        play.say(Server, frame(&pending(command, id)));
    }
    play.pause(50_000);
    play.say(Server, frame(&response(names::LOCK, 4, 0xc000_0055)));
    play.say(Server, frame(&done(READ, 1, 0))).say(Server, frame(&done(names::LOCK, 2, 0)));
    // The client gives up.
    play.say(Client, frame(&message(Client, names::CANCEL, 3, 0, ASYNC, &[4, 0, 0, 0])));
    play.say(Server, frame(&done(names::CHANGE_NOTIFY, 3, 0xc000_0120)));
    // What never changes is no request without an answer.
    play.say(Client, frame(&of_file(names::CHANGE_NOTIFY, 5, 5, 0, &[0; 8])));
    let told = play.end();
    assert_eq!(told.lines(), ["LOCK  LOCK_REFUSED", "READ  ok", "LOCK  ok", "CHANGE_NOTIFY  CANCELLED"]);
    let held: Vec<bool> = told.exchanges.iter().map(|e| e.awaits_event).collect();
    assert_eq!(held, [false, false, true, true]);
    assert!(told.exchanges[1].response.began.since(told.exchanges[1].request.ended) > Some(50_000));
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn what_the_server_sends_of_its_own_is_no_answer() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, frame(&read(1, 5)));
    play.say(Server, frame(&response(OPLOCK_BREAK, OF_SERVER, 0)));
    play.say(Client, frame(&of_file(OPLOCK_BREAK, 2, 5, 0, &[])))
        .say(Server, frame(&response(OPLOCK_BREAK, 2, 0)));
    play.say(Server, frame(&data(1, 10)));
    let told = play.end();
    assert_eq!(told.lines(), ["OPLOCK_BREAK  ok", "READ  ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

/// A negotiation of SMB 1 that names dialects.
fn negotiation_1(dialects: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0xff, b'S', b'M', b'B', 0x72];
    bytes.resize(35, 0);
    dialects.iter().for_each(|dialect| bytes.extend([b"\x02", dialect.as_bytes(), b"\0"].concat()));
    frame(&bytes)
}

#[test]
fn a_negotiation_of_smb_1_leads_to_smb_2() {
    let asks = negotiation_1(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"]);
    let mut play = Play::new(&ENTRY);
    play.say(Client, &asks).say(Server, frame(&response(names::NEGOTIATE, 0, 0)));
    play.say(Client, frame(&request(ECHO, 1, &[4, 0]))).say(Server, frame(&response(ECHO, 1, 0)));
    assert_eq!(play.end().lines(), ["NEGOTIATE  ok", "ECHO  ok"]);
    // The server has only SMB 1.
    let mut play = Play::new(&ENTRY);
    play.say(Client, &asks).say(Server, negotiation_1(&[]));
    for _ in 0..5 {
        let mut other = negotiation_1(&[]);
        other[8] = 0x75;
        play.say(Client, &other).say(Server, &other);
    }
    assert!(!play.is_contradicted());
    let told = play.end();
    assert_eq!((told.lines(), told.counted.skipped_bytes), (vec!["NEGOTIATE  ok".to_owned()], 0));
    // A session over NetBIOS comes first.
    let opens = [&[0x81, 0, 0, 68, 32][..], &[b'A'; 67]].concat();
    let is_begun = |port| begins(&Start::new(Client, &opens, port, true));
    assert!(is_begun(139) && !is_begun(445));
    let mut play = Play::new(&ENTRY);
    play.say(Client, opens).say(Server, [0x82, 0, 0, 0]).say(Client, asks).say(Client, [0x85, 0, 0, 0]);
    play.say(Server, frame(&response(names::NEGOTIATE, 0, 0)));
    assert_eq!(play.end().lines(), ["NEGOTIATE  ok"]);
}

#[test]
fn what_is_encrypted_is_not_read() {
    let sealed = frame(&[&[0xfd, b'S', b'M', b'B'][..], &[0x5c; 300]].concat());
    let mut play = Play::new(&ENTRY);
    play.say(Client, frame(&request(SESSION_SETUP, 1, &[25, 0])))
        .say(Server, frame(&response(SESSION_SETUP, 1, 0)));
    for _ in 0..20 {
        play.say(Client, &sealed).say(Server, &sealed);
    }
    assert!(!play.is_contradicted());
    let told = play.end();
    assert_eq!(told.lines(), ["SESSION_SETUP  ok"]);
    assert_eq!(told.unanswered.len(), 0);
}

#[test]
fn of_compressed_messages_the_header_is_read() {
    // The first bytes are as they were; or the first payload of a chain is; or all is compressed.
    let compressed = |message: &[u8], fields: [u8; 4]| {
        let length = if fields[0] == 9 { 20 } else { message.len() as u32 };
        let head = [&[0xfc, b'S', b'M', b'B', 0, 0, 1, 0][..], &fields, &length.to_le_bytes()].concat();
        frame(&[head, message.to_vec(), vec![0xa7; 500]].concat())
    };
    let mut play = Play::new(&ENTRY);
    play.say(Client, [frame(&read(1, 5)), frame(&read(2, 5)), frame(&read(3, 5))].concat());
    play.say(Server, compressed(&data(2, 0), [2, 0, 0, 0]))
        .say(Server, compressed(&data(1, 0), [0, 0, 1, 0]));
    play.say(Server, compressed(&data(3, 0), [9, 0, 0, 0]));
    play.say(Client, compressed(&of_file(WRITE, 4, 5, 0, &[]), [2, 0, 0, 0]))
        .say(Server, frame(&response(WRITE, 4, 0)));
    let told = play.end();
    assert_eq!(told.lines(), ["READ  ok", "READ  ok", "WRITE  ok"]);
    assert_eq!((told.exchanges[0].op.tag, told.unanswered.len()), (2, 0));
}

#[test]
fn a_hole_costs_what_was_in_flight() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, frame(&create(1, "x"))).say(Server, frame(&created(1, 1)));
    play.say(Client, [frame(&read(2, 1)), frame(&read(3, 1))].concat()).lose(Server, 4 + 80 + 100);
    play.say(Server, b"data\0\0\0\x50\xfeSMBof a file").say(Server, frame(&data(3, 100)));
    // A hole in the data of a response, and one in a chain of requests.
    let answer = frame(&data(4, 5000));
    play.say(Client, frame(&read(4, 1)))
        .say(Server, &answer[..200])
        .lose(Server, 2000)
        .say(Server, &answer[2200..]);
    let asked = chain(&[of_file(WRITE, 5, 1, 0, &[0; 2000]), read(6, 1)]);
    play.say(Client, &asked[..200]).lose(Client, 1000).say(Client, &asked[1200..]);
    play.say(Server, chain(&[response(WRITE, 5, 0), data(6, 10)]));
    let asked = chain(&[read(7, 1), read(8, 1), read(9, 1)]);
    play.say(Client, &asked[..130]).lose(Client, asked.len() as u64 - 130);
    play.say(Server, frame(&data(7, 10))).say(Client, frame(&read(10, 1))).say(Server, frame(&data(10, 10)));
    let told = play.end();
    let expected =
        ["CREATE /x ok", "READ /x ok", "READ /x ok", "WRITE /x ok", "READ /x ok", "READ /x ok", "READ /x ok"];
    assert_eq!(told.lines(), expected);
    assert_eq!((told.counted.abandoned, told.unanswered.len()), (1, 0));
}

#[test]
fn a_lost_answer_costs_its_own_request() {
    let begun = || {
        let mut play = Play::new(&ENTRY);
        play.say(Client, frame(&create(1, "x"))).say(Server, frame(&created(1, 1)));
        play
    };
    Play::assert_a_lost_answer_costs_one(
        begun,
        |id| frame(&read(id.into(), 1)),
        |id| frame(&data(id.into(), 100)),
    );
}

#[test]
fn in_the_middle_messages_are_found() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, vec![0; 600]).say(Client, vec![1; 90]).say(Client, frame(&create(8, r"a b\17.txt")));
    play.say(Server, [frame(&data(7, 10)), frame(&created(8, 2))].concat());
    play.say(Client, frame(&read(9, 2))).say(Server, frame(&data(9, 10)));
    let told = play.end();
    assert_eq!(told.lines(), ["CREATE /a?b/17.txt ok", "READ /a?b/17.txt ok"]);
    assert_eq!(told.counted.unmatched, 1);
}

fn is_begun(side: Side, bytes: &[u8]) -> bool {
    begins(&Start::new(side, bytes, 445, true))
}

#[test]
fn it_begins_with_sound_messages_only() {
    for (side, bytes) in [
        (Client, frame(&request(names::NEGOTIATE, 0, &[36, 0]))),
        (Client, negotiation_1(&["SMB 2.002"])),
        (Client, chain(&[create(1, "x"), read(2, 3)])),
        (Client, frame(&of_file(WRITE, 4, 5, 0, &[0; 5000]))[..1448].to_vec()),
        (Server, [frame(&data(4, 5)), frame(&data(5, 5))].concat()),
    ] {
        assert!(is_begun(side, &bytes), "{bytes:?}");
        assert!(!is_begun(side.peer(), &bytes), "{bytes:?}");
    }
    let broken = |at: usize, byte| {
        let mut bytes = frame(&read(1, 2));
        bytes[at] = byte;
        bytes
    };
    for bytes in [
        broken(0, 1),
        broken(3, 20),
        broken(4, 0xfd),
        broken(8, 65),
        broken(17, 1),
        broken(20, 0x80),
        broken(20, 2),
        broken(24, 8),
        broken(25, 1),
        broken(69, 1),
        [frame(&read(1, 2)), vec![0; 90]].concat(),
        negotiation_1(&["NT LM 0.12"]),
        vec![0; 80],
        vec![0xff; 80],
        b"GET / HTTP/1.1\r\nHost: example.com and more of its name\r\n\r\n".to_vec(),
    ] {
        for side in [Client, Server] {
            assert!(!is_begun(side, &bytes), "{bytes:?}");
        }
    }
}

#[test]
fn what_only_looks_like_smb_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for id in 0..4 {
        play.say(Client, frame(&read(id, 1))).say(Server, vec![0xee; 90]);
        play.say(Server, frame(&data(id, 1))).say(Server, vec![0xee; 90]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    let mut play = Play::new(&ENTRY);
    // Chains that lead outside, to a place that is none, and to themselves.
    for next in [u32::MAX, 60, 65, 1 << 20] {
        let mut hostile = frame(&data(1, 500));
        hostile[24..28].copy_from_slice(&next.to_le_bytes());
        play.say(Client, frame(&read(1, 1))).say(Server, hostile);
        play.say(Client, frame(&read(2, 1))).say(Server, frame(&data(2, 10)));
    }
    // A name and a number that are not all there.
    for place in [[0xff; 4], [1, 0, 8, 0]] {
        let mut cut = create(3, "x");
        cut[64 + 44..64 + 48].copy_from_slice(&place);
        play.say(Client, frame(&cut)).say(Server, frame(&response(names::CREATE, 3, 0)));
    }
    let expected = [["READ  ok"; 4].to_vec(), ["CREATE / ok"; 2].to_vec()].concat();
    assert_eq!(play.end().lines(), expected);
    let mut opens = Opens::default();
    for id in 0..5000_u64 {
        let key = opens.shared("x".to_owned());
        opens.create(id, Arc::clone(&key));
        opens.create(id + 10_000, key);
        let file = u128::from(id).to_le_bytes();
        opens.created(id, Some(file));
        assert_eq!(opens.key(&file).as_deref(), Some("x"));
    }
    let known = (0..5000_u128).filter(|id| opens.key(&id.to_le_bytes()).is_some()).count();
    assert_eq!(known, 256);
    assert!(format!("{opens:?}").len() < 40_000);
}
