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
    data[13] = disk.physical_exponent & 0x0f;
    if disk.provisioning.is_some() {
        // LBPME, and LBPRZ: unmapped blocks read as zeros.
        data[14] = 0xc0;
    }
    out.extend_from_slice(&data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::example;

    #[test]
    fn read_capacity_10_saturates_and_16_does_not() {
        let disk = Disk { blocks: (1 << 32) + 2, block_bytes: 4096, ..example() };
        let mut out = Vec::new();
        read_capacity_10(&disk, &mut out);
        assert_eq!(out, [255, 255, 255, 255, 0, 0, 0x10, 0]);
        out.clear();
        read_capacity_16(&disk, &mut out);
        assert_eq!(out[..12], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x10, 0]);
        assert_eq!(out[12..], [0; 20], "no protection, no thin provisioning, no exponent");
    }
}
