mod crossing;

use iscsi::pdu::{DataIn, LoginRequest, ScsiCommand};
use record::{Exchange, OpKind, Outcome, Status, Verb, Word};

use std::collections::VecDeque;

use super::*;
use crate::decode::play::each_packet::{Cost, Stage, assert_each_packet_lost};
use crate::observer::seen::Seen;

use Side::{Client, Server};

/// An application and what it has delivered; each message is a packet, a microsecond after the one before.
struct Play {
    application: Application,
    seen: Seen,
    ns: u64,
    /// The sequence number behind each side's bytes.
    next: [u32; 2],
    /// What of each side's bytes the other side has read, for packets that leave before it reads on.
    read: [u32; 2],
    /// The sequence number before each side's last bytes.
    before: [u32; 2],
    /// Bytes of each side that are missing, and that nothing has shown so far.
    unnoticed: [u64; 2],
}

/// How a capture begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Syn,
    Middle,
}

impl Play {
    fn new(port: u16, from: From) -> Self {
        let mut application =
            Application::new(1, port, Protocol::Auto, Shown::default(), from == From::Middle);
        application.responses_begin_at(5000);
        Self {
            application,
            seen: Seen::default(),
            ns: 0,
            next: [1000, 5000],
            read: [0; 2],
            before: [1000, 5000],
            unnoticed: [0; 2],
        }
    }

    /// The peer has read what this side has sent so far.
    fn acknowledged(&mut self, side: Side) -> &mut Self {
        self.read[side as usize] = self.next[side as usize];
        self
    }

    /// A packet that leaves before its sender reads what [`Play::acknowledged`] does not have.
    fn say_behind(&mut self, side: Side, bytes: impl AsRef<[u8]>) -> &mut Self {
        let ack = self.read[side.peer() as usize];
        self.say_with(side, bytes.as_ref(), ack)
    }

    fn say(&mut self, side: Side, bytes: impl AsRef<[u8]>) -> &mut Self {
        let ack = self.next[side.peer() as usize];
        self.say_with(side, bytes.as_ref(), ack)
    }

    fn say_with(&mut self, side: Side, bytes: &[u8], ack: u32) -> &mut Self {
        self.ns += 1000;
        let at = At { ns: self.ns, frame: self.ns / 1000 };
        self.application.packet(side, self.next[side as usize], ack);
        let missing = std::mem::take(&mut self.unnoticed[side as usize]);
        if missing > 0 {
            self.application.missing(side, Absent::Lost, missing, at, &mut self.seen);
        }
        self.before[side as usize] = self.next[side as usize];
        self.next[side as usize] += bytes.len() as u32;
        self.application.bytes(side, bytes, at, &mut self.seen);
        self
    }

    /// A packet of which only the first `snap` bytes of payload were captured.
    fn cut(&mut self, side: Side, bytes: impl AsRef<[u8]>, snap: usize) -> &mut Self {
        let bytes = bytes.as_ref();
        self.say(side, &bytes[..snap.min(bytes.len())]);
        let at = At { ns: self.ns, frame: self.ns / 1000 };
        if let Some(rest) = bytes.len().checked_sub(snap).filter(|&rest| rest > 0) {
            self.next[side as usize] += rest as u32;
            self.application.missing(side, Absent::Uncaptured, rest as u64, at, &mut self.seen);
        }
        self
    }

    /// A packet that the capture does not have.
    fn lose(&mut self, side: Side, bytes: &str) -> &mut Self {
        let at = At { ns: self.ns, frame: self.ns / 1000 };
        self.next[side as usize] += bytes.len() as u32;
        self.application.missing(side, Absent::Lost, bytes.len() as u64, at, &mut self.seen);
        self
    }

    fn end(mut self) -> (&'static str, Vec<Exchange>, Counted) {
        let at = At { ns: self.ns + 1, frame: 0 };
        self.application.closed(Server, at, &mut self.seen);
        let counted = self.application.finish(&mut self.seen);
        assert_eq!(counted.unanswered, self.seen.unanswered.len() as u64);
        assert_eq!(self.application.pace().ended, self.seen.exchanges.len() as u64, "told once each");
        (self.application.name(), self.seen.exchanges, counted)
    }
}

impl Stage for Play {
    fn wait(&mut self, ns: u64) {
        self.ns += ns;
    }

    fn packet(&mut self, side: Side, bytes: &[u8], is_behind: bool) {
        let read = if is_behind { self.before } else { self.next };
        self.say_with(side, bytes, read[side.peer() as usize]);
    }

    fn lost(&mut self, side: Side, bytes: &[u8], is_noticed: bool) {
        self.ns += 1000;
        self.before[side as usize] = self.next[side as usize];
        match is_noticed {
            true => _ = self.lose(side, std::str::from_utf8(bytes).unwrap()),
            false => {
                self.next[side as usize] += bytes.len() as u32;
                self.unnoticed[side as usize] += bytes.len() as u64;
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.ns
    }

    fn told(self) -> Vec<Exchange> {
        self.end().1
    }
}

fn numbered(mut bytes: Vec<u8>, words: [(usize, u32); 3]) -> Vec<u8> {
    for (at, value) in words {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// A READ of 512 bytes, the nth of its session.
fn command(n: u32) -> Vec<u8> {
    let mut command = ScsiCommand {
        read: true,
        is_final: true,
        tag: 70 + n,
        expected_bytes: 512,
        ..ScsiCommand::default()
    };
    command.cdb[0] = 0x28;
    numbered(command.write().0.to_vec(), [(24, 1000 + n), (28, 500 + n), (20, 512)])
}

/// Its answer.
fn answer(n: u32) -> Vec<u8> {
    let mut bhs = DataIn { tag: 70 + n, is_final: true, has_status: true, ..DataIn::default() }.write();
    bhs.set_data_bytes(512);
    let words = [(24, 500 + n), (28, 1001 + n), (32, 1064 + n)];
    [numbered(bhs.0.to_vec(), words), vec![0x55; 512]].concat()
}

#[test]
fn every_connection_with_data_is_told_or_counted() {
    // In the middle, and too short for any proof.
    let mut play = Play::new(4000, From::Middle);
    play.say(Server, b"tail of an answer").say(Client, b"question").say(Server, b"answer");
    let (name, exchanges, counted) = play.end();
    assert_eq!((name, exchanges.len(), counted.without_operations), ("turns", 1, 0));
    assert_eq!((exchanges[0].op.request_bytes, exchanges[0].op.response_bytes), (8, 6));
    // The first segments are not lost.
    let mut play = Play::new(4000, From::Middle);
    for _ in 0..5 {
        play.say(Client, b"question").say(Server, b"answer");
    }
    assert_eq!(play.end().1.len(), 5);
    // One direction only.
    let mut play = Play::new(4000, From::Middle);
    play.say(Server, b"one").say(Server, b"two");
    let (name, exchanges, counted) = play.end();
    assert_eq!((name, exchanges.len(), counted.without_operations), ("turns", 0, 1));
    let (_, _, counted) = Play::new(4000, From::Middle).end();
    assert_eq!(counted.without_operations, 0, "without data there is nothing to tell");
}

#[test]
fn iscsi_port_is_no_proof_of_iscsi() {
    for from in [From::Syn, From::Middle] {
        let mut play = Play::new(ISCSI_PORT, from);
        for i in 0..20_u8 {
            play.say(Client, [i; 64]).say(Server, [i ^ 0x55; 600]);
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted.mistaken), ("turns", 20, 1));
        assert!(exchanges.iter().all(|e| e.op.verb == Verb::Turn));
    }
}

#[test]
fn bytes_that_look_like_headers_are_no_proof_of_iscsi() {
    for port in [ISCSI_PORT, 9999] {
        let mut play = Play::new(port, From::Middle);
        // Blocks of zeros and ones in which every message is a perfect header, again and again.
        for _ in 0..30 {
            play.say(Client, command(0)).say(Server, answer(7));
        }
        let (name, exchanges, _) = play.end();
        assert_eq!((name, exchanges.len()), ("turns", 30));
        assert!(exchanges.iter().all(|e| e.op.verb == Verb::Turn));
    }
}

#[test]
fn a_chain_in_the_middle_is_iscsi_from_its_first_operation() {
    for port in [ISCSI_PORT, 9999] {
        let mut play = Play::new(port, From::Middle);
        for n in 0..40 {
            play.say(Client, command(n)).say(Server, answer(n));
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted), ("iscsi", 40, Counted::default()));
        assert!(exchanges.iter().all(|e| e.op.kind == OpKind::Read));
        assert_eq!(exchanges[0].op.tag, 70);
    }
}

#[test]
fn a_login_is_iscsi_on_any_port() {
    let login = LoginRequest { immediate: true, transit: true, tag: 1, ..LoginRequest::default() };
    let mut bhs = login.write();
    let text = b"InitiatorName=iqn.2020-01.a:b\0\0\0";
    bhs.set_data_bytes(text.len());
    let mut play = Play::new(9999, From::Syn);
    play.say(Client, [bhs.0.as_slice(), text].concat()).say(Client, command(0)).say(Server, answer(0));
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("iscsi", 1));
    // The same header without a text is 48 bytes of something.
    let mut play = Play::new(9999, From::Syn);
    play.say(Client, [bhs.0.as_slice(), &[7; 32]].concat()).say(Server, b"ok");
    assert_eq!(play.end().0, "turns");
}

#[test]
fn iscsi_whose_headers_come_late_is_found_at_a_turn() {
    let mut play = Play::new(9999, From::Middle);
    for _ in 0..100 {
        play.say(Server, [0x77; 1448]);
    }
    for n in 0..10 {
        play.say(Client, command(n)).say(Server, answer(n));
    }
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("iscsi", 10));
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn http_in_the_middle_of_a_download_begins_with_the_next_request() {
    let mut play = Play::new(8080, From::Middle);
    for _ in 0..200 {
        play.say(Server, [0x77; 1448]);
    }
    play.say(Client, GET).say(Server, OK).say(Client, GET).say(Server, OK);
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("http", 2));
    assert!(exchanges.iter().all(|e| e.op.verb == Verb::Http(Word::new(b"GET"))));
}

#[test]
fn a_stream_that_only_begins_like_http_becomes_turns() {
    let mut play = Play::new(8080, From::Syn);
    play.say(Client, GET).say(Server, OK);
    for _ in 0..40 {
        play.say(Client, b"\x01\x02question").say(Server, b"\x01\x02answer");
    }
    let (name, exchanges, counted) = play.end();
    assert_eq!((name, counted.mistaken), ("turns", 1));
    let http = exchanges.iter().filter(|e| e.op.verb != Verb::Turn).count();
    assert_eq!(http, 1, "no operation was invented");
    assert!(exchanges.len() > 30, "{}", exchanges.len());
    assert!(exchanges.iter().all(|e| e.ring_depth <= 2), "the depth survives");
}

#[test]
fn a_line_like_http_of_another_protocol_is_a_turn() {
    let mut play = Play::new(7000, From::Syn);
    for _ in 0..3 {
        play.say(Client, "GET key\r\n").say(Server, "$2\r\nok\r\n");
    }
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("turns", 3));
}

/// Nothing before the first answer shows memcached on another port: what was asked before is decoded, too, with its own times.
#[test]
fn requests_before_the_answer_that_shows_the_protocol_are_decoded() {
    for depth in [1, 4, 16_usize] {
        let mut play = Play::new(7411, From::Syn);
        for turn in 0..5 {
            play.say(Client, "get k:1\r\n".repeat(depth));
            if turn == 0 {
                // The first turn may come in several segments.
                play.say(Client, "get k:1").say(Client, "\r\n");
            }
            play.say(Server, "END\r\n".repeat(depth + usize::from(turn == 0)));
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted), ("memcached", 5 * depth + 1, Counted::default()));
        assert!(exchanges.iter().all(|e| e.op.verb.name() == "get" && !e.overlaps));
        let first = &exchanges[0];
        assert_eq!(
            (first.request.first_frame, first.response.ended.since(first.request.ended)),
            (1, Some(3000))
        );
        assert_eq!(exchanges.iter().map(|e| e.op.queue_depth).max(), Some(depth as u32 + 1));
    }
    // A hole, or too many bytes: as before, the turn at hand is lost.
    let mut play = Play::new(7411, From::Syn);
    play.cut(Client, "get k:1\r\nget k:2\r\n", 9);
    for _ in 0..3 {
        play.say(Server, "VALUE k:1 0 1\r\na\r\nEND\r\n").say(Client, "get k:1\r\n");
    }
    play.say(Server, "END\r\n");
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("memcached", 3));
}

/// What a snap length hides may be several requests.
#[test]
fn turns_whose_requests_are_cut_say_so() {
    for snap in [0, 1, 7, 8] {
        let mut play = Play::new(7000, From::Syn);
        for _ in 0..3 {
            play.cut(Client, "fetch a\n", snap).cut(Server, "well\r\n", 3);
        }
        let (name, exchanges, _) = play.end();
        assert_eq!(name, "turns");
        let unread = exchanges.iter().filter(|e| e.is_unread).count();
        assert_eq!(
            (exchanges.len(), unread),
            (3, if snap < 8 { 3 } else { 0 }),
            "of 8 bytes, {snap} are there"
        );
    }
}

/// Commands behind each other in a turn of a protocol that is not known: never a silent wrong count.
#[test]
fn turns_with_several_commands_say_so() {
    let told = |asked: &str| {
        let mut play = Play::new(7000, From::Syn);
        for _ in 0..3 {
            play.say(Client, asked).say(Server, "well\r\n");
        }
        let (name, exchanges, _) = play.end();
        assert_eq!((name, exchanges.len()), ("turns", 3));
        assert!(exchanges.iter().all(|e| !e.overlaps), "both sides waited");
        let several = exchanges.iter().filter(|e| e.has_several).count();
        assert!(several == 0 || several == 3);
        several > 0
    };
    for several in ["fetch a\r\nfetch b\r\n", "NEXT\nNEXT\nNEX", "put 1\nput 2\n"] {
        assert!(told(several), "{several}");
    }
    for one in [
        "fetch a\r\n",
        "a: 1\r\nb: 2\r\n",
        "fetch\nfetched\n",
        "1\n1\n",
        "\n\n\n",
        "fetch a\r\nfetch",
        "a-b\na-b\n",
    ] {
        assert!(!told(one), "{one}");
    }
}

/// A client that waits for each answer: a hole takes an answer and the next request, or only one of them.
#[test]
fn no_hole_gives_a_request_the_answer_of_the_next_one() {
    let unknown = ("ask....", "reply of the service");
    for (port, (asked, answer), snap) in
        [(80, (GET, OK), usize::MAX), (80, (GET, OK), 20), (80, (GET, OK), 14), (7000, unknown, usize::MAX)]
    {
        for (answers, requests, is_noticed) in [
            (1, 1, true),
            (1, 1, false),
            (1, 0, true),
            (1, 0, false),
            (0, 1, true),
            (0, 1, false),
            (2, 2, false),
        ] {
            let mut play = Play::new(port, From::Syn);
            let mut times = Vec::new();
            let mut unnoticed = [0; 2];
            for round in 0..12 {
                play.ns += 1_000_000_000;
                let mut one = |play: &mut Play, side: Side, text: &str, is_lost: bool| {
                    if is_lost && is_noticed {
                        play.lose(side, text);
                    } else if is_lost {
                        play.next[side as usize] += text.len() as u32;
                        unnoticed[side as usize] += 1;
                    } else {
                        let at = At { ns: play.ns + 1000, frame: play.ns / 1000 + 1 };
                        // The packet that shows the hole.
                        play.application.packet(
                            side,
                            play.next[side as usize],
                            play.next[side.peer() as usize],
                        );
                        let missing = std::mem::take(&mut unnoticed[side as usize]) * text.len() as u64;
                        if missing > 0 {
                            play.application.missing(side, Absent::Lost, missing, at, &mut play.seen);
                        }
                        play.cut(side, text, snap);
                    }
                    play.ns
                };
                let asked_at = one(&mut play, Client, asked, (6..6 + requests).contains(&round));
                let answered_at = one(&mut play, Server, answer, (5..5 + answers).contains(&round));
                times.push((asked_at, answered_at));
            }
            let (_, exchanges, _) = play.end();
            let context = format!("{port} {snap} {answers} {requests} {is_noticed}");
            for exchange in &exchanges {
                let own = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
                assert!(times.contains(&own), "{context}: {own:?}");
            }
            assert!(
                exchanges.len() >= 8,
                "{context}: {:?}",
                exchanges.iter().map(|e| (e.op.tag, e.request.began, e.response.ended)).collect::<Vec<_>>()
            );
        }
    }
}

/// A greeting that was not captured, and that the client had received before it sent anything.
#[test]
fn a_lost_greeting_shifts_no_answer() {
    let select = |n: u32| {
        let text = format!("select repeat('a',{n}) as c0");
        [&[text.len() as u8 + 1, 0, 0, 0, 3], text.as_bytes()].concat()
    };
    let login = [&[60, 0, 0, 1, 5, 0xa6, 0xff, 0x19, 0, 0, 0, 1, 45][..], &[0; 23], &[b'x'; 28]].concat();
    let ok = [7, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0];
    let column = b"\x03def\0\0\0\x02c0\0\x0c\x21\0\0\0\0\0\xfd\0\0\x27\0\0";
    let head = [&[1, 0, 0, 1, 1, column.len() as u8, 0, 0, 2][..], column].concat();
    let answer = [&head[..], &[1, 0, 0, 3, 0, 7, 0, 0, 4, 0xfe, 0, 0, 2, 0, 0, 0]].concat();
    let mut play = Play::new(23306, From::Syn);
    play.lose(Server, &"x".repeat(108)).say(Client, &login).say(Server, ok);
    let mut times = Vec::new();
    for n in 0..20 {
        play.ns += 1_000_000_000;
        play.say(Client, select(n)).say(Server, &answer);
        times.push(play.ns);
    }
    let (name, exchanges, counted) = play.end();
    let ended: Vec<u64> = exchanges.iter().map(|e| e.response.ended.ns().unwrap()).collect();
    assert_eq!((name, ended, counted.unmatched), ("mysql", times, 0));
}

/// A snap length shows the first request of each packet only: answers of the others belong to none that was seen.
#[test]
fn requests_that_a_snap_length_hides_lend_their_answers_to_no_other() {
    const LONG: &str = "GET /a/path/of/some/length HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let mut play = Play::new(80, From::Syn);
    let mut paired = Vec::new();
    for _ in 0..20 {
        play.ns += 1_000_000_000;
        play.cut(Client, LONG.repeat(4), 30);
        paired.push((play.ns, play.ns + 1000));
        // The next packet leaves before the answers to this one have come.
        play.say(Server, OK).cut(Client, LONG.repeat(3), 30);
        for _ in 0..6 {
            play.say(Server, OK);
        }
    }
    let (name, exchanges, _) = play.end();
    let times = |e: &Exchange| (e.request.began.ns().unwrap(), e.response.ended.ns().unwrap());
    let wrong = exchanges.iter().filter(|e| !paired.contains(&times(e))).count();
    // The answers show it only when they are too many.
    assert_eq!((name, exchanges.len(), wrong), ("http", 2, 1));
}

/// As [`Play::assert_no_shift`] of the decoders: requests in packets of their own, and then one at a time.
#[test]
fn no_hole_shifts_the_answers_of_http() {
    for (lost, side) in [(1, Server), (3, Server), (1, Client), (2, Client)] {
        let mut play = Play::new(80, From::Syn);
        for round in 0..4 {
            let missing = |of| if round == 3 && of == side { lost } else { 0 };
            for number in 0..4 {
                if number < missing(Client) {
                    play.lose(Client, GET)
                } else {
                    play.say(Client, GET)
                };
            }
            for number in 0..4 {
                if number < missing(Server) {
                    play.lose(Server, OK)
                } else {
                    play.say(Server, OK)
                };
            }
        }
        for _ in 0..60 {
            play.ns += 1_000_000_000;
            play.say(Client, GET).say(Server, OK);
        }
        let (name, exchanges, _) = play.end();
        assert!(name == "http" && (42..=76 - lost).contains(&exchanges.len()), "{}", exchanges.len());
        let longest = exchanges.iter().filter_map(|e| e.response.ended.since(e.request.ended)).max();
        assert!(longest < Some(1_000_000), "{side:?} {lost}: {longest:?}");
    }
}

/// The first response behind a hole has no body if its request was HEAD, whatever it says of its length.
#[test]
fn a_response_to_head_behind_a_hole_has_no_body() {
    const HEAD: &str = "HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n";
    const NO_BODY: &str = "HTTP/1.1 404 No\r\nContent-Length: 153\r\n\r\n";
    let mut play = Play::new(80, From::Syn);
    for is_lost in [false, true, false] {
        play.say(Client, GET.repeat(2)).say(Server, OK);
        if is_lost {
            // The next response shows the hole.
            play.next[Server as usize] += OK.len() as u32;
            play.say(Client, [HEAD, GET].concat());
            play.next[Server as usize] -= OK.len() as u32;
            play.lose(Server, OK);
        } else {
            play.say(Server, OK).say(Client, [HEAD, GET].concat());
        }
        play.say(Server, NO_BODY).say(Server, OK);
    }
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("http", 11));
    let of_head = exchanges.iter().filter(|e| e.status == Status::Http(404));
    let bytes: Vec<u32> = of_head.map(|e| e.op.response_bytes).collect();
    assert_eq!(bytes, [NO_BODY.len() as u32; 3]);
}

/// As [`Play::assert_no_shift_in_flight`] of the decoders.
#[test]
fn no_hole_shifts_the_answers_of_http_in_flight() {
    const ROUNDS: usize = 400;
    for (side, lost) in [Client, Server].into_iter().flat_map(|side| [1, 2, 3].map(|lost| (side, lost))) {
        let mut play = Play::new(80, From::Syn);
        let (mut asked_at, mut pairs) = (VecDeque::new(), Vec::new());
        for round in 0..ROUNDS + 4 {
            let is_lost = |of, round| of == side && (20..20 + lost).contains(&round);
            if round < ROUNDS {
                play.ns += 50_000;
                if is_lost(Client, round) {
                    play.lose(Client, GET)
                } else {
                    play.say(Client, GET)
                };
                asked_at.push_back(play.ns);
            }
            if let Some(round) = round.checked_sub(4) {
                play.ns += 50_000;
                if is_lost(Server, round) {
                    play.lose(Server, OK)
                } else {
                    play.say(Server, OK)
                };
                pairs.push((asked_at.pop_front().unwrap(), play.ns));
            }
        }
        let (name, exchanges, _) = play.end();
        for exchange in &exchanges {
            let pair = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
            assert!(pairs.contains(&pair), "{side:?} {lost}: {pair:?}");
        }
        assert!(name == "http" && (12..=ROUNDS - lost).contains(&exchanges.len()), "{}", exchanges.len());
    }
}

/// A time without captured packets takes the end of an answer, the next request and its answer; what the server sent shows it first.
#[test]
fn a_gap_costs_a_client_that_waits_what_was_in_it() {
    let redis = ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "$3\r\nabc\r\n");
    for (port, (asked, answer)) in [(80, (GET, OK)), (6379, redis)] {
        let mut play = Play::new(port, From::Syn);
        for round in 0..20 {
            play.ns += 1_000_000_000;
            play.say(Client, asked);
            if round == 6 {
                let (begun, rest) = answer.split_at(answer.len() - 3);
                play.say(Server, begun).lose(Server, &[rest, answer].concat()).lose(Client, asked);
            } else {
                play.say(Server, answer);
            }
        }
        // The one that was asked before, and the one behind, which may have left with those that are missing.
        let (_, exchanges, _) = play.end();
        assert!(exchanges.len() >= 18, "{port}: {}", exchanges.len());
        for exchange in exchanges {
            let second = |stamp: record::Stamp| stamp.ns().unwrap() / 1_000_000_000;
            assert_eq!(second(exchange.request.began), second(exchange.response.ended), "{port}");
        }
    }
}

#[test]
fn a_lost_packet_of_http_gives_no_request_the_response_of_another() {
    let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: b\r\n\r\n");
    let [a, b] = [get("a"), get("longer/path/b")];
    let post = format!("POST /c HTTP/1.1\r\nHost: b\r\nContent-Length: 30\r\n\r\n{}", "c".repeat(30));
    let ok = |n: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n{}", "d".repeat(n));
    let (short, long) = (ok(3), ok(50));
    let requests = [(&a, &short), (&post, &long), (&b, &short), (&a, &long)];
    let requests = requests.map(|(asked, answer)| (asked.as_bytes(), answer.as_bytes()));
    // Of 3,678 pairs of packets, four give a request the response of another: near each other, one of each side.
    let cost = Cost { from: 1, most: 2, wrong: 4, is_one_batch: false };
    assert_each_packet_lost(|| Play::new(80, From::Syn), &requests, cost);
}

/// Requests that leave together and are answered one by one: whichever packet is missing, none has another's answer.
#[test]
fn no_hole_shifts_the_answers_of_batches_of_http() {
    const BATCH: usize = 6;
    const BATCHES: usize = 8;
    let asked = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: b\r\n\r\n", "a".repeat(n));
    let answer =
        |n: usize| format!("HTTP/1.1 {} No\r\nContent-Length: {n}\r\n\r\n{}", 400 + n, "b".repeat(n));
    for together in [BATCH, BATCH / 2, 1] {
        let packets = BATCH / together + BATCH;
        // HTTP begins with the second packet where the first one is missing: the batch may be cut there, which shifts its answers.
        for lost in usize::from(together < BATCH)..BATCHES * packets {
            let mut play = Play::new(80, From::Syn);
            for batch in 0..BATCHES {
                let requests = (0..BATCH).step_by(together).map(|first| {
                    let text: String = (first..first + together).map(asked).collect();
                    (Client, text)
                });
                let answers = (0..BATCH).map(|n| (Server, answer(n)));
                for (place, (side, text)) in requests.chain(answers).enumerate() {
                    if batch * packets + place == lost {
                        play.lose(side, &text)
                    } else {
                        play.say(side, text)
                    };
                }
                play.ns += 1_000_000_000;
            }
            let (name, exchanges, counted) = play.end();
            let first = asked(0).len();
            let is_another =
                |e: &&Exchange| e.status != Status::Http((e.op.request_bytes as usize - first + 400) as u16);
            let wrong = exchanges.iter().filter(is_another).count();
            assert_eq!((name, wrong, counted.unanswered), ("http", 0, 0), "{together} {lost}");
            let longest = exchanges.iter().filter_map(|e| e.response.ended.since(e.request.began)).max();
            assert!(longest < Some(1_000_000), "{together} {lost}");
            // In packets of their own, what a hole held shows only when no request has been in flight again.
            let least = if together == BATCH { (BATCHES - 1) * BATCH } else { BATCH };
            assert!(exchanges.len() >= least, "{together} {lost}: {}", exchanges.len());
        }
    }
}

/// A proxy's header is no message, alone in its packet or not.
#[test]
fn the_protocol_begins_behind_the_header_of_a_proxy() {
    let two = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[1; 12]].concat();
    let request: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    for header in [b"PROXY TCP4 10.0.0.1 10.0.0.2 40000 80\r\n".to_vec(), two] {
        for (name, asked, answer) in
            [("http", GET.as_bytes(), OK.as_bytes()), ("redis", request, b"+PONG\r\n")]
        {
            for is_alone in [true, false] {
                let mut play = Play::new(8080, From::Syn);
                if is_alone {
                    play.say(Client, &header).say(Client, asked);
                } else {
                    play.say(Client, [&header[..], asked].concat());
                }
                play.say(Server, answer);
                for _ in 0..3 {
                    play.say(Client, asked).say(Server, answer);
                }
                let (found, exchanges, counted) = play.end();
                assert_eq!((found, exchanges.len(), counted), (name, 4, Counted::default()));
                assert!(exchanges.iter().all(|e| e.op.request_bytes as usize == asked.len()));
            }
        }
    }
}

/// What a client asks before it speaks a protocol that is known, as of a SOCKS proxy, is told.
#[test]
fn the_turn_before_a_protocol_is_told() {
    let request: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    for (then, answer) in [(GET.as_bytes(), OK.as_bytes()), (request, b"+PONG\r\n")] {
        for turns in 1..4 {
            let mut play = Play::new(1080, From::Syn);
            for _ in 0..turns {
                play.say(Client, b"\x05\x01\0\x01\x7f\0\0\x01\0\x50");
                play.ns += 700_000_000;
                play.say(Server, b"\x05\0\0\x01\0\0\0\0\0\0");
            }
            for _ in 0..3 {
                play.say(Client, then).say(Server, answer);
            }
            let (_, exchanges, _) = play.end();
            assert_eq!(exchanges.len(), turns + 3, "{turns}");
            assert!(exchanges[..turns].iter().all(|e| e.op.verb == Verb::Turn));
        }
    }
}

#[test]
fn a_tunnel_is_turns_after_connect() {
    let mut play = Play::new(3128, From::Syn);
    play.say(Client, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    // The tunnel's first bytes may follow in the same packet.
    play.say(Server, "HTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\n\x16\x03greeting");
    for _ in 0..10 {
        play.say(Client, b"\x16\x03\x01question").say(Server, b"\x17\x03\x03answer");
    }
    let (name, exchanges, counted) = play.end();
    assert_eq!((name, exchanges.len(), counted), ("turns", 11, Counted::default()));
    assert_eq!(exchanges[0].op.verb, Verb::Http(Word::new(b"CONNECT")));
    assert!(exchanges[1..].iter().all(|e| e.op.verb == Verb::Turn && e.op.request_bytes == 11));
}

#[test]
fn a_refused_connect_is_no_tunnel() {
    let mut play = Play::new(3128, From::Syn);
    play.say(Client, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    play.say(Server, "HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno");
    play.say(Client, GET).say(Server, OK);
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("http", 2));
    assert_eq!(exchanges[0].op.outcome, Outcome::Failed);
}

#[test]
fn a_web_socket_is_decoded_after_101() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\n\r\n";
    // A greeting may follow in the same packet, or in the next one.
    let greeting = "\x01\x01h\0\x02el";
    for place in [0, 1, 3, greeting.len()] {
        let (here, rest) = greeting.split_at(place);
        let mut play = Play::new(80, From::Syn);
        play.say(Client, "GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
        play.say(Server, [switch, here].concat());
        if !rest.is_empty() {
            play.say(Server, rest);
        }
        play.say(Server, b"\x80\x01o");
        for _ in 0..6 {
            play.say(Client, b"\x81\x85abcdhello").say(Server, b"\x81\x05hello");
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted), ("websocket", 7, Counted::default()), "{place}");
        assert_eq!(exchanges[0].op.outcome, Outcome::Good);
        assert!(exchanges[1..].iter().all(|e| e.op.verb.name() == "TEXT" && e.key == exchanges[0].key));
        assert!(exchanges.iter().all(|e| !e.overlaps));
    }
    // Another protocol's upgrade.
    let mut play = Play::new(80, From::Syn);
    play.say(Client, "GET /chat HTTP/1.1\r\nUpgrade: other\r\n\r\n");
    play.say(Server, switch.replace("WebSocket", "other"));
    play.say(Client, b"\x81\x85abcdhello").say(Server, b"\x81\x05hello");
    assert_eq!(play.end().0, "turns");
}

/// Captures that keep the fronts of packets, and one without the packet of the answer.
#[test]
fn a_web_socket_is_decoded_where_101_is_not_all_there() {
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\nServer: a\r\nUpgrade: websocket\r\n\r\n";
    let [asked, answered] = [Client, Server].map(|side| frame(side, &[b'q'; 300]));
    // The agreement shows in both, in the request, in neither; the frame of the client shows it in a hole of the answer.
    for (snap, expected) in [(900, 7), (60, 7), (40, 7), (20, 7)] {
        let mut play = Play::new(80, From::Syn);
        play.cut(Client, request, snap).cut(Server, switch, snap);
        for _ in 0..6 {
            play.cut(Client, &asked, snap).cut(Server, &answered, snap);
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted.unmatched), ("websocket", expected, 0), "{snap}");
        assert_eq!(exchanges[0].status, Status::Http(101));
        let sizes = exchanges[1..].iter().map(|e| (e.op.request_bytes, e.op.response_bytes));
        assert!(sizes.eq([(308, 304); 6]), "{snap}");
        assert!(exchanges[1..].iter().all(|e| e.op.verb.name() == "TEXT" && !e.overlaps));
    }
    for knows_before in [true, false] {
        let mut play = Play::new(80, From::Syn);
        play.say(Client, request);
        if knows_before {
            play.lose(Server, switch);
        }
        play.say(Client, &asked);
        if !knows_before {
            play.lose(Server, switch);
        }
        for _ in 0..6 {
            play.say(Server, &answered).say(Client, &asked);
        }
        let (name, exchanges, counted) = play.end();
        // A hole that shows behind the first message costs its answer.
        assert_eq!((name, exchanges.len()), ("websocket", if knows_before { 6 } else { 5 }));
        let lost = if knows_before { 1 } else { 2 };
        assert_eq!((counted.unanswered, counted.mistaken, counted.abandoned), (1, 0, lost), "the last one");
    }
}

/// A frame of text.
fn frame(side: Side, payload: &[u8]) -> Vec<u8> {
    let (mask, key): (u8, &[u8]) = if side == Client { (0x80, b"abcd") } else { (0, b"") };
    let length = (payload.len() as u16).to_be_bytes();
    let masked = payload.iter().enumerate().map(|(at, byte)| byte ^ key.get(at % 4).unwrap_or(&0));
    [0x81, mask | 126].into_iter().chain(length).chain(key.iter().copied()).chain(masked).collect()
}

/// The upgraded request is answered as stream 1, behind 101 in one segment or in the next one.
#[test]
fn http2_behind_an_upgrade() {
    let settings: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
    let switch: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings].concat();
    let answer = |stream: u8| [&b"\0\0\x01\x01\x05\0\0\0"[..], &[stream, 0x8d]].concat();
    for (first, second) in [
        ([switch, settings, &answer(1)].concat(), vec![]),
        (switch.to_vec(), [settings, &answer(1)].concat()),
        ([switch, settings].concat(), answer(1)),
    ] {
        let mut play = Play::new(80, From::Syn);
        play.say(Client, "GET /up HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n");
        play.say(Server, first).say(Client, preface.clone());
        if !second.is_empty() {
            play.say(Server, second);
        }
        play.say(Client, b"\0\0\x03\x01\x05\0\0\0\x03\x82\x84\x86").say(Server, answer(3));
        let (name, exchanges, counted) = play.end();
        let status: Vec<String> = exchanges.iter().map(|e| e.status.text()).collect();
        assert_eq!((name, status), ("http2", vec!["101".to_owned(), "404".to_owned(), "404".to_owned()]));
        assert_eq!((exchanges[1].key, counted.unmatched), (exchanges[0].key, 0));
        assert_eq!(exchanges[1].op.verb, Verb::Command(record::Word::new(b"GET")));
    }
}

#[test]
fn heads_that_a_snap_length_cuts_are_operations() {
    let get =
        "GET /a-rather-long-path/with/several/parts HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
    let bad = "HTTP/1.1 503 Service Unavailable\r\nServer: nginx\r\nContent-Length: 3896\r\n\r\n";
    for snap in [14, 30, 62, 74] {
        let mut play = Play::new(80, From::Syn);
        for _ in 0..323 {
            play.cut(Client, get, snap).cut(Server, [bad.as_bytes(), &[b'x'; 1000]].concat(), snap);
            play.cut(Server, [b'x'; 1448], snap).cut(Server, [b'x'; 1448], snap);
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted.unanswered), ("http", 323, 0), "{snap}");
        for exchange in &exchanges {
            assert_eq!(exchange.op.verb, Verb::Http(Word::new(b"GET")));
            assert_eq!(exchange.op.outcome, Outcome::Failed, "the status is visible");
            let took = exchange.response.ended.since(exchange.request.ended);
            assert_eq!((took, exchange.ring_depth), (Some(3000), 1), "until the last byte");
        }
    }
}

#[test]
fn a_cut_upload_ends_before_its_response() {
    let put =
        [b"PUT /a HTTP/1.1\r\nHost: example.org\r\nContent-Length: 9999\r\n\r\n".as_slice(), &[b'x'; 900]];
    let mut play = Play::new(80, From::Middle);
    for _ in 0..10 {
        play.cut(Client, put.concat(), 40).cut(Client, [b'x'; 1448], 40).cut(Client, [b'x'; 1448], 40);
        play.cut(Server, OK, 20);
    }
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("http", 10));
    for e in &exchanges {
        let times = (e.request.ended.since(e.request.began), e.response.ended.since(e.request.ended));
        assert_eq!(times, (Some(2000), Some(1000)));
        assert_eq!(e.ring_depth, 1);
    }
}

#[test]
fn iscsi_depth_stays_right_where_a_snap_length_hides_messages() {
    // Two commands in a packet and two answers in a packet: of both only the first is visible.
    let mut play = Play::new(ISCSI_PORT, From::Middle);
    for n in 0..4 {
        play.say(Client, command(n)).say(Server, answer(n));
    }
    for n in (4..400).step_by(2) {
        play.cut(Client, [command(n), command(n + 1)].concat(), 62);
        play.cut(Server, [answer(n), answer(n + 1)].concat(), 62);
    }
    let (name, exchanges, counted) = play.end();
    assert_eq!(name, "iscsi");
    assert!(exchanges.len() > 195, "{}", exchanges.len());
    let deepest = exchanges.iter().map(|e| e.op.queue_depth).max();
    assert!(deepest <= Some(3), "{deepest:?}");
    assert_eq!(counted.unanswered, 0);
}

#[test]
fn iscsi_requests_that_a_snap_length_hides_do_not_stay_in_the_ring() {
    // Every two commands share a packet, and all answers are visible.
    let mut play = Play::new(ISCSI_PORT, From::Middle);
    for n in (0..400).step_by(2) {
        play.cut(Client, [command(n), command(n + 1)].concat(), 62);
        play.say(Server, answer(n)).say(Server, answer(n + 1));
    }
    let (_, exchanges, counted) = play.end();
    let deepest = exchanges.iter().map(|e| e.op.queue_depth).max();
    assert!(deepest <= Some(2), "{deepest:?}");
    assert!((198..=200).contains(&exchanges.len()) && counted.unmatched >= 198, "{counted:?}");
    // Answers that come after the next packet of commands: the hidden commands are in flight.
    let mut play = Play::new(ISCSI_PORT, From::Middle);
    play.say(Client, command(0)).say(Server, answer(0)).say(Client, command(1)).say(Server, answer(1));
    play.cut(Client, [command(2), command(3)].concat(), 62);
    for n in (4..400).step_by(2) {
        play.cut(Client, [command(n), command(n + 1)].concat(), 62);
        play.say(Server, answer(n - 2)).say(Server, answer(n - 1));
    }
    let (_, exchanges, _) = play.end();
    let depths: Vec<u32> = exchanges[10..].iter().map(|e| e.op.queue_depth).collect();
    assert!(depths.iter().all(|&depth| depth == 3), "the visible one and the two before: {depths:?}");
}

#[test]
fn iscsi_requests_whose_answers_a_snap_length_hides_leave_the_ring() {
    // The answers of every two commands share a packet, and the second is not visible.
    let mut play = Play::new(ISCSI_PORT, From::Middle);
    for n in (0..400).step_by(2) {
        play.say(Client, command(n)).say(Client, command(n + 1));
        play.cut(Server, [answer(n), answer(n + 1)].concat(), 62);
    }
    let (_, exchanges, counted) = play.end();
    let deepest = exchanges.iter().map(|e| e.op.queue_depth).max();
    assert!(deepest <= Some(3), "{deepest:?}");
    assert!(counted.unanswered <= 1, "{counted:?}");
    assert_eq!(exchanges.len(), 200);
}

/// Which of the turns may be several requests, of a conversation of so many questions that are sent before each answer.
fn overlapping(ahead: usize, pieces: usize) -> Vec<bool> {
    let mut play = Play::new(9999, From::Syn);
    for _ in 0..4 {
        // The server's packets acknowledge what it has read: the first question only.
        for n in 0..ahead {
            play.say(Client, b"question");
            if n == 0 {
                play.acknowledged(Client);
            }
        }
        for _ in 0..ahead * pieces {
            play.say_behind(Server, b"answer");
        }
    }
    play.end().1.iter().map(|e| e.overlaps).collect()
}

#[test]
fn turns_in_which_a_side_did_not_wait_are_marked() {
    assert_eq!(overlapping(1, 1), [false; 4]);
    assert_eq!(overlapping(1, 5), [false; 4], "an answer in pieces");
    assert_eq!(overlapping(2, 1), [true; 4]);
    // The client asks again before it has received all of the answer: both turns may be several requests.
    let mut play = Play::new(9999, From::Syn);
    play.say(Client, b"a").say(Server, b"part of an answer");
    play.acknowledged(Server).say(Server, b"the rest").say_behind(Client, b"b").say(Server, b"c");
    play.say(Client, b"d").say(Server, b"e");
    let marked: Vec<bool> = play.end().1.iter().map(|e| e.overlaps).collect();
    assert_eq!(marked, [true, true, false]);
    // An upload in pieces, and a server that speaks first.
    let mut play = Play::new(9999, From::Syn);
    play.say(Server, b"hello").say(Client, [1; 1448]).say(Client, [1; 600]).say(Server, b"done");
    assert!(play.end().1.iter().all(|e| !e.overlaps));
}

#[test]
fn turns_of_a_protocol_that_is_known_and_not_decoded_are_marked() {
    let mut play = Play::new(5672, From::Syn);
    play.say(Client, b"AMQP\x03\x01\0\0")
        .say(Server, b"AMQP\x03\x01\0\0")
        .say(Client, b"a")
        .say(Server, b"b");
    assert_eq!(play.application.undecoded(), Some("AMQP"));
    let (name, exchanges, _) = play.end();
    assert_eq!((name, exchanges.len()), ("turns", 2));
    assert!(exchanges.iter().all(|e| e.overlaps));
}

/// A message of any protocol, plausible or not.
fn message(kind: u8, n: u32) -> Vec<u8> {
    match kind % 12 {
        0 => GET.into(),
        1 => OK.into(),
        2 => "CONNECT a:443 HTTP/1.1\r\n\r\n".into(),
        3 => "HTTP/1.1 101 Switching Protocols\r\n\r\nmore".into(),
        4 => command(n),
        5 => answer(n),
        6 => command(0),
        7 => vec![0; 100],
        8 => "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n".into(),
        9 => "HTTP/1.1 200 OK\r\n\r\n".into(),
        10 => [command(n), command(n + 1), command(n + 2)].concat(),
        _ => vec![(n % 251) as u8; 30],
    }
}

proptest::proptest! {
    /// Whatever is said, every operation is told once, counted, and in a ring that holds it.
    #[test]
    fn corrections_neither_lose_nor_repeat_operations(
        port in proptest::sample::select(vec![80_u16, 3260, 9999]),
        middle: bool,
        said in proptest::collection::vec((proptest::bool::ANY, 0_u8..12, 0_u32..30, 0_usize..200), 0..120),
    ) {
        let mut play = Play::new(port, if middle { From::Middle } else { From::Syn });
        for (from_client, kind, n, snap) in said {
            let side = if from_client { Client } else { Server };
            play.cut(side, message(kind, n), if snap < 100 { snap } else { 2000 });
            if snap == 150 {
                let at = At { ns: play.ns, frame: 0 };
                play.application.missing(side, Absent::Lost, 500, at, &mut play.seen);
            }
        }
        // `end` compares the operations told with those counted.
        let (_, exchanges, _) = play.end();
        for exchange in exchanges {
            proptest::prop_assert!(exchange.ring_depth >= exchange.op.queue_depth);
            proptest::prop_assert!(exchange.request.ended >= exchange.request.began);
        }
    }
}

/// A proxy may write a message's header and the rest of it apart, and a slow client a byte at a time.
#[test]
fn a_first_message_in_segments_shows_its_protocol() {
    const GREETING: &[u8] = b"\x5a\0\0\0\x0a5.5.5-10.11.14-MariaDB\0\x05\0\0\0ABCDEFGH\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0abcdefghijkl\0mysql_native_password\0";
    const REDIS: &[u8] = b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n";
    let first = GREETING.len() as u8 - 4;
    let greeting = [&[first], &GREETING[1..]].concat();
    for cut in [1, 3, 4, 10, 21] {
        let mut play = Play::new(7000, From::Syn);
        play.say(Client, &REDIS[..cut]).say(Client, &REDIS[cut..]).say(Server, "$1\r\na\r\n");
        for _ in 0..3 {
            play.say(Client, REDIS).say(Server, "$1\r\na\r\n");
        }
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted), ("redis", 4, Counted::default()), "{cut}");
        assert!(exchanges[0].request.began < exchanges[0].request.ended);

        let mut play = Play::new(7000, From::Syn);
        play.say(Client, &GET[..cut.min(10)]).say(Client, &GET[cut.min(10)..]).say(Server, OK);
        play.say(Client, GET).say(Server, OK);
        let (name, exchanges, counted) = play.end();
        assert_eq!((name, exchanges.len(), counted), ("http", 2, Counted::default()), "{cut}");

        let mut play = Play::new(7000, From::Syn);
        play.say(Server, &greeting[..cut]).say(Server, &greeting[cut..]);
        // No such client: what it says is a login of the protocol.
        play.say(Client, [&[32, 0, 0, 1, 0x85, 0xa2, 0x0f, 0][..], &[0; 28]].concat());
        play.say(Server, b"\x07\0\0\x02\0\0\0\x02\0\0\0");
        play.say(Client, b"\x05\0\0\0\x03DO 1").say(Server, b"\x07\0\0\x01\0\0\0\x02\0\0\0");
        let (name, exchanges, counted) = play.end();
        let names: Vec<String> = exchanges.iter().map(|e| e.op.verb.name()).collect();
        assert_eq!(
            (name, names, counted),
            ("mysql", vec!["login".into(), "DO".into()], Counted::default()),
            "{cut}"
        );
    }
}
