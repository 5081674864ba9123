//! Late and released are relative to the path, and nothing is claimed where packets are missing.

use super::*;

fn parts() -> (Vec<u8>, Vec<u8>) {
    let message = post(50);
    let (head, body) = message.split_at(message.len() - 50);
    (head.to_vec(), body.to_vec())
}

/// Header and body apart, with the ACK and the release after these times.
fn apart(mut talk: Talk, ack_ms: u64, release_ns: u64) -> Vec<StallKind> {
    let (head, body) = parts();
    talk.send(Client, &head).after(ack_ms * MS).ack(Server).after(release_ns).send(Client, &body);
    talk.kinds()
}

#[test]
fn an_acknowledgement_after_a_long_round_trip_is_not_late() {
    let nagle = [StallKind::NagleHeaderThenBody];
    assert_eq!(apart(Talk::begin_at(220 * MS, 0), 220, 20_000), [StallKind::AckClocked]);
    assert_eq!(apart(Talk::begin_at(220 * MS, 0), 255, 20_000), [StallKind::AckClocked]);
    assert_eq!(apart(Talk::begin_at(220 * MS, 0), 420, 20_000), nagle);
    assert_eq!(apart(Talk::begin_at(20 * MS, 0), 60, 20_000), nagle);
}

#[test]
fn data_that_comes_sooner_than_the_sender_can_react_was_not_released() {
    let nagle = [StallKind::NagleHeaderThenBody];
    // The client is 220 ms away, and so is what it sends after the ACK.
    assert_eq!(apart(Talk::begin_at(0, 220 * MS), 40, 221 * MS), nagle);
    assert_eq!(apart(Talk::begin_at(0, 220 * MS), 40, 50 * MS), []);
    assert_eq!(apart(Talk::begin_at(0, 220 * MS), 40, 300 * MS), []);
}

#[test]
fn nothing_is_claimed_across_holes() {
    let (head, body) = parts();
    for lost in [0, 500] {
        let mut talk = Talk::begin();
        talk.send(Client, &head);
        // The capture lacks 500 bytes that the server has.
        talk.next[0] += lost;
        talk.after(40 * MS).ack(Server).after(20_000).send(Client, &body);
        assert_eq!(talk.kinds().len(), usize::from(lost == 0), "{lost}");
    }
    // It lacks the server's data.
    let mut talk = Talk::begin();
    talk.send(Client, &head).after(40 * MS).ack(Server).after(20_000);
    talk.next[1] += 100;
    talk.send(Client, &body);
    assert_eq!(talk.kinds(), []);
}

#[test]
fn a_gap_that_is_never_filled_does_not_hold_everything_behind_it() {
    let (head, body) = parts();
    let mut talk = Talk::begin();
    talk.send(Client, &post(10)).send(Server, OK);
    talk.next[0] += 1000;
    talk.send(Client, &post(10)).ack(Server).send(Server, OK).ack(Client);
    for _ in 0..3 {
        talk.send(Client, &head).after(40 * MS).ack(Server).after(20_000).send(Client, &body);
        talk.send(Server, OK).ack(Client);
    }
    assert!(talk.seen.stalls.iter().all(|stall| stall.kind != StallKind::BehindLoss), "{:?}", talk.kinds());
}

#[test]
fn a_sender_with_other_data_outstanding_is_not_held_by_nagle() {
    let (head, body) = parts();
    let mut talk = Talk::begin();
    talk.send(Client, &head[..10]);
    let acked = talk.next[0];
    talk.send(Client, &head[10..]).after(40 * MS);
    // Only the first small segment is acknowledged.
    let [_, server] = talk.next;
    talk.raw(Server, server, acked, Segment::ACK, &[], b"");
    talk.after(20_000).send(Client, &body);
    let nagle = [StallKind::NagleHeaderThenBody, StallKind::NagleWithinMessage];
    assert!(talk.kinds().iter().all(|kind| !nagle.contains(kind)), "{:?}", talk.kinds());
}

/// Eight requests in flight over 4 ms: with Nagle's algorithm one small segment leaves in each round trip.
#[test]
fn requests_that_leave_with_acknowledgements_are_clocked_by_them() {
    for nagle in [true, false] {
        let mut talk = Talk::begin_at(4 * MS, 0);
        let request = post(10);
        talk.send(Client, &[&request[..], &request, &request].concat());
        for _ in 0..30 {
            // The response to an earlier request comes in the middle of the round trip ...
            talk.after(2 * MS);
            let (seq, acked) = (talk.next[1], talk.next[0] - 3 * request.len() as u32);
            talk.next[1] += OK.len() as u32;
            talk.raw(Server, seq, acked, Segment::ACK, &[], OK);
            if !nagle {
                talk.send(Client, &request);
                talk.next[0] -= request.len() as u32;
            }
            // ... and the acknowledgement at its end.
            talk.after(2 * MS).ack(Server);
            if nagle {
                talk.after(20_000).send(Client, &request);
            } else {
                talk.next[0] += request.len() as u32;
            }
        }
        let clocked = talk.kinds().iter().filter(|&&kind| kind == StallKind::AckClocked).count();
        if nagle {
            assert!(clocked >= 29, "{clocked}");
            let wait_ns = talk.seen.stalls[5].wait_ns;
            assert!((19 * MS / 10..21 * MS / 10).contains(&wait_ns), "from the response on: {wait_ns}");
        } else {
            assert_eq!(clocked, 0);
        }
    }
}

/// A server that takes 205 ms is no cork, whose timer ends at ticks.
#[test]
fn answers_that_take_as_long_as_a_timer_are_no_corks() {
    for (ttl, pause, most) in [(64, 205_100_000, 4), (128, 200_000_000, 0), (64, 240 * MS, 0)] {
        let mut talk = Talk::begin();
        talk.ttl = ttl;
        for turn in 0..40 {
            talk.send(Client, &post(10)).after(40 * MS).ack(Server).after(pause - 40 * MS).send(Server, OK);
            talk.ack(Client).after(turn * 377_000);
        }
        assert!(talk.kinds().len() <= most, "{ttl} {pause}: {:?}", talk.kinds());
    }
    // The same times that end at ticks of 4 ms.
    let mut talk = Talk::begin();
    for turn in 0..40 {
        talk.send(Client, &post(10)).after(40 * MS).ack(Server);
        talk.ns = (talk.ns + 161 * MS).next_multiple_of(4 * MS);
        talk.send(Server, OK).ack(Client).after(turn * 377_000);
    }
    assert_eq!(talk.kinds(), [StallKind::CorkedAnswer; 40]);
}
