//! Unacknowledged PDUs, kept for retransmission (RFC 7143 7.1, 7.2; ErrorRecoveryLevel above 0).

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::bhs::{BHS_BYTES, Bhs, NO_TAG};
use crate::frame::{Cut, Framer};
use crate::opcode::target as opcode;
use crate::pdu::{DataIn, NopIn, R2t};

/// Default limit of the bytes that a connection keeps.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Memory for one PDU beside its data segment, bytes.
const ENTRY_BYTES: usize = 2 * BHS_BYTES + 64;

/// Where the data of a PDU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptData {
    /// Here, without padding.
    Copy(Vec<u8>),
    /// On the medium, to be read again. The read is not acknowledged yet, so data written meanwhile is as valid an answer
    /// as the data sent first.
    Medium {
        /// The logical unit.
        lun: [u8; 8],
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length: usize,
    },
}

/// Where on the medium the data of a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOrigin {
    /// The logical unit.
    pub lun: [u8; 8],
    /// First byte.
    pub offset_bytes: u64,
}

/// A PDU that was sent.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its header.
    pub bhs: Bhs,
    /// Its data segment.
    pub data: KeptData,
    /// StatSN, if it carries status.
    stat_sn: Option<u32>,
    /// DataSN or R2TSN, if it has one.
    sequence: Option<u32>,
}

impl Kept {
    fn tag(&self) -> u32 {
        self.bhs.initiator_task_tag()
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + if let KeptData::Copy(data) = &self.data { data.len() } else { 0 }
    }

    /// Bytes of data that it holds itself.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        if let KeptData::Copy(data) = &self.data { data.len() } else { 0 }
    }

    /// Bytes of its data segment.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        match &self.data {
            KeptData::Copy(data) => data.len(),
            KeptData::Medium { length, .. } => *length,
        }
    }
}

/// The PDUs of a connection that the initiator has not acknowledged, in order.
///
/// Every operation costs the PDUs that it removes or returns, not those that are kept.
#[derive(Debug)]
pub struct Replay {
    /// By the order in which they were sent.
    kept: BTreeMap<u64, Kept>,
    /// StatSN and place of those with status, in order.
    status: VecDeque<(u32, u64)>,
    /// The places of a task's PDUs, in order.
    tasks: HashMap<u32, VecDeque<u64>>,
    next: u64,
    bytes: usize,
    /// Bytes of data that is kept itself, of those.
    copied_bytes: usize,
    limit: usize,
    /// The newest StatSN that was forgotten although it is not acknowledged.
    forgotten: Option<u32>,
}

impl Default for Replay {
    fn default() -> Self {
        Self::new(KEPT_BYTES_MAX)
    }
}

impl Replay {
    /// Keeps at most `limit` bytes, a quarter of them for data that cannot be read again: the oldest PDUs go first, and
    /// are then lost for a SNACK.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            kept: BTreeMap::new(),
            status: VecDeque::new(),
            tasks: HashMap::new(),
            next: 0,
            bytes: 0,
            copied_bytes: 0,
            limit,
            forgotten: None,
        }
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps the PDUs in `sent`, as they stand on the stream. `origins` says of a task's tag where its data can be
    /// read again; an entry is removed with the task's status.
    pub fn keep(&mut self, framer: &Framer, mut sent: &[u8], origins: &mut HashMap<u32, ReadOrigin>) {
        while let Ok(Cut::Frame(frame)) = framer.next(sent) {
            let bhs = frame.bhs;
            let stat_sn = u32::from_be_bytes([bhs.0[24], bhs.0[25], bhs.0[26], bhs.0[27]]);
            let mut data = None;
            let (stat_sn, sequence) = match bhs.opcode() {
                opcode::DATA_IN => {
                    let data_in = DataIn::read(&bhs);
                    data = origins.get(&data_in.tag).map(|origin| KeptData::Medium {
                        lun: origin.lun,
                        offset_bytes: origin.offset_bytes + u64::from(data_in.buffer_offset),
                        length: frame.data.len(),
                    });
                    (data_in.has_status.then_some(stat_sn), Some(data_in.data_sn))
                }
                opcode::R2T => (None, Some(R2t::read(&bhs).r2t_sn)),
                // A question of ours does not count; an answer does.
                opcode::NOP_IN if NopIn::read(&bhs).tag == NO_TAG => (None, None),
                _ => (Some(stat_sn), None),
            };
            if stat_sn.is_some() {
                origins.remove(&bhs.initiator_task_tag());
            }
            if (stat_sn.is_some() || sequence.is_some()) && !self.has(&bhs, stat_sn, sequence) {
                let data = data.unwrap_or_else(|| KeptData::Copy(frame.data.to_vec()));
                self.add(Kept { bhs, data, stat_sn, sequence });
            }
            sent = &sent[frame.total_bytes..];
        }
        while self.bytes > self.limit || self.copied_bytes > self.limit / 4 {
            let Some((&oldest, _)) = self.kept.first_key_value() else { break };
            let forgotten = self.remove(oldest).and_then(|kept| kept.stat_sn);
            self.forgotten = forgotten.or(self.forgotten);
        }
    }

    /// Whether this very PDU is kept already: it was sent again.
    fn has(&self, bhs: &Bhs, stat_sn: Option<u32>, sequence: Option<u32>) -> bool {
        let is_it = |place: &u64| self.kept.get(place).is_some_and(|kept| kept.bhs.0 == bhs.0);
        // The numbers are consecutive, so each tells its place behind the oldest.
        if let Some(sn) = stat_sn {
            let Some(&(first, _)) = self.status.front() else { return false };
            return self.status.get(sn.wrapping_sub(first) as usize).is_some_and(|(_, place)| is_it(place));
        }
        let places = self.tasks.get(&bhs.initiator_task_tag());
        let first = places.and_then(|places| self.kept.get(places.front()?)?.sequence);
        let (Some(places), Some(first), Some(sn)) = (places, first, sequence) else { return false };
        places.get(sn.wrapping_sub(first) as usize).is_some_and(is_it)
    }

    fn add(&mut self, kept: Kept) {
        let place = self.next;
        self.next += 1;
        self.bytes += kept.bytes();
        self.copied_bytes += kept.copied_bytes();
        if let Some(stat_sn) = kept.stat_sn {
            self.status.push_back((stat_sn, place));
        }
        if kept.tag() != NO_TAG {
            self.tasks.entry(kept.tag()).or_default().push_back(place);
        }
        self.kept.insert(place, kept);
    }

    /// Takes one PDU out. What is removed is the oldest of its task, or all of its task is.
    fn remove(&mut self, place: u64) -> Option<Kept> {
        let kept = self.kept.remove(&place)?;
        self.bytes -= kept.bytes();
        self.copied_bytes -= kept.copied_bytes();
        if let Some(places) = self.tasks.get_mut(&kept.tag()) {
            while places.front().is_some_and(|&first| first <= place) {
                places.pop_front();
            }
            if places.is_empty() {
                self.tasks.remove(&kept.tag());
            }
        }
        while self.status.front().is_some_and(|(_, first)| !self.kept.contains_key(first)) {
            self.status.pop_front();
        }
        Some(kept)
    }

    /// Everything before `exp_stat_sn` has arrived.
    #[inline]
    pub fn acknowledge(&mut self, exp_stat_sn: u32) {
        self.forgotten = self.forgotten.filter(|sn| (sn.wrapping_sub(exp_stat_sn) as i32) >= 0);
        while let Some(&(stat_sn, place)) = self.status.front() {
            if (stat_sn.wrapping_sub(exp_stat_sn) as i32) >= 0 {
                break;
            }
            self.status.pop_front();
            let Some(tag) = self.kept.get(&place).map(Kept::tag) else { continue };
            // With its status, all data of a command is acknowledged.
            while let Some(&first) = self.tasks.get(&tag).and_then(VecDeque::front).filter(|&&p| p < place) {
                self.remove(first);
            }
            self.remove(place);
        }
    }

    /// The Data-In PDUs or R2Ts of a task from number `first` on, `count` of them (0: all). Nothing where some of them
    /// are not kept any more: a part would let the initiator wait for the rest.
    #[must_use]
    pub fn sequence(&self, tag: u32, first: u32, count: u32) -> Vec<Kept> {
        let places = self.tasks.get(&tag).into_iter().flatten();
        let mine = places.filter_map(|place| self.kept.get(place));
        Self::run(mine.filter_map(|kept| Some((kept.sequence?, kept))), first, count)
    }

    /// The PDUs that carry status, from StatSN `first` on, `count` of them (0: all; both 0: all that are not
    /// acknowledged, RFC 7143 11.16.5); nothing as in [`Self::sequence`].
    #[must_use]
    pub fn status(&self, first: u32, count: u32) -> Vec<Kept> {
        let all = self.status.iter().filter_map(|(sn, place)| Some((*sn, self.kept.get(place)?)));
        if (first, count) != (0, 0) {
            return Self::run(all, first, count);
        }
        if self.forgotten.is_some() { Vec::new() } else { all.map(|(_, kept)| kept.clone()).collect() }
    }

    /// The PDUs of consecutive numbers; none if any of them is missing.
    fn run<'a>(numbered: impl Iterator<Item = (u32, &'a Kept)>, first: u32, count: u32) -> Vec<Kept> {
        let behind = |sn: u32| sn.wrapping_sub(first);
        let wanted =
            numbered.filter(|(sn, _)| (behind(*sn) as i32) >= 0 && (count == 0 || behind(*sn) < count));
        let wanted: Vec<(u32, &Kept)> = wanted.collect();
        let is_whole = wanted.first().is_some_and(|(sn, _)| *sn == first)
            && (count == 0 || wanted.len() >= count as usize);
        if is_whole { wanted.into_iter().map(|(_, kept)| kept.clone()).collect() } else { Vec::new() }
    }

    /// Removes the PDUs of a finished task, to continue it on another connection.
    #[must_use]
    pub fn take_task(&mut self, tag: u32) -> Vec<Kept> {
        let places = self.tasks.remove(&tag).unwrap_or_default();
        places.into_iter().filter_map(|place| self.remove(place)).collect()
    }

    /// The number of the first Data-In PDU or R2T of a task that is kept.
    #[must_use]
    pub fn first(&self, tag: u32) -> Option<u32> {
        let places = self.tasks.get(&tag).into_iter().flatten();
        places.filter_map(|place| self.kept.get(place)).find_map(|kept| kept.sequence)
    }

    /// Whether a task has its status, which is not acknowledged.
    #[must_use]
    pub fn has_finished(&self, tag: u32) -> bool {
        let places = self.tasks.get(&tag).into_iter().flatten();
        places.filter_map(|place| self.kept.get(place)).any(|kept| kept.stat_sn.is_some())
    }

    /// Whether any task has its status, which is not acknowledged.
    #[must_use]
    pub fn has_any_finished(&self) -> bool {
        let mut all = self.status.iter().filter_map(|(_, place)| self.kept.get(place));
        all.any(|kept| kept.tag() != NO_TAG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::ScsiResponse;
    use crate::transmit::TransmitBuffer;

    fn data(tag: u32, data_sn: u32, stat_sn: Option<u32>, out: &mut TransmitBuffer) {
        let pdu = DataIn {
            tag,
            data_sn,
            has_status: stat_sn.is_some(),
            stat_sn: stat_sn.unwrap_or(0),
            ..DataIn::default()
        };
        out.pdu(pdu.write(), &[data_sn as u8; 100]);
    }

    #[test]
    fn unacknowledged_pdus_can_be_requested_again() {
        let mut out = TransmitBuffer::new();
        for sn in 0..3 {
            data(7, sn, (sn == 2).then_some(10), &mut out);
        }
        out.pdu(ScsiResponse { tag: 8, stat_sn: 11, ..ScsiResponse::default() }.write(), &[]);
        let mut replay = Replay::default();
        replay.keep(&Framer::new(1 << 20), out.pending(), &mut HashMap::new());
        let numbers = |kept: &[Kept]| kept.iter().map(|k| DataIn::read(&k.bhs).data_sn).collect::<Vec<_>>();
        assert_eq!(numbers(&replay.sequence(7, 1, 0)), [1, 2]);
        assert_eq!(numbers(&replay.sequence(7, 0, 2)), [0, 1]);
        assert_eq!(replay.status(11, 1).len(), 1);
        assert!(replay.has_finished(7) && replay.has_finished(8) && !replay.has_finished(9));
        replay.acknowledge(11);
        assert!(replay.sequence(7, 0, 0).is_empty(), "with the status its data is acknowledged");
        assert_eq!((replay.status(11, 0).len(), replay.status(10, 0).len()), (1, 0));
        assert_eq!(replay.status(0, 0).len(), 1, "all that is not acknowledged");
        replay.acknowledge(12);
        assert_eq!((replay.kept.len(), replay.bytes, replay.tasks.len(), replay.status.len()), (0, 0, 0, 0));
    }

    #[test]
    fn a_retransmitted_pdu_is_kept_once() {
        let (mut replay, mut origins) = (Replay::default(), HashMap::new());
        let mut out = TransmitBuffer::new();
        for sn in 0..3 {
            data(7, sn, (sn == 2).then_some(10), &mut out);
        }
        out.pdu(ScsiResponse { tag: 8, stat_sn: 11, ..ScsiResponse::default() }.write(), &[]);
        for _ in 0..5 {
            replay.keep(&Framer::new(1 << 20), out.pending(), &mut origins);
            assert_eq!(
                (replay.sequence(7, 0, 0).len(), replay.status(10, 0).len(), replay.kept.len()),
                (3, 2, 4)
            );
        }
        replay.acknowledge(12);
        assert_eq!((replay.kept.len(), replay.bytes), (0, 0));
    }

    #[test]
    fn data_of_the_medium_is_kept_by_its_place() {
        let mut out = TransmitBuffer::new();
        let pdu = DataIn { tag: 7, buffer_offset: 512, has_status: true, ..DataIn::default() };
        out.pdu(pdu.write(), &[1; 100_000]);
        let mut replay = Replay::default();
        let origin = ReadOrigin { lun: [0, 3, 0, 0, 0, 0, 0, 0], offset_bytes: 4096 };
        let mut origins = HashMap::from([(7, origin)]);
        replay.keep(&Framer::new(1 << 20), out.pending(), &mut origins);
        assert!(origins.is_empty(), "with its status the answer ends");
        assert!(replay.bytes() < 1000);
        let there = KeptData::Medium { lun: origin.lun, offset_bytes: 4608, length: 100_000 };
        assert_eq!(replay.sequence(7, 0, 0)[0].data, there);
    }

    /// A hundred thousand answers, acknowledged one by one from the oldest on and then all at once: what is removed
    /// is what it costs. Were each acknowledgement to look through all that is kept, this would take ten billion steps.
    #[test]
    fn acknowledging_costs_as_much_as_it_removes() {
        let mut replay = Replay::new(1 << 30);
        for stat_sn in 0..100_000 {
            let mut out = TransmitBuffer::new();
            out.pdu(ScsiResponse { tag: stat_sn, stat_sn, ..ScsiResponse::default() }.write(), &[]);
            replay.keep(&Framer::new(1 << 20), out.pending(), &mut HashMap::new());
        }
        for exp_stat_sn in 0..50_000 {
            replay.acknowledge(exp_stat_sn);
        }
        assert_eq!(replay.kept.len(), 50_001);
        replay.acknowledge(100_000);
        assert_eq!((replay.kept.len(), replay.bytes), (0, 0));
    }

    #[test]
    fn a_reused_tag_keeps_the_pdus_of_its_second_task() {
        let mut out = TransmitBuffer::new();
        data(7, 0, Some(10), &mut out);
        data(7, 0, None, &mut out);
        data(7, 1, Some(11), &mut out);
        let mut replay = Replay::default();
        replay.keep(&Framer::new(1 << 20), out.pending(), &mut HashMap::new());
        replay.acknowledge(11);
        assert_eq!(replay.sequence(7, 0, 0).len(), 2);
    }

    #[test]
    fn replay_memory_is_limited() {
        let mut replay = Replay::new(8 << 20);
        let mut out = TransmitBuffer::new();
        for sn in 0..9 {
            out.pdu(DataIn { tag: 1, data_sn: sn, ..DataIn::default() }.write(), &vec![0; 1 << 20]);
            replay.keep(&Framer::new(1 << 20), out.pending(), &mut HashMap::new());
            out.sent(out.pending().len());
        }
        assert!(replay.copied_bytes <= 2 << 20 && replay.tasks[&1].len() == replay.kept.len());
        assert_eq!(replay.sequence(1, 8, 1).len(), 1, "the newest are kept");
        assert_eq!(replay.first(1), Some(replay.kept.values().next().unwrap().sequence.unwrap()));
        for (first, count) in [(0, 0), (0, 9), (8, 2), (9, 0)] {
            assert!(replay.sequence(1, first, count).is_empty(), "all that is asked for, or nothing");
        }
    }

    #[test]
    fn status_snack_is_served_entirely_or_not_at_all() {
        let mut replay = Replay::new(4 * 3 * 100);
        let mut out = TransmitBuffer::new();
        for stat_sn in [u32::MAX - 1, u32::MAX, 0, 1] {
            data(stat_sn / 2, 0, Some(stat_sn), &mut out);
        }
        replay.keep(&Framer::new(1 << 20), out.pending(), &mut HashMap::new());
        let asks = [(u32::MAX, 0), (u32::MAX, 2), (1, 1)];
        assert_eq!(asks.map(|(first, count)| replay.status(first, count).len()), [3, 2, 1]);
        for (first, count) in [(u32::MAX - 1, 0), (u32::MAX - 1, 4), (u32::MAX, 4), (2, 1), (0, 0)] {
            assert!(replay.status(first, count).is_empty(), "{first} {count}");
        }
        replay.acknowledge(u32::MAX);
        assert_eq!(replay.status(0, 0).len(), 3, "what was forgotten has arrived");
    }
}
