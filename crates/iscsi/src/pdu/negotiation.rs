//! Login and text negotiation (RFC 7143 11.10 to 11.13).

use crate::opcode::{initiator, target};

pdu! {
    /// Login Request (RFC 7143 11.12).
    LoginRequest = initiator::LOGIN, fixed 0,
    flags {
        /// I: always set in a login.
        immediate: 0 & 0x40,
        /// T: ready to go to the next stage.
        transit: 1 & 0x80,
        /// C: the text continues in the next request.
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
        /// C: the text continues in the next response.
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
    /// Text Request (RFC 7143 11.10).
    TextRequest = initiator::TEXT, fixed 0,
    flags {
        /// I: deliver at once.
        immediate: 0 & 0x40,
        /// F: the initiator's last request of the exchange.
        is_final: 1 & 0x80,
        /// C: the text continues in the next request.
        continues: 1 & 0x40,
    }
    fields {
        /// The logical unit the exchange belongs to.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag, to continue an exchange.
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
        /// F: the target's last response of the exchange.
        is_final: 1 & 0x80,
        /// C: the text continues in the next response.
        continues: 1 & 0x40,
    }
    fields {
        /// The logical unit the exchange belongs to.
        lun: [u8; 8] = 8,
        /// Initiator task tag.
        tag: u32 = 16,
        /// Target transfer tag, if the exchange continues.
        transfer_tag: u32 = 20,
        /// StatSN.
        stat_sn: u32 = 24,
        /// ExpCmdSN.
        exp_cmd_sn: u32 = 28,
        /// MaxCmdSN.
        max_cmd_sn: u32 = 32,
    }
}
