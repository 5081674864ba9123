//! Copies, reordering and data that had arrived are not loss.

use super::*;

/// Time stamps of an option list: value and echo.
fn stamps(value: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &1_u32.to_be_bytes()].concat()
}

#[test]
fn copies_of_a_mirror_port_are_not_sent_again() {
    for (ip_id, ttl) in [(0, 64), (0, 63), (77, 64), (77, 61)] {
        let mut talk = Talk::begin_at(MS, MS);
        for _ in 0..10 {
            let (message, [seq, server]) = (post(2000), talk.next);
            // Two segments, and both again: the copies come behind the second.
            for (ttl, wait) in [(64, 0), (ttl, 100_000)] {
                talk.ttl = ttl;
                talk.after(wait);
                for (number, (from, to)) in [(0, 1000), (1000, message.len())].into_iter().enumerate() {
                    talk.ip_id = if ip_id == 0 { 0 } else { ip_id + number as u16 };
                    let at = seq + from as u32;
                    talk.raw_again(Client, at, server, Segment::ACK, &[], &message[from..to]);
                }
            }
            talk.next[0] += message.len() as u32;
            talk.ttl = 64;
            talk.after(2 * MS).send(Server, OK).ack(Client);
        }
        let seen = talk.end();
        let facts = seen.facts[0];
        assert_eq!((facts.duplicates, facts.client_conduct.retransmitted), (20, 0), "{ip_id} {ttl}");
        assert_eq!(seen.exchanges.len(), 10);
    }
}

/// At 10 Gb/s, 40 segments pass before the second of two interfaces sees the first one.
#[test]
fn copies_that_come_many_segments_later_are_no_loss() {
    let mut talk = Talk::begin_at(MS, MS);
    for round in 0..5 {
        let (message, [seq, server]) = (post(40_000), talk.next);
        for wait in [0, 50_000] {
            talk.after(wait);
            for (number, piece) in message.chunks(1000).enumerate() {
                talk.ip_id = 1000 * (round + 1) + number as u16;
                talk.raw_again(Client, seq + 1000 * number as u32, server, Segment::ACK, &[], piece);
            }
        }
        talk.next[0] += message.len() as u32;
        talk.after(2 * MS).send(Server, OK).ack(Client);
    }
    let facts = talk.end().facts[0];
    assert_eq!(facts.client_conduct.retransmitted, 0);
    assert!(facts.duplicates >= 200, "{}", facts.duplicates);
}

#[test]
fn segments_sent_again_after_a_reported_gap_are_no_copies() {
    let mut talk = Talk::begin();
    talk.ip_id = 0;
    let (message, [seq, server]) = (post(2000), talk.next);
    talk.raw_again(Client, seq, server, Segment::ACK, &[], &message[..1000]);
    talk.raw_again(Client, seq + 1000, server, Segment::ACK, &[], &message[1000..]);
    let block = [seq + 1000, seq + message.len() as u32].map(u32::to_be_bytes).concat();
    let sack = [&[1, 1, 5, 10][..], &block].concat();
    talk.raw_again(Server, server, seq, Segment::ACK, &sack, b"");
    talk.after(200_000).raw_again(Client, seq, server, Segment::ACK, &[], &message[..1000]);
    let facts = talk.end().facts[0];
    assert_eq!((facts.duplicates, facts.client_conduct.retransmitted), (0, 1));
}

#[test]
fn a_senders_clock_tells_overtaken_data_from_data_sent_again() {
    for (value, again) in [(9, 0), (30, 1)] {
        let mut talk = Talk::begin();
        let (message, [seq, server]) = (post(2000), talk.next);
        talk.ip_id = 0;
        // The second half, the report of the gap, and long after a round trip the first half.
        talk.raw_again(Client, seq + 1000, server, Segment::ACK, &stamps(10), &message[1000..]);
        talk.raw_again(Server, server, seq, Segment::ACK, &[], b"");
        talk.after(20 * MS).raw_again(Client, seq, server, Segment::ACK, &stamps(value), &message[..1000]);
        let facts = talk.end().facts[0];
        assert_eq!(facts.client_conduct.retransmitted, again, "{value}");
    }
}

/// The last segment with its FIN overtakes the one before it.
#[test]
fn a_fin_that_overtakes_data_is_not_loss() {
    let mut talk = Talk::begin_at(30 * MS, 30 * MS);
    talk.send(Client, &post(10));
    let (body, [client, seq]) = (vec![b'x'; 1500], talk.next);
    talk.ip_id = 0;
    talk.raw_again(Server, seq + 1000, client, Segment::ACK | Segment::FIN, &[], &body[1000..]);
    talk.after(10 * MS).raw_again(Server, seq, client, Segment::ACK, &[], &body[..1000]);
    let facts = talk.end().facts[0];
    assert_eq!(facts.server_conduct.retransmitted, 0);
}

#[test]
fn repetitions_of_data_that_had_arrived_are_spurious() {
    let mut talk = Talk::begin();
    let message = post(10);
    talk.send(Client, &message).after(300 * MS).again(Client, &message);
    let [client, server] = talk.next;
    // A duplicate SACK: it had arrived.
    let block = [client - message.len() as u32, client].map(u32::to_be_bytes).concat();
    let sack = [&[1, 1, 5, 10][..], &block].concat();
    talk.raw(Server, server, client, Segment::ACK, &sack, b"");
    // And one that the sender repeats although it is acknowledged here.
    talk.after(300 * MS).again(Client, &message);
    let conduct = talk.end().facts[0].client_conduct;
    assert_eq!((conduct.retransmitted, conduct.spurious), (2, 2));
}
