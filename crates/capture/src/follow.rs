//! Cuts a byte stream into iSCSI PDUs without keeping their data.
//!
//! At most one basic header is held. Data segments are skipped by arithmetic, so bytes that a snap length
//! cut off cost nothing as long as they lie inside one. After a hole the follower looks for the next header.

use iscsi::bhs::{BHS_BYTES, Bhs, padding};
use iscsi::opcode::{initiator, target};

/// A PDU that has passed.
#[derive(Clone, Copy, Debug)]
pub struct Pdu {
    /// Its basic header.
    pub bhs: Bhs,
    /// All its bytes on the stream.
    pub bytes: u64,
    /// When the packet passed that carried its last byte, nanoseconds since the epoch.
    pub ended_ns: u64,
}

/// Which way a stream flows: which opcodes are plausible on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the initiator.
    Requests,
    /// From the target.
    Responses,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Gathering a header; how much of it is there.
    Header(usize),
    /// Skipping the rest of a PDU; how much is left.
    Body { bhs: Bhs, left: u64 },
    /// Looking for a header after a hole.
    Lost,
}

/// Follows one direction of one connection.
#[derive(Debug)]
pub struct Follower {
    flow: Flow,
    state: State,
    header: [u8; BHS_BYTES],
    /// Bytes passed over while looking for a header, and holes.
    pub skipped_bytes: u64,
    /// How often the boundary was lost.
    pub lost: u64,
}

/// No data segment of a sane peer is longer; RFC 7143 allows 24 bits, implementations use far less.
const PLAUSIBLE_DATA_BYTES: usize = 16 << 20;

impl Follower {
    /// A follower at the beginning of a connection, or (`in_the_middle`) somewhere in it.
    #[must_use]
    pub fn new(flow: Flow, in_the_middle: bool) -> Self {
        let state = if in_the_middle { State::Lost } else { State::Header(0) };
        Self { flow, state, header: [0; BHS_BYTES], skipped_bytes: 0, lost: 0 }
    }

    /// Takes the next bytes of the stream.
    #[inline]
    pub fn bytes(&mut self, mut bytes: &[u8], ns: u64, mut take: impl FnMut(&Pdu)) {
        while !bytes.is_empty() {
            match self.state {
                State::Header(have) => {
                    let count = bytes.len().min(BHS_BYTES - have);
                    self.header[have..have + count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    if have + count < BHS_BYTES {
                        self.state = State::Header(have + count);
                        return;
                    }
                    if !self.is_plausible(&self.header) {
                        // Not where we thought we were: as good as a hole.
                        self.lose(BHS_BYTES as u64);
                        continue;
                    }
                    let bhs = Bhs(self.header);
                    let left = rest_of(&bhs);
                    if left == 0 {
                        self.state = State::Header(0);
                        take(&Pdu { bhs, bytes: BHS_BYTES as u64, ended_ns: ns });
                    } else {
                        self.state = State::Body { bhs, left };
                    }
                }
                State::Body { bhs, left } => {
                    let count = left.min(bytes.len() as u64);
                    bytes = &bytes[count as usize..];
                    self.body(bhs, left - count, ns, &mut take);
                }
                State::Lost => {
                    let Some(at) = self.find(bytes) else {
                        self.skipped_bytes += bytes.len() as u64;
                        return;
                    };
                    self.skipped_bytes += at as u64;
                    bytes = &bytes[at..];
                    self.state = State::Header(0);
                }
            }
        }
    }

    /// Bytes that were on the wire but not captured.
    pub fn uncaptured(&mut self, mut count: u64, ns: u64, mut take: impl FnMut(&Pdu)) {
        if let State::Body { bhs, left } = self.state {
            let inside = left.min(count);
            count -= inside;
            self.body(bhs, left - inside, ns, &mut take);
        }
        if count > 0 {
            // A header was among them.
            self.lose(count);
        }
    }

    /// Bytes that the capture lost.
    pub fn hole(&mut self, count: u64, ns: u64, take: impl FnMut(&Pdu)) {
        // The same arithmetic: inside a data segment nothing is lost but the data.
        self.uncaptured(count, ns, take);
    }

    fn body(&mut self, bhs: Bhs, left: u64, ns: u64, take: &mut impl FnMut(&Pdu)) {
        if left > 0 {
            self.state = State::Body { bhs, left };
            return;
        }
        self.state = State::Header(0);
        take(&Pdu { bhs, bytes: BHS_BYTES as u64 + rest_of(&bhs), ended_ns: ns });
    }

    fn lose(&mut self, skipped: u64) {
        self.skipped_bytes += skipped;
        self.lost += 1;
        self.state = State::Lost;
    }

    /// Where in `bytes` a PDU begins, as far as can be told: a plausible header whose PDU ends at another
    /// plausible header or exactly at the end, or one at the very front (senders begin packets with PDUs).
    /// PDUs are multiples of four bytes, so only such distances are tried.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        (0..bytes.len()).step_by(4).find(|&at| {
            let Some(header) = bytes[at..].first_chunk::<BHS_BYTES>() else { return false };
            if !self.is_plausible(header) {
                return false;
            }
            let end = at as u64 + BHS_BYTES as u64 + rest_of(&Bhs(*header));
            match usize::try_from(end) {
                Ok(end) if end == bytes.len() => true,
                Ok(end) if end < bytes.len() => match bytes[end..].first_chunk::<BHS_BYTES>() {
                    Some(next) => self.is_plausible(next),
                    None => at == 0,
                },
                _ => at == 0,
            }
        })
    }

    fn is_plausible(&self, header: &[u8; BHS_BYTES]) -> bool {
        let bhs = Bhs(*header);
        let known = match self.flow {
            Flow::Requests => matches!(
                bhs.opcode(),
                initiator::NOP_OUT
                    | initiator::SCSI_COMMAND
                    | initiator::TASK_MANAGEMENT
                    | initiator::LOGIN
                    | initiator::TEXT
                    | initiator::DATA_OUT
                    | initiator::LOGOUT
                    | initiator::SNACK
            ),
            Flow::Responses => {
                header[0] & 0x40 == 0
                    && matches!(
                        bhs.opcode(),
                        target::NOP_IN
                            | target::SCSI_RESPONSE
                            | target::TASK_MANAGEMENT
                            | target::LOGIN
                            | target::TEXT
                            | target::DATA_IN
                            | target::LOGOUT
                            | target::R2T
                            | target::ASYNC
                            | target::REJECT
                    )
            }
        };
        // Bit 7 of the first byte is reserved. Zeros are no NOP-Out: its F bit is always set.
        known
            && header[0] & 0x80 == 0
            && bhs.data_bytes() <= PLAUSIBLE_DATA_BYTES
            && (bhs.opcode() != initiator::NOP_OUT || header[1] == 0x80)
    }
}

/// Bytes of a PDU behind its basic header; digests are negotiated off here.
fn rest_of(bhs: &Bhs) -> u64 {
    (bhs.ahs_bytes() + bhs.data_bytes() + padding(bhs.data_bytes())) as u64
}

#[cfg(test)]
mod tests {
    use iscsi::pdu::{DataIn, ScsiCommand};
    use proptest::prelude::*;

    use super::*;

    fn data_in(tag: u32, data: usize) -> Vec<u8> {
        let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
        bhs.set_data_bytes(data);
        let mut pdu = bhs.0.to_vec();
        // Data that looks like anything but a header at first sight.
        pdu.extend((0..data + padding(data)).map(|i| 0x80 | (i as u8)));
        pdu
    }

    fn tags(follower: &mut Follower, chunks: &[&[u8]]) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        for (ns, chunk) in chunks.iter().enumerate() {
            follower.bytes(chunk, ns as u64, |pdu| all.push((pdu.bhs.initiator_task_tag(), pdu.ended_ns)));
        }
        all
    }

    #[test]
    fn a_pdu_ends_with_the_packet_of_its_last_byte() {
        let stream = [data_in(1, 512), data_in(2, 512)].concat();
        let mut follower = Follower::new(Flow::Responses, false);
        assert_eq!(
            tags(&mut follower, &[&stream[..559], &stream[559..600], &stream[600..]]),
            [(1, 1), (2, 2)]
        );
    }

    #[test]
    fn data_that_was_not_captured_or_was_lost_does_not_matter_but_headers_do() {
        let stream = [data_in(1, 512), data_in(2, 512), data_in(3, 512)].concat();
        let mut all = Vec::new();
        let mut follower = Follower::new(Flow::Responses, false);
        let mut take = |pdu: &Pdu| all.push(pdu.bhs.initiator_task_tag());
        follower.bytes(&stream[..100], 0, &mut take);
        follower.uncaptured(460, 1, &mut take);
        follower.bytes(&stream[560..1000], 2, &mut take);
        follower.hole(130, 3, &mut take);
        follower.bytes(&stream[1130..], 4, &mut take);
        follower.bytes(&data_in(4, 0), 5, &mut take);
        assert_eq!(all, [1, 2, 4], "the third PDU's header was in the hole");
        assert_eq!(follower.lost, 1);
        assert_eq!(follower.skipped_bytes, (560 - 130 + 120) as u64 + 10);
    }

    proptest! {
        #[test]
        fn no_cut_changes_what_is_found(sizes in prop::collection::vec(0_usize..3000, 1..20), cuts in prop::collection::vec(1_usize..2000, 1..40)) {
            let stream: Vec<u8> = sizes.iter().enumerate().flat_map(|(i, &n)| data_in(i as u32, n)).collect();
            let (mut follower, mut found, mut rest, mut cut) = (Follower::new(Flow::Responses, false), Vec::new(), &stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let n = (*cut.next().unwrap()).min(rest.len());
                follower.bytes(&rest[..n], 0, |pdu| found.push((pdu.bhs.initiator_task_tag(), pdu.bytes)));
                rest = &rest[n..];
            }
            let expected: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as u32, (48 + n + padding(n)) as u64)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_can_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20), flow: bool, middle: bool) {
            let mut follower = Follower::new(if flow { Flow::Requests } else { Flow::Responses }, middle);
            for chunk in &chunks {
                follower.bytes(chunk, 0, |_| ());
                follower.hole(chunk.len() as u64, 0, |_| ());
            }
        }
    }

    #[test]
    fn a_capture_that_begins_in_the_middle_finds_its_way() {
        let command = ScsiCommand { is_final: true, read: true, tag: 5, ..ScsiCommand::default() }.write().0;
        let mut follower = Follower::new(Flow::Requests, true);
        assert_eq!(tags(&mut follower, &[&[0xff; 30], &command]), [(5, 1)]);
    }
}
