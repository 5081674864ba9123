//! READ CAPACITY (SBC-3 5.15, 5.16).

use crate::disk::Disk;

/// READ CAPACITY (10): the last address, or all ones where it does not fit.
pub fn read_capacity_10(disk: &Disk, out: &mut Vec<u8>) {
    let last = u32::try_from(disk.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&disk.block_bytes.to_be_bytes());
}

/// READ CAPACITY (16).
pub fn read_capacity_16(disk: &Disk, out: &mut Vec<u8>) {
    let mut data = [0_u8; 32];
    data[..8].copy_from_slice(&disk.blocks.saturating_sub(1).to_be_bytes());
    data[8..12].copy_from_slice(&disk.block_bytes.to_be_bytes());
    out.extend_from_slice(&data);
}
