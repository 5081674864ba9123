//! The logical units that an initiator sees, and the planning of their commands.

use std::collections::BTreeMap;

use crate::cdb::{Cdb, Extent, control, control_byte};
use crate::command::{Command, Form, Inquiry, Transfer};
use crate::disk::{Disk, Durable};
use crate::limits::{RESERVE_OUT_BYTES_MAX, TAKEN_BYTES_MAX};
use crate::lun::Lun;
use crate::nexus::{Nexus, UnitAttention};
use crate::plan::Plan;
use crate::sense::Sense;
use crate::{
    capacity, copy, inquiry, log_sense, medium, mode_select, mode_sense, report_luns, start_stop, status,
    supported, transfer, vpd,
};

/// The disks that an initiator sees, by number.
///
/// A command is planned by one or two calls: [`Luns::plan`] when it arrives, and if that returns [`Plan::Take`],
/// [`Luns::finish`] once its data is complete. The caller carries out every other [`Plan`] and sends the status. A plan
/// that is not carried out, because its task was aborted, needs no call.
///
/// State that initiators change (reservations, mode parameters, an ejected medium) belongs to the [`Disk`]s and changes
/// during these calls, so `plan` and `finish` must be called at most once for a command. [`Luns::begin`] and
/// [`Luns::end`] bracket every session, and [`Luns::reset`] follows a reset.
///
/// ```
/// use scsi::{Luns, Nexus, Plan, Sense};
///
/// let luns = Luns::default();
/// let mut nexus = Nexus::new("iqn.2026-11.example:host,i,0x000000000001", 1, 1);
/// luns.begin(&nexus);
/// let (test_unit_ready, mut data) = ([0; 16], Vec::new());
/// let plan = luns.plan([0; 8], &test_unit_ready, &mut nexus, &mut data);
/// assert_eq!(plan, Plan::Check(Sense::NO_SUCH_LUN));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Luns(pub BTreeMap<Lun, Disk>);

impl Luns {
    /// Plans a command. Appends parameter data that is complete to `out`, which [`Plan::Data`] refers to.
    #[inline]
    pub fn plan(&self, lun_field: [u8; 8], cdb: &Cdb, nexus: &mut Nexus, out: &mut Vec<u8>) -> Plan {
        let lun = Lun::decode(lun_field);
        let command = Command::decode(cdb);
        let Some((lun, disk)) = lun.and_then(|lun| Some((lun, self.0.get(&lun)?))) else {
            return self.plan_absent(&command, nexus, out).unwrap_or_else(Plan::Check);
        };
        // Unit attentions precede reservations, and both precede any other check (SAM-5 5.14, SPC-4 5.13).
        if command.reports_unit_attentions()
            && let Some(attention) = nexus.take(lun)
        {
            return Plan::Check(attention.sense());
        }
        if disk.shared.reservations.conflicts(&command, nexus.name()) {
            return Plan::Status(status::RESERVATION_CONFLICT);
        }
        if let Err(sense) = disk.ports.admit(nexus.portal_group(), &command) {
            return Plan::Check(sense);
        }
        // NACA asks for auto contingent allegiance, which is not supported (NORMACA is 0).
        if control(cdb) & 0x04 != 0 {
            return Plan::Check(Sense::invalid_bit(control_byte(cdb), 2));
        }
        if disk.shared.loading.is_ejected() && command.needs_medium() {
            return Plan::Check(Sense::NO_MEDIUM);
        }
        if disk.is_restricted && command.changes_for_others() {
            return Plan::Check(Sense::WRITE_PROTECTED);
        }
        let planned = match &command {
            Command::Read(read) => transfer::read(lun, disk, read),
            Command::Write(write) => transfer::write(lun, disk, write),
            _ => self.plan_other(lun, disk, &command, nexus, out),
        };
        planned.unwrap_or_else(Plan::Check)
    }

    /// Plans a command that passed the checks that all have in common, and is not READ or WRITE.
    fn plan_other(
        &self,
        lun: Lun,
        disk: &Disk,
        command: &Command,
        nexus: &mut Nexus,
        out: &mut Vec<u8>,
    ) -> Result<Plan, Sense> {
        match command {
            Command::Read(read) => transfer::read(lun, disk, read),
            Command::Write(write) => transfer::write(lun, disk, write),
            Command::WriteAndVerify { transfer, byte_check } => {
                transfer::write_and_verify(lun, disk, transfer, *byte_check)
            }
            Command::PreFetch(extent) => transfer::pre_fetch(disk, *extent),
            Command::SynchronizeCache(extent) => transfer::synchronize_cache(lun, disk, *extent),
            Command::TestUnitReady => Ok(Plan::Status(status::GOOD)),
            Command::PreventAllowMediumRemoval { prevent } => {
                // A medium that cannot be removed needs no prevention.
                if disk.removable {
                    disk.shared.loading.prevent(nexus, prevent & 1 != 0);
                }
                Ok(Plan::Status(status::GOOD))
            }
            Command::StartStopUnit { .. } => start_stop::plan(lun, disk, command),
            Command::RequestSense { descriptor, allocation } => {
                let sense = nexus.take(lun).map_or(Sense::NONE, UnitAttention::sense);
                Ok(request_sense(*descriptor, *allocation, sense, out))
            }
            Command::Inquiry(request) => inquiry_data(request, out, |out| {
                if request.vital_product_data {
                    vpd::page(disk, request.page, nexus.portal_group(), out)
                } else {
                    inquiry::standard(disk, out);
                    true
                }
            }),
            Command::ReportLuns { select, allocation } => self.report_luns(*select, *allocation, nexus, out),
            Command::ReadCapacity10 { partial_medium, lba } => {
                if !partial_medium && *lba != 0 {
                    return Err(Sense::invalid_field(2));
                }
                capacity::read_capacity_10(disk, out);
                Ok(Plan::Data)
            }
            Command::ReadCapacity16 { allocation } => answer(*allocation, out, |out| {
                capacity::read_capacity_16(disk, out);
                Ok(())
            }),
            Command::GetLbaStatus { lba, allocation } if disk.provisioning.is_some() => {
                let offset_bytes = disk.range(Extent { lba: *lba, blocks: 1 })?.offset_bytes;
                let (block_bytes, allocation) = (disk.block_bytes, *allocation);
                Ok(Plan::MappedStatus { lun, offset_bytes, block_bytes, allocation })
            }
            Command::ModeSense(request) => {
                answer(request.allocation, out, |out| mode_sense::sense(disk, request, out))
            }
            Command::ModeSelect(request) => match mode_select::begin(disk, request)? {
                0 => Ok(Plan::Status(status::GOOD)),
                length_bytes => Ok(Plan::Take { lun, length_bytes }),
            },
            Command::LogSense(request) => {
                log_sense::check(request)?;
                Ok(Plan::Log { lun, request: *request })
            }
            Command::SendDiagnostic { .. } => medium::self_test(lun, disk, command),
            Command::Reserve { is_partial } => {
                // Extents and third parties are obsolete (SPC-2 7.21).
                if *is_partial {
                    return Err(Sense::invalid_field(1));
                }
                Ok(Plan::Status(disk.shared.reservations.reserve(nexus)))
            }
            Command::Release => Ok(Plan::Status(disk.shared.reservations.release(nexus))),
            Command::PersistentReserveIn { action, allocation } => answer(*allocation, out, |out| {
                disk.shared.reservations.report(&disk.ports, disk.is_durable, *action, out)
            }),
            // At least the fixed part of the list; the upper limit bounds the TransportID of REGISTER AND MOVE.
            Command::PersistentReserveOut(request) => match request.parameter_bytes.into() {
                length_bytes @ 24..=RESERVE_OUT_BYTES_MAX => Ok(Plan::Take { lun, length_bytes }),
                _ => Err(Sense::PARAMETER_LENGTH),
            },
            Command::ExtendedCopy { action, parameter_bytes } => copy::begin(lun, *action, *parameter_bytes),
            Command::ReceiveCopyResults { action, list_identifier, allocation } => {
                answer(*allocation, out, |out| {
                    let copies = &disk.shared.copies;
                    copies.report(*action, *list_identifier, nexus, disk.block_bytes, out)
                })
            }
            Command::SetTargetPortGroups { parameter_bytes } => match (*parameter_bytes).into() {
                0 => Ok(Plan::Status(status::GOOD)),
                length_bytes => Ok(Plan::Take { lun, length_bytes: TAKEN_BYTES_MAX.min(length_bytes) }),
            },
            // An empty list, in the requested format (SBC-3 5.17, 5.18).
            Command::ReadDefectData { form, list, allocation } => answer(*allocation, out, |out| {
                out.extend_from_slice(&[0, *list, 0, 0]);
                if *form == Form::Long {
                    out.extend_from_slice(&[0; 4]);
                }
                Ok(())
            }),
            Command::ReportTargetPortGroups { extended, allocation } => answer(*allocation, out, |out| {
                disk.ports.report(*extended, out);
                Ok(())
            }),
            Command::ReportSupportedOperationCodes(request) => {
                answer(request.allocation, out, |out| supported::operation_codes(disk, request, out))
            }
            Command::ReportSupportedTaskManagement { extended, allocation } => {
                answer(*allocation, out, |out| supported::task_management(*extended, *allocation, out))
            }
            Command::GetLbaStatus { .. } | Command::UnsupportedServiceAction { .. } => {
                Err(Sense::invalid_bit(1, 4))
            }
            Command::Verify { .. }
            | Command::WriteSame(_)
            | Command::Unmap { .. }
            | Command::CompareAndWrite(_)
            | Command::OrWrite(_)
            | Command::WriteAtomic { .. }
            | Command::Sanitize { .. } => medium::begin(lun, disk, command),
            Command::Unsupported => Err(Sense::INVALID_OPCODE),
        }
    }

    /// Plans what to do with the data that [`Plan::Take`] asked for. `save` persists durable state; a change that it
    /// rejects is not made.
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
        let command = Command::decode(cdb);
        // The disk may have been reserved since the command was planned first.
        if disk.shared.reservations.conflicts(&command, nexus.name()) {
            return Plan::Status(status::RESERVATION_CONFLICT);
        }
        match &command {
            Command::PersistentReserveOut(request) => {
                let Disk { ports, is_durable, shared, .. } = disk;
                // Held until the change is in force: the next save must contain it.
                let _saving = shared.saving();
                let save = |reservations| save(&Durable { mode: shared.mode.saved(), reservations });
                let changed =
                    shared.reservations.change(ports, *is_durable, request, data, nexus.name(), &save);
                changed.map_or_else(Plan::Check, |(status, effects)| Plan::Reserved { lun, status, effects })
            }
            Command::ModeSelect(request) => {
                let selected = mode_select::select(disk, request, data, save);
                changed(lun, selected, UnitAttention::ModeParametersChanged)
            }
            Command::SetTargetPortGroups { .. } => {
                changed(lun, disk.ports.select(data), UnitAttention::AccessStateChanged)
            }
            Command::ExtendedCopy { .. } => {
                copy::finish(&self.0, lun, data, nexus).unwrap_or_else(Plan::Check)
            }
            _ if disk.shared.loading.is_ejected() => Plan::Check(Sense::NO_MEDIUM),
            _ => medium::finish(lun, disk, &command, data).unwrap_or_else(Plan::Check),
        }
    }

    /// Encodes the sense data of a command that fails, in the format that the Control page of the logical unit selects (D_SENSE),
    /// and counts it for LOG SENSE.
    #[must_use]
    pub fn encode(&self, lun_field: [u8; 8], sense: &Sense) -> Vec<u8> {
        let disk = Lun::decode(lun_field).and_then(|lun| self.0.get(&lun));
        if let Some(disk) = disk {
            disk.shared.log.failed(sense);
        }
        if disk.is_some_and(|disk| disk.shared.mode.values().descriptor_sense) {
            sense.descriptor()
        } else {
            sense.encode()
        }
    }

    /// Whether the medium may be read for this nexus now: not while another nexus has reserved it, the port is in
    /// standby, or the medium is ejected.
    #[must_use]
    pub fn may_read(&self, lun: Lun, nexus: &Nexus) -> bool {
        let read = Command::Read(Transfer::default());
        self.0.get(&lun).is_some_and(|disk| disk.admits(&read, nexus))
    }

    /// Starts a session: ends the simple reservations and removal preventions of older sessions of its nexus.
    pub fn begin(&self, nexus: &Nexus) {
        self.forget(None, |name, instance| name != nexus.name() || instance == nexus.instance());
    }

    /// Ends a session: its simple reservations and removal preventions end with it.
    pub fn end(&self, nexus: &Nexus) {
        self.forget(None, |_, instance| instance != nexus.instance());
    }

    /// Resets one logical unit, or all of them.
    pub fn reset(&self, lun: Option<Lun>) {
        self.forget(lun, |_, _| false);
    }

    fn forget(&self, lun: Option<Lun>, keeps: impl Fn(&str, u64) -> bool) {
        for (_, disk) in self.0.iter().filter(|(number, _)| lun.is_none_or(|lun| lun == **number)) {
            disk.shared.reservations.forget(&keeps);
            disk.shared.loading.forget(&keeps);
        }
    }

    /// Plans a command for an address without a logical unit (SPC-4 6.6.2, 6.33, 6.39).
    fn plan_absent(&self, command: &Command, nexus: &mut Nexus, out: &mut Vec<u8>) -> Result<Plan, Sense> {
        match command {
            // Vital product data belong to a logical unit.
            Command::Inquiry(Inquiry { vital_product_data: true, has_reserved_bits: false, .. }) => {
                Err(Sense::invalid_bit(1, 0))
            }
            Command::Inquiry(request) => inquiry_data(request, out, |out| {
                inquiry::absent(out);
                true
            }),
            Command::RequestSense { descriptor, allocation } => {
                Ok(request_sense(*descriptor, *allocation, Sense::NO_SUCH_LUN, out))
            }
            Command::ReportLuns { select, allocation } => self.report_luns(*select, *allocation, nexus, out),
            _ => Err(Sense::NO_SUCH_LUN),
        }
    }

    fn report_luns(
        &self,
        select: u8,
        allocation: usize,
        nexus: &mut Nexus,
        out: &mut Vec<u8>,
    ) -> Result<Plan, Sense> {
        // The standard requires room for at least one entry (SPC-4 6.33).
        if allocation < 16 {
            return Err(Sense::invalid_field(6));
        }
        let plan = answer(allocation, out, |out| report_luns::report(select, self.0.keys().copied(), out))?;
        // REPORT LUNS clears the unit attention at every logical unit (SPC-4 6.33).
        nexus.clear(UnitAttention::LunsChanged);
        Ok(plan)
    }
}

/// Appends parameter data and truncates it to the allocation length.
fn answer(
    allocation: usize,
    out: &mut Vec<u8>,
    make: impl FnOnce(&mut Vec<u8>) -> Result<(), Sense>,
) -> Result<Plan, Sense> {
    let from = out.len();
    make(out)?;
    out.truncate(from + (out.len() - from).min(allocation));
    Ok(Plan::Data)
}

/// Appends INQUIRY data by `make`, which returns false if there is no such page.
fn inquiry_data(
    request: &Inquiry,
    out: &mut Vec<u8>,
    make: impl FnOnce(&mut Vec<u8>) -> bool,
) -> Result<Plan, Sense> {
    if request.has_reserved_bits {
        return Err(Sense::invalid_field(1));
    }
    if !request.vital_product_data && request.page != 0 {
        return Err(Sense::invalid_field(2));
    }
    let from = out.len();
    answer(request.allocation, out, |out| {
        if make(out) {
            return Ok(());
        }
        out.truncate(from);
        Err(Sense::invalid_field(2))
    })
}

/// Plans a unit attention for other initiators if parameters changed (SPC-4 5.14).
fn changed(lun: Lun, outcome: Result<bool, Sense>, attention: UnitAttention) -> Plan {
    match outcome {
        Ok(true) => Plan::Changed { lun, attention },
        Ok(false) => Plan::Status(status::GOOD),
        Err(sense) => Plan::Check(sense),
    }
}

fn request_sense(descriptor: bool, allocation: usize, sense: Sense, out: &mut Vec<u8>) -> Plan {
    let from = out.len();
    if descriptor {
        out.extend_from_slice(&sense.descriptor());
    } else {
        out.extend_from_slice(&sense.fixed());
    }
    out.truncate(from + (out.len() - from).min(allocation));
    Plan::Data
}

#[cfg(test)]
mod tests;
