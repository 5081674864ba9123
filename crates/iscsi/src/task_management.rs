//! Task management functions and their outcomes (RFC 7143 11.5.1, 11.6.1).

use crate::pdu::TaskManagementRequest;

/// A task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// ABORT TASK.
    AbortTask,
    /// ABORT TASK SET.
    AbortTaskSet,
    /// CLEAR ACA.
    ClearAca,
    /// CLEAR TASK SET.
    ClearTaskSet,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// TARGET WARM RESET.
    TargetWarmReset,
    /// TARGET COLD RESET.
    TargetColdReset,
    /// TASK REASSIGN.
    TaskReassign,
    /// An unknown code.
    Unknown(u8),
}

impl TaskManagementRequest {
    /// The function asked for.
    #[must_use]
    pub fn function(&self) -> Function {
        match self.function_byte & 0x7f {
            1 => Function::AbortTask,
            2 => Function::AbortTaskSet,
            3 => Function::ClearAca,
            4 => Function::ClearTaskSet,
            5 => Function::LogicalUnitReset,
            6 => Function::TargetWarmReset,
            7 => Function::TargetColdReset,
            8 => Function::TaskReassign,
            code => Function::Unknown(code),
        }
    }
}

/// The outcome of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Response {
    /// Function complete.
    Complete = 0,
    /// Task does not exist.
    NoSuchTask = 1,
    /// LUN does not exist.
    NoSuchLun = 2,
    /// Task still allegiant.
    StillAllegiant = 3,
    /// Task allegiance reassignment not supported.
    ReassignNotSupported = 4,
    /// Task management function not supported.
    NotSupported = 5,
    /// Function authorization failed.
    NotAuthorized = 6,
    /// Function rejected.
    Rejected = 255,
}
