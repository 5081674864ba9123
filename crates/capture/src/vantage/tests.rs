use super::*;
use crate::observer::seen::Seen;

/// A capture of two ends that speak in turn.
struct Wire {
    vantage: Vantage,
    seen: Seen,
    ends: [Endpoint; 2],
    next: [u32; 2],
    ns: u64,
}

const SYN: u8 = Segment::SYN;
const ACK: u8 = Segment::ACK;
const FIN: u8 = Segment::FIN;
const RST: u8 = Segment::RST;

impl Wire {
    fn new(ports: [u16; 2]) -> Self {
        let ends = [Endpoint { address: 1, port: ports[0] }, Endpoint { address: 2, port: ports[1] }];
        let vantage = Vantage::new(Selection::default());
        Self { vantage, seen: Seen::default(), ends, next: [1000, 5_000_000], ns: 1_000_000_000 }
    }

    /// One segment of an end, a millisecond after the one before.
    fn send(&mut self, who: usize, flags: u8, payload: &[u8]) {
        self.ns += 1_000_000;
        let segment = Segment {
            tag: crate::encapsulation::Tag::NONE,
            source: self.ends[who],
            destination: self.ends[1 - who],
            seq: self.next[who],
            ack: self.next[1 - who],
            flags,
            window: 1000,
            options: &[],
            ip_id: 0,
            ttl: 64,
            payload,
            payload_bytes: payload.len(),
        };
        let at = At { ns: self.ns, frame: self.ns / 1_000_000 };
        self.vantage.segment(&segment, at, 66 + payload.len() as u32, &mut self.seen);
        let taken = u32::from(flags & (SYN | FIN) != 0);
        self.next[who] = self.next[who].wrapping_add(payload.len() as u32 + taken);
    }

    fn open(&mut self) {
        self.send(0, SYN, b"");
        self.send(1, SYN | ACK, b"");
        self.send(0, ACK, b"");
    }

    fn talk(&mut self, times: usize) {
        for _ in 0..times {
            self.send(0, ACK, b"question");
            self.send(1, ACK, b"answer");
        }
    }

    fn end(self) -> (Seen, FrameCounters) {
        let Self { vantage, mut seen, .. } = self;
        let counters = vantage.finish(&mut seen);
        (seen, counters)
    }
}

#[test]
fn reused_ports_without_a_syn_are_a_new_connection_and_no_hole() {
    for ending in [0, RST, FIN] {
        let mut wire = Wire::new([40_000, 21]);
        wire.open();
        wire.talk(5);
        if ending != 0 {
            wire.send(0, ending | ACK, b"");
            wire.send(1, ending | ACK, b"");
        }
        wire.next = [3_000_000_000, 900_000_000];
        wire.talk(5);
        let (seen, counters) = wire.end();
        assert_eq!((seen.facts.len(), seen.holes.len(), counters.strays), (2, 0, 0), "{ending}");
        assert_eq!(seen.exchanges.len(), 10, "{ending}");
        let numbers: Vec<u32> = seen.facts.iter().map(|facts| facts.connection).collect();
        assert_eq!(numbers, [0, 1]);
    }
}

/// What a server has spoken on one connection is expected on the others, before and after: there, less is a proof.
#[test]
fn what_a_server_has_spoken_is_expected_on_other_connections() {
    for has_proof in [true, false] {
        let mut wire = Wire::new([40_000, 7411]);
        let first = wire.ends[0];
        // Nothing on it shows memcached before the other one does.
        wire.ends[0].port = 40_001;
        wire.open();
        wire.send(0, ACK, b"delete a\r\n");
        wire.send(1, ACK, b"DELETED\r\n");
        let (other, others) = (wire.ends[0], wire.next);
        wire.ends[0] = first;
        wire.next = [7000, 9000];
        wire.open();
        for _ in 0..20 {
            let (asked, answer): (&[u8], &[u8]) =
                if has_proof { (b"set a 0 0 1\r\nb\r\n", b"STORED\r\n") } else { (b"put a\r\n", b"OK\r\n") };
            wire.send(0, ACK, asked);
            wire.send(1, ACK, answer);
        }
        for (ends, next) in [(other, others), (Endpoint { port: 40_002, ..first }, [1, 2])] {
            wire.ends[0] = ends;
            wire.next = next;
            if ends != other {
                wire.open();
            }
            wire.send(0, ACK, b"delete a\r\nincr b 1\r\n");
            wire.send(1, ACK, b"NOT_FOUND\r\nNOT_FOUND\r\n");
        }
        let (seen, _) = wire.end();
        let names: Vec<String> = seen.exchanges.iter().map(|e| e.op.verb.name()).collect();
        let decoded = names.iter().filter(|name| matches!(name.as_str(), "delete" | "incr")).count();
        assert_eq!(decoded, if has_proof { 4 } else { 0 }, "{names:?}");
    }
}

/// A request that is captured behind its answer is left out; it shifts nothing, and nothing was lost on the path.
#[test]
fn a_request_that_is_captured_behind_its_answer_is_left_out() {
    let all: [(u16, &[u8], &[u8]); 3] = [
        (80, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (6379, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"$-1\r\n"),
        (11211, b"get a\r\n", b"END\r\n"),
    ];
    for (port, asked, answer) in all {
        let mut wire = Wire::new([40_000, port]);
        wire.open();
        for number in 0..40 {
            wire.ns += 1_000_000_000;
            if number == 10 || number == 25 {
                let before = wire.next;
                wire.next[0] += asked.len() as u32;
                wire.send(1, ACK, answer);
                let behind = wire.next;
                wire.next = before;
                wire.send(0, ACK, asked);
                wire.next = behind;
            } else {
                wire.send(0, ACK, asked);
                wire.send(1, ACK, answer);
            }
            wire.send(0, ACK, b"");
        }
        let (seen, _) = wire.end();
        assert_eq!(seen.exchanges.len(), 38, "{port}");
        for exchange in &seen.exchanges {
            let whole = exchange.read_ns().zip(exchange.request.began.ns()).map(|(end, began)| end - began);
            assert!(whole < Some(10_000_000) && exchange.held_ns == 0, "{port}: {whole:?}");
            assert!(exchange.stalls.is_empty(), "{port}: {:?}", exchange.stalls);
        }
    }
}

#[test]
fn a_single_segment_from_elsewhere_in_sequence_space_changes_nothing() {
    let mut wire = Wire::new([40_000, 21]);
    wire.open();
    for _ in 0..5 {
        wire.talk(1);
        let next = wire.next;
        wire.next = [next[0].wrapping_add(2_000_000_000), next[1].wrapping_sub(1_000_000_000)];
        wire.send(1, ACK, b"forged");
        wire.next = next;
    }
    let (seen, counters) = wire.end();
    assert_eq!((seen.facts.len(), seen.holes.len(), counters.strays), (1, 0, 5));
    assert_eq!(seen.exchanges.len(), 5);
    assert!(seen.exchanges.iter().all(|e| e.op.response_bytes == 6));
}

#[test]
fn data_of_a_reset_is_none_of_the_stream() {
    let mut wire = Wire::new([40_000, 21]);
    wire.open();
    wire.talk(1);
    wire.send(0, ACK, b"question");
    wire.next[1] = wire.next[1].wrapping_add(50_000);
    wire.send(1, RST | ACK, b"go away");
    let (seen, _) = wire.end();
    assert_eq!((seen.holes.len(), seen.exchanges.len()), (0, 1));
    assert!(seen.facts[0].has_ended);
}

#[test]
fn what_its_client_gave_up_is_no_exchange_of_the_connection() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    // The client closes its side, gets an answer after that, and resets.
    let mut wire = Wire::new([40_000, 80]);
    wire.open();
    for _ in 0..2 {
        wire.send(0, ACK, GET);
        wire.send(1, ACK, OK);
    }
    wire.send(0, FIN | ACK, GET);
    wire.send(1, ACK, OK);
    wire.send(0, RST, b"");
    let (seen, _) = wire.end();
    assert_eq!((seen.exchanges.len(), seen.unanswered.len()), (2, 1));
    assert_eq!((seen.facts[0].exchanges, seen.counted[0].unanswered), (2, 1));
}

#[test]
fn a_hole_behind_which_the_other_side_goes_on_is_a_hole() {
    // The capture stopped for a second in a download: 125 MB.
    let mut wire = Wire::new([40_000, 80]);
    wire.open();
    wire.talk(3);
    wire.send(0, ACK, b"question");
    wire.send(1, ACK, &[7; 1448]);
    wire.ns += 1_000_000_000;
    wire.next[1] = wire.next[1].wrapping_add(125_000_000);
    wire.send(1, ACK, &[7; 1448]);
    wire.send(0, ACK, b"");
    wire.talk(3);
    let (seen, counters) = wire.end();
    assert_eq!((seen.facts.len(), counters.strays), (1, 0));
    let missing: Vec<(u64, u64)> =
        seen.holes.iter().map(|h| (h.missing.bytes, h.missing.within_ns / 1_000_000)).collect();
    assert_eq!(missing, [(125_000_000, 1001)]);
}

#[test]
fn holes_in_both_directions_that_the_rate_explains_are_holes() {
    let mut wire = Wire::new([40_000, 9999]);
    wire.open();
    for _ in 0..100 {
        wire.send(0, ACK, &[1; 60_000]);
        wire.send(1, ACK, &[2; 60_000]);
    }
    // A second of the same: 30 MB each way, and twice that.
    wire.ns += 1_000_000_000;
    wire.next = wire.next.map(|next| next.wrapping_add(60_000_000));
    wire.send(0, ACK, &[1; 60_000]);
    wire.send(1, ACK, &[2; 60_000]);
    wire.send(0, ACK, &[1; 60_000]);
    let (seen, counters) = wire.end();
    assert_eq!((seen.facts.len(), seen.holes.len(), counters.strays), (1, 2, 0));
}

#[test]
fn roles_are_corrected_by_what_comes_later_and_no_segment_is_lost() {
    // In the middle of the connections of a database on the higher port: the client thinks for 50 ms.
    let mut wire = Wire::new([40_000, 50_000]);
    for _ in 0..20 {
        wire.ns += 50_000_000;
        wire.talk(1);
    }
    let (seen, _) = wire.end();
    assert_eq!(seen.facts[0].server.port(), 50_000);
    assert_eq!((seen.exchanges.len(), seen.facts[0].packets), (20, 40));
    assert!(seen.exchanges.iter().all(|e| e.op.request_bytes == 8 && e.op.response_bytes == 6));
    // Too few segments for a decision are delivered at the end all the same.
    let mut wire = Wire::new([40_000, 50_000]);
    wire.talk(1);
    let (seen, _) = wire.end();
    assert_eq!((seen.facts[0].server.port(), seen.facts[0].packets), (50_000, 2));
}

#[test]
fn a_syn_on_the_ports_of_an_undecided_connection_begins_a_new_one() {
    let mut wire = Wire::new([40_000, 50_000]);
    wire.talk(1);
    wire.next = [77, 88];
    wire.open();
    wire.talk(2);
    let (seen, _) = wire.end();
    let servers: Vec<u16> = seen.facts.iter().map(|facts| facts.server.port()).collect();
    assert_eq!(servers, [50_000, 50_000]);
    assert_eq!(seen.exchanges.iter().filter(|e| e.op.connection == 1).count(), 2);
}

#[test]
fn early_segments_are_bounded_over_all_connections() {
    let mut wire = Wire::new([40_000, 50_000]);
    for port in 0..3000_u16 {
        wire.ends = [
            Endpoint { address: 1, port: 33_000 + port },
            Endpoint { address: 2 + u128::from(port), port: 45_000 + port },
        ];
        wire.send(0, ACK, &[0; 30_000]);
        assert!(wire.vantage.waiting_bytes <= WAITING_BYTES_MAX + 30_000);
    }
    assert_eq!(wire.end().0.facts.len(), 3000);
}
