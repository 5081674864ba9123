//! Flights that the congestion window ends.

use super::*;

const ROUND_TRIP: u64 = 50 * MS;

/// A response of these flights, segments each, one in each round trip after this time; the last segment has some bytes less.
fn response(talk: &mut Talk, flights: &[usize]) {
    let segments: usize = flights.iter().sum();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", segments * 1000 - 50 - 40);
    let mut message = head.into_bytes();
    message.resize(segments * 1000 - 50, b'x');
    let mut pieces = message.chunks(1000);
    for (number, flight) in flights.iter().enumerate() {
        if number > 0 {
            talk.after(ROUND_TRIP - 2000 - 1000 * flights[number - 1] as u64);
        }
        for piece in pieces.by_ref().take(*flight) {
            talk.send(Server, piece);
        }
        // Each flight is acknowledged at the client's end, where this point lies.
        talk.ack(Client);
    }
}

fn count(talk: &Talk, kind: StallKind) -> usize {
    talk.kinds().iter().filter(|&&seen| seen == kind).count()
}

#[test]
fn growing_flights_are_a_congestion_window_and_after_idle_times_slow_start_again() {
    let mut talk = Talk::begin_at(ROUND_TRIP, 0);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[10, 20, 40, 20]);
    assert_eq!(count(&talk, StallKind::CongestionWindow), 3);
    // At once: the window is still large.
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[60]);
    for _ in 0..3 {
        talk.after(1000 * MS).send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[10, 20, 30]);
    }
    assert_eq!(count(&talk, StallKind::CongestionWindow), 3);
    assert_eq!(count(&talk, StallKind::SlowStartAfterIdle), 6);
    let wait_ns = talk.seen.stalls[1].wait_ns;
    assert!((45 * MS..ROUND_TRIP).contains(&wait_ns), "{wait_ns}");
    let conduct = talk.end().facts[0].server_conduct;
    let (first, later) = (conduct.flights, conduct.flights_after_idle);
    assert_eq!((first.runs, first.next, first.grown, first.later_runs), (1, 2, 2, 0));
    assert_eq!((later.runs, later.next, later.grown, later.first_bytes), (3, 3, 3, 30_000));
}

/// Pauses of a server that is slow, of one that writes small pieces, and of one whose receiver has no room.
#[test]
fn other_pauses_are_no_flights() {
    for (spacing, piece, window) in [
        (80 * MS, 1000, 30_000),
        (ROUND_TRIP, 990, 30_000),
        (ROUND_TRIP, 1000, 2_500),
        (20 * MS, 1000, 30_000),
    ] {
        let mut talk = Talk::begin_at(ROUND_TRIP, 0);
        talk.window = window;
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        talk.send(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n");
        let body = vec![b'x'; 5000];
        for _ in 0..20 {
            for _ in 0..4 {
                talk.send(Server, &body[..1000]);
            }
            talk.send(Server, &body[..piece]).ack(Client).after(spacing);
        }
        let (all, idle) =
            (count(&talk, StallKind::CongestionWindow), count(&talk, StallKind::SlowStartAfterIdle));
        assert_eq!((all, idle), (0, 0), "{spacing} {piece} {window}");
    }
}

/// Linux halves the window for each time-out of an idle time, so that it may begin above the initial one.
#[test]
fn a_window_that_idle_time_has_halved_is_slow_start_after_idle() {
    let mut talk = Talk::begin_at(ROUND_TRIP, 0);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[10, 20, 40, 60]);
    talk.after(600 * MS).send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[20, 40, 30]);
    assert_eq!(count(&talk, StallKind::SlowStartAfterIdle), 2);
}

/// A client that asks for a small list behind each pause, and then for what it names: the list leaves at once, what follows does not.
#[test]
fn a_small_message_behind_an_idle_time_leaves_the_window_small() {
    let mut talk = Talk::begin_at(ROUND_TRIP, 0);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[10, 20, 40, 20]);
    for list in [1, 1, 1] {
        talk.after(1000 * MS).send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[list]);
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[10, 20, 30]);
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[60]);
    }
    assert_eq!(count(&talk, StallKind::CongestionWindow), 3);
    assert_eq!(count(&talk, StallKind::SlowStartAfterIdle), 6);
    // A sender that stops at the same number of bytes without any idle time has another limit.
    let mut talk = Talk::begin_at(ROUND_TRIP, 0);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[10, 20, 40, 20]);
    for _ in 0..3 {
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[1]);
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, &[10, 10, 10]);
    }
    assert_eq!(count(&talk, StallKind::SlowStartAfterIdle), 0);
}

/// What a sender loses by a congestion window that a loss has made small is the loss's.
#[test]
fn flights_after_a_loss_are_behind_it() {
    let mut talk = Talk::begin_at(ROUND_TRIP, 0);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[40, 10]);
    assert_eq!(count(&talk, StallKind::CongestionWindow), 1);
    talk.send(Client, &post(10)).after(ROUND_TRIP);
    // A response is lost and sent again.
    talk.send(Server, OK).after(300 * MS).again(Server, OK);
    talk.ack(Client).after(500 * MS).send(Client, &post(10)).after(ROUND_TRIP);
    response(&mut talk, &[5, 6, 7, 8]);
    assert_eq!(count(&talk, StallKind::CongestionWindow), 1);
}

/// Without the handshake the window's scale is unknown, and its number of bytes the least that it can be: room for a segment is
/// room.
#[test]
fn a_window_of_unknown_scale_has_the_room_that_it_has_without_one() {
    for (window, runs) in [(60_000, 1), (9_000, 0)] {
        let mut talk = Talk { window, ..Talk::begin_late() };
        // The path is known from the first acknowledgements.
        for _ in 0..3 {
            talk.send(Client, &post(10)).after(ROUND_TRIP).ack(Server).send(Server, OK).ack(Client);
        }
        talk.send(Client, &post(10)).after(ROUND_TRIP).ack(Server);
        response(&mut talk, &[10, 20, 40, 20]);
        let conduct = talk.end().facts[0].server_conduct;
        assert_eq!(conduct.flights.runs, runs, "{window}: {conduct:?}");
        assert_eq!(conduct.window_waits, 0, "whether it was full is unknown");
    }
}

/// The small end of a message behind one flight may have been held by Nagle's algorithm; it is no second flight.
#[test]
fn one_flight_and_the_small_end_of_its_message_are_no_limit() {
    for (flights, count_of) in [(&[4, 1][..], 0), (&[4, 8, 1], 2)] {
        let mut talk = Talk::begin_at(ROUND_TRIP, 0);
        talk.send(Client, &post(10)).after(ROUND_TRIP);
        response(&mut talk, flights);
        assert_eq!(count(&talk, StallKind::CongestionWindow), count_of, "{flights:?}");
    }
}
