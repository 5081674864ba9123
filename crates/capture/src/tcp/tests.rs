use record::StallKind;

use crate::application::Protocol;
use crate::link::Link;
use crate::observer::seen::Seen;
use crate::packet::{At, Endpoint, NotTcp, Segment};
use crate::vantage::{FrameCounters, Selection, Vantage};

mod clock;
mod copies;
mod flights;
mod path;
mod repeats;
mod waits;
mod window;

const MS: u64 = 1_000_000;

/// A connection whose segments are recorded one after the other.
struct Talk {
    vantage: Vantage,
    seen: Seen,
    ns: u64,
    frame: u64,
    /// Next sequence number of client and server.
    next: [u32; 2],
    ip_id: u16,
    /// Identifications of the last packets of client and server, where each counts its own.
    ip_ids: [u16; 2],
    window: u16,
    ttl: u8,
}

#[derive(Clone, Copy)]
enum Who {
    Client,
    Server,
}

use Who::{Client, Server};

impl Talk {
    /// A connection after its handshake, with an MSS of 1000 bytes and windows scaled by 2.
    fn begin() -> Self {
        Self::begin_at(0, 0)
    }

    /// The same at a capture point so far from the server and from the client, there and back, nanoseconds.
    fn begin_at(server_ns: u64, client_ns: u64) -> Self {
        Self::begin_as(Protocol::Http, server_ns, client_ns)
    }

    /// The same with this protocol.
    fn begin_as(protocol: Protocol, server_ns: u64, client_ns: u64) -> Self {
        let selection = Selection { protocol, ..Selection::default() };
        let mut talk = Self {
            vantage: Vantage::new(selection),
            seen: Seen::default(),
            ns: 1000 * MS,
            frame: 0,
            next: [100, 900],
            ip_id: 0,
            ip_ids: [1000, 5000],
            window: 30_000,
            ttl: 64,
        };
        let options = [2, 4, 0x03, 0xe8, 3, 3, 1, 0];
        talk.raw(Client, 99, 0, Segment::SYN, &options, b"");
        talk.after(server_ns);
        talk.raw(Server, 899, 100, Segment::SYN | Segment::ACK, &options, b"");
        talk.after(client_ns).ack(Client);
        talk
    }

    /// The same in the middle of a connection.
    fn begin_late() -> Self {
        let selection = Selection { protocol: Protocol::Http, ..Selection::default() };
        Self { vantage: Vantage::new(selection), seen: Seen::default(), ..Self::begin() }
    }

    fn after(&mut self, ns: u64) -> &mut Self {
        self.ns += ns;
        self
    }

    fn raw(&mut self, who: Who, seq: u32, ack: u32, flags: u8, options: &[u8], payload: &[u8]) {
        self.ip_id += 1;
        self.raw_again(who, seq, ack, flags, options, payload);
    }

    fn raw_again(&mut self, who: Who, seq: u32, ack: u32, flags: u8, options: &[u8], payload: &[u8]) {
        self.frame += 1;
        self.ns += 1000;
        let mut f = vec![0x45, 0];
        f.extend(((40 + options.len() + payload.len()) as u16).to_be_bytes());
        f.extend(self.ip_id.to_be_bytes());
        f.extend([0x40, 0, self.ttl, 6, 0, 0]);
        let ends = [([10, 0, 0, 1], 5000_u16), ([10, 0, 0, 2], 80_u16)];
        let (from, to) = match who {
            Client => (ends[0], ends[1]),
            Server => (ends[1], ends[0]),
        };
        f.extend(from.0);
        f.extend(to.0);
        f.extend(from.1.to_be_bytes());
        f.extend(to.1.to_be_bytes());
        f.extend(seq.to_be_bytes());
        f.extend(ack.to_be_bytes());
        f.extend([((5 + options.len() / 4) as u8) << 4, flags]);
        f.extend(self.window.to_be_bytes());
        f.extend([0; 4]);
        f.extend(options);
        f.extend(payload);
        let at = At { ns: self.ns, frame: self.frame };
        self.vantage.frame(Link::Raw, at, &f, f.len() as u32, &mut self.seen);
    }

    /// New data after the data already sent.
    fn send(&mut self, who: Who, payload: &[u8]) -> &mut Self {
        let seq = self.next[who as usize];
        self.next[who as usize] = seq.wrapping_add(payload.len() as u32);
        self.raw(who, seq, self.next[1 - who as usize], Segment::ACK, &[], payload);
        self
    }

    /// The same from a sender that counts its own packets, of which this many vanished before the capture point.
    fn send_counted(&mut self, who: Who, payload: &[u8], vanished: u16) {
        self.ip_ids[who as usize] += 1 + vanished;
        self.ip_id = self.ip_ids[who as usize] - 1;
        self.send(who, payload);
    }

    /// Acknowledges everything.
    fn ack(&mut self, who: Who) -> &mut Self {
        let (seq, ack) = (self.next[who as usize], self.next[1 - who as usize]);
        self.raw(who, seq, ack, Segment::ACK, &[], b"");
        self
    }

    /// Retransmits the last bytes.
    fn again(&mut self, who: Who, payload: &[u8]) -> &mut Self {
        let seq = self.next[who as usize].wrapping_sub(payload.len() as u32);
        self.raw(who, seq, self.next[1 - who as usize], Segment::ACK, &[], payload);
        self
    }

    fn kinds(&self) -> Vec<StallKind> {
        self.seen.stalls.iter().map(|s| s.kind).collect()
    }

    fn end(mut self) -> Seen {
        let vantage = std::mem::replace(&mut self.vantage, Vantage::new(Selection::default()));
        vantage.finish(&mut self.seen);
        self.seen
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn post(length: usize) -> Vec<u8> {
    let mut message = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    message.resize(message.len() + length, b'x');
    message
}

#[test]
fn distinguishes_header_and_body_apart_from_a_slow_client() {
    let mut talk = Talk::begin();
    let message = post(50);
    let (head, body) = message.split_at(message.len() - 50);
    // The body follows the late ACK at once.
    talk.send(Client, head).after(40 * MS).ack(Server).after(20_000).send(Client, body).send(Server, OK);
    assert_eq!(talk.kinds(), [StallKind::NagleHeaderThenBody]);
    assert_eq!(talk.seen.stalls[0].frames, [4, 5, 6]);
    // It ends when its response is acknowledged.
    assert!(talk.seen.exchanges.is_empty());
    talk.ack(Client);
    assert!(talk.seen.exchanges[0].stalls.contains(StallKind::NagleHeaderThenBody));
    // The client sends the body after a delay of its own.
    talk.send(Client, head).after(40 * MS).ack(Server).after(30 * MS).send(Client, body).send(Server, OK);
    // The ACK was not late: the body waited a round trip, and no more.
    talk.send(Client, head).after(MS).ack(Server).after(20_000).send(Client, body).send(Server, OK);
    assert_eq!(talk.kinds(), [StallKind::NagleHeaderThenBody, StallKind::AckClocked]);
    assert_eq!(talk.end().exchanges.len(), 3);
}

#[test]
fn does_not_attribute_full_segments_waiting_for_an_ack_to_nagle() {
    let mut talk = Talk::begin();
    let message = post(3000);
    talk.send(Client, &message[..1000])
        .after(40 * MS)
        .ack(Server)
        .after(20_000)
        .send(Client, &message[1000..]);
    assert_eq!(talk.kinds(), [StallKind::DelayedAck]);
}

#[test]
fn attributes_a_full_window_to_the_receiver() {
    let mut talk = Talk::begin();
    let message = post(3000);
    talk.window = 500;
    talk.ack(Server).send(Client, &message[..1000]);
    talk.window = 0;
    talk.ack(Server).after(60 * MS);
    talk.window = 500;
    talk.ack(Server).after(20_000).send(Client, &message[1000..2000]);
    assert_eq!(talk.kinds(), [StallKind::WindowFull]);
    let facts = talk.end().facts[0];
    assert_eq!((facts.client_conduct.window_waits, facts.client_conduct.mss_bytes), (1, 1000));
}

#[test]
fn recognises_corked_data_sent_by_a_timer() {
    let mut talk = Talk::begin();
    let message = post(50);
    let (head, body) = message.split_at(message.len() - 50);
    talk.send(Client, head).after(40 * MS).ack(Server).after(168 * MS).send(Client, body);
    // A whole response.
    talk.after(40 * MS).ack(Server).after(168 * MS).send(Server, OK);
    assert_eq!(talk.kinds(), [StallKind::CorkWithinMessage, StallKind::CorkedAnswer]);
    // A slow response is not corked.
    talk.send(Client, &message).after(300 * MS).send(Server, OK);
    assert_eq!(talk.kinds().len(), 2);
}

#[test]
fn distinguishes_retransmissions_from_copies_reordering_and_keep_alives() {
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).send(Server, OK).ack(Client);
    // A copy of the same packet, as in a capture on two interfaces.
    talk.send(Client, &post(10));
    let message = post(10);
    let again = talk.next[0] - message.len() as u32;
    talk.raw_again(Client, again, talk.next[1], Segment::ACK, &[], &message);
    talk.send(Server, OK);
    // A keep-alive: one byte that was acknowledged long ago.
    let [client, server] = talk.next;
    talk.ack(Client).after(7000 * MS).raw(Client, client - 1, server, Segment::ACK, &[], b"x");
    // Reordering: the second half comes first.
    let message = post(100);
    let (first, second) = message.split_at(60);
    let from = talk.next[0];
    talk.raw(Client, from + 60, talk.next[1], Segment::ACK, &[], second);
    talk.raw(Client, from, talk.next[1], Segment::ACK, &[], first);
    talk.next[0] += message.len() as u32;
    talk.send(Server, OK);
    assert!(talk.seen.stalls.is_empty(), "{:?}", talk.seen.stalls);
    // A real loss: retransmitted after a time-out.
    let message = post(10);
    talk.send(Client, &message).after(250 * MS).again(Client, &message).ack(Server).send(Server, OK);
    assert_eq!(talk.kinds(), [StallKind::Timeout]);
    let seen = talk.end();
    let facts = seen.facts[0];
    assert_eq!((facts.duplicates, facts.client_conduct.retransmitted), (1, 1));
    assert_eq!(seen.exchanges.len(), 4);
}

#[test]
fn a_large_segment_that_never_arrives_is_a_black_hole_and_a_lost_one_is_not() {
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).ack(Server).send(Server, OK).ack(Client);
    let message = post(5000);
    talk.send(Client, &message[..1000]);
    for wait in [200, 400, 800, 1600] {
        talk.after(wait * MS).again(Client, &message[..1000]);
    }
    let seen = talk.end();
    assert_eq!(seen.stalls.iter().map(|s| s.kind).collect::<Vec<_>>(), [StallKind::BlackHole]);
    assert!((2990 * MS..3010 * MS).contains(&seen.stalls[0].wait_ns), "{:?}", seen.stalls);
    // As often, and it arrived at last: an outage.
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).ack(Server).send(Server, OK).ack(Client);
    talk.send(Client, &message[..1000]);
    for wait in [200, 400, 800] {
        talk.after(wait * MS).again(Client, &message[..1000]);
    }
    talk.ack(Server);
    assert_eq!(talk.kinds(), [StallKind::Timeout]);
}

#[test]
fn ports_that_are_used_again_are_two_connections() {
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).send(Server, OK);
    talk.next = [5_000_000, 7_000_000];
    talk.raw(Client, 4_999_999, 0, Segment::SYN, &[], b"");
    talk.raw(Server, 6_999_999, 5_000_000, Segment::SYN | Segment::ACK, &[], b"");
    talk.ack(Client).send(Client, &post(10)).send(Server, OK);
    let seen = talk.end();
    assert_eq!((seen.exchanges.len(), seen.facts.len()), (2, 2));
    assert_eq!(seen.exchanges.iter().map(|e| e.op.connection).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_time_in_flight_is_that_of_all_exchanges() {
    let mut talk = Talk::begin();
    let began_ns = 1000 * MS + 1000;
    // Two requests, the second 5 ms after the first; responses 20 ms and 30 ms later. Each packet takes 1 us.
    talk.send(Client, &post(10));
    let first_ns = talk.ns;
    talk.after(5 * MS).send(Client, &post(10));
    let second_ns = talk.ns;
    talk.after(20 * MS).send(Server, OK);
    let first_ended_ns = talk.ns;
    talk.after(30 * MS).send(Server, OK);
    let second_ended_ns = talk.ns;
    // An idle connection has nothing in flight.
    talk.after(500 * MS).ack(Client);
    let ended_ns = talk.ns;
    let facts = talk.end().facts[0];
    assert_eq!(
        facts.in_flight_ns,
        u128::from(first_ended_ns - first_ns) + u128::from(second_ended_ns - second_ns)
    );
    assert_eq!((facts.began_ns, facts.ended_ns, facts.exchanges), (began_ns, ended_ns, 2));
    assert_eq!(facts.handshake_ns, Some((1000, 1000)));
    assert_eq!(facts.packets, 8);
}

#[test]
fn the_shortest_acknowledgement_is_kept() {
    let mut talk = Talk::begin();
    for ms in [9, 3, 7] {
        talk.send(Client, &post(10))
            .after(ms * MS)
            .ack(Server)
            .send(Server, OK)
            .after(2 * ms * MS)
            .ack(Client);
    }
    let facts = talk.end().facts[0];
    // Each packet takes 1 us.
    assert_eq!(
        facts.client_conduct.ack_min_ns,
        3 * MS + 1000,
        "the client's data, acknowledged by the server"
    );
    assert_eq!(facts.server_conduct.ack_min_ns, 6 * MS + 1000);
}

#[test]
fn segments_in_another_order_are_counted() {
    let mut talk = Talk::begin();
    let message = post(3000);
    let seq = talk.next[0];
    let pieces = [(0, 1000), (2000, message.len()), (1000, 2000)];
    for (from, to) in pieces {
        talk.raw(Client, seq + from as u32, talk.next[1], Segment::ACK, &[], &message[from..to]);
    }
    let seen = talk.end();
    assert_eq!((seen.counted[0].out_of_order, seen.counted[0].retransmitted), (1, 0));
}

#[test]
fn frames_are_counted_by_kind() {
    let mut talk = Talk::begin();
    let of = |talk: &Talk| talk.vantage.counters;
    let expected = FrameCounters { frames: 3, packets: 3, bytes: 48 + 48 + 40, ..FrameCounters::default() };
    assert_eq!(of(&talk), expected, "the handshake");
    // 5 ms before the newest.
    talk.ns -= 5 * MS;
    talk.ack(Client);
    let expected = FrameCounters { frames: 4, packets: 4, bytes: 176, backwards: 1, ..expected };
    assert_eq!(of(&talk), expected);
    talk.ns += 5 * MS;
    for reason in [NotTcp::Other, NotTcp::Fragment, NotTcp::Fragment, NotTcp::Truncated, NotTcp::TooBig] {
        talk.vantage.not_tcp(reason, Link::Raw, &[]);
    }
    let expected = FrameCounters { frames: 9, other: 5, fragments: 2, truncated: 1, too_big: 1, ..expected };
    assert_eq!(of(&talk), expected);
    // 10,000 bytes, of which 1000 were captured.
    let end = |address: u128, port| Endpoint { address, port };
    let payload = vec![0; 1000];
    let segment = Segment {
        source: end(1, 5000),
        destination: end(2, 80),
        seq: 1,
        ack: 1,
        flags: Segment::ACK,
        window: 9,
        options: &[],
        ip_id: 0,
        ttl: 64,
        payload: &payload,
        payload_bytes: 10_000,
        tag: crate::encapsulation::Tag::NONE,
    };
    let at = At { ns: talk.ns, frame: 99 };
    talk.vantage.segment(&segment, at, 10_040, &mut talk.seen);
    let expected = FrameCounters {
        frames: 10,
        packets: 5,
        bytes: expected.bytes + 10_040,
        cut: 1,
        super_packets: 1,
        ..expected
    };
    assert_eq!(of(&talk), expected);
}

/// A server's capture sees its response, and that it was lost only by the retransmission.
#[test]
fn a_response_that_is_sent_again_ends_with_the_retransmission() {
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).after(MS).send(Server, OK).after(220 * MS).again(Server, OK);
    assert!(talk.seen.exchanges.is_empty(), "not acknowledged");
    talk.after(MS).ack(Client);
    let exchange = talk.seen.exchanges[0];
    assert_eq!(exchange.repaired_ns, 220 * MS + 1000);
    assert_eq!(exchange.stalls.wait_ns(StallKind::Timeout), 220 * MS + 1000);
    assert_eq!(talk.kinds(), [StallKind::Timeout]);
    let facts = talk.end().facts[0];
    assert_eq!((facts.server_conduct.retransmitted, facts.server_conduct.timeouts), (1, 1));
}

/// Duplicate acknowledgements and what follows them at once are no time-out, however long the segment was outstanding.
#[test]
fn a_retransmission_that_an_acknowledgement_triggered_is_no_time_out() {
    let mut talk = Talk::begin();
    let message = post(3000);
    let seq = talk.next[0];
    for (from, to) in [(0, 1000), (1000, 2000), (2000, message.len())] {
        talk.raw(Client, seq + from as u32, talk.next[1], Segment::ACK, &[], &message[from..to]);
    }
    talk.next[0] = seq;
    talk.after(300 * MS).ack(Server);
    talk.ack(Server).ack(Server);
    talk.raw(Client, seq, talk.next[1], Segment::ACK, &[], &message[..1000]);
    talk.next[0] = seq + message.len() as u32;
    assert_eq!(talk.kinds(), [StallKind::FastRetransmit]);
    talk.ack(Server).send(Server, OK).ack(Client);
    let facts = talk.end().facts[0];
    assert_eq!((facts.client_conduct.retransmitted, facts.client_conduct.timeouts), (1, 0));
}

/// What leaves after the retransmission was acknowledged waited behind the loss: not for Nagle's algorithm, and not for a cork.
#[test]
fn data_behind_a_lost_segment_waits_for_the_loss() {
    let mut talk = Talk::begin();
    let message = post(50);
    let (head, body) = message.split_at(message.len() - 50);
    talk.send(Client, head).after(210 * MS).again(Client, head).after(40 * MS).ack(Server);
    talk.after(20_000).send(Client, body).send(Server, OK).ack(Client);
    assert_eq!(talk.kinds(), [StallKind::Timeout]);
    let stalls = talk.seen.exchanges[0].stalls;
    for kind in StallKind::ALL {
        let is_loss = matches!(kind, StallKind::Timeout | StallKind::BehindLoss);
        assert_eq!(stalls.contains(kind), is_loss, "{kind:?}: {stalls:?}");
    }
    assert!((210 * MS..252 * MS).contains(&stalls.wait_ns(StallKind::Timeout)));
}

/// At the far end a response whose first copy was lost looks like one that a cork held. The sender's numbers tell.
#[test]
fn a_lost_response_is_no_cork_where_packets_are_counted() {
    for lost in [0, 1] {
        let mut talk = Talk::begin();
        for _ in 0..20 {
            talk.send_counted(Client, &post(10), 0);
            talk.send_counted(Server, OK, 0);
        }
        talk.send_counted(Client, &post(10), 0);
        talk.after(40 * MS);
        if lost == 0 {
            // The delayed ACK of the request, which the lost response would have carried.
            talk.send_counted(Server, b"", 0);
        }
        talk.after(168 * MS);
        talk.send_counted(Server, OK, lost);
        let expected = if lost == 0 { StallKind::CorkedAnswer } else { StallKind::Timeout };
        assert_eq!(talk.kinds(), [expected], "{lost}");
        let facts = talk.end().facts[0];
        assert_eq!(facts.server_conduct.timeouts, u64::from(lost));
    }
}
