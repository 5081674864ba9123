//! The basic header segment: 48 bytes that begin every PDU (RFC 7143 11.2.1).

/// Length of the basic header segment, bytes.
pub const BHS_BYTES: usize = 48;

/// The tag value that means "none" (RFC 7143 11.2.1.8 and 11.7.4).
pub const NO_TAG: u32 = 0xffff_ffff;

/// A basic header segment in wire format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header of this opcode.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        let mut bytes = [0; BHS_BYTES];
        bytes[0] = opcode;
        Self(bytes)
    }

    /// The opcode, without the immediate bit.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The I bit: deliver at once, outside the command order.
    #[must_use]
    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Length of the additional header segments, bytes (TotalAHSLength counts words).
    #[must_use]
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// DataSegmentLength, bytes, without padding.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        (usize::from(self.0[5]) << 16) | (usize::from(self.0[6]) << 8) | usize::from(self.0[7])
    }

    /// Sets DataSegmentLength; the field holds 24 bits, and every caller's lengths are bounded by a
    /// negotiated MaxRecvDataSegmentLength, which holds 24 bits too.
    pub fn set_data_bytes(&mut self, length: usize) {
        debug_assert!(length < 1 << 24);
        self.0[5] = (length >> 16) as u8;
        self.0[6] = (length >> 8) as u8;
        self.0[7] = length as u8;
    }

    /// The logical unit, as encoded (SAM-5 4.7), in PDUs that have one.
    #[must_use]
    #[inline]
    pub fn lun(&self) -> [u8; 8] {
        let [.., a, b, c, d, e, f, g, h] = *self.0.first_chunk::<16>().unwrap_or(&[0; 16]);
        [a, b, c, d, e, f, g, h]
    }

    /// The initiator task tag.
    #[must_use]
    pub fn initiator_task_tag(&self) -> u32 {
        u32::get(&self.0, 16)
    }
}

/// A number or byte field at a fixed place in the header, big-endian.
pub(crate) trait Field: Sized {
    /// Reads the field whose first byte is `at`.
    fn get(header: &[u8; BHS_BYTES], at: usize) -> Self;
    /// Writes it.
    fn put(self, header: &mut [u8; BHS_BYTES], at: usize);
}

macro_rules! number_field {
    ($($t:ty),*) => {$(
        impl Field for $t {
            #[inline]
            fn get(header: &[u8; BHS_BYTES], at: usize) -> Self {
                let mut bytes = [0; size_of::<$t>()];
                bytes.copy_from_slice(&header[at..at + size_of::<$t>()]);
                <$t>::from_be_bytes(bytes)
            }
            #[inline]
            fn put(self, header: &mut [u8; BHS_BYTES], at: usize) {
                header[at..at + size_of::<$t>()].copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
number_field!(u8, u16, u32);

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn get(header: &[u8; BHS_BYTES], at: usize) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&header[at..at + N]);
        bytes
    }
    #[inline]
    fn put(self, header: &mut [u8; BHS_BYTES], at: usize) {
        header[at..at + N].copy_from_slice(&self);
    }
}

/// Bytes of padding that follow a data segment of this length (RFC 7143 11.2.1.6: to four bytes).
#[must_use]
pub fn padding(data_bytes: usize) -> usize {
    data_bytes.wrapping_neg() & 3
}
