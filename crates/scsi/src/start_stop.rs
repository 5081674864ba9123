//! START STOP UNIT (SBC-3 5.25): loads and ejects the medium of a removable disk.

use crate::command::Command;
use crate::disk::Disk;
use crate::lun::Lun;
use crate::nexus::UnitAttention;
use crate::plan::Plan;
use crate::sense::Sense;
use crate::status;

/// Plans START STOP UNIT.
///
/// # Errors
/// The sense of a medium that cannot be ejected, or is not loaded.
pub(crate) fn plan(lun: Lun, disk: &Disk, command: &Command) -> Result<Plan, Sense> {
    let Command::StartStopUnit { power_condition, load_eject, start, no_flush } = *command else {
        return Err(Sense::INVALID_OPCODE);
    };
    // A disk without power management is in every power condition. With one, START and LOEJ are ignored (SBC-3 5.25).
    if power_condition != 0 {
        return Ok(Plan::Status(status::GOOD));
    }
    if load_eject {
        if !disk.removable {
            return Err(Sense::invalid_bit(4, 1));
        }
        return Ok(match disk.shared.loading.load(start)? {
            true if start => Plan::Changed { lun, attention: UnitAttention::MediumChanged },
            true => Plan::Flush { lun },
            false => Plan::Status(status::GOOD),
        });
    }
    if disk.shared.loading.is_ejected() {
        return Err(Sense::NO_MEDIUM);
    }
    if !start {
        disk.shared.log.stopped();
    }
    Ok(if start || no_flush { Plan::Status(status::GOOD) } else { Plan::Flush { lun } })
}
