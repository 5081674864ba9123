//! Status codes (SAM-5 5.3.1).

/// GOOD.
pub const GOOD: u8 = 0x00;
/// CHECK CONDITION.
pub const CHECK_CONDITION: u8 = 0x02;
/// CONDITION MET.
pub const CONDITION_MET: u8 = 0x04;
/// BUSY.
pub const BUSY: u8 = 0x08;
/// RESERVATION CONFLICT.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// TASK SET FULL.
pub const TASK_SET_FULL: u8 = 0x28;
