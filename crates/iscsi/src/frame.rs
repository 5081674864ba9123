//! PDU boundaries in a byte stream.

use crate::bhs::{BHS_BYTES, Bhs, padding};
use crate::digest::{DIGEST_BYTES, Digests, digest};
use crate::fault::Fault;

/// One PDU as it lies in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The basic header.
    pub bhs: Bhs,
    /// Additional header segments, as received.
    pub ahs: &'a [u8],
    /// The data segment, without padding.
    pub data: &'a [u8],
    /// All bytes of the PDU on the stream, padding included.
    pub total_bytes: usize,
    /// The data digest is wrong.
    pub is_damaged: bool,
}

/// The beginning of the bytes received so far.
#[derive(Clone, Copy, Debug)]
pub enum Cut<'a> {
    /// A whole PDU.
    Frame(Frame<'a>),
    /// Part of a PDU: this many bytes from its beginning on are needed to continue.
    Needs(usize),
}

impl<'a> Cut<'a> {
    /// The PDU, if it is complete.
    #[must_use]
    pub fn frame(self) -> Option<Frame<'a>> {
        match self {
            Cut::Frame(frame) => Some(frame),
            Cut::Needs(_) => None,
        }
    }
}

/// Finds PDU boundaries in a byte stream. It holds the limits only, so one framer can serve any buffer.
///
/// Call [`Framer::next`] with all unread bytes. [`Cut::Needs`] asks for that many bytes in total before the next call;
/// after a [`Cut::Frame`], remove [`Frame::total_bytes`] from the stream before the next call. An error ends the stream:
/// the boundary of the next PDU is unknown. Digests change only between PDUs, after the login.
///
/// ```
/// use iscsi::{Bhs, Cut, Framer};
///
/// let framer = Framer::new(8192);
/// let mut nop_out = Bhs::new(0x00);
/// nop_out.set_data_bytes(3);
/// let stream = [&nop_out.0[..], b"abc\0"].concat();
/// assert!(matches!(framer.next(&stream[..48])?, Cut::Needs(52)));
/// let frame = framer.next(&stream)?.frame().expect("the PDU is complete");
/// assert_eq!((frame.data, frame.total_bytes), (&b"abc"[..], 52));
/// # Ok::<(), iscsi::Fault>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    /// Largest data segment that the peer may send, bytes: the declared MaxRecvDataSegmentLength.
    pub max_data_bytes: usize,
    /// The digests that PDUs carry.
    pub digests: Digests,
    /// A wrong data digest marks the PDU as damaged instead of ending the stream (ErrorRecoveryLevel above 0).
    pub passes_damage: bool,
}

impl Framer {
    /// A framer of PDUs without digests.
    #[must_use]
    pub fn new(max_data_bytes: usize) -> Self {
        Self { max_data_bytes, digests: Digests::default(), passes_damage: false }
    }

    /// The PDU at the beginning of `bytes`.
    ///
    /// # Errors
    /// If the header announces more data than the peer may send, or a digest is wrong.
    #[inline]
    pub fn next<'a>(&self, bytes: &'a [u8]) -> Result<Cut<'a>, Fault> {
        let Some((header, rest)) = bytes.split_first_chunk::<BHS_BYTES>() else {
            return Ok(Cut::Needs(BHS_BYTES));
        };
        let bhs = Bhs(*header);
        let (ahs_bytes, data_bytes) = (bhs.ahs_bytes(), bhs.data_bytes());
        if data_bytes > self.max_data_bytes {
            return Err(Fault::DataSegmentTooLong {
                opcode: bhs.opcode(),
                bytes: data_bytes,
                allowed: self.max_data_bytes,
            });
        }
        let padded = data_bytes + padding(data_bytes);
        let behind_headers = BHS_BYTES + ahs_bytes + self.digests.header_bytes();
        let total_bytes = behind_headers + padded + self.digests.data_bytes(data_bytes);
        if bytes.len() < total_bytes {
            return Ok(Cut::Needs(total_bytes));
        }
        let (ahs, _) = rest.split_at(ahs_bytes);
        let (data, after) = bytes[behind_headers..total_bytes].split_at(padded);
        let wrong = |part| Fault::Digest { opcode: bhs.opcode(), part };
        if self.digests.header && digest(&[header, ahs]) != bytes[BHS_BYTES + ahs_bytes..behind_headers] {
            return Err(wrong("header"));
        }
        let is_damaged = !after.is_empty() && digest(&[data]) != after;
        if is_damaged && !self.passes_damage {
            return Err(wrong("data"));
        }
        Ok(Cut::Frame(Frame { bhs, ahs, data: &data[..data_bytes], total_bytes, is_damaged }))
    }

    /// The longest PDU that passes, bytes; a receive buffer of this size always makes progress.
    #[must_use]
    pub fn longest_pdu(&self) -> usize {
        BHS_BYTES + 255 * 4 + self.max_data_bytes + padding(self.max_data_bytes) + 2 * DIGEST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pdu_is_cut_with_its_padding() {
        let framer = Framer::new(8192);
        let mut bhs = Bhs::new(0x04);
        bhs.set_data_bytes(5);
        let mut stream = bhs.0.to_vec();
        stream.extend_from_slice(b"A=1\0\0...");
        let needed = |bytes: usize| match framer.next(&stream[..bytes]).unwrap() {
            Cut::Needs(needed) => needed,
            Cut::Frame(frame) => panic!("{frame:?}"),
        };
        assert_eq!((needed(20), needed(55)), (48, 56));
        let frame = framer.next(&stream).unwrap().frame().unwrap();
        assert_eq!((frame.data, frame.total_bytes), (&b"A=1\0\0"[..], 56));
    }

    #[test]
    fn digests_are_removed_and_detect_a_changed_byte() {
        use crate::transmit::TransmitBuffer;
        for (header, data) in [(true, false), (false, true), (true, true)] {
            let digests = Digests { header, data };
            let framer = Framer { max_data_bytes: 8192, digests, passes_damage: false };
            let mut out = TransmitBuffer::new();
            out.set_digests(digests);
            out.pdu(Bhs::new(0x04), b"A=1\0\0");
            out.pdu(Bhs::new(0x00), b"");
            let stream = out.pending().to_vec();
            let first = framer.next(&stream).unwrap().frame().unwrap();
            assert_eq!(first.data, b"A=1\0\0");
            let second = framer.next(&stream[first.total_bytes..]).unwrap().frame().unwrap();
            assert_eq!((second.data.len(), first.total_bytes + second.total_bytes), (0, stream.len()));
            let changed = |place: usize| {
                let mut stream = stream.clone();
                stream[place] ^= 0x10;
                framer.next(&stream).is_err()
            };
            assert_eq!((changed(20), changed(48 + digests.header_bytes() + 1)), (header, data));
        }
    }

    #[test]
    fn a_segment_longer_than_declared_is_a_fault() {
        let mut bhs = Bhs::new(0x01);
        bhs.set_data_bytes(8193);
        assert!(Framer::new(8192).next(&bhs.0).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic_or_pass_the_bound(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let framer = Framer::new(256);
            if let Ok(Cut::Frame(frame)) = framer.next(&bytes) {
                prop_assert!(frame.total_bytes <= bytes.len());
                prop_assert!(frame.total_bytes <= framer.longest_pdu());
            }
        }
    }
}
