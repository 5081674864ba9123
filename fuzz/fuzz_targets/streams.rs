//! Well-formed TCP segments with any sequence numbers, flags and payloads, as iSCSI, HTTP or anything.
#![no_main]

use capture::packet::{Endpoint, Segment};
use capture::{At, Counted, Digests, Observer, Protocol, Selection, StreamHole, Vantage};
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Sums {
    exchanges: u64,
    ended: u64,
}

impl Observer for Sums {
    fn exchange(&mut self, exchange: &record::Exchange) {
        assert!(exchange.ring_depth >= exchange.op.queue_depth);
        self.exchanges += 1;
    }
    fn hole(&mut self, hole: StreamHole) {
        assert!(hole.missing.bytes > 0);
    }
    fn connection(&mut self, facts: &record::ConnectionFacts) {
        self.ended += facts.exchanges;
    }
    fn counted(&mut self, _: &Counted) {}
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let digests = Digests { header: first & 4 != 0, data: first & 8 != 0 };
    let protocol = match first & 3 {
        0 => Protocol::Iscsi(digests),
        1 => Protocol::Http,
        2 => Protocol::Turns,
        _ => Protocol::Auto,
    };
    let mut vantage = Vantage::new(Selection { port: Some(3260), protocol, ..Selection::default() });
    let mut sums = Sums::default();
    let ends = [Endpoint { address: 1, port: 5000 }, Endpoint { address: 2, port: 3260 }];
    let (mut next, mut at) = ([100_u32, 900], At::default());
    // Each segment: who and how, flags, shift of the sequence number, time, length, payload.
    while let [how, flags, shift, later, length, behind @ ..] = rest {
        let who = usize::from(how & 1);
        let (payload, following) = behind.split_at(usize::from(*length).min(behind.len()));
        let shift = i32::from(shift.cast_signed()) * if how & 2 != 0 { 1 } else { 0 };
        let seq = next[who].wrapping_add_signed(shift * if how & 4 != 0 { 1000 } else { 1 });
        let uncaptured = if how & 8 != 0 { 40 } else { 0 };
        at = At { ns: at.ns + (u64::from(*later) << 20), frame: at.frame + 1 };
        let segment = Segment {
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
});
