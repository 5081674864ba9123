//! New data of a side.

use record::Stall;

use super::acknowledge::QUEUE_NS;
use super::pause::Release;
use super::{Gap, Half, LATE_NS, Last, Passing, SIMULTANEOUS_NS, Small, Tcp, distance};
use crate::chunks::together_ns;
use crate::follow::MessageState;
use crate::packet::{At, Segment};

impl Tcp {
    /// Processes new data.
    #[inline]
    pub(super) fn new_data(&mut self, segment: &Segment<'_>, passing: Passing, emit: &mut impl FnMut(Stall)) {
        let Passing { side, at, end, stamps, before, .. } = passing;
        let bytes = end.wrapping_sub(segment.seq);
        let release = self.cause(passing, segment.seq, bytes);
        let together_ns = together_ns(self.round_trip_ns());
        let path = self.path(side);
        let round_trip_ns = path.round_trip_ns();
        let peer = &mut self.halves[side.peer() as usize];
        let (peer_data_ns, window_known) = (peer.last_data_ns, peer.offer.is_some());
        peer.heard.get_or_insert(at);
        let half = &mut self.halves[side as usize];
        let last = half.last;
        if peer_data_ns >= last.at.ns {
            half.waited_behind_others(round_trip_ns, at);
        }
        half.message.apart +=
            u64::from(half.message.segments > 0 && at.ns.saturating_sub(last.at.ns) > together_ns);
        if at.ns.saturating_sub(last.at.ns) >= LATE_NS && peer_data_ns <= last.at.ns && last.at.ns > 0 {
            half.conduct.pauses +=
                u64::from(matches!(before.message, MessageState::Nothing | MessageState::Unknown));
        }
        if let Some(Release { kind, wait_ns, from, by }) = release {
            emit(Stall {
                connection: before.connection,
                kind,
                sender: side,
                wait_ns,
                time_ns: at.ns,
                frames: [from, by, at.frame],
                segment_bytes: bytes,
                seq: segment.seq,
            });
        }
        let next = half.next.unwrap_or(segment.seq);
        let is_alone = half.acked.is_none_or(|acked| distance(next, acked) <= 0);
        if is_alone {
            half.loss.begins_to_wait(at.ns);
        }
        if distance(segment.seq, next) > 0 {
            half.gap = Some(Gap { from: next, to: segment.seq, since_ns: at.ns, stamps });
        }
        let full = half.full_segment();
        if bytes < full {
            let is_first = half.small.is_none_or(|small| small.acked.is_some());
            let conduct = &mut half.conduct;
            *(if is_first { &mut conduct.small_alone } else { &mut conduct.small_together }) += 1;
        }
        if full == 0 || !bytes.is_multiple_of(full) {
            half.small = Some(Small { at, end, peer_ns: peer_data_ns, acked: None });
        }
        half.next = Some(end);
        half.last = Last { at, bytes, message: None };
        (half.last_data_ns, half.heard, half.probes, half.acks) = (at.ns, None, 0, 0);
        half.was_limited &= peer_data_ns < last.at.ns;
        half.flight.passed(bytes, at.ns);
        if bytes > half.largest_acked && half.probing.is_none_or(|(_, largest)| bytes > largest) {
            half.probing = Some((end, bytes));
        }
        half.message.segments += 1;
        half.message.bytes += u64::from(bytes);
        if half.message.segments == 1 {
            half.message.first = at;
        }
        let conduct = &mut half.conduct;
        if conduct.segments == 0 && window_known {
            conduct.window_first_bytes = u32::try_from(half.window).unwrap_or(u32::MAX);
        }
        conduct.segments += 1;
        conduct.bytes += u64::from(bytes);
        conduct.against_traffic += u64::from(at.ns.saturating_sub(peer_data_ns) < SIMULTANEOUS_NS);
        let in_flight = half.acked.map_or(0, |acked| distance(end, acked)).max(0).cast_unsigned();
        conduct.in_flight_max_bytes = conduct.in_flight_max_bytes.max(in_flight);
        if half.timed.is_none() {
            half.timed = Some((end, at.ns, in_flight));
        }
        half.unacked = in_flight.into();
        half.room_least = Some(half.window.saturating_sub(half.unacked));
        half.edge.passed(end, at.ns, path.to_sender_ns);
    }
}

impl Half {
    /// The first data of a turn: what it waited in a queue, other connections' data did.
    #[inline]
    fn waited_behind_others(&mut self, round_trip_ns: u64, at: At) {
        let Some(waited_ns) = self.waited_ns else { return };
        let is_long = round_trip_ns > 0 && waited_ns >= QUEUE_NS.max(round_trip_ns);
        self.transit.note(&mut self.conduct.transit, waited_ns, is_long, at.frame);
        self.behind_ns = if is_long { waited_ns } else { 0 };
    }
}
