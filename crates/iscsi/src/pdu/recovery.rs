//! SNACK, Reject and NOP (RFC 7143 11.16 to 11.19).

use crate::opcode::{initiator, target};

pdu! {
    /// SNACK Request (RFC 7143 11.16).
    Snack = initiator::SNACK, fixed 0x80,
    flags {}
    fields {
        /// The type in the low four bits: 0 Data/R2T, 1 Status, 2 DataACK, 3 R-Data.
        type_byte: u8 = 1,
        /// The logical unit.
        lun: [u8; 8] = 8,
        /// Initiator task tag; none for Status.
        tag: u32 = 16,
        /// Target transfer tag.
        transfer_tag: u32 = 20,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
        /// First DataSN, R2TSN or StatSN that is missing.
        first: u32 = 40,
        /// How many; 0 for all from there on.
        count: u32 = 44,
    }
}

pdu! {
    /// Reject (RFC 7143 11.17); its data segment is the header complained of.
    Reject = target::REJECT, fixed 0x80,
    flags {}
    fields {
        /// The reason: see [`crate::fault::RejectReason`].
        reason: u8 = 2,
        /// Reserved tag: all ones.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// DataSN or R2TSN the complaint is about.
        data_sn: u32 = 36,
    }
}

pdu! {
    /// NOP-Out (RFC 7143 11.18).
    NopOut = initiator::NOP_OUT, fixed 0x80,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
    }
    fields {
        /// The logical unit, copied from the NOP-In answered.
        lun: [u8; 8] = 8,
        /// Initiator task tag; reserved if no response is requested.
        tag: u32 = 16,
        /// Target transfer tag of the NOP-In answered; else none.
        transfer_tag: u32 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
    }
}

pdu! {
    /// NOP-In (RFC 7143 11.19).
    NopIn = target::NOP_IN, fixed 0x80,
    flags {}
    fields {
        /// The logical unit.
        lun: [u8; 8] = 8,
        /// Initiator task tag answered; none where the target asks.
        tag: u32 = 16,
        /// Target transfer tag, if the target requests a response; reserved otherwise.
        transfer_tag: u32 = 20,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
    }
}
