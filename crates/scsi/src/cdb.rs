//! Fields of command descriptor blocks.

/// Operation codes (SPC-4, SBC-3).
#[allow(missing_docs, reason = "each constant is the command's name in the standard")]
pub mod opcode {
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const SEND_DIAGNOSTIC: u8 = 0x1d;
    pub const PREVENT_ALLOW_MEDIUM_REMOVAL: u8 = 0x1e;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const WRITE_AND_VERIFY_10: u8 = 0x2e;
    pub const VERIFY_10: u8 = 0x2f;
    pub const PRE_FETCH_10: u8 = 0x34;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const READ_DEFECT_DATA_10: u8 = 0x37;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const SANITIZE: u8 = 0x48;
    pub const LOG_SENSE: u8 = 0x4d;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const RESERVE_10: u8 = 0x56;
    pub const RELEASE_10: u8 = 0x57;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    pub const VARIABLE_LENGTH: u8 = 0x7f;
    pub const EXTENDED_COPY: u8 = 0x83;
    pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
    pub const READ_16: u8 = 0x88;
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    pub const WRITE_16: u8 = 0x8a;
    pub const OR_WRITE_16: u8 = 0x8b;
    pub const WRITE_AND_VERIFY_16: u8 = 0x8e;
    pub const VERIFY_16: u8 = 0x8f;
    pub const PRE_FETCH_16: u8 = 0x90;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const WRITE_ATOMIC_16: u8 = 0x9c;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const MAINTENANCE_OUT: u8 = 0xa4;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
    pub const WRITE_AND_VERIFY_12: u8 = 0xae;
    pub const VERIFY_12: u8 = 0xaf;
    pub const READ_DEFECT_DATA_12: u8 = 0xb7;
}

/// A command descriptor block; iSCSI carries 16 bytes of it.
pub type Cdb = [u8; 16];

/// Whether a command with input data is a READ, rather than one that reports parameter data.
#[must_use]
pub fn reads_the_medium(cdb: &Cdb) -> bool {
    Extent::of_read(cdb).is_some()
}

/// Two bytes, big-endian.
#[must_use]
#[inline]
pub fn be16(cdb: &Cdb, at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

/// Four bytes, big-endian.
#[must_use]
#[inline]
pub fn be32(cdb: &Cdb, at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

/// Eight bytes, big-endian.
#[must_use]
#[inline]
pub fn be64(cdb: &Cdb, at: usize) -> u64 {
    (u64::from(be32(cdb, at)) << 32) | u64::from(be32(cdb, at + 4))
}

/// The logical blocks of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

impl Extent {
    /// Of a READ; `None` for other commands.
    #[must_use]
    #[inline]
    pub fn of_read(cdb: &Cdb) -> Option<Self> {
        match cdb[0] {
            opcode::READ_6 => Some(Self::of_6(cdb)),
            opcode::READ_10 => Some(Self::of_10(cdb)),
            opcode::READ_12 => Some(Self::of_12(cdb)),
            opcode::READ_16 => Some(Self::of_16(cdb)),
            _ => None,
        }
    }

    /// Of a WRITE; `None` for other commands.
    #[must_use]
    #[inline]
    pub fn of_write(cdb: &Cdb) -> Option<Self> {
        match cdb[0] {
            opcode::WRITE_6 => Some(Self::of_6(cdb)),
            opcode::WRITE_10 => Some(Self::of_10(cdb)),
            opcode::WRITE_12 => Some(Self::of_12(cdb)),
            opcode::WRITE_16 => Some(Self::of_16(cdb)),
            _ => None,
        }
    }

    /// Of a 6-byte READ or WRITE: 21 bits of address, and 0 means 256 blocks (SBC-3 5.10).
    #[must_use]
    #[inline]
    pub fn of_6(cdb: &Cdb) -> Self {
        let blocks = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
        Self { lba: (be32(cdb, 0) & 0x1f_ffff).into(), blocks }
    }

    /// Of a 10-byte command.
    #[must_use]
    #[inline]
    pub fn of_10(cdb: &Cdb) -> Self {
        Self { lba: be32(cdb, 2).into(), blocks: be16(cdb, 7).into() }
    }

    /// Of a 12-byte command.
    #[must_use]
    #[inline]
    pub fn of_12(cdb: &Cdb) -> Self {
        Self { lba: be32(cdb, 2).into(), blocks: be32(cdb, 6) }
    }

    /// Of a 16-byte command.
    #[must_use]
    #[inline]
    pub fn of_16(cdb: &Cdb) -> Self {
        Self { lba: be64(cdb, 2), blocks: be32(cdb, 10) }
    }
}

/// The CONTROL byte, by the group of the operation code (SPC-4 4.3.4.1); 0 where a group has none.
#[must_use]
#[inline]
pub fn control(cdb: &Cdb) -> u8 {
    match cdb[0] >> 5 {
        0 => cdb[5],
        1 | 2 => cdb[9],
        4 => cdb[15],
        5 => cdb[11],
        _ => 0,
    }
}

/// The position of the CONTROL byte, for a field pointer.
#[must_use]
pub fn control_byte(cdb: &Cdb) -> u16 {
    match cdb[0] >> 5 {
        1 | 2 => 9,
        4 => 15,
        5 => 11,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_all_four_lengths() {
        let mut cdb = [0; 16];
        cdb[..5].copy_from_slice(&[0x08, 0xff, 0xff, 0xff, 0]);
        assert_eq!(Extent::of_6(&cdb), Extent { lba: 0x1f_ffff, blocks: 256 });
        cdb[..10].copy_from_slice(&[0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]);
        assert_eq!(Extent::of_10(&cdb), Extent { lba: 0x0102_0304, blocks: 0x0506 });
        cdb[..12].copy_from_slice(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);
        assert_eq!(Extent::of_12(&cdb), Extent { lba: 0x0102_0304, blocks: 0x0506_0708 });
        cdb.copy_from_slice(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]);
        assert_eq!(Extent::of_16(&cdb), Extent { lba: 0x0102_0304_0506_0708, blocks: 0x090a_0b0c });
    }

    #[test]
    fn extents_of_reads_and_of_writes() {
        for (code, extent) in [
            (opcode::READ_6, Some(Extent { lba: 0x0002_0304, blocks: 5 })),
            (opcode::READ_10, Some(Extent { lba: 0x0203_0405, blocks: 0x0708 })),
            (opcode::READ_12, Some(Extent { lba: 0x0203_0405, blocks: 0x0607_0809 })),
            (opcode::READ_16, Some(Extent { lba: 0x0203_0405_0607_0809, blocks: 0x0a0b_0c0d })),
            (opcode::WRITE_10, None),
            (opcode::VERIFY_12, None),
            (0, None),
        ] {
            let mut cdb: Cdb = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0];
            if code == opcode::READ_6 {
                (cdb[1], cdb[2], cdb[3], cdb[4]) = (0xe2, 3, 4, 5);
            }
            cdb[0] = code;
            assert_eq!(Extent::of_read(&cdb), extent, "{code:#x}");
            // A WRITE has its fields where the READ of its length has them; its code is 2 more.
            if extent.is_some() {
                assert_eq!(Extent::of_write(&cdb), None, "{code:#x}");
                cdb[0] = code + 2;
                assert_eq!((Extent::of_write(&cdb), Extent::of_read(&cdb)), (extent, None), "{code:#x}");
            }
        }
    }
}
