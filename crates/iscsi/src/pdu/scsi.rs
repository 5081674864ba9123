//! SCSI commands, their data and their responses (RFC 7143 11.3, 11.4, 11.7, 11.8).

use crate::opcode::{initiator, target};

pdu! {
    /// SCSI Command (RFC 7143 11.3).
    ScsiCommand = initiator::SCSI_COMMAND, fixed 0,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
        /// F: no unsolicited Data-Out follows.
        is_final: 1 & 0x80,
        /// R: expects input data.
        read: 1 & 0x40,
        /// W: expects to send output data.
        write_data: 1 & 0x20,
        /// The task attribute, bit 2: 0 untagged, 1 SIMPLE, 2 ORDERED, 3 HEAD OF QUEUE, 4 ACA.
        attribute_4: 1 & 0x04,
        /// Its bit 1.
        attribute_2: 1 & 0x02,
        /// Its bit 0.
        attribute_1: 1 & 0x01,
    }
    fields {
        /// The logical unit, as SAM encodes it.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Expected Data Transfer Length, bytes.
        expected_bytes: u32 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
        /// The command descriptor block.
        cdb: [u8; 16] = 32,
    }
}

impl ScsiCommand {
    /// Whether it is an ORDERED task (RFC 7143 11.3.1.1): it begins when all before it have ended, and none after
    /// it begins before it has ended.
    #[must_use]
    #[inline]
    pub fn is_ordered(&self) -> bool {
        self.attribute_2 && !self.attribute_1 && !self.attribute_4
    }

    /// Whether it is a HEAD OF QUEUE task: it waits for no other.
    #[must_use]
    #[inline]
    pub fn is_head_of_queue(&self) -> bool {
        self.attribute_2 && self.attribute_1 && !self.attribute_4
    }
}

pdu! {
    /// SCSI Response (RFC 7143 11.4).
    ScsiResponse = target::SCSI_RESPONSE, fixed 0x80,
    flags {
        /// O: the target had more data than the initiator expected.
        overflow: 1 & 0x04,
        /// U: the target had less data than the initiator expected.
        underflow: 1 & 0x02,
    }
    fields {
        /// 0: the command completed at the target; 1: target failure.
        response: u8 = 2,
        /// SCSI status.
        status: u8 = 3,
        /// Initiator task tag.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// ExpDataSN: how many Data-In PDUs (or R2Ts) the target sent for the command.
        exp_data_sn: u32 = 36,
        /// Residual count, bytes.
        residual_bytes: u32 = 44,
    }
}

pdu! {
    /// SCSI Data-Out (RFC 7143 11.7).
    DataOut = initiator::DATA_OUT, fixed 0,
    flags {
        /// F: last PDU of this sequence.
        is_final: 1 & 0x80,
    }
    fields {
        /// The logical unit.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag of the R2T answered; none for unsolicited data.
        transfer_tag: u32 = 20,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
        /// Number of this PDU within its sequence.
        data_sn: u32 = 36,
        /// Where in the command's data this segment begins, bytes.
        buffer_offset: u32 = 40,
    }
}

pdu! {
    /// SCSI Data-In (RFC 7143 11.7).
    DataIn = target::DATA_IN, fixed 0,
    flags {
        /// F: last PDU of this sequence.
        is_final: 1 & 0x80,
        /// A: the initiator shall acknowledge (ErrorRecoveryLevel above 0 only).
        acknowledge: 1 & 0x40,
        /// O: residual overflow.
        overflow: 1 & 0x04,
        /// U: residual underflow.
        underflow: 1 & 0x02,
        /// S: this PDU carries the command's status.
        has_status: 1 & 0x01,
    }
    fields {
        /// SCSI status, with S.
        status: u8 = 3,
        /// The logical unit, with A.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag, with A; else none.
        transfer_tag: u32 = 20,
        /// StatSN, with S.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// Number of this PDU within the command.
        data_sn: u32 = 36,
        /// Where in the command's data this segment begins, bytes.
        buffer_offset: u32 = 40,
        /// Residual count, bytes, with S.
        residual_bytes: u32 = 44,
    }
}

pdu! {
    /// Ready To Transfer (RFC 7143 11.8).
    R2t = target::R2T, fixed 0x80,
    flags {}
    fields {
        /// The logical unit.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag that the answering Data-Out carries.
        transfer_tag: u32 = 20,
        /// StatSN, not advanced.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// Number of this R2T within the command.
        r2t_sn: u32 = 36,
        /// First byte requested.
        buffer_offset: u32 = 40,
        /// Bytes requested.
        desired_bytes: u32 = 44,
    }
}
