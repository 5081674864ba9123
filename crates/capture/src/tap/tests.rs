use iscsi::pdu::{DataIn, ScsiCommand};
use proptest::prelude::*;
use record::Stamp;

use super::*;
use crate::packet::Segment;
use crate::packet::build::frame;
use crate::stream::{Missing, MissingReason};
use crate::vantage::CONNECTIONS_MAX;

fn command(tag: u32) -> Vec<u8> {
    let mut command =
        ScsiCommand { read: true, is_final: true, tag, expected_bytes: 512, ..ScsiCommand::default() };
    command.cdb[0] = 0x28;
    command.write().0.to_vec()
}

fn response(tag: u32) -> Vec<u8> {
    let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
    bhs.set_data_bytes(512);
    [bhs.0.as_slice(), &[0x55; 512]].concat()
}

/// Both copies of a packet, as loopback shows them: out at `ns`, in 5 ns later.
fn both(taps: &mut [Tap; 2], ns: u64, frame: &[u8]) {
    for (outgoing, ns) in [(true, ns), (false, ns + 5)] {
        let packet = Packet { time_ns: ns, outgoing, data: frame, wire_bytes: frame.len() as u32 };
        taps.iter_mut().for_each(|tap| tap.packet(&packet));
    }
}

#[test]
fn two_taps_on_loopback_see_all_four_points() {
    let mut taps = [Tap::new(Side::Client, 3260, 9000, 10), Tap::new(Side::Server, 3260, 9000, 10)];
    both(&mut taps, 1, &frame(true, 5000, 3260, 99, Segment::SYN, b""));
    both(&mut taps, 2, &frame(false, 5000, 3260, 899, Segment::SYN | 0x10, b""));
    both(&mut taps, 100, &frame(true, 5000, 3260, 100, 0x10, &[command(1), command(2)].concat()));
    both(&mut taps, 200, &frame(false, 5000, 3260, 900, 0x10, &response(2)));
    both(&mut taps, 300, &frame(false, 5000, 3260, 1460, 0x10, &response(1)));
    let [client, server] = taps.map(Tap::finish);
    assert_eq!(
        client.ops.iter().map(|op| (op.connection, op.tag, op.c1, op.c2)).collect::<Vec<_>>(),
        [(5000, 2, Stamp::at(100), Stamp::at(205)), (5000, 1, Stamp::at(100), Stamp::at(305)),]
    );
    assert_eq!(
        server.ops.iter().map(|op| (op.connection, op.tag, op.s1, op.s2)).collect::<Vec<_>>(),
        [(5000, 2, Stamp::at(105), Stamp::at(200)), (5000, 1, Stamp::at(105), Stamp::at(300)),]
    );
    assert_eq!((client.counters.holes, client.counters.unmatched, client.counters.packets), (0, 0, 5));
}

#[test]
fn lost_packet_is_a_hole_and_following_continues() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10);
    let mut show = |ns, outgoing, frame: &[u8]| {
        tap.packet(&Packet { time_ns: ns, outgoing, data: frame, wire_bytes: frame.len() as u32 });
    };
    show(1, true, &frame(true, 5000, 3260, 99, Segment::SYN, b""));
    show(2, false, &frame(false, 5000, 3260, 899, Segment::SYN | 0x10, b""));
    show(3, true, &frame(true, 5000, 3260, 100, 0x10, &[command(1), command(2), command(3)].concat()));
    // The response to 1 (900 to 1460) was lost by the capture.
    show(5, false, &frame(false, 5000, 3260, 1460, 0x10, &response(2)));
    // The client acknowledges past it (the builder acknowledges 0, so the test does it).
    let mut ack = frame(true, 5000, 3260, 244, 0x10, b"");
    ack[14 + 20 + 8..14 + 20 + 12].copy_from_slice(&2020_u32.to_be_bytes());
    show(6, true, &ack);
    show(7, false, &frame(false, 5000, 3260, 2020, 0x10, &response(3)));
    let TapReport { ops, counters, holes } = tap.finish();
    assert_eq!(ops.iter().map(|op| op.tag).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((counters.holes, counters.hole_bytes), (1, 560));
    // The response to 1 may be in the hole: it is not missing.
    assert_eq!((counters.unanswered, counters.abandoned), (0, 1));
    let missing =
        Missing { offset: 0, bytes: 560, time_ns: 5, within_ns: 5, reason: MissingReason::Acknowledged };
    assert_eq!(holes, [StreamHole { connection: 5000, flow: Flow::Responses, missing }]);
}

#[test]
fn ended_connections_make_room_for_new_ones() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10_000);
    for port in 4000..10_000 {
        let mut show = |outgoing, seq, flags, payload: &[u8]| {
            let frame = frame(outgoing, port, 3260, seq, flags, payload);
            let wire_bytes = frame.len() as u32;
            tap.packet(&Packet { time_ns: port.into(), outgoing, data: &frame, wire_bytes });
        };
        show(true, 99, Segment::SYN, b"");
        show(false, 899, Segment::SYN | Segment::ACK, b"");
        show(true, 100, Segment::ACK, &command(1));
        show(false, 900, Segment::ACK | Segment::FIN, &response(1));
        show(true, 148, Segment::ACK | Segment::FIN, b"");
    }
    assert!(tap.vantage.client_ports().len() <= CONNECTIONS_MAX);
    let report = tap.finish();
    assert_eq!((report.ops.len(), report.counters.evicted), (6000, 0));
}

#[test]
fn drops_the_least_recently_used_of_too_many_open_connections() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10);
    for port in 0..CONNECTIONS_MAX as u16 + 3 {
        let frame = frame(true, 10_000 + port, 3260, 99, Segment::SYN, b"");
        tap.packet(&Packet { time_ns: 1 + u64::from(port), outgoing: true, data: &frame, wire_bytes: 66 });
    }
    assert_eq!(tap.vantage.client_ports().len(), CONNECTIONS_MAX);
    assert!(tap.vantage.client_ports().iter().all(|&port| port >= 10_003));
    assert_eq!(tap.finish().counters.evicted, 3);
}

#[test]
fn a_time_stamp_in_the_future_keeps_no_connection_from_eviction() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10);
    for port in 0..CONNECTIONS_MAX as u16 + 1 {
        let frame = frame(true, 10_000 + port, 3260, 99, Segment::SYN, b"");
        let time_ns = u64::from(u16::MAX - port);
        tap.packet(&Packet { time_ns, outgoing: true, data: &frame, wire_bytes: 66 });
    }
    assert!(tap.vantage.client_ports().iter().all(|&port| port > 10_000), "the first is the oldest");
    assert_eq!(tap.finish().counters.evicted, 1);
}

#[test]
fn connections_that_end_one_by_one_among_open_ones_are_retired_first() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10);
    let mut show = |port, flags| {
        let frame = frame(true, port, 3260, 99, flags, b"");
        tap.packet(&Packet { time_ns: 1, outgoing: true, data: &frame, wire_bytes: 66 });
    };
    (0..CONNECTIONS_MAX as u16 - 1).for_each(|port| show(10_000 + port, Segment::SYN));
    for port in 20_000..21_000 {
        show(port, Segment::SYN);
        show(port, Segment::RST);
    }
    assert_eq!(tap.vantage.client_ports().len(), CONNECTIONS_MAX);
    assert_eq!(tap.finish().counters.evicted, 0);
}

#[test]
fn a_port_used_again_is_a_new_connection_also_when_its_syn_is_sent_twice() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 10);
    let mut show = |outgoing, seq, flags, payload: &[u8]| {
        let frame = frame(outgoing, 5000, 3260, seq, flags, payload);
        tap.packet(&Packet { time_ns: 7, outgoing, data: &frame, wire_bytes: frame.len() as u32 });
    };
    for (request, response) in [(99, 899), (5_000_099, 7_000_899)] {
        show(true, request, Segment::SYN, b"");
        show(true, request, Segment::SYN, b"");
        show(false, response, Segment::SYN | Segment::ACK, b"");
        show(true, request + 1, Segment::ACK, &command(1));
        show(false, response, Segment::SYN | Segment::ACK, b"");
        show(false, response + 1, Segment::ACK, &self::response(1));
    }
    let report = tap.finish();
    assert_eq!(report.ops.len(), 2);
    assert_eq!((report.counters.holes, report.counters.skipped_bytes, report.counters.abandoned), (0, 0, 0));
    assert_eq!(report.counters.retransmitted, 4);
}

#[test]
fn keeps_operations_up_to_the_limit_and_counts_the_rest() {
    let mut tap = Tap::new(Side::Client, 3260, 9000, 2);
    let commands: Vec<u8> = (0..5).flat_map(command).collect();
    let responses: Vec<u8> = (0..5).flat_map(response).collect();
    for (outgoing, seq, payload) in [(true, 100, commands), (false, 900, responses)] {
        let frame = frame(outgoing, 5000, 3260, seq, Segment::ACK, &payload);
        tap.packet(&Packet { time_ns: 7, outgoing, data: &frame, wire_bytes: frame.len() as u32 });
    }
    let report = tap.finish();
    assert_eq!((report.ops.len(), report.counters.over_limit), (2, 3));
}

proptest! {
    /// However the PDUs are cut into segments, and in whatever order and however often these come, the
    /// operations are the same.
    #[test]
    fn cuts_order_and_repetition_do_not_change_the_operations(
        count in 1_u32..40, starts: (u32, u32), cuts in prop::collection::vec(1_usize..1400, 1..30),
        moves in prop::collection::vec((0_usize..200, 0_usize..5), 0..40),
    ) {
        let requests: Vec<u8> = (0..count).flat_map(command).collect();
        let responses: Vec<u8> = (0..count).rev().flat_map(response).collect();
        let mut tap = Tap::new(Side::Client, 3260, 9000, 1000);
        let mut show = |outgoing, seq: u32, flags, payload: &[u8]| {
            let frame = frame(outgoing, 5000, 3260, seq, flags, payload);
            tap.packet(&Packet { time_ns: 7, outgoing, data: &frame, wire_bytes: frame.len() as u32 });
        };
        for (outgoing, start, stream) in [(true, starts.0, &requests), (false, starts.1, &responses)] {
            show(outgoing, start, Segment::SYN, b"");
            let (mut segments, mut at, mut cut) = (Vec::new(), 0, cuts.iter().cycle());
            while at < stream.len() {
                let end = stream.len().min(at + cut.next().unwrap());
                segments.push(at..end);
                at = end;
            }
            for &(from, by) in &moves {
                let from = from % segments.len();
                let to = (from + by).min(segments.len() - 1);
                segments.swap(from, to);
                segments.push(segments[from].clone());
            }
            for segment in segments {
                // No acknowledgements: a segment that is late here is not lost.
                show(outgoing, start.wrapping_add(1 + segment.start as u32), 0, &stream[segment]);
            }
        }
        let report = tap.finish();
        prop_assert_eq!(report.ops.iter().map(|s| s.tag).collect::<Vec<_>>(), (0..count).rev().collect::<Vec<_>>());
        prop_assert!(report.ops.iter().all(|s| s.request_bytes == 48 && s.response_bytes == 560));
        let c = report.counters;
        prop_assert_eq!((c.holes, c.skipped_bytes, c.unmatched, c.abandoned), (0, 0, 0, 0));
    }

    #[test]
    fn no_packets_can_panic(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<bool>(), any::<u32>(), any::<u8>(), any::<bool>()), 0..60)
    ) {
        let mut tap = Tap::new(Side::Client, 3260, 9000, 5);
        for (payload, outgoing, seq, flags, is_raw) in packets {
            let frame = if is_raw { payload } else { frame(outgoing, 5000, 3260, seq, flags, &payload) };
            tap.packet(&Packet { time_ns: 1, outgoing, data: &frame, wire_bytes: seq });
        }
        let _ = tap.finish();
    }
}
