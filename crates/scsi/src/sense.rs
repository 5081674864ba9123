//! Sense data (SPC-4 4.5).

/// Sense keys (SPC-4 table 48).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenseKey {
    /// NO SENSE.
    NoSense = 0x0,
    /// NOT READY.
    NotReady = 0x2,
    /// MEDIUM ERROR.
    MediumError = 0x3,
    /// HARDWARE ERROR.
    HardwareError = 0x4,
    /// ILLEGAL REQUEST.
    IllegalRequest = 0x5,
    /// UNIT ATTENTION.
    UnitAttention = 0x6,
    /// DATA PROTECT.
    DataProtect = 0x7,
    /// COPY ABORTED.
    CopyAborted = 0xa,
    /// ABORTED COMMAND.
    AbortedCommand = 0xb,
    /// MISCOMPARE.
    Miscompare = 0xe,
}

/// Why a command did not do what it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// INFORMATION: for a block device, a logical block address.
    pub information: Option<u64>,
    /// The byte of the command (or of its parameters) that is wrong.
    pub field: Option<FieldPointer>,
}

/// Points at a wrong field (SPC-4 4.5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether it is in the CDB rather than in the parameter data.
    pub in_cdb: bool,
    /// Byte number.
    pub byte: u16,
    /// Most significant bit of the field, where it is part of a byte.
    pub bit: Option<u8>,
}

impl Sense {
    /// No sense: what REQUEST SENSE reports when there is nothing.
    pub const NONE: Sense = Sense::new(SenseKey::NoSense, 0, 0);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPCODE: Sense = Sense::new(SenseKey::IllegalRequest, 0x20, 0x00);
    /// INVALID FIELD IN CDB, without saying which.
    pub const INVALID_FIELD: Sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub const PARAMETER_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x1a, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const NO_SUCH_LUN: Sense = Sense::new(SenseKey::IllegalRequest, 0x25, 0x00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const NO_SAVING: Sense = Sense::new(SenseKey::IllegalRequest, 0x39, 0x00);
    /// LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE.
    pub const NOT_READY: Sense = Sense::new(SenseKey::NotReady, 0x04, 0x00);
    /// MEDIUM NOT PRESENT.
    pub const NO_MEDIUM: Sense = Sense::new(SenseKey::NotReady, 0x3a, 0x00);
    /// MEDIUM REMOVAL PREVENTED.
    pub const REMOVAL_PREVENTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x53, 0x02);
    /// A third-party copy that could not be done, without saying why.
    pub const COPY_ABORTED: Sense = Sense::new(SenseKey::CopyAborted, 0x00, 0x00);
    /// INTERNAL TARGET FAILURE.
    pub const INTERNAL_FAILURE: Sense = Sense::new(SenseKey::HardwareError, 0x44, 0x00);
    /// LOGICAL UNIT FAILED SELF-TEST.
    pub const FAILED_SELF_TEST: Sense = Sense::new(SenseKey::HardwareError, 0x3e, 0x03);
    /// WRITE PROTECTED.
    pub const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x00);
    /// UNRECOVERED READ ERROR.
    pub const READ_ERROR: Sense = Sense::new(SenseKey::MediumError, 0x11, 0x00);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Sense = Sense::new(SenseKey::MediumError, 0x0c, 0x00);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const SPACE_ALLOCATION_FAILED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x07);

    /// Sense without information or pointer.
    #[must_use]
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None, field: None }
    }

    /// INVALID FIELD IN CDB at a byte.
    #[must_use]
    pub const fn invalid_field(byte: u16) -> Self {
        Self { field: Some(FieldPointer { in_cdb: true, byte, bit: None }), ..Self::INVALID_FIELD }
    }

    /// INVALID FIELD IN PARAMETER LIST at a byte.
    #[must_use]
    pub const fn invalid_parameter(byte: u16) -> Self {
        let field = Some(FieldPointer { in_cdb: false, byte, bit: None });
        Self { field, ..Self::new(SenseKey::IllegalRequest, 0x26, 0x00) }
    }

    /// MISCOMPARE DURING VERIFY OPERATION: the offset of the first byte that differs, in the data.
    #[must_use]
    pub const fn miscompare(offset: u64) -> Self {
        Self { information: Some(offset), ..Self::new(SenseKey::Miscompare, 0x1d, 0x00) }
    }

    /// INVALID FIELD IN CDB at a bit of a byte.
    #[must_use]
    pub const fn invalid_bit(byte: u16, bit: u8) -> Self {
        Self { field: Some(FieldPointer { in_cdb: true, byte, bit: Some(bit) }), ..Self::INVALID_FIELD }
    }

    /// LOGICAL BLOCK ADDRESS OUT OF RANGE: the first address that is.
    #[must_use]
    pub const fn lba_out_of_range(lba: u64) -> Self {
        Self { information: Some(lba), ..Self::new(SenseKey::IllegalRequest, 0x21, 0x00) }
    }

    /// The three bytes of the sense-key specific field, where there is a pointer (SPC-4 table 40).
    fn key_specific(&self) -> Option<[u8; 3]> {
        let field = self.field?;
        let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 7));
        let [high, low] = field.byte.to_be_bytes();
        Some([0x80 | if field.in_cdb { 0x40 } else { 0 } | bit, high, low])
    }

    /// Fixed format, 18 bytes (SPC-4 4.5.3). An address over 32 bits does not fit and is left out.
    #[must_use]
    pub fn fixed(&self) -> [u8; 18] {
        let mut data = [0; 18];
        data[0] = 0x70;
        data[2] = self.key as u8;
        if let Some(lba) = self.information.and_then(|lba| u32::try_from(lba).ok()) {
            data[0] |= 0x80;
            data[3..7].copy_from_slice(&lba.to_be_bytes());
        }
        data[7] = 10;
        data[12] = self.asc;
        data[13] = self.ascq;
        if let Some(specific) = self.key_specific() {
            data[15..18].copy_from_slice(&specific);
        }
        data
    }

    /// Descriptor format (SPC-4 4.5.2), which holds any address.
    #[must_use]
    pub fn descriptor(&self) -> Vec<u8> {
        let mut data = vec![0x72, self.key as u8, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(lba) = self.information {
            data.extend_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            data.extend_from_slice(&lba.to_be_bytes());
        }
        if let Some(specific) = self.key_specific() {
            data.extend_from_slice(&[0x02, 0x06, 0, 0]);
            data.extend_from_slice(&specific);
            data.push(0);
        }
        data[7] = (data.len() - 8) as u8;
        data
    }

    /// What accompanies CHECK CONDITION where no control page says otherwise: fixed format. An address that
    /// does not fit leaves VALID at 0.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.fixed().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_both_sense_formats() {
        let sense = Sense::lba_out_of_range(0x1234);
        assert_eq!(sense.fixed(), [0xf0, 0, 5, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0]);
        let far = Sense::lba_out_of_range(1 << 32);
        assert_eq!(far.descriptor(), [0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!((far.encode()[0], far.encode().len()), (0x70, 18), "no room for the address, so no VALID");
        assert_eq!(Sense::invalid_bit(1, 5).fixed()[15..], [0xcd, 0, 1]);
        assert_eq!(Sense::invalid_field(2).descriptor()[8..], [2, 6, 0, 0, 0xc0, 0, 2, 0]);
    }
}
