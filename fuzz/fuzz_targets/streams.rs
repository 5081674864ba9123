//! Well-formed TCP segments with any sequence numbers, flags and payloads, as iSCSI, HTTP, a decoded protocol, TLS or anything.
#![no_main]

use std::sync::LazyLock;

use capture::decode::PROTOCOLS;
use capture::packet::{Endpoint, Segment};
use capture::{At, Counted, Digests, Keys, Observer, Protocol, Selection, StreamHole, Vantage};
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Sums {
    exchanges: u64,
    ended: u64,
    /// Requests without an answer as they were told, and as they were counted.
    unanswered: [u64; 2],
}

impl Observer for Sums {
    fn exchange(&mut self, exchange: &record::Exchange) {
        assert!(exchange.ring_depth >= exchange.op.queue_depth);
        self.exchanges += 1;
    }
    fn unanswered(&mut self, _: &record::Exchange) {
        self.unanswered[0] += 1;
    }
    fn hole(&mut self, hole: StreamHole) {
        assert!(hole.missing.bytes > 0);
    }
    fn connection(&mut self, facts: &record::ConnectionFacts) {
        self.ended += facts.exchanges;
    }
    fn counted(&mut self, counted: &Counted) {
        self.unanswered[1] += counted.unanswered;
    }
}

/// The places in the table of decoders that an input can select: a place without a decoder stands for detection.
const PLACES: usize = 32;
const _: () = assert!(PROTOCOLS.len() < PLACES, "a decoder cannot be selected");

/// What every input is taken for.
#[derive(Clone, Copy)]
struct Only {
    /// Bits of the first byte that are set, and their values.
    mask: u8,
    first: u8,
    /// The second byte.
    place: Option<u8>,
}

/// `ROUNDTRIP_FUZZ_PROTOCOL`: a protocol by name, so that each has its own time.
static ONLY: LazyLock<Option<Only>> = LazyLock::new(|| {
    let name = std::env::var("ROUNDTRIP_FUZZ_PROTOCOL").ok().filter(|name| !name.is_empty())?;
    let decoded = |place: usize| Only { mask: 3, first: 3, place: Some(place as u8) };
    Some(match name.as_str() {
        "iscsi" => Only { mask: 3, first: 0, place: None },
        "http" => Only { mask: 3, first: 1, place: None },
        "turns" => Only { mask: 3, first: 2, place: None },
        "detection" => decoded(PLACES - 1),
        // Detected, with hellos and secrets.
        "tls" => Only { mask: 15, first: 15, place: Some(PLACES as u8 - 1) },
        _ => decoded(PROTOCOLS.iter().position(|entry| entry.name == name).expect("the name of a protocol")),
    })
});

/// The hellos of TLS 1.3 and 1.2, whose random numbers are zero.
const HELLOS: [[&[u8]; 2]; 2] = {
    const CLIENT: &[u8] = &[22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3];
    const SERVER_13: &[u8] = &[22, 3, 3, 0, 50, 2, 0, 0, 46, 3, 3];
    const SERVER_12: &[u8] = &[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3];
    [[CLIENT, SERVER_13], [CLIENT, SERVER_12]]
};
/// What follows the random numbers.
const BEHIND: [[&[u8]; 2]; 2] = {
    const CLIENT: &[u8] = &[0, 0, 2, 0x13, 1, 1, 0];
    [[CLIENT, &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]], [CLIENT, &[0, 0xc0, 0x2f, 0]]]
};

/// Their secrets.
fn keys() -> Keys {
    let keys = Keys::default();
    let (random, secret) = ("00".repeat(32), "2a".repeat(32));
    let traffic = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ];
    let mut log: String = traffic.iter().map(|label| format!("{label} {random} {secret}\n")).collect();
    log += &format!("CLIENT_RANDOM {random} {}\n", "2a".repeat(48));
    assert_eq!(keys.read(log.as_bytes()).map_or(0, |log| log.secrets), 5);
    keys
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let first = ONLY.map_or(first, |only| (first & !only.mask) | only.first);
    let digests = Digests { header: first & 4 != 0, data: first & 8 != 0 };
    let protocol = match first & 3 {
        0 => Protocol::Iscsi(digests),
        1 => Protocol::Http,
        2 => Protocol::Turns,
        // A second byte chooses a decoder; what none has is detected.
        _ => {
            let Some((&place, behind)) = rest.split_first() else { return };
            rest = behind;
            let place = ONLY.and_then(|only| only.place).unwrap_or(place);
            PROTOCOLS.get(usize::from(place) % PLACES).map_or(Protocol::Auto, Protocol::Decoded)
        }
    };
    let has_hellos = protocol == Protocol::Auto && first & 4 != 0;
    let keys = if first & 8 != 0 { keys() } else { Keys::default() };
    let mut vantage = Vantage::new(Selection { port: Some(3260), protocol, keys, ..Selection::default() });
    let mut sums = Sums::default();
    let ends = [Endpoint { address: 1, port: 5000 }, Endpoint { address: 2, port: 3260 }];
    let (mut next, mut at) = ([100_u32, 900], At::default());
    if has_hellos {
        let version = usize::from(rest.first().is_some_and(|b| b & 1 != 0));
        for who in [0, 1] {
            let payload = [HELLOS[version][who], &[0; 32], BEHIND[version][who]].concat();
            let segment = Segment {
                tag: capture::Tag::NONE,
                source: ends[who],
                destination: ends[1 - who],
                seq: next[who],
                ack: next[1 - who],
                flags: 0x18,
                window: 1000,
                options: &[],
                ip_id: 0,
                ttl: 64,
                payload: &payload,
                payload_bytes: payload.len(),
            };
            vantage.segment(&segment, at, payload.len() as u32 + 54, &mut sums);
            next[who] += payload.len() as u32;
        }
    }
    // Each segment: who and how, flags, shift of the sequence number, time, length, payload.
    while let [how, flags, shift, later, length, behind @ ..] = rest {
        let who = usize::from(how & 1);
        let (payload, following) = behind.split_at(usize::from(*length).min(behind.len()));
        let shift = i32::from(shift.cast_signed()) * if how & 2 != 0 { 1 } else { 0 };
        let seq = next[who].wrapping_add_signed(shift * if how & 4 != 0 { 1000 } else { 1 });
        let uncaptured = if how & 8 != 0 { 40 } else { 0 };
        at = At { ns: at.ns + (u64::from(*later) << 20), frame: at.frame + 1 };
        let segment = Segment {
            tag: capture::Tag::NONE,
            source: ends[who],
            destination: ends[1 - who],
            seq,
            ack: next[1 - who],
            flags: *flags & 0x3f,
            window: u16::from(*flags) << 8,
            options: &[],
            ip_id: u16::from(*later),
            ttl: 64,
            payload,
            payload_bytes: payload.len() + uncaptured,
        };
        vantage.segment(&segment, at, payload.len() as u32 + 54, &mut sums);
        next[who] = seq.wrapping_add(payload.len() as u32 + uncaptured as u32);
        rest = following;
    }
    vantage.finish(&mut sums);
    assert_eq!(sums.exchanges, sums.ended, "every exchange is told once");
    assert_eq!(sums.unanswered[0], sums.unanswered[1], "and every request without an answer");
});
