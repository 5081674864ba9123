//! Tests whether 48 bytes are an iSCSI basic header: by the opcode while a stream is followed, by every field
//! that the protocol fixes while searching for a PDU boundary.

use iscsi::bhs::{BHS_BYTES, Bhs, NO_TAG};
use iscsi::opcode::{initiator, target};

/// The direction of a stream, which determines its plausible opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// From the initiator.
    Requests,
    /// From the target.
    Responses,
}

impl Flow {
    /// The sender.
    #[must_use]
    pub fn sender(self) -> record::Side {
        match self {
            Flow::Requests => record::Side::Client,
            Flow::Responses => record::Side::Server,
        }
    }
}

/// The longest data segment by which a boundary is found, bytes. The field allows 16 MiB, which a mistake
/// would then skip. Longer PDUs are followed, but not used to resynchronise.
const FOUND_DATA_BYTES_MAX: usize = 1 << 20;
/// The longest additional headers by which a boundary is found, bytes: a 32-byte CDB and a bidirectional
/// length (RFC 7143 11.2.2) are shorter.
const FOUND_AHS_BYTES_MAX: usize = 64;

/// Whether bytes at an expected boundary may be a header. Lenient: accepts peers that set reserved bits.
pub(crate) fn may_be_header(flow: Flow, bhs: &Bhs) -> bool {
    let first = bhs.0[0];
    // Bit 7 is reserved, bit 6 is only the initiator's.
    match flow {
        Flow::Requests => {
            first & 0x80 == 0
                && matches!(
                    bhs.opcode(),
                    initiator::NOP_OUT
                        | initiator::SCSI_COMMAND
                        | initiator::TASK_MANAGEMENT
                        | initiator::LOGIN
                        | initiator::TEXT
                        | initiator::DATA_OUT
                        | initiator::LOGOUT
                        | initiator::SNACK
                )
                // Zeros are not a NOP-Out, whose F bit is always set.
                && (bhs.opcode() != initiator::NOP_OUT || bhs.0[1] == 0x80)
        }
        Flow::Responses => {
            first & 0xc0 == 0
                && matches!(
                    bhs.opcode(),
                    target::NOP_IN
                        | target::SCSI_RESPONSE
                        | target::TASK_MANAGEMENT
                        | target::LOGIN
                        | target::TEXT
                        | target::DATA_IN
                        | target::LOGOUT
                        | target::R2T
                        | target::ASYNC
                        | target::REJECT
                )
        }
    }
}

/// Whether bytes at an arbitrary position are a header: all fields that RFC 7143 11 fixes must be valid. Random
/// bytes pass at about one position in 2^27.
pub(crate) fn must_be_header(flow: Flow, bhs: &Bhs) -> bool {
    let h = &bhs.0;
    if !may_be_header(flow, bhs)
        || bhs.data_bytes() > FOUND_DATA_BYTES_MAX
        || bhs.ahs_bytes() > FOUND_AHS_BYTES_MAX
    {
        return false;
    }
    let flags = h[1];
    let reserved = |from: usize, to: usize| h[from..to].iter().all(|&b| b == 0);
    let (has_data, has_ahs) = (bhs.data_bytes() > 0, bhs.ahs_bytes() > 0);
    let tagged = bhs.initiator_task_tag() != NO_TAG;
    match (flow, bhs.opcode()) {
        // F R W 0 0 ATTR; not final only when data follows (11.3.1).
        (Flow::Requests, initiator::SCSI_COMMAND) => {
            flags & 0x18 == 0 && flags & 7 <= 4 && flags & 0xa0 != 0 && reserved(2, 4) && tagged
        }
        (Flow::Requests, initiator::DATA_OUT) => {
            flags & 0x7f == 0
                && reserved(2, 4)
                && reserved(24, 28)
                && reserved(32, 36)
                && reserved(44, 48)
                && !has_ahs
                && tagged
        }
        (Flow::Requests, initiator::NOP_OUT) => reserved(2, 4) && reserved(32, BHS_BYTES) && !has_ahs,
        // Login is always immediate, and C and T exclude each other (11.12).
        (Flow::Requests, initiator::LOGIN) => h[0] & 0x40 != 0 && flags & 0xc0 != 0xc0 && !has_ahs && tagged,
        (Flow::Requests, initiator::TEXT) => {
            flags & 0x3f == 0 && reserved(2, 4) && reserved(32, BHS_BYTES) && !has_ahs && tagged
        }
        (Flow::Requests, initiator::TASK_MANAGEMENT | initiator::LOGOUT | initiator::SNACK) => {
            flags & 0x80 != 0 && reserved(2, 4) && !has_ahs && !has_data
        }
        // F A 0 0 0 O U S; the status comes with the last (11.7).
        (Flow::Responses, target::DATA_IN) => {
            flags & 0x38 == 0 && flags & 0x81 != 0x01 && reserved(2, 3) && !has_ahs && tagged
        }
        // 1 0 0 o u O U 0 (11.4).
        (Flow::Responses, target::SCSI_RESPONSE) => {
            flags & 0xe1 == 0x80 && reserved(8, 16) && !has_ahs && tagged
        }
        (Flow::Responses, target::R2T) => flags == 0x80 && reserved(2, 4) && !has_ahs && !has_data && tagged,
        (Flow::Responses, target::NOP_IN) => {
            flags == 0x80 && reserved(2, 4) && reserved(36, BHS_BYTES) && !has_ahs
        }
        (Flow::Responses, target::TEXT) => {
            flags & 0x3f == 0 && reserved(2, 4) && reserved(36, BHS_BYTES) && !has_ahs && tagged
        }
        (Flow::Responses, target::LOGIN) => flags & 0xc0 != 0xc0 && !has_ahs && tagged,
        (Flow::Responses, target::TASK_MANAGEMENT | target::LOGOUT) => {
            flags == 0x80 && reserved(3, 4) && reserved(8, 16) && !has_ahs && !has_data && tagged
        }
        (Flow::Responses, target::ASYNC | target::REJECT) => flags == 0x80 && !has_ahs,
        _ => false,
    }
}

/// Whether a segment holds a header, at its front or (in the middle of a PDU) anywhere.
pub(crate) fn holds_a_header(flow: Flow, bytes: &[u8]) -> bool {
    bytes.windows(BHS_BYTES).step_by(4).any(|window| {
        window.first_chunk::<BHS_BYTES>().is_some_and(|header| must_be_header(flow, &Bhs(*header)))
    })
}

/// Whether the first bytes of a connection are a login: a login request whose text begins with a key and "=", as RFC 7143
/// 6.1 requires of the first one.
pub(crate) fn begins_a_login(bytes: &[u8]) -> bool {
    let Some((header, text)) = bytes.split_first_chunk::<BHS_BYTES>() else { return false };
    let bhs = Bhs(*header);
    let is_login = bhs.opcode() == initiator::LOGIN && must_be_header(Flow::Requests, &bhs);
    let key = text.iter().take_while(|b| b.is_ascii_alphanumeric() || b".-_".contains(b)).count();
    is_login && bhs.data_bytes() > 0 && key > 0 && text.get(key).is_none_or(|&b| b == b'=')
}

/// Whether a segment begins with a header.
#[inline]
pub(crate) fn begins_with_a_header(flow: Flow, bytes: &[u8]) -> bool {
    bytes.first_chunk::<BHS_BYTES>().is_some_and(|header| must_be_header(flow, &Bhs(*header)))
}

#[cfg(test)]
mod tests {
    use iscsi::pdu::{
        DataIn, DataOut, LoginRequest, LoginResponse, NopIn, NopOut, R2t, Reject, ScsiCommand, ScsiResponse,
    };

    use super::*;

    #[test]
    fn accepts_every_header_of_both_sides() {
        let requests = [
            ScsiCommand { read: true, is_final: true, tag: 1, ..ScsiCommand::default() }.write(),
            ScsiCommand { write_data: true, tag: 1, ..ScsiCommand::default() }.write(),
            DataOut { is_final: true, tag: 1, ..DataOut::default() }.write(),
            NopOut { tag: 1, ..NopOut::default() }.write(),
            LoginRequest { immediate: true, transit: true, tag: 1, ..LoginRequest::default() }.write(),
        ];
        for bhs in requests {
            assert!(must_be_header(Flow::Requests, &bhs), "{bhs:?}");
        }
        let responses = [
            DataIn { is_final: true, has_status: true, tag: 1, ..DataIn::default() }.write(),
            DataIn { tag: 1, ..DataIn::default() }.write(),
            ScsiResponse { tag: 1, ..ScsiResponse::default() }.write(),
            R2t { tag: 1, ..R2t::default() }.write(),
            NopIn { tag: 1, ..NopIn::default() }.write(),
            LoginResponse { transit: true, tag: 1, ..LoginResponse::default() }.write(),
            Reject::default().write(),
        ];
        for bhs in responses {
            assert!(must_be_header(Flow::Responses, &bhs), "{bhs:?}");
        }
    }

    #[test]
    fn rejects_runs_of_one_byte() {
        for byte in 0..=255 {
            let bhs = Bhs([byte; BHS_BYTES]);
            assert!(!must_be_header(Flow::Requests, &bhs) && !must_be_header(Flow::Responses, &bhs));
        }
    }
}
