//! The logical units that an initiator sees, and what their commands ask for.

use std::collections::BTreeMap;

use crate::cdb::{Cdb, Extent, be16, be32, be64, control, control_byte, opcode};
use crate::disk::{Disk, Durable};
use crate::lun::Lun;
use crate::medium::{self, Action};
use crate::nexus::{Nexus, UnitAttention};
use crate::reservations::Effects;
use crate::sense::Sense;
use crate::{capacity, copy, inquiry, mode, ports, report_luns, reservations, status, supported, vpd};

/// What is left to do for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The answer's data was appended, cut to ALLOCATION LENGTH; the status is GOOD.
    Data,
    /// No data; this status.
    Status(u8),
    /// CHECK CONDITION with this sense.
    Check(Sense),
    /// Read this range for the initiator.
    Read {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Write this range from the initiator's data.
    Write {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
        /// Not to be acknowledged before it is on stable storage (FUA).
        fua: bool,
    },
    /// Take this much data from the initiator, then ask [`Luns::finish`].
    Take {
        /// Which logical unit.
        lun: Lun,
        /// How many bytes, at most [`crate::medium::TAKEN_BYTES_MAX`].
        length_bytes: u64,
    },
    /// Do something to the medium; GOOD when it is done.
    Medium {
        /// Which logical unit.
        lun: Lun,
        /// What.
        action: Action,
    },
    /// This status for a change of reservations: first the effects, then the answer.
    Reserved {
        /// Which logical unit.
        lun: Lun,
        /// The status, once the effects are complete.
        status: u8,
        /// Which nexuses learn of it, and whose tasks are aborted.
        effects: Effects,
    },
    /// GOOD, and all other initiators are to be told of a change.
    Changed {
        /// Which logical unit.
        lun: Lun,
        /// What they are told.
        attention: UnitAttention,
    },
    /// Say which of this range is mapped, beginning with its first block (GET LBA STATUS).
    MappedStatus {
        /// Which logical unit.
        lun: Lun,
        /// First byte.
        offset_bytes: u64,
        /// Logical block length, bytes.
        block_bytes: u32,
        /// Most bytes of the answer.
        allocation: usize,
    },
    /// Copy these ranges, one after the other, then note how it ended (EXTENDED COPY).
    Copy {
        /// The logical unit that was asked.
        lun: Lun,
        /// What goes where, all of it on disks that the initiator sees.
        segments: Vec<copy::Segment>,
        /// Under which identifier the result is kept, where it is.
        list_identifier: Option<u8>,
    },
    /// Bring everything written to stable storage.
    Flush {
        /// Which logical unit.
        lun: Lun,
    },
}

/// The disks that an initiator sees, by number.
#[derive(Clone, Debug, Default)]
pub struct Luns(pub BTreeMap<Lun, Disk>);

impl Luns {
    /// Plans a command. `out` receives the data of answers made here.
    #[inline]
    pub fn plan(&self, lun_field: [u8; 8], cdb: &Cdb, nexus: &mut Nexus, out: &mut Vec<u8>) -> Plan {
        let lun = Lun::decode(lun_field);
        let Some((lun, disk)) = lun.and_then(|lun| Some((lun, self.0.get(&lun)?))) else {
            return self.plan_absent(cdb, nexus, out).unwrap_or_else(Plan::Check);
        };
        self.plan_present(lun, disk, cdb, nexus, out).unwrap_or_else(Plan::Check)
    }

    fn plan_present(
        &self,
        lun: Lun,
        disk: &Disk,
        cdb: &Cdb,
        nexus: &mut Nexus,
        out: &mut Vec<u8>,
    ) -> Result<Plan, Sense> {
        // INQUIRY and REPORT LUNS do not report unit attentions, REQUEST SENSE does in its data (SAM-5 5.14.2).
        if !matches!(cdb[0], opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE)
            && let Some(attention) = nexus.take(lun)
        {
            return Err(attention.sense());
        }
        if disk.shared.reservations.conflicts(cdb, nexus.name()) {
            return Ok(Plan::Status(status::RESERVATION_CONFLICT));
        }
        disk.ports.admit(nexus.portal_group(), cdb)?;
        // NACA asks for auto contingent allegiance, which is not offered (NORMACA is 0).
        if control(cdb) & 0x04 != 0 {
            return Err(Sense::invalid_bit(control_byte(cdb), 2));
        }
        if disk.shared.loading.is_ejected() && needs_the_medium(cdb) {
            return Err(Sense::NO_MEDIUM);
        }
        match cdb[0] {
            opcode::READ_10 => read(lun, disk, cdb[1], Extent::of_10(cdb)),
            opcode::WRITE_10 => write(lun, disk, cdb[1], Extent::of_10(cdb)),
            opcode::READ_16 => read(lun, disk, cdb[1], Extent::of_16(cdb)),
            opcode::WRITE_16 => write(lun, disk, cdb[1], Extent::of_16(cdb)),
            // The 6-byte forms have address bits where the others have flags.
            opcode::READ_6 => read(lun, disk, 0, Extent::of_6(cdb)),
            opcode::WRITE_6 => write(lun, disk, 0, Extent::of_6(cdb)),
            opcode::READ_12 => read(lun, disk, cdb[1], Extent::of_12(cdb)),
            opcode::WRITE_12 => write(lun, disk, cdb[1], Extent::of_12(cdb)),
            opcode::TEST_UNIT_READY => Ok(Plan::Status(status::GOOD)),
            opcode::PREVENT_ALLOW_MEDIUM_REMOVAL => {
                // Where nothing can be removed, nothing is prevented.
                if disk.removable {
                    disk.shared.loading.prevent(nexus, cdb[4] & 1 != 0);
                }
                Ok(Plan::Status(status::GOOD))
            }
            opcode::REQUEST_SENSE => {
                let sense = nexus.take(lun).map_or(Sense::NONE, UnitAttention::sense);
                Ok(request_sense(cdb, sense, out))
            }
            opcode::INQUIRY => inquiry_data(cdb, out, |out| {
                if cdb[1] & 1 == 0 {
                    inquiry::standard(disk, out);
                    true
                } else {
                    vpd::page(disk, cdb[2], nexus.portal_group(), out)
                }
            }),
            opcode::READ_CAPACITY_10 => {
                if cdb[8] & 1 == 0 && be32(cdb, 2) != 0 {
                    return Err(Sense::invalid_field(2));
                }
                capacity::read_capacity_10(disk, out);
                Ok(Plan::Data)
            }
            opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x10 => {
                Ok(cut(out, be32(cdb, 10) as usize, |out| {
                    capacity::read_capacity_16(disk, out);
                }))
            }
            opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x12 && disk.provisioning.is_some() => {
                let (offset_bytes, _) = range(disk, Extent { lba: be64(cdb, 2), blocks: 1 })?;
                let allocation = be32(cdb, 10) as usize;
                Ok(Plan::MappedStatus { lun, offset_bytes, block_bytes: disk.block_bytes, allocation })
            }
            opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => {
                let long = cdb[0] == opcode::MODE_SENSE_10;
                let from = out.len();
                mode::sense(disk, cdb, long, out)?;
                out.truncate(from + (out.len() - from).min(mode::allocation(cdb, long)));
                Ok(Plan::Data)
            }
            opcode::MODE_SELECT_6 | opcode::MODE_SELECT_10 => {
                match mode::select_bytes(disk, cdb, cdb[0] == opcode::MODE_SELECT_10)? {
                    0 => Ok(Plan::Status(status::GOOD)),
                    length_bytes => Ok(Plan::Take { lun, length_bytes }),
                }
            }
            opcode::RESERVE_6 | opcode::RESERVE_10 => {
                // Extents and third parties are obsolete (SPC-2 7.21).
                if cdb[1] & 0x11 != 0 {
                    return Err(Sense::invalid_field(1));
                }
                Ok(Plan::Status(disk.shared.reservations.reserve(nexus)))
            }
            opcode::RELEASE_6 | opcode::RELEASE_10 => {
                Ok(Plan::Status(disk.shared.reservations.release(nexus)))
            }
            opcode::PERSISTENT_RESERVE_IN => {
                let mut outcome = Ok(());
                let plan = cut(out, reservations::allocation(cdb), |out| {
                    outcome = disk.shared.reservations.report(disk, cdb, out);
                });
                outcome.map(|()| plan)
            }
            opcode::PERSISTENT_RESERVE_OUT => match reservations::parameter_bytes(cdb) {
                length_bytes @ 24..=256 => Ok(Plan::Take { lun, length_bytes }),
                _ => Err(Sense::PARAMETER_LENGTH),
            },
            opcode::EXTENDED_COPY => copy::begin(lun, cdb),
            opcode::RECEIVE_COPY_RESULTS => {
                let mut outcome = Ok(());
                let plan = cut(out, be32(cdb, 10) as usize, |out| {
                    outcome = copy::results(disk, cdb, nexus, out);
                });
                outcome.map(|()| plan)
            }
            opcode::MAINTENANCE_OUT if cdb[1] & 0x1f == 0x0a => match ports::parameter_bytes(cdb) {
                0 => Ok(Plan::Status(status::GOOD)),
                length_bytes => {
                    Ok(Plan::Take { lun, length_bytes: length_bytes.min(medium::TAKEN_BYTES_MAX) })
                }
            },
            // No defects, in the format that was asked for (SBC-3 5.17, 5.18).
            opcode::READ_DEFECT_DATA_10 => Ok(cut(out, be16(cdb, 7).into(), |out| {
                out.extend_from_slice(&[0, cdb[2] & 0x1f, 0, 0]);
            })),
            opcode::READ_DEFECT_DATA_12 => Ok(cut(out, be32(cdb, 6) as usize, |out| {
                out.extend_from_slice(&[0, cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0]);
            })),
            // Written, and then verified to be on the medium: what a forced write is.
            opcode::WRITE_AND_VERIFY_10 => write_and_verify(lun, disk, cdb[1], Extent::of_10(cdb)),
            opcode::WRITE_AND_VERIFY_12 => write_and_verify(lun, disk, cdb[1], Extent::of_12(cdb)),
            opcode::WRITE_AND_VERIFY_16 => write_and_verify(lun, disk, cdb[1], Extent::of_16(cdb)),
            opcode::MAINTENANCE_IN if cdb[1] & 0x1f == 0x0a => {
                Ok(cut(out, be32(cdb, 6) as usize, |out| disk.ports.report(cdb, out)))
            }
            opcode::MAINTENANCE_IN if cdb[1] & 0x1f == 0x0c => {
                answer(cdb, out, |out| supported::operation_codes(disk, cdb, out))
            }
            opcode::MAINTENANCE_IN if cdb[1] & 0x1f == 0x0d => {
                answer(cdb, out, |out| supported::task_management(cdb, out))
            }
            opcode::PRE_FETCH_10 => pre_fetch(disk, Extent::of_10(cdb)),
            opcode::PRE_FETCH_16 => pre_fetch(disk, Extent::of_16(cdb)),
            opcode::SYNCHRONIZE_CACHE_10 => flush(lun, disk, Extent::of_10(cdb)),
            opcode::SYNCHRONIZE_CACHE_16 => flush(lun, disk, Extent::of_16(cdb)),
            opcode::START_STOP_UNIT => start_stop(lun, disk, cdb),
            opcode::REPORT_LUNS => self.report_luns(cdb, nexus, out),
            opcode::SERVICE_ACTION_IN_16 | opcode::MAINTENANCE_IN | opcode::MAINTENANCE_OUT => {
                Err(Sense::invalid_bit(1, 4))
            }
            _ => medium::begin(lun, disk, cdb).unwrap_or(Err(Sense::INVALID_OPCODE)),
        }
    }

    /// Plans what to do with the data of a command that [`Plan::Take`] asked for. `save` keeps what is to outlive a
    /// power loss; what it cannot keep is not done.
    #[must_use]
    pub fn finish(
        &self,
        lun: Lun,
        cdb: &Cdb,
        data: &[u8],
        nexus: &Nexus,
        save: &dyn Fn(&Durable) -> Result<(), Sense>,
    ) -> Plan {
        let Some(disk) = self.0.get(&lun) else { return Plan::Check(Sense::NO_SUCH_LUN) };
        // It may have been reserved while the data was on its way.
        if disk.shared.reservations.conflicts(cdb, nexus.name()) {
            return Plan::Status(status::RESERVATION_CONFLICT);
        }
        if cdb[0] == opcode::PERSISTENT_RESERVE_OUT {
            let changed = disk.shared.reservations.change(disk, cdb, data, nexus.name(), save);
            return changed.map_or_else(Plan::Check, |(status, effects)| Plan::Reserved {
                lun,
                status,
                effects,
            });
        }
        if matches!(cdb[0], opcode::MODE_SELECT_6 | opcode::MODE_SELECT_10) {
            let (long, saves) = (cdb[0] == opcode::MODE_SELECT_10, cdb[1] & 1 != 0);
            let selected = mode::select(disk, long, saves, data, save);
            let attention = UnitAttention::ModeParametersChanged;
            return changed(lun, selected, attention);
        }
        if cdb[0] == opcode::MAINTENANCE_OUT {
            return changed(lun, disk.ports.select(data), UnitAttention::AccessStateChanged);
        }
        if cdb[0] == opcode::EXTENDED_COPY {
            return copy::finish(self, lun, data, nexus).unwrap_or_else(Plan::Check);
        }
        if disk.shared.loading.is_ejected() {
            return Plan::Check(Sense::NO_MEDIUM);
        }
        medium::finish(lun, disk, cdb, data).unwrap_or_else(Plan::Check)
    }

    /// The sense data for the initiator, in the format that the logical unit's control page says (D_SENSE).
    #[must_use]
    pub fn encode(&self, lun_field: [u8; 8], sense: &Sense) -> Vec<u8> {
        let disk = Lun::decode(lun_field).and_then(|lun| self.0.get(&lun));
        if disk.is_some_and(|disk| disk.shared.mode.values().descriptor_sense) {
            sense.descriptor()
        } else {
            sense.encode()
        }
    }

    /// Whether the medium may be read for this nexus now: not while another has reserved it, the port is in standby, or
    /// the medium is ejected.
    #[must_use]
    pub fn may_read(&self, lun: Lun, nexus: &Nexus) -> bool {
        let mut cdb = [0; 16];
        cdb[0] = opcode::READ_16;
        self.0.get(&lun).is_some_and(|disk| {
            !disk.shared.reservations.conflicts(&cdb, nexus.name())
                && disk.ports.admit(nexus.portal_group(), &cdb).is_ok()
                && !disk.shared.loading.is_ejected()
        })
    }

    /// A session has begun: what an older one of the same nexus took is free.
    pub fn begin(&self, nexus: &Nexus) {
        self.forget(None, |name, instance| name != nexus.name() || instance == nexus.instance());
    }

    /// A session has ended: what it took, and does not outlive it, is free.
    pub fn end(&self, nexus: &Nexus) {
        self.forget(None, |_, instance| instance != nexus.instance());
    }

    /// One logical unit, or all of them, is reset.
    pub fn reset(&self, lun: Option<Lun>) {
        self.forget(lun, |_, _| false);
    }

    fn forget(&self, lun: Option<Lun>, keeps: impl Fn(&str, u64) -> bool) {
        for (_, disk) in self.0.iter().filter(|(number, _)| lun.is_none_or(|lun| lun == **number)) {
            disk.shared.reservations.forget(&keeps);
            disk.shared.loading.forget(&keeps);
        }
    }

    /// What is answered where no logical unit is (SPC-4 6.6.2, 6.33, 6.39).
    fn plan_absent(&self, cdb: &Cdb, nexus: &mut Nexus, out: &mut Vec<u8>) -> Result<Plan, Sense> {
        match cdb[0] {
            // Vital product data belong to a logical unit.
            opcode::INQUIRY if cdb[1] == 1 => Err(Sense::invalid_bit(1, 0)),
            opcode::INQUIRY => inquiry_data(cdb, out, |out| {
                inquiry::absent(out);
                true
            }),
            opcode::REQUEST_SENSE => Ok(request_sense(cdb, Sense::NO_SUCH_LUN, out)),
            opcode::REPORT_LUNS => self.report_luns(cdb, nexus, out),
            _ => Err(Sense::NO_SUCH_LUN),
        }
    }

    fn report_luns(&self, cdb: &Cdb, nexus: &mut Nexus, out: &mut Vec<u8>) -> Result<Plan, Sense> {
        let allocation = be32(cdb, 6) as usize;
        if allocation < 16 {
            return Err(Sense::invalid_field(6));
        }
        let from = out.len();
        report_luns::report(cdb[2], self.0.keys().copied(), out)?;
        // Whoever has read the list needs no telling that it changed, at any of its numbers (SPC-4 6.33).
        nexus.clear(UnitAttention::LunsChanged);
        out.truncate(from + (out.len() - from).min(allocation));
        Ok(Plan::Data)
    }
}

/// Appends data and cuts it to its allocation length.
fn cut(out: &mut Vec<u8>, allocation: usize, make: impl FnOnce(&mut Vec<u8>)) -> Plan {
    let from = out.len();
    make(out);
    out.truncate(from + (out.len() - from).min(allocation));
    Plan::Data
}

/// As [`cut`], for an answer of MAINTENANCE IN that may be refused.
fn answer(
    cdb: &Cdb,
    out: &mut Vec<u8>,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), Sense>,
) -> Result<Plan, Sense> {
    let mut outcome = Ok(());
    let plan = cut(out, be32(cdb, 6) as usize, |out| outcome = make(out));
    outcome.map(|()| plan)
}

fn inquiry_data(
    cdb: &Cdb,
    out: &mut Vec<u8>,
    make: impl FnOnce(&mut Vec<u8>) -> bool,
) -> Result<Plan, Sense> {
    // CMDDT is obsolete; a page code needs EVPD.
    if cdb[1] & 0xfe != 0 {
        return Err(Sense::invalid_field(1));
    }
    if cdb[1] & 1 == 0 && cdb[2] != 0 {
        return Err(Sense::invalid_field(2));
    }
    let (from, mut exists) = (out.len(), false);
    let plan = cut(out, be16(cdb, 3).into(), |out| exists = make(out));
    if !exists {
        out.truncate(from);
        return Err(Sense::invalid_field(2));
    }
    Ok(plan)
}

/// What is to be told of parameters that were taken: only a change is news (SPC-4 5.14).
fn changed(lun: Lun, outcome: Result<bool, Sense>, attention: UnitAttention) -> Plan {
    match outcome {
        Ok(true) => Plan::Changed { lun, attention },
        Ok(false) => Plan::Status(status::GOOD),
        Err(sense) => Plan::Check(sense),
    }
}

fn request_sense(cdb: &Cdb, sense: Sense, out: &mut Vec<u8>) -> Plan {
    cut(out, cdb[4].into(), |out| {
        if cdb[1] & 1 == 0 {
            out.extend_from_slice(&sense.fixed());
        } else {
            out.extend_from_slice(&sense.descriptor());
        }
    })
}

/// The bytes of an extent, when all of it is on the disk.
#[inline]
pub(crate) fn range(disk: &Disk, extent: Extent) -> Result<(u64, u64), Sense> {
    let end = extent.lba.checked_add(extent.blocks.into());
    if end.is_none_or(|end| end > disk.blocks) {
        // The first address that is not there.
        return Err(Sense::lba_out_of_range(extent.lba.max(disk.blocks)));
    }
    // What does not fit 64 bits as bytes is on no store, whatever the disk claims to have. The length always
    // fits: two numbers of 32 bits make it.
    let block = u64::from(disk.block_bytes);
    let length_bytes = u64::from(extent.blocks) * block;
    match extent.lba.checked_mul(block) {
        Some(offset_bytes) if offset_bytes.checked_add(length_bytes).is_some() => {
            Ok((offset_bytes, length_bytes))
        }
        _ => Err(Sense::lba_out_of_range(extent.lba)),
    }
}

/// RDPROTECT or WRPROTECT asks for protection information, which no disk here has.
#[inline]
pub(crate) fn transfer(disk: &Disk, flags: u8, extent: Extent) -> Result<(u64, u64), Sense> {
    if flags & 0xe0 != 0 {
        return Err(Sense::invalid_bit(1, 7));
    }
    let range = range(disk, extent)?;
    if extent.blocks > disk.transfer_blocks_max() {
        return Err(Sense::INVALID_FIELD);
    }
    Ok(range)
}

#[inline]
fn read(lun: Lun, disk: &Disk, flags: u8, extent: Extent) -> Result<Plan, Sense> {
    // DPO is a hint; FUA is met, for there is no stale cache to read from.
    let (offset_bytes, length_bytes) = transfer(disk, flags, extent)?;
    Ok(Plan::Read { lun, offset_bytes, length_bytes })
}

#[inline]
fn write(lun: Lun, disk: &Disk, flags: u8, extent: Extent) -> Result<Plan, Sense> {
    let (offset_bytes, length_bytes) = transfer(disk, flags, extent)?;
    if disk.is_read_only() {
        return Err(Sense::WRITE_PROTECTED);
    }
    let fua = flags & 0x08 != 0 || disk.is_write_through();
    Ok(Plan::Write { lun, offset_bytes, length_bytes, fua })
}

fn write_and_verify(lun: Lun, disk: &Disk, flags: u8, extent: Extent) -> Result<Plan, Sense> {
    // BYTCHK 10b is reserved.
    if flags & 0x06 == 0x04 {
        return Err(Sense::invalid_bit(1, 2));
    }
    write(lun, disk, flags & 0xe0 | 0x08, extent)
}

/// PRE-FETCH: everything is as near as it will get (SBC-3 5.8: CONDITION MET when all blocks fit the cache).
fn pre_fetch(disk: &Disk, extent: Extent) -> Result<Plan, Sense> {
    range(disk, extent)?;
    Ok(Plan::Status(status::CONDITION_MET))
}

/// SYNCHRONIZE CACHE: of a range, which is always honoured for the whole disk.
fn flush(lun: Lun, disk: &Disk, extent: Extent) -> Result<Plan, Sense> {
    range(disk, extent)?;
    Ok(Plan::Flush { lun })
}

/// Whether a command is about the medium, and cannot do without one.
fn needs_the_medium(cdb: &Cdb) -> bool {
    !matches!(
        cdb[0],
        opcode::INQUIRY
            | opcode::REPORT_LUNS
            | opcode::REQUEST_SENSE
            | opcode::MODE_SENSE_6
            | opcode::MODE_SENSE_10
            | opcode::MODE_SELECT_6
            | opcode::MODE_SELECT_10
            | opcode::RESERVE_6
            | opcode::RESERVE_10
            | opcode::RELEASE_6
            | opcode::RELEASE_10
            | opcode::PERSISTENT_RESERVE_IN
            | opcode::PERSISTENT_RESERVE_OUT
            | opcode::START_STOP_UNIT
            | opcode::PREVENT_ALLOW_MEDIUM_REMOVAL
            | opcode::RECEIVE_COPY_RESULTS
            | opcode::MAINTENANCE_IN
            | opcode::MAINTENANCE_OUT
    )
}

/// START STOP UNIT: a medium is loaded or ejected where it can be, and nothing spins (SBC-3 5.25).
fn start_stop(lun: Lun, disk: &Disk, cdb: &Cdb) -> Result<Plan, Sense> {
    // Nothing here draws power: every power condition is entered by doing nothing. START and LOEJ do not count
    // then (SBC-3 5.25).
    if cdb[4] & 0xf0 != 0 {
        return Ok(Plan::Status(status::GOOD));
    }
    if cdb[4] & 0x02 != 0 {
        if !disk.removable {
            return Err(Sense::invalid_bit(4, 1));
        }
        let starts = cdb[4] & 0x01 != 0;
        return Ok(match disk.shared.loading.load(starts)? {
            true if starts => Plan::Changed { lun, attention: UnitAttention::MediumChanged },
            true => Plan::Flush { lun },
            false => Plan::Status(status::GOOD),
        });
    }
    if disk.shared.loading.is_ejected() {
        return Err(Sense::NO_MEDIUM);
    }
    // A stop brings the cache to the medium first, unless told not to (NO_FLUSH).
    Ok(if cdb[4] & 0x05 == 0 { Plan::Flush { lun } } else { Plan::Status(status::GOOD) })
}

#[cfg(test)]
mod tests;
