//! READ, WRITE, WRITE AND VERIFY, PRE-FETCH and SYNCHRONIZE CACHE (SBC-3 5).

use crate::cdb::Extent;
use crate::command::Transfer;
use crate::disk::Disk;
use crate::lun::Lun;
use crate::plan::{ByteRange, Plan};
use crate::sense::Sense;
use crate::status;

/// READ. DPO is a hint, and FUA needs nothing: no cache here returns stale data.
#[inline]
pub(crate) fn read(lun: Lun, disk: &Disk, transfer: &Transfer) -> Result<Plan, Sense> {
    let ByteRange { offset_bytes, length_bytes } = disk.transfer(transfer)?;
    Ok(Plan::Read { lun, offset_bytes, length_bytes })
}

/// WRITE.
#[inline]
pub(crate) fn write(lun: Lun, disk: &Disk, transfer: &Transfer) -> Result<Plan, Sense> {
    let ByteRange { offset_bytes, length_bytes } = disk.transfer(transfer)?;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    let fua = transfer.fua || disk.is_write_through();
    Ok(Plan::Write { lun, offset_bytes, length_bytes, fua })
}

/// WRITE AND VERIFY: a write with FUA, which fails unless the data reached the medium.
pub(crate) fn write_and_verify(
    lun: Lun,
    disk: &Disk,
    transfer: &Transfer,
    byte_check: u8,
) -> Result<Plan, Sense> {
    // BYTCHK 10b is reserved.
    if byte_check == 2 {
        return Err(Sense::invalid_bit(1, 2));
    }
    write(lun, disk, &Transfer { fua: true, ..*transfer })
}

/// PRE-FETCH: reports CONDITION MET, as if all blocks fitted in the cache (SBC-3 5.8). Nothing is prefetched.
pub(crate) fn pre_fetch(disk: &Disk, extent: Extent) -> Result<Plan, Sense> {
    disk.range(extent)?;
    Ok(Plan::Status(status::CONDITION_MET))
}

/// SYNCHRONIZE CACHE: flushes the whole disk, whatever the range.
pub(crate) fn synchronize_cache(lun: Lun, disk: &Disk, extent: Extent) -> Result<Plan, Sense> {
    disk.range(extent)?;
    Ok(Plan::Flush { lun })
}
