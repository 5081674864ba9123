//! Commands that do more to the medium than move data: comparisons, patterns, provisioning (SBC-3 5).
//!
//! Each is planned twice: when the command comes, for how much data the initiator has to send, and again when
//! that data is there, for what is to be done with it.

use crate::cdb::{Cdb, Extent, be16, be32, be64, opcode};
use crate::disk::Disk;
use crate::lun::Lun;
use crate::luns::{Plan, range, transfer};
use crate::sense::Sense;

/// What is to be done to a disk's bytes, all of it inside the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The same block over and over (WRITE SAME).
    Fill {
        /// First byte.
        offset_bytes: u64,
        /// How many; a multiple of the block.
        length_bytes: u64,
        /// The block.
        block: Vec<u8>,
    },
    /// These ranges (first byte, how many) need not be kept: they read as zeros from then on.
    Unmap {
        /// The ranges.
        ranges: Vec<(u64, u64)>,
    },
    /// Write only where the medium is as expected, as one step (COMPARE AND WRITE).
    CompareAndWrite {
        /// First byte.
        offset_bytes: u64,
        /// What must be there.
        expected: Vec<u8>,
        /// What takes its place.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// The medium must be this (VERIFY with BYTCHK).
    Compare {
        /// First byte.
        offset_bytes: u64,
        /// How many; with a single block in `expected`, that block over and over.
        length_bytes: u64,
        /// What must be there.
        expected: Vec<u8>,
    },
    /// Write as one step: nobody sees a part of it (WRITE ATOMIC).
    WriteAtomic {
        /// First byte.
        offset_bytes: u64,
        /// The data.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// Bits are set, as one step (ORWRITE).
    Or {
        /// First byte.
        offset_bytes: u64,
        /// The bits.
        data: Vec<u8>,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
}

/// Most blocks of one UNMAP: what takes a few milliseconds to forget.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Most ranges of one UNMAP.
pub(crate) const UNMAP_RANGES_MAX: u32 = 256;
/// Most blocks of one COMPARE AND WRITE: its field has one byte.
pub(crate) const COMPARE_BLOCKS_MAX: u8 = 255;
/// Most data of one WRITE ATOMIC, bytes.
pub(crate) const ATOMIC_BYTES_MAX: u32 = 1 << 20;
/// Most data that is gathered for one command, bytes.
pub const TAKEN_BYTES_MAX: u64 = 4 << 20;

/// INVALID FIELD IN PARAMETER LIST at a byte.
const fn invalid_parameter(byte: u16) -> Sense {
    Sense::invalid_parameter(byte)
}

/// How much data such a command brings; nothing when it is no such command.
pub(crate) fn begin(lun: Lun, disk: &Disk, cdb: &Cdb) -> Option<Result<Plan, Sense>> {
    Some(match cdb[0] {
        opcode::WRITE_SAME_10 => write_same(lun, disk, cdb, Extent::of_10(cdb)),
        opcode::WRITE_SAME_16 => write_same(lun, disk, cdb, Extent::of_16(cdb)),
        opcode::UNMAP => unmap(lun, disk, cdb),
        opcode::COMPARE_AND_WRITE => compare_and_write(lun, disk, cdb),
        opcode::VERIFY_10 => verify(lun, disk, cdb, Extent::of_10(cdb)),
        opcode::VERIFY_12 => verify(lun, disk, cdb, Extent::of_12(cdb)),
        opcode::VERIFY_16 => verify(lun, disk, cdb, Extent::of_16(cdb)),
        opcode::OR_WRITE_16 => or_write(lun, disk, cdb),
        opcode::SANITIZE => sanitize(lun, disk, cdb),
        opcode::WRITE_ATOMIC_16 => write_atomic(lun, disk, cdb),
        _ => return None,
    })
}

/// What to do with the data of such a command.
pub(crate) fn finish(lun: Lun, disk: &Disk, cdb: &Cdb, data: &[u8]) -> Result<Plan, Sense> {
    let action = match cdb[0] {
        opcode::WRITE_SAME_10 => same_data(disk, cdb, Extent::of_10(cdb), data)?,
        opcode::WRITE_SAME_16 => same_data(disk, cdb, Extent::of_16(cdb), data)?,
        opcode::UNMAP => unmap_data(disk, data)?,
        opcode::COMPARE_AND_WRITE => {
            let (offset_bytes, length_bytes) = range(disk, compare_extent(cdb))?;
            let half = length_bytes as usize;
            let (expected, new) = (data.get(..half), data.get(half..2 * half));
            let (Some(expected), Some(new)) = (expected, new) else { return Err(Sense::PARAMETER_LENGTH) };
            let fua = cdb[1] & 0x08 != 0;
            Action::CompareAndWrite { offset_bytes, expected: expected.to_vec(), data: new.to_vec(), fua }
        }
        opcode::VERIFY_10 => verify_data(disk, Extent::of_10(cdb), data)?,
        opcode::VERIFY_12 => verify_data(disk, Extent::of_12(cdb), data)?,
        opcode::VERIFY_16 => verify_data(disk, Extent::of_16(cdb), data)?,
        opcode::OR_WRITE_16 => {
            let (offset_bytes, length_bytes) = range(disk, Extent::of_16(cdb))?;
            let data = data.get(..length_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?.to_vec();
            Action::Or { offset_bytes, data, fua: cdb[1] & 0x08 != 0 }
        }
        opcode::WRITE_ATOMIC_16 => {
            let (offset_bytes, length_bytes) = range(disk, atomic_extent(cdb))?;
            let data = data.get(..length_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?.to_vec();
            Action::WriteAtomic { offset_bytes, data, fua: cdb[1] & 0x08 != 0 }
        }
        _ => return Err(Sense::INVALID_OPCODE),
    };
    Ok(Plan::Medium { lun, action })
}

fn write_same(lun: Lun, disk: &Disk, cdb: &Cdb, extent: Extent) -> Result<Plan, Sense> {
    let flags = cdb[1];
    let (unmap, anchor) = (flags & 0x08 != 0, flags & 0x10 != 0);
    let no_data = cdb[0] == opcode::WRITE_SAME_16 && flags & 0x01 != 0;
    if flags & 0xe0 != 0 {
        return Err(Sense::invalid_bit(1, 7));
    }
    // Anchored blocks are not offered (ANC_SUP is 0), and thick disks cannot unmap.
    if anchor {
        return Err(Sense::invalid_bit(1, 4));
    }
    if unmap && disk.provisioning.is_none() {
        return Err(Sense::invalid_bit(1, 3));
    }
    let count_field = if cdb[0] == opcode::WRITE_SAME_10 { 7 } else { 10 };
    let (offset_bytes, length_bytes) = same_range(disk, extent)?;
    if length_bytes > Disk::TRANSFER_BYTES_MAX.into() {
        return Err(Sense::invalid_field(count_field));
    }
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    if no_data {
        let action = if unmap {
            Action::Unmap { ranges: vec![(offset_bytes, length_bytes)] }
        } else {
            Action::Fill { offset_bytes, length_bytes, block: vec![0; disk.block_bytes as usize] }
        };
        return Ok(Plan::Medium { lun, action });
    }
    Ok(Plan::Take { lun, length_bytes: disk.block_bytes.into() })
}

/// The range of a WRITE SAME: no blocks means all that follow (WSNZ is 0).
fn same_range(disk: &Disk, extent: Extent) -> Result<(u64, u64), Sense> {
    let (offset_bytes, length_bytes) = range(disk, extent)?;
    if extent.blocks > 0 {
        return Ok((offset_bytes, length_bytes));
    }
    let size = disk.blocks.saturating_mul(disk.block_bytes.into());
    Ok((offset_bytes, size.saturating_sub(offset_bytes)))
}

fn same_data(disk: &Disk, cdb: &Cdb, extent: Extent, data: &[u8]) -> Result<Action, Sense> {
    let (offset_bytes, length_bytes) = same_range(disk, extent)?;
    let block = data.get(..disk.block_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?;
    // Unmapped blocks read as zeros: only a block of zeros may be unmapped instead of written (SBC-3 5.43).
    if cdb[1] & 0x08 != 0 && block.iter().all(|&b| b == 0) {
        return Ok(Action::Unmap { ranges: vec![(offset_bytes, length_bytes)] });
    }
    Ok(Action::Fill { offset_bytes, length_bytes, block: block.to_vec() })
}

fn unmap(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    if disk.provisioning.is_none() {
        return Err(Sense::INVALID_OPCODE);
    }
    if cdb[1] & 1 != 0 {
        return Err(Sense::invalid_bit(1, 0));
    }
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    match be16(cdb, 7) {
        // Nothing to unmap is no error (SBC-3 5.28).
        0 => Ok(Plan::Status(crate::status::GOOD)),
        1..8 => Err(Sense::PARAMETER_LENGTH),
        length => Ok(Plan::Take { lun, length_bytes: length.into() }),
    }
}

fn unmap_data(disk: &Disk, data: &[u8]) -> Result<Action, Sense> {
    let length = data.get(2..4).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b));
    let descriptors = data.get(8..).unwrap_or_default().chunks_exact(16).take(usize::from(length) / 16);
    let (mut ranges, mut sum) = (Vec::new(), 0_u64);
    for (index, descriptor) in descriptors.enumerate() {
        let mut fields = [0; 16];
        fields.copy_from_slice(descriptor);
        let extent = Extent { lba: be64(&fields, 0), blocks: be32(&fields, 8) };
        let (offset_bytes, length_bytes) = range(disk, extent)?;
        sum = sum.saturating_add(extent.blocks.into());
        if sum > UNMAP_BLOCKS_MAX.into() || index >= UNMAP_RANGES_MAX as usize {
            return Err(invalid_parameter(8 + 16 * index as u16));
        }
        if length_bytes > 0 {
            ranges.push((offset_bytes, length_bytes));
        }
    }
    Ok(Action::Unmap { ranges })
}

/// SANITIZE: BLOCK ERASE, and the way out of a failure that cannot happen (SBC-3 5.24).
fn sanitize(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    let length = u64::from(disk.block_bytes).checked_mul(disk.blocks);
    match (cdb[1] & 0x1f, length) {
        (0x02 | 0x1f, _) if disk.is_read_only() => Err(Sense::WRITE_PROTECTED),
        // No list of parameters belongs to them, and what is reserved is zero.
        (0x02 | 0x1f, _) if be16(cdb, 7) != 0 => Err(Sense::invalid_field(7)),
        (0x02, _) if cdb[1] & 0x40 != 0 => Err(Sense::invalid_bit(1, 6)),
        (0x02 | 0x1f, _) if cdb[2..7].iter().any(|&b| b != 0) => Err(Sense::invalid_field(2)),
        (0x02, Some(length)) => Ok(Plan::Medium { lun, action: Action::Unmap { ranges: vec![(0, length)] } }),
        (0x1f, _) => Ok(Plan::Status(crate::status::GOOD)),
        _ => Err(Sense::invalid_bit(1, 4)),
    }
}

fn atomic_extent(cdb: &Cdb) -> Extent {
    Extent { lba: be64(cdb, 2), blocks: be16(cdb, 12).into() }
}

/// WRITE ATOMIC (16) (SBC-4 5.48).
fn write_atomic(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    let (_, length_bytes) = transfer(disk, cdb[1], atomic_extent(cdb))?;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    // Boundaries are not offered: the largest boundary size is 0.
    if be16(cdb, 10) != 0 {
        return Err(Sense::invalid_field(10));
    }
    if length_bytes > ATOMIC_BYTES_MAX.into() {
        return Err(Sense::invalid_field(12));
    }
    match length_bytes {
        0 => Ok(Plan::Status(crate::status::GOOD)),
        length_bytes => Ok(Plan::Take { lun, length_bytes }),
    }
}

fn compare_extent(cdb: &Cdb) -> Extent {
    Extent { lba: be64(cdb, 2), blocks: cdb[13].into() }
}

fn compare_and_write(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    let (_, length_bytes) = transfer(disk, cdb[1], compare_extent(cdb))?;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    // Of no blocks there is nothing to take, and who sends data all the same is told so.
    Ok(Plan::Take { lun, length_bytes: 2 * length_bytes })
}

/// VERIFY: of the medium alone, against the same data, or against one block over and over.
fn verify(lun: Lun, disk: &Disk, cdb: &Cdb, extent: Extent) -> Result<Plan, Sense> {
    let (_, length_bytes) = transfer(disk, cdb[1], extent)?;
    let taken = match cdb[1] >> 1 & 3 {
        0 => return Ok(Plan::Status(crate::status::GOOD)),
        1 => length_bytes,
        3 => u64::from(disk.block_bytes).min(length_bytes),
        _ => return Err(Sense::invalid_bit(1, 2)),
    };
    if taken > TAKEN_BYTES_MAX {
        return Err(Sense::INVALID_FIELD);
    }
    if taken == 0 {
        return Ok(Plan::Status(crate::status::GOOD));
    }
    Ok(Plan::Take { lun, length_bytes: taken })
}

fn verify_data(disk: &Disk, extent: Extent, data: &[u8]) -> Result<Action, Sense> {
    let (offset_bytes, length_bytes) = range(disk, extent)?;
    if data.is_empty() || !length_bytes.is_multiple_of(data.len() as u64) {
        return Err(Sense::PARAMETER_LENGTH);
    }
    Ok(Action::Compare { offset_bytes, length_bytes, expected: data.to_vec() })
}

fn or_write(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    let (_, length_bytes) = transfer(disk, cdb[1], Extent::of_16(cdb))?;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    if length_bytes > TAKEN_BYTES_MAX {
        return Err(Sense::INVALID_FIELD);
    }
    match length_bytes {
        0 => Ok(Plan::Status(crate::status::GOOD)),
        length_bytes => Ok(Plan::Take { lun, length_bytes }),
    }
}
