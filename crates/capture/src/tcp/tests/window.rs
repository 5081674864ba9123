//! Windows that close, to their end.

use super::*;

#[test]
fn a_zero_window_ends_with_the_update_that_opens_it_whatever_probes_come_before() {
    for probe in [&b""[..], b"x"] {
        let mut talk = Talk::begin();
        let message = post(3000);
        talk.send(Client, &message[..1000]);
        let began_ns = talk.ns;
        talk.window = 0;
        talk.ack(Server);
        // Probes of one new byte, or of none, and the refusals.
        for _ in 0..4 {
            let [client, server] = talk.next;
            let seq = if probe.is_empty() { client - 1 } else { client };
            talk.after(200 * MS).raw(Client, seq, server, Segment::ACK, &[], probe);
            talk.ack(Server);
        }
        talk.window = 500;
        talk.after(100 * MS).ack(Server).after(20_000).send(Client, &message[1000..2000]);
        assert_eq!(talk.kinds(), [StallKind::WindowFull], "{probe:?}");
        assert_eq!(talk.seen.stalls[0].wait_ns, talk.ns - began_ns);
        let conduct = talk.end().facts[0].client_conduct;
        assert_eq!((conduct.zero_windows, conduct.retransmitted), (1, 0), "{probe:?}");
    }
}

/// A window that closes or opens later is not the one that the first data met.
#[test]
fn the_first_window_is_that_before_any_data() {
    let mut talk = Talk::begin();
    let offered = talk.window;
    let message = post(3000);
    talk.send(Client, &message[..1000]);
    talk.window = 64;
    talk.ack(Server).send(Client, &message[1000..1064]);
    talk.window = 30_000;
    talk.ack(Server).send(Client, &message[1064..2000]);
    let conduct = talk.end().facts[0].client_conduct;
    assert_eq!(conduct.window_first_bytes, u32::from(offered));
    assert!(conduct.window_first_bytes > 0);
}

#[test]
fn a_window_that_never_opens_is_counted_until_the_last_probe() {
    let mut talk = Talk::begin();
    let message = post(3000);
    talk.send(Client, &message[..1000]);
    let began_ns = talk.ns;
    talk.window = 0;
    talk.ack(Server);
    for _ in 0..3 {
        let [client, server] = talk.next;
        talk.after(400 * MS).raw(Client, client, server, Segment::ACK, &[], b"x");
    }
    let probed_ns = talk.ns;
    talk.ack(Server);
    let seen = talk.end();
    assert_eq!(seen.stalls.iter().map(|s| s.kind).collect::<Vec<_>>(), [StallKind::WindowFull]);
    assert_eq!(seen.stalls[0].wait_ns, probed_ns - began_ns);
    let conduct = seen.facts[0].client_conduct;
    assert_eq!((conduct.zero_windows, conduct.window_wait_ns), (1, probed_ns - began_ns));
}

/// The window had room when the sender paused, and closed only later: the pause is the receiver's all the same.
#[test]
fn a_window_that_closes_behind_acknowledged_data_is_full() {
    let mut talk = Talk::begin();
    let message = post(3000);
    talk.send(Client, &message[..1000]);
    talk.window = 0;
    talk.ack(Server).after(60 * MS);
    talk.window = 30_000;
    talk.ack(Server).after(20_000).send(Client, &message[1000..2000]);
    assert_eq!(talk.kinds(), [StallKind::WindowFull]);
}

/// Near the receiver the window is open again as soon as data has come; it was full at the sender.
#[test]
fn a_window_is_full_in_flights_that_fill_it_wherever_they_are_seen() {
    for (window, is_full) in [(3_000, true), (20_000, false)] {
        let mut talk = Talk::begin_at(20 * MS, 0);
        talk.window = window;
        talk.send(Client, &post(10)).after(20 * MS);
        talk.send(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n").ack(Client);
        for _ in 0..8 {
            talk.after(20 * MS - 12_000);
            for _ in 0..5 {
                talk.send(Server, &[b'x'; 1000]).ack(Client);
            }
        }
        let full = talk.kinds().iter().filter(|&&kind| kind == StallKind::WindowFull).count();
        let conduct = talk.end().facts[0].server_conduct;
        let waits = conduct.window_waits;
        assert_eq!((waits >= 6, full > 0 || waits > 0), (is_full, is_full), "{window}: {full} {waits}");
    }
}
