//! Task management, logout and asynchronous messages (RFC 7143 11.5, 11.6, 11.9, 11.14, 11.15).

use crate::opcode::{initiator, target};

pdu! {
    /// Task Management Function Request (RFC 7143 11.5).
    TaskManagementRequest = initiator::TASK_MANAGEMENT, fixed 0x80,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
    }
    fields {
        /// The function in the low seven bits, beside the F bit.
        function_byte: u8 = 1,
        /// The logical unit, where the function has one.
        lun: [u8; 8] = 8,
        /// Initiator task tag of this request.
        tag: u32 = 16,
        /// The task to be aborted or reassigned.
        referenced_tag: u32 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
        /// CmdSN of the referenced task.
        ref_cmd_sn: u32 = 32,
        /// ExpDataSN, for reassignment.
        exp_data_sn: u32 = 36,
    }
}

pdu! {
    /// Task Management Function Response (RFC 7143 11.6).
    TaskManagementResponse = target::TASK_MANAGEMENT, fixed 0x80,
    flags {}
    fields {
        /// The outcome: see [`crate::task_management::Response`].
        response: u8 = 2,
        /// Initiator task tag.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
    }
}

pdu! {
    /// Logout Request (RFC 7143 11.14).
    LogoutRequest = initiator::LOGOUT, fixed 0x80,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
    }
    fields {
        /// The reason in the low seven bits: 0 session, 1 connection, 2 connection for recovery.
        reason_byte: u8 = 1,
        /// Initiator task tag.
        tag: u32 = 16,
        /// The connection concerned.
        cid: u16 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
    }
}

pdu! {
    /// Logout Response (RFC 7143 11.15).
    LogoutResponse = target::LOGOUT, fixed 0x80,
    flags {}
    fields {
        /// 0 closed, 1 no such CID, 2 recovery not supported, 3 cleanup failed.
        response: u8 = 2,
        /// Initiator task tag.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// Seconds to wait before a new login.
        time2wait: u16 = 40,
        /// Seconds that state is kept.
        time2retain: u16 = 42,
    }
}

pdu! {
    /// Asynchronous Message (RFC 7143 11.9).
    AsyncMessage = target::ASYNC, fixed 0x80,
    flags {}
    fields {
        /// The logical unit, for SCSI events.
        lun: [u8; 8] = 8,
        /// Reserved tag: all ones.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// The event: 0 SCSI, 1 logout request, 2 connection drop, 3 session drop, 4 negotiation.
        event: u8 = 36,
        /// Parameter1 (the CID for connection events).
        parameter1: u16 = 38,
        /// Parameter2 (Time2Wait, seconds).
        parameter2: u16 = 40,
        /// Parameter3 (Time2Retain, seconds).
        parameter3: u16 = 42,
    }
}
