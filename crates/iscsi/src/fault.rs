//! Protocol violations by a peer.

use thiserror::Error;

/// A violation after which a connection cannot continue. The peer gets a Reject or a login status where the RFC provides
/// one, then the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A data segment longer than the receiver declared.
    #[error(
        "PDU with opcode {opcode:#04x} announces {bytes} bytes of data, {allowed} are allowed (MaxRecvDataSegmentLength)"
    )]
    DataSegmentTooLong {
        /// Of the offending PDU.
        opcode: u8,
        /// The length in its header.
        bytes: usize,
        /// The declared limit.
        allowed: usize,
    },
    /// A digest does not match: bytes were changed on the way.
    #[error(
        "the {part} digest of a PDU with opcode {opcode:#04x} is wrong: something on the way changes bytes"
    )]
    Digest {
        /// Of the offending PDU.
        opcode: u8,
        /// Header or data.
        part: &'static str,
    },
    /// The text keys cannot be read.
    #[error("text keys: {0}")]
    Text(#[from] crate::text::TextError),
    /// A PDU that has no place in the present phase.
    #[error("opcode {opcode:#04x} is not allowed in the {phase} phase")]
    OutOfPhase {
        /// Of the offending PDU.
        opcode: u8,
        /// The phase of the connection.
        phase: &'static str,
    },
    /// Commands arrive with a gap in CmdSN, which one connection can never fill.
    #[error(
        "CmdSN {got} arrived where {expected} was due; a single connection delivers in order (RFC 7143 4.2.2.1)"
    )]
    CommandGap {
        /// The CmdSN that arrived.
        got: u32,
        /// The CmdSN that was expected.
        expected: u32,
    },
    /// The peer broke another rule.
    #[error("{what} ({section})")]
    Protocol {
        /// The violation.
        what: &'static str,
        /// The rule, as "RFC 7143 n.n".
        section: &'static str,
    },
    /// The target refused the login.
    #[error("login refused: {0}")]
    LoginRefused(crate::login::Status),
}

/// Reason codes of a Reject (RFC 7143 11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// The data digest is wrong.
    DataDigestError = 0x02,
    /// SNACK that cannot be honoured.
    SnackReject = 0x03,
    /// Protocol error.
    ProtocolError = 0x04,
    /// Command (opcode) not supported.
    CommandNotSupported = 0x05,
    /// Too many immediate commands.
    ImmediateCommandReject = 0x06,
    /// Task in progress.
    TaskInProgress = 0x07,
    /// Invalid PDU field.
    InvalidPduField = 0x09,
}
