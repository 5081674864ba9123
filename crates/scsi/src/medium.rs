//! Commands that do more to the medium than move data: comparisons, patterns, provisioning (SBC-3 5).
//!
//! Each is planned twice: on arrival, for how much data the initiator has to send, and again with that data, for what
//! to do with it.

use crate::cdb::{Extent, be32, be64};
use crate::command::{Command, Transfer, WriteSame};
use crate::disk::Disk;
use crate::limits::{TAKEN_BYTES_MAX, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX};
use crate::lun::Lun;
use crate::plan::{Action, ByteRange, Plan};
use crate::sense::Sense;
use crate::status;

/// Plans such a command on its arrival: usually, how much data it brings.
///
/// # Errors
/// The sense of an invalid field, or of a command that is not one of these.
pub(crate) fn begin(lun: Lun, disk: &Disk, command: &Command) -> Result<Plan, Sense> {
    match command {
        Command::WriteSame(same) => write_same(lun, disk, same),
        Command::Unmap { anchor, parameter_bytes } => unmap(lun, disk, *anchor, *parameter_bytes),
        Command::CompareAndWrite(transfer) => compare_and_write(lun, disk, transfer),
        Command::Verify { transfer, byte_check } => verify(lun, disk, transfer, *byte_check),
        Command::OrWrite(transfer) => or_write(lun, disk, transfer),
        Command::Sanitize { .. } => sanitize(lun, disk, command),
        Command::WriteAtomic { transfer, boundary } => write_atomic(lun, disk, transfer, *boundary),
        _ => Err(Sense::INVALID_OPCODE),
    }
}

/// Plans what to do with the data of such a command.
///
/// # Errors
/// The sense of a parameter list that is too short or has an invalid field.
pub(crate) fn finish(lun: Lun, disk: &Disk, command: &Command, data: &[u8]) -> Result<Plan, Sense> {
    let action = match command {
        Command::WriteSame(same) => same_data(disk, same, data)?,
        Command::Unmap { .. } => unmap_data(disk, data)?,
        Command::CompareAndWrite(transfer) => {
            let ByteRange { offset_bytes, length_bytes } = disk.range(transfer.extent)?;
            let half = length_bytes as usize;
            let (expected, new) = (data.get(..half), data.get(half..2 * half));
            let (Some(expected), Some(new)) = (expected, new) else { return Err(Sense::PARAMETER_LENGTH) };
            let (expected, data) = (expected.to_vec(), new.to_vec());
            Action::CompareAndWrite { offset_bytes, expected, data, fua: transfer.fua }
        }
        Command::Verify { transfer, .. } => verify_data(disk, transfer.extent, data)?,
        Command::OrWrite(transfer) => {
            let ByteRange { offset_bytes, length_bytes } = disk.range(transfer.extent)?;
            let data = data.get(..length_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?.to_vec();
            Action::Or { offset_bytes, data, fua: transfer.fua }
        }
        Command::WriteAtomic { transfer, .. } => {
            let ByteRange { offset_bytes, length_bytes } = disk.range(transfer.extent)?;
            let data = data.get(..length_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?.to_vec();
            Action::WriteAtomic { offset_bytes, data, fua: transfer.fua }
        }
        _ => return Err(Sense::INVALID_OPCODE),
    };
    Ok(Plan::Medium { lun, action })
}

fn write_same(lun: Lun, disk: &Disk, same: &WriteSame) -> Result<Plan, Sense> {
    if same.protection {
        return Err(Sense::invalid_bit(1, 7));
    }
    // Anchored blocks are not supported (ANC_SUP is 0), and thick disks cannot unmap.
    if same.anchor {
        return Err(Sense::invalid_bit(1, 4));
    }
    if same.unmap && disk.provisioning.is_none() {
        return Err(Sense::invalid_bit(1, 3));
    }
    let range = same_range(disk, same.extent)?;
    if range.length_bytes > Disk::TRANSFER_BYTES_MAX.into() {
        return Err(Sense::invalid_field(same.count_byte));
    }
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    if same.no_data {
        let ByteRange { offset_bytes, length_bytes } = range;
        let action = if same.unmap {
            Action::Unmap { ranges: vec![range] }
        } else {
            Action::Fill { offset_bytes, length_bytes, block: vec![0; disk.block_bytes as usize] }
        };
        return Ok(Plan::Medium { lun, action });
    }
    Ok(Plan::Take { lun, length_bytes: disk.block_bytes.into() })
}

/// The range of a WRITE SAME: a count of 0 means all blocks to the end of the disk (WSNZ is 0).
fn same_range(disk: &Disk, extent: Extent) -> Result<ByteRange, Sense> {
    let range = disk.range(extent)?;
    if extent.blocks > 0 {
        return Ok(range);
    }
    let size = disk.blocks.saturating_mul(disk.block_bytes.into());
    Ok(ByteRange { length_bytes: size.saturating_sub(range.offset_bytes), ..range })
}

fn same_data(disk: &Disk, same: &WriteSame, data: &[u8]) -> Result<Action, Sense> {
    let range = same_range(disk, same.extent)?;
    let block = data.get(..disk.block_bytes as usize).ok_or(Sense::PARAMETER_LENGTH)?;
    // Unmapped blocks read as zeros: only a block of zeros may be unmapped instead of written (SBC-3 5.43).
    if same.unmap && block.iter().all(|&b| b == 0) {
        return Ok(Action::Unmap { ranges: vec![range] });
    }
    let ByteRange { offset_bytes, length_bytes } = range;
    Ok(Action::Fill { offset_bytes, length_bytes, block: block.to_vec() })
}

fn unmap(lun: Lun, disk: &Disk, anchor: bool, parameter_bytes: u16) -> Result<Plan, Sense> {
    if disk.provisioning.is_none() {
        return Err(Sense::INVALID_OPCODE);
    }
    if anchor {
        return Err(Sense::invalid_bit(1, 0));
    }
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    match parameter_bytes {
        // An empty list is no error (SBC-3 5.28).
        0 => Ok(Plan::Status(status::GOOD)),
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
        let range = disk.range(extent)?;
        sum = sum.saturating_add(extent.blocks.into());
        if sum > UNMAP_BLOCKS_MAX.into() || index >= UNMAP_RANGES_MAX as usize {
            return Err(Sense::invalid_parameter(8 + 16 * index as u16));
        }
        if range.length_bytes > 0 {
            ranges.push(range);
        }
    }
    Ok(Action::Unmap { ranges })
}

/// SANITIZE: BLOCK ERASE, and EXIT FAILURE MODE, which has nothing to do as BLOCK ERASE does not fail (SBC-3 5.24).
fn sanitize(lun: Lun, disk: &Disk, command: &Command) -> Result<Plan, Sense> {
    const BLOCK_ERASE: u8 = 0x02;
    const EXIT_FAILURE_MODE: u8 = 0x1f;
    let Command::Sanitize { action, zones_keep_pointers, has_reserved_bits, parameter_bytes } = *command
    else {
        return Err(Sense::INVALID_OPCODE);
    };
    let length = u64::from(disk.block_bytes).checked_mul(disk.blocks);
    match (action, length) {
        (BLOCK_ERASE | EXIT_FAILURE_MODE, _) if disk.is_read_only() => Err(Sense::WRITE_PROTECTED),
        // Neither has a parameter list.
        (BLOCK_ERASE | EXIT_FAILURE_MODE, _) if parameter_bytes != 0 => Err(Sense::invalid_field(7)),
        (BLOCK_ERASE, _) if zones_keep_pointers => Err(Sense::invalid_bit(1, 6)),
        (BLOCK_ERASE | EXIT_FAILURE_MODE, _) if has_reserved_bits => Err(Sense::invalid_field(2)),
        (BLOCK_ERASE, Some(length_bytes)) => {
            let ranges = vec![ByteRange { offset_bytes: 0, length_bytes }];
            Ok(Plan::Medium { lun, action: Action::Unmap { ranges } })
        }
        (EXIT_FAILURE_MODE, _) => Ok(Plan::Status(status::GOOD)),
        _ => Err(Sense::invalid_bit(1, 4)),
    }
}

/// SEND DIAGNOSTIC: the default self-test reads the first and the last block.
///
/// # Errors
/// The sense of another test, or of diagnostic pages, which are none.
pub(crate) fn self_test(lun: Lun, disk: &Disk, command: &Command) -> Result<Plan, Sense> {
    let Command::SendDiagnostic { code, self_test, parameter_bytes } = *command else {
        return Err(Sense::INVALID_OPCODE);
    };
    if code != 0 {
        return Err(Sense::invalid_bit(1, 7));
    }
    if parameter_bytes != 0 {
        return Err(Sense::invalid_field(3));
    }
    if !self_test {
        return Ok(Plan::Status(status::GOOD));
    }
    let last = disk.blocks.saturating_sub(1);
    let ranges = [disk.range(Extent { lba: 0, blocks: 1 })?, disk.range(Extent { lba: last, blocks: 1 })?];
    Ok(Plan::Medium { lun, action: Action::SelfTest { ranges } })
}

/// WRITE ATOMIC (16) (SBC-4 5.48).
fn write_atomic(lun: Lun, disk: &Disk, transfer: &Transfer, boundary: u16) -> Result<Plan, Sense> {
    let length_bytes = disk.transfer(transfer)?.length_bytes;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    // Boundaries are not supported: the largest boundary size is 0.
    if boundary != 0 {
        return Err(Sense::invalid_field(10));
    }
    if disk.atomic_blocks_max() == 0 {
        return Err(Sense::INVALID_OPCODE);
    }
    if transfer.extent.blocks > disk.atomic_blocks_max() || !disk.is_one_step(transfer.extent) {
        return Err(Sense::invalid_field(12));
    }
    match length_bytes {
        0 => Ok(Plan::Status(status::GOOD)),
        length_bytes => Ok(Plan::Take { lun, length_bytes }),
    }
}

fn compare_and_write(lun: Lun, disk: &Disk, transfer: &Transfer) -> Result<Plan, Sense> {
    let length_bytes = disk.transfer(transfer)?.length_bytes;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    if disk.compare_blocks_max() == 0 {
        return Err(Sense::INVALID_OPCODE);
    }
    if transfer.extent.blocks > disk.compare_blocks_max().into() || !disk.is_one_step(transfer.extent) {
        return Err(Sense::invalid_field(13));
    }
    // No short cut for zero blocks: the data phase reports data that the initiator sends nevertheless.
    Ok(Plan::Take { lun, length_bytes: 2 * length_bytes })
}

/// VERIFY: of the medium alone, against as much data, or against one block repeatedly.
fn verify(lun: Lun, disk: &Disk, transfer: &Transfer, byte_check: u8) -> Result<Plan, Sense> {
    let length_bytes = disk.transfer(transfer)?.length_bytes;
    let taken = match byte_check {
        0 => return Ok(Plan::Status(status::GOOD)),
        1 => length_bytes,
        3 => u64::from(disk.block_bytes).min(length_bytes),
        _ => return Err(Sense::invalid_bit(1, 2)),
    };
    if taken > TAKEN_BYTES_MAX {
        return Err(Sense::INVALID_FIELD);
    }
    if taken == 0 {
        return Ok(Plan::Status(status::GOOD));
    }
    Ok(Plan::Take { lun, length_bytes: taken })
}

fn verify_data(disk: &Disk, extent: Extent, data: &[u8]) -> Result<Action, Sense> {
    let ByteRange { offset_bytes, length_bytes } = disk.range(extent)?;
    if data.is_empty() || !length_bytes.is_multiple_of(data.len() as u64) {
        return Err(Sense::PARAMETER_LENGTH);
    }
    Ok(Action::Compare { offset_bytes, length_bytes, expected: data.to_vec() })
}

fn or_write(lun: Lun, disk: &Disk, transfer: &Transfer) -> Result<Plan, Sense> {
    let length_bytes = disk.transfer(transfer)?.length_bytes;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    if disk.atomic_blocks_max() == 0 {
        return Err(Sense::INVALID_OPCODE);
    }
    if length_bytes > TAKEN_BYTES_MAX || !disk.is_one_step(transfer.extent) {
        return Err(Sense::INVALID_FIELD);
    }
    match length_bytes {
        0 => Ok(Plan::Status(status::GOOD)),
        length_bytes => Ok(Plan::Take { lun, length_bytes }),
    }
}
