//! The PDUs, field by field (RFC 7143 11.3 to 11.19).
//!
//! A declaration gives each field's name and place; reading and writing follow from it. Every bit pattern
//! reads into some value: what a value means is judged where it is used.

use crate::bhs::{BHS_BYTES, Bhs, Field};
use crate::opcode::{initiator, target};

macro_rules! pdu {
    (
        $(#[$doc:meta])*
        $name:ident = $opcode:expr, fixed $fixed:expr,
        flags { $($(#[$flag_doc:meta])* $flag:ident: $flag_at:literal & $mask:literal),* $(,)? }
        fields { $($(#[$field_doc:meta])* $field:ident: $kind:ty = $at:literal),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$flag_doc])* pub $flag: bool,)*
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $name {
            /// The opcode of this PDU.
            pub const OPCODE: u8 = $opcode;

            /// Reads the fields; the caller has looked at the opcode.
            #[must_use]
            #[inline]
            pub fn read(bhs: &Bhs) -> Self {
                Self {
                    $($flag: bhs.0[$flag_at] & $mask != 0,)*
                    $($field: <$kind as Field>::get(&bhs.0, $at),)*
                }
            }

            /// Writes the header; DataSegmentLength is left at zero.
            #[must_use]
            #[inline]
            pub fn write(&self) -> Bhs {
                let mut header = [0_u8; BHS_BYTES];
                $(Field::put(self.$field, &mut header, $at);)*
                header[0] |= $opcode;
                header[1] |= $fixed;
                $(if self.$flag { header[$flag_at] |= $mask; })*
                Bhs(header)
            }
        }
    };
}

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
        /// Where the wanted data begins, bytes.
        buffer_offset: u32 = 40,
        /// How much is wanted, bytes.
        desired_bytes: u32 = 44,
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

pdu! {
    /// Text Request (RFC 7143 11.10).
    TextRequest = initiator::TEXT, fixed 0,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
        /// F: the initiator has said all.
        is_final: 1 & 0x80,
        /// C: the text goes on in the next request.
        continues: 1 & 0x40,
    }
    fields {
        /// The logical unit the exchange belongs to.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag, to go on with an exchange.
        transfer_tag: u32 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
    }
}

pdu! {
    /// Text Response (RFC 7143 11.11).
    TextResponse = target::TEXT, fixed 0,
    flags {
        /// F: the target has said all.
        is_final: 1 & 0x80,
        /// C: the text goes on in the next response.
        continues: 1 & 0x40,
    }
    fields {
        /// The logical unit the exchange belongs to.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag, where the exchange goes on.
        transfer_tag: u32 = 20,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
    }
}

pdu! {
    /// Login Request (RFC 7143 11.12).
    LoginRequest = initiator::LOGIN, fixed 0,
    flags {
        /// I: always set in a login.
        immediate: 0 & 0x40,
        /// T: ready to go to the next stage.
        transit: 1 & 0x80,
        /// C: the text goes on in the next request.
        continues: 1 & 0x40,
    }
    fields {
        /// Stages: CSG in bits 2 and 3, NSG in bits 0 and 1; see [`LoginRequest::csg`].
        stage_byte: u8 = 1,
        /// Highest version the initiator speaks.
        version_max: u8 = 2,
        /// Lowest version the initiator speaks.
        version_min: u8 = 3,
        /// The initiator's part of the session identifier.
        isid: [u8; 6] = 8,
        /// The target's part; 0 for a new session.
        tsih: u16 = 14,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Connection identifier.
        cid: u16 = 20,
        /// CmdSN.
        cmd_sn: u32 = 24,
        /// ExpStatSN.
        exp_stat_sn: u32 = 28,
    }
}

impl LoginRequest {
    /// The stage the initiator is in: 0 security, 1 operational, 3 full feature.
    #[must_use]
    pub fn csg(&self) -> u8 {
        (self.stage_byte >> 2) & 3
    }

    /// The stage the initiator wants next, with T.
    #[must_use]
    pub fn nsg(&self) -> u8 {
        self.stage_byte & 3
    }
}

pdu! {
    /// Login Response (RFC 7143 11.13).
    LoginResponse = target::LOGIN, fixed 0,
    flags {
        /// T: the target goes to the next stage.
        transit: 1 & 0x80,
        /// C: the text goes on in the next response.
        continues: 1 & 0x40,
    }
    fields {
        /// Stages: CSG in bits 2 and 3, NSG in bits 0 and 1.
        stage_byte: u8 = 1,
        /// Highest version the target speaks.
        version_max: u8 = 2,
        /// The version in use.
        version_active: u8 = 3,
        /// The initiator's part of the session identifier, as sent.
        isid: [u8; 6] = 8,
        /// The target's part, given in the last response of a leading login.
        tsih: u16 = 14,
        /// Initiator task tag.
        tag: u32 = 16,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
        /// Status class and detail: see [`crate::login::Status`].
        status: u16 = 36,
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
        /// Initiator task tag; none where no answer is wanted.
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
        /// Target transfer tag, where the target wants an answer; else none.
        transfer_tag: u32 = 20,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reading what was written gives the same PDU, and writing what was read loses nothing that a second
    /// reading would show.
    macro_rules! round_trip {
        ($($name:ident),*) => {
            proptest! {$(
                #[test]
                #[allow(non_snake_case)]
                fn $name(bytes in prop::array::uniform32(any::<u8>()), tail in prop::array::uniform16(any::<u8>())) {
                    let mut header = [0; BHS_BYTES];
                    header[..32].copy_from_slice(&bytes);
                    header[32..].copy_from_slice(&tail);
                    let first = super::$name::read(&Bhs(header)).write();
                    let second = super::$name::read(&first).write();
                    prop_assert_eq!(first, second);
                    prop_assert_eq!(first.opcode(), super::$name::OPCODE);
                }
            )*}
        };
    }
    mod round_trip {
        use super::*;
        round_trip!(
            ScsiCommand,
            ScsiResponse,
            TaskManagementRequest,
            TaskManagementResponse,
            DataOut,
            DataIn,
            R2t,
            Snack,
            AsyncMessage,
            TextRequest,
            TextResponse,
            LoginRequest,
            LoginResponse,
            LogoutRequest,
            LogoutResponse,
            Reject,
            NopOut,
            NopIn
        );
    }

    #[test]
    fn a_read_command_has_the_bytes_of_the_standard() {
        let command = ScsiCommand {
            is_final: true,
            read: true,
            lun: [0, 3, 0, 0, 0, 0, 0, 0],
            tag: 0x0102_0304,
            expected_bytes: 512,
            cmd_sn: 7,
            exp_stat_sn: 9,
            cdb: [0x28, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            ..ScsiCommand::default()
        };
        let bytes = command.write().0;
        assert_eq!(bytes[..4], [0x01, 0xc0, 0, 0]);
        assert_eq!(bytes[8..24], [0, 3, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 2, 0]);
        assert_eq!(bytes[24..32], [0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(bytes[32], 0x28);
        assert_eq!(ScsiCommand::read(&Bhs(bytes)), command);
    }
}
