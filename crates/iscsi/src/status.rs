//! SCSI status and the sense data that iSCSI itself must produce (RFC 7143 11.4.2, 11.4.7.2).

/// GOOD.
pub const GOOD: u8 = 0x00;
/// BUSY.
pub const BUSY: u8 = 0x08;
/// TASK SET FULL.
pub const TASK_SET_FULL: u8 = 0x28;
/// CHECK CONDITION.
pub const CHECK_CONDITION: u8 = 0x02;

/// Fixed-format sense data with key ABORTED COMMAND.
#[must_use]
pub fn aborted_command_sense(asc: u8, ascq: u8) -> [u8; 18] {
    let mut sense = [0; 18];
    sense[0] = 0x70;
    sense[2] = 0x0b;
    sense[7] = 10;
    sense[12] = asc;
    sense[13] = ascq;
    sense
}
