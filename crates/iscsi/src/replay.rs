//! What was sent and is not acknowledged, kept to be sent again (RFC 7143 7.1, 7.2; ErrorRecoveryLevel above 0).

use std::collections::VecDeque;

use crate::bhs::{BHS_BYTES, Bhs, NO_TAG};
use crate::frame::Framer;
use crate::opcode::target as opcode;
use crate::pdu::{DataIn, NopIn, R2t};

/// Most bytes that a connection keeps when nothing else is said.
pub const KEPT_BYTES_MAX: usize = 4 << 20;

/// A PDU that was sent.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its header.
    pub bhs: Bhs,
    /// Its data segment, without padding.
    pub data: Vec<u8>,
    /// StatSN, where it carries status.
    stat_sn: Option<u32>,
    /// DataSN or R2TSN, where it has one.
    sequence: Option<u32>,
}

impl Kept {
    fn tag(&self) -> u32 {
        self.bhs.initiator_task_tag()
    }
}

/// The PDUs of a connection that the initiator has not acknowledged, in order.
#[derive(Debug)]
pub struct Replay {
    kept: VecDeque<Kept>,
    bytes: usize,
    limit: usize,
}

impl Default for Replay {
    fn default() -> Self {
        Self::new(KEPT_BYTES_MAX)
    }
}

impl Replay {
    /// Keeps at most `limit` bytes: the oldest PDUs go first, and are then lost for a SNACK.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, limit }
    }

    /// Keeps the PDUs in `sent`, as they stand on the stream.
    pub fn keep(&mut self, framer: &Framer, mut sent: &[u8]) {
        while let Ok(Ok(frame)) = framer.next(sent) {
            let bhs = frame.bhs;
            let stat_sn = u32::from_be_bytes([bhs.0[24], bhs.0[25], bhs.0[26], bhs.0[27]]);
            let (stat_sn, sequence) = match bhs.opcode() {
                opcode::DATA_IN => {
                    let data_in = DataIn::read(&bhs);
                    (data_in.has_status.then_some(stat_sn), Some(data_in.data_sn))
                }
                opcode::R2T => (None, Some(R2t::read(&bhs).r2t_sn)),
                // A question of ours does not count; an answer does.
                opcode::NOP_IN if NopIn::read(&bhs).tag == NO_TAG => (None, None),
                _ => (Some(stat_sn), None),
            };
            if stat_sn.is_some() || sequence.is_some() {
                self.bytes += BHS_BYTES + frame.data.len();
                self.kept.push_back(Kept { bhs, data: frame.data.to_vec(), stat_sn, sequence });
            }
            sent = &sent[frame.total_bytes..];
        }
        while self.bytes > self.limit {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= BHS_BYTES + oldest.data.len();
        }
    }

    /// Everything before `exp_stat_sn` has arrived.
    #[inline]
    pub fn acknowledge(&mut self, exp_stat_sn: u32) {
        let is_known = |kept: &Kept| kept.stat_sn.is_some_and(|sn| (sn.wrapping_sub(exp_stat_sn) as i32) < 0);
        while let Some(place) = self.kept.iter().position(is_known) {
            // With its status, all data of a command is acknowledged.
            let (tag, is_for_task) = (self.kept[place].tag(), self.kept[place].tag() != NO_TAG);
            self.kept.remove(place);
            if is_for_task {
                self.kept.retain(|kept| kept.tag() != tag || kept.stat_sn.is_some());
            }
            self.bytes = self.kept.iter().map(|kept| BHS_BYTES + kept.data.len()).sum();
        }
    }

    /// The Data-In PDUs or R2Ts of a task from number `first` on, `count` of them (0: all).
    #[must_use]
    pub fn sequence(&self, tag: u32, first: u32, count: u32) -> Vec<Kept> {
        let wanted = |sn: u32| sn >= first && (count == 0 || sn - first < count);
        let mine = self.kept.iter().filter(|kept| kept.tag() == tag && kept.sequence.is_some_and(wanted));
        mine.cloned().collect()
    }

    /// The PDUs that carry status, from StatSN `first` on, `count` of them (0: all).
    #[must_use]
    pub fn status(&self, first: u32, count: u32) -> Vec<Kept> {
        let wanted = |sn: u32| {
            let behind = sn.wrapping_sub(first);
            (behind as i32) >= 0 && (count == 0 || behind < count)
        };
        self.kept.iter().filter(|kept| kept.stat_sn.is_some_and(wanted)).cloned().collect()
    }

    /// Takes what a task that has its status has sent, to go on with it elsewhere.
    #[must_use]
    pub fn take_task(&mut self, tag: u32) -> Vec<Kept> {
        let (mine, rest): (Vec<Kept>, Vec<Kept>) = self.kept.drain(..).partition(|kept| kept.tag() == tag);
        self.kept = rest.into();
        self.bytes = self.kept.iter().map(|kept| BHS_BYTES + kept.data.len()).sum();
        mine
    }

    /// The tags of tasks that have their status, which is not acknowledged.
    pub fn finished_tasks(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().filter(|kept| kept.stat_sn.is_some() && kept.tag() != NO_TAG).map(Kept::tag)
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
    fn what_is_not_acknowledged_can_be_asked_for() {
        let mut out = TransmitBuffer::new();
        for sn in 0..3 {
            data(7, sn, (sn == 2).then_some(10), &mut out);
        }
        out.pdu(ScsiResponse { tag: 8, stat_sn: 11, ..ScsiResponse::default() }.write(), &[]);
        let mut replay = Replay::default();
        replay.keep(&Framer::new(1 << 20), out.pending());
        let numbers = |kept: &[Kept]| kept.iter().map(|k| DataIn::read(&k.bhs).data_sn).collect::<Vec<_>>();
        assert_eq!(numbers(&replay.sequence(7, 1, 0)), [1, 2]);
        assert_eq!(numbers(&replay.sequence(7, 0, 2)), [0, 1]);
        assert_eq!(replay.status(11, 1).len(), 1);
        assert_eq!(replay.finished_tasks().collect::<Vec<_>>(), [7, 8]);
        replay.acknowledge(11);
        assert!(replay.sequence(7, 0, 0).is_empty(), "with the status its data is acknowledged");
        assert_eq!(replay.status(10, 0).len(), 1);
        replay.acknowledge(12);
        assert_eq!((replay.kept.len(), replay.bytes), (0, 0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut replay = Replay::new(2 << 20);
        let mut out = TransmitBuffer::new();
        for sn in 0..9 {
            out.pdu(DataIn { tag: 1, data_sn: sn, ..DataIn::default() }.write(), &vec![0; 1 << 20]);
            replay.keep(&Framer::new(1 << 20), out.pending());
            out.sent(out.pending().len());
        }
        assert!(replay.bytes <= 2 << 20);
        assert_eq!(replay.sequence(1, 8, 1).len(), 1, "the newest are kept");
    }
}
