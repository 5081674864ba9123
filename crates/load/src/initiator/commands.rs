//! The command descriptor blocks that a load generator needs (SPC-4, SBC-3).

use crate::failure::SenseCodes;

/// READ CAPACITY (16): SERVICE ACTION IN with action 10h, 32 bytes.
#[must_use]
pub fn read_capacity_16() -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x9e;
    cdb[1] = 0x10;
    cdb[13] = 32;
    cdb
}

/// Returns READ or WRITE (10) if the address and length fit, else (16).
#[must_use]
#[inline]
pub fn read_write(write: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = if write { 0x2a } else { 0x28 };
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = if write { 0x8a } else { 0x88 };
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    cdb
}

/// Bytes of the parameter list of [`unmap`].
pub const UNMAP_LIST_BYTES: u32 = 24;

/// UNMAP with a parameter list of one descriptor, [`unmap_list`].
#[must_use]
pub fn unmap() -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x42;
    cdb[8] = UNMAP_LIST_BYTES as u8;
    cdb
}

/// Returns the parameter list of UNMAP for one range (SBC-3 5.28.2).
#[must_use]
pub fn unmap_list(lba: u64, blocks: u32) -> [u8; UNMAP_LIST_BYTES as usize] {
    let mut list = [0; UNMAP_LIST_BYTES as usize];
    list[1] = 22;
    list[3] = 16;
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    list
}

/// WRITE SAME (16) with the UNMAP bit: the disk may deallocate the blocks if they then read as the block that is sent.
#[must_use]
pub fn write_same(lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x93;
    cdb[1] = 0x08;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Formats key, ASC and ASCQ of sense data in either format, such as `3/11/00`.
#[must_use]
pub fn describe_sense(sense: &[u8]) -> String {
    SenseCodes::read(sense).map_or_else(|| "none".to_owned(), |codes| codes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_command_is_used_where_it_fits() {
        assert_eq!(read_write(false, 1, 1)[..9], [0x28, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(read_write(true, 1 << 32, 1)[..14], [0x8a, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(read_write(false, 0, 65_536)[0], 0x88);
    }

    #[test]
    fn clearing_commands_name_their_range() {
        assert_eq!(unmap()[..9], [0x42, 0, 0, 0, 0, 0, 0, 0, 24]);
        let list = unmap_list(0x0102, 8);
        assert_eq!(list[..8], [0, 22, 0, 16, 0, 0, 0, 0]);
        assert_eq!(list[8..], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(write_same(1, 2)[..14], [0x93, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn sense_is_described_in_both_formats() {
        assert_eq!(describe_sense(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0]), "5/21/00");
        assert_eq!(describe_sense(&[0x72, 5, 0x25, 0]), "5/25/00");
        assert_eq!(describe_sense(&[]), "none");
    }
}
