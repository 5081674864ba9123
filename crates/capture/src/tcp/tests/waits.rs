//! Timers, delayed acknowledgements and trains, and what looks like them.

use super::*;

/// The timer is a time-out: the round trip and 200 ms. Events each 250 ms over a path of 100 ms are the program's.
#[test]
fn a_cork_s_timer_includes_the_round_trip() {
    for (pause_ms, is_cork) in [(250, false), (204, false), (304, true)] {
        let mut talk = Talk::begin_at(100 * MS, 0);
        talk.send(Client, &post(10)).after(100 * MS);
        talk.send(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n").ack(Client);
        for _ in 0..8 {
            let spent_ns = talk.ns % (4 * MS);
            talk.after(pause_ms * MS + 4 * MS - spent_ns).send(Server, &[b'x'; 40]).ack(Client);
        }
        let is_found = talk.kinds().contains(&StallKind::CorkWithinMessage);
        assert_eq!(is_found, is_cork, "{pause_ms}: {:?}", talk.kinds());
    }
}

/// A receiver acknowledges two full segments at once: what acknowledges four late was late for another reason.
#[test]
fn an_acknowledgement_of_many_segments_is_not_delayed_on_purpose() {
    for (segments, is_delayed) in [(1, true), (4, false)] {
        let mut talk = Talk::begin_at(MS, 0);
        let message = post(40_000);
        for flight in message.chunks(segments * 1000).take(6) {
            for piece in flight.chunks(1000) {
                talk.send(Client, piece);
            }
            talk.after(41 * MS).ack(Server).after(20_000);
        }
        let is_found = talk.kinds().contains(&StallKind::DelayedAck);
        assert_eq!(is_found, is_delayed, "{segments}: {:?}", talk.kinds());
    }
}

/// Messages of an unknown protocol in pieces of 4 bytes.
#[test]
fn a_turn_is_a_train_where_its_segments_cannot_be_requests_of_their_own() {
    // The time between pieces, and from the last one to the answer, microseconds.
    let command = [b'c'; 22];
    for (between_us, answer_us, piece, is_train) in
        [(12, 60, &b"four"[..], true), (12, 500, b"four", false), (12, 60, &command, false)]
    {
        let mut talk = Talk::begin_as(Protocol::Turns, 50_000, 0);
        for _ in 0..10 {
            for _ in 0..16 {
                talk.after(between_us * 1000).send(Client, piece);
            }
            talk.after(answer_us * 1000).send(Server, &[b'x'; 100]).ack(Client);
        }
        let conduct = talk.end().facts[0].client_conduct;
        assert_eq!(conduct.trains > 0, is_train, "{between_us} {answer_us}: {}", conduct.trains);
        assert!(conduct.messages >= 9, "{}", conduct.messages);
        if is_train {
            let each = (conduct.train_ns / conduct.trains, conduct.train_bytes / conduct.trains);
            // Each segment takes a microsecond.
            assert_eq!(each, (15 * (between_us + 1) * 1000, 16 * 4));
        }
    }
    // The answers to several requests may be several messages, and so may be their segments.
    for (request_bytes, trains) in [(30, 9), (352, 0)] {
        let mut talk = Talk::begin_as(Protocol::Turns, 50_000, 0);
        for _ in 0..10 {
            talk.send(Client, &vec![b'r'; request_bytes]);
            for _ in 0..16 {
                talk.after(10_000).send(Server, b"four");
            }
            talk.ack(Client).after(MS);
        }
        assert_eq!(talk.end().facts[0].server_conduct.trains, trains, "{request_bytes}");
    }
}
