//! Data that is sent again: vanishing large segments, repetitions for nothing, and counts that show no loss.

use super::*;

/// A request in segments of 200 and 1000 bytes, sent at once; the small one arrives.
fn small_then_large(talk: &mut Talk) -> Vec<u8> {
    let message = post(5000);
    let [seq, ack] = talk.next;
    talk.send(Client, &message[..200]).send(Client, &message[200..1200]);
    talk.raw(Server, ack, seq + 200, Segment::ACK, &[], b"");
    message
}

#[test]
fn a_black_hole_is_known_where_small_and_large_segments_leave_together() {
    let mut talk = Talk::begin();
    let message = small_then_large(&mut talk);
    for wait in [200, 400, 800, 1600] {
        talk.after(wait * MS).again(Client, &message[200..1200]);
    }
    assert_eq!(talk.end().stalls.iter().map(|s| s.kind).collect::<Vec<_>>(), [StallKind::BlackHole]);
}

/// Whether the path passes nothing or no large segments, other connections tell.
#[test]
fn a_large_segment_of_a_sender_whose_data_never_arrives_has_vanished() {
    for (bytes, vanished) in [(1000, 1), (300, 0)] {
        let mut talk = Talk::begin();
        talk.send(Client, &post(10)).ack(Server);
        let mut message = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec();
        message.resize(5000, b'x');
        talk.send(Server, &message[..bytes]);
        for wait in [200, 400, 800, 1600] {
            talk.after(wait * MS).again(Server, &message[..bytes]);
        }
        let seen = talk.end();
        let is_hole = seen.stalls.iter().any(|stall| stall.kind == StallKind::BlackHole);
        let conduct = seen.facts[0].server_conduct;
        assert_eq!((is_hole, conduct.vanished, conduct.arrived_max_bytes), (vanished > 0, vanished, 0));
    }
    // Some data arrives: that is no question.
    let mut talk = Talk::begin();
    let message = small_then_large(&mut talk);
    for wait in [200, 400, 800, 1600] {
        talk.after(wait * MS).again(Client, &message[200..1200]);
    }
    assert_eq!(talk.end().facts[0].client_conduct.vanished, 0);
}

/// A segment that is overtaken on a path of 40 ms makes its sender send it again; the acknowledgement of the original comes
/// 2 ms later, that of a lost one a round trip later.
#[test]
fn an_acknowledgement_that_comes_too_soon_is_of_the_original() {
    for (after_ms, spurious) in [(2, 1), (41, 0)] {
        let mut talk = Talk::begin_at(40 * MS, 0);
        let message = post(2500);
        let [seq, ack] = talk.next;
        for piece in message.chunks(1000) {
            talk.send(Client, piece);
        }
        talk.after(40 * MS);
        for _ in 0..3 {
            talk.raw(Server, ack, seq, Segment::ACK, &[], b"");
        }
        talk.raw(Client, seq, ack, Segment::ACK, &[], &message[..1000]);
        talk.after(after_ms * MS).ack(Server).send(Server, OK);
        let conduct = talk.end().facts[0].client_conduct;
        assert_eq!((conduct.retransmitted, conduct.spurious), (1, spurious), "{after_ms} ms");
    }
}

/// Packets that a sender counts and that did not pass were lost on the path only if their data comes again: another
/// connection of a Windows host has taken the numbers, or the capture lost packets whose data does not come again.
#[test]
fn a_count_that_skips_is_a_time_out_only_where_data_comes_again() {
    for (ttl, missing, timeouts) in [(64, 0, 1), (128, 0, 0), (64, OK.len() as u32, 0)] {
        let mut talk = Talk::begin();
        talk.ttl = ttl;
        for _ in 0..20 {
            talk.send_counted(Client, &post(10), 0);
            talk.send_counted(Server, OK, 0);
        }
        talk.send_counted(Client, &post(10), 0);
        talk.after(240 * MS);
        talk.next[1] += missing;
        talk.send_counted(Server, OK, 1);
        let conduct = talk.end().facts[0].server_conduct;
        assert_eq!((conduct.timeouts, conduct.retransmitted), (timeouts, timeouts), "{ttl} {missing}");
    }
}

/// What leaves beside the sender cannot vanish before the capture point, and a capture that lost packets may have lost this one,
/// too.
#[test]
fn a_count_that_skips_at_the_sender_or_behind_a_hole_is_no_time_out() {
    // Round trips from the point to the client and to the server, microseconds.
    for (to_client_us, to_server_us, hole, timeouts) in
        [(50, 20_000, false, 1), (5000, 5000, false, 1), (20_000, 50, false, 0), (50, 20_000, true, 0)]
    {
        let mut talk = Talk::begin_at(to_server_us * 1000, to_client_us * 1000);
        for round in 0..20 {
            talk.after(MS);
            talk.send_counted(Client, &post(10), 0);
            talk.after(to_server_us * 1000);
            if hole && round == 10 {
                talk.next[1] += OK.len() as u32;
                talk.ack(Client);
            } else {
                talk.send_counted(Server, OK, 0);
                talk.after(to_client_us * 1000).ack(Client);
            }
        }
        talk.send_counted(Client, &post(10), 0);
        talk.after(340 * MS);
        talk.send_counted(Server, OK, 1);
        let conduct = talk.end().facts[0].server_conduct;
        assert_eq!(conduct.timeouts, timeouts, "{to_client_us} {to_server_us} {hole}");
    }
}

/// Only Linux counts the packets of each connection: what another system's numbers skip belongs to its other connections.
#[test]
fn packets_of_other_systems_than_linux_are_not_counted_against_traffic() {
    for (ttl, is_counted) in [(64, true), (128, false), (255, false)] {
        let mut talk = Talk::begin_at(20 * MS, 50_000);
        talk.ttl = ttl;
        for turn in 0..60 {
            talk.after(50 * MS);
            talk.send_counted(Client, &post(10), u16::from(turn % 8 == 0));
            talk.send_counted(Server, OK, 0);
        }
        let [quiet, busy] = talk.end().facts[0].client_conduct.crossing;
        assert_eq!(quiet.sent + busy.sent > 0, is_counted, "{ttl}: {quiet:?} {busy:?}");
    }
}
