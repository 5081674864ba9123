//! Names of NVMe's commands: an opcode means different things to the admin queue and to I/O queues.

use record::Word;

/// Opcode of the commands of NVMe over fabrics, whose kind is in another field.
pub(super) const FABRICS: u8 = 0x7f;
/// That kind of Connect.
pub(super) const CONNECT: u8 = 0x01;
/// Asynchronous Event Request, on the admin queue.
pub(super) const ASYNC_EVENT: u8 = 0x0c;

/// The command that is answered with data, on I/O queues.
pub(super) const READ: &str = "Read";

/// Whether a command is one of the admin queue, where no Connect was seen: opcodes that I/O queues do not have, or no namespace.
pub(super) fn is_of_admin(opcode: u8, namespace: u32) -> bool {
    match opcode {
        0x02 | 0x08..=0x0e | 0x10 | 0x11 | 0x14 | 0x15 | 0x19 => {
            opcode == 0x0a || matches!(namespace, 0 | u32::MAX)
        }
        0x06 | 0x18 | 0x1a | 0x80..=0x84 => true,
        _ => false,
    }
}

/// The name of a command.
pub(super) fn name(is_admin: bool, opcode: u8, kind: u8) -> Word {
    let name = match (is_admin, opcode) {
        (_, FABRICS) => return fabrics(kind),
        (true, 0x02) => "GetLogPage",
        (true, 0x06) => "Identify",
        (true, 0x08) => "Abort",
        (true, 0x09) => "SetFeatures",
        (true, 0x0a) => "GetFeatures",
        (true, 0x0d) => "NsManagement",
        (true, 0x10) => "FirmwareCommit",
        (true, 0x11) => "FirmwareLoad",
        (true, 0x14) => "SelfTest",
        (true, 0x15) => "NsAttachment",
        (true, 0x18) => "KeepAlive",
        (true, 0x19) => "DirectiveSend",
        (true, 0x1a) => "DirectiveRecv",
        (true, 0x80) => "FormatNvm",
        (true, 0x81) => "SecuritySend",
        (true, 0x82) => "SecurityRecv",
        (true, 0x84) => "Sanitize",
        (false, 0x00) => "Flush",
        (false, 0x01) => "Write",
        (false, 0x02) => READ,
        (false, 0x04) => "WriteUncor",
        (false, 0x05) => "Compare",
        (false, 0x08) => "WriteZeroes",
        (false, 0x09) => "DatasetMgmt",
        (false, 0x0c) => "Verify",
        (false, 0x0d) => "ResvRegister",
        (false, 0x0e) => "ResvReport",
        (false, 0x11) => "ResvAcquire",
        (false, 0x15) => "ResvRelease",
        (false, 0x19) => "Copy",
        (false, 0x79) => "ZoneMgmtSend",
        (false, 0x7a) => "ZoneMgmtRecv",
        (false, 0x7d) => "ZoneAppend",
        _ => return Word::new(format!("0x{opcode:02x}").as_bytes()),
    };
    Word::new(name.as_bytes())
}

fn fabrics(kind: u8) -> Word {
    let name = match kind {
        0x00 => "PropertySet",
        CONNECT => "Connect",
        0x04 => "PropertyGet",
        0x05 => "AuthSend",
        0x06 => "AuthReceive",
        0x08 => "Disconnect",
        _ => return Word::new(format!("fabrics/{kind:02x}").as_bytes()),
    };
    Word::new(name.as_bytes())
}
