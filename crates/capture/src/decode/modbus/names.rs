//! Functions and exceptions (Modbus Application Protocol 1.1b3, 6 and 7).

use record::{Status, Word};

pub(super) const READ_COILS: u8 = 1;
pub(super) const READ_DISCRETE: u8 = 2;
pub(super) const READ_HOLDING: u8 = 3;
pub(super) const READ_INPUT: u8 = 4;
pub(super) const WRITE_COIL: u8 = 5;
pub(super) const WRITE_REGISTER: u8 = 6;
pub(super) const DIAGNOSTICS: u8 = 8;
pub(super) const WRITE_COILS: u8 = 15;
pub(super) const WRITE_REGISTERS: u8 = 16;
pub(super) const READ_FILE: u8 = 20;
pub(super) const WRITE_FILE: u8 = 21;
pub(super) const MASK_WRITE: u8 = 22;
pub(super) const READ_WRITE: u8 = 23;
pub(super) const READ_FIFO: u8 = 24;
pub(super) const ENCAPSULATED: u8 = 43;

/// What function 43 transports where it reads the identification of a device.
pub(super) const DEVICE_ID: u8 = 14;

/// A function's name.
pub(super) fn name(function: u8) -> Word {
    let name = match function {
        READ_COILS => "READ_COILS",
        READ_DISCRETE => "READ_DISCRETE",
        READ_HOLDING => "READ_HOLDING",
        READ_INPUT => "READ_INPUT",
        WRITE_COIL => "WRITE_COIL",
        WRITE_REGISTER => "WRITE_REGISTER",
        7 => "READ_STATUS",
        DIAGNOSTICS => "DIAGNOSTICS",
        11 => "COMM_COUNTER",
        12 => "COMM_LOG",
        WRITE_COILS => "WRITE_COILS",
        WRITE_REGISTERS => "WRITE_REGISTERS",
        17 => "SERVER_ID",
        READ_FILE => "READ_FILE",
        WRITE_FILE => "WRITE_FILE",
        MASK_WRITE => "MASK_WRITE",
        READ_WRITE => "READ_WRITE",
        READ_FIFO => "READ_FIFO",
        ENCAPSULATED => "ENCAPSULATED",
        other => return Word::new(format!("FUNCTION_{other}").as_bytes()),
    };
    Word::new(name.as_bytes())
}

/// Whether a function changes something, so that a gateway may send it to all units of a line.
pub(super) fn is_write(function: u8) -> bool {
    matches!(function, WRITE_COIL | WRITE_REGISTER | WRITE_COILS | WRITE_REGISTERS | WRITE_FILE | MASK_WRITE)
}

/// The status that an exception's code states.
pub(super) fn status(code: u8) -> Status {
    let name = match code {
        1 => "ILLEGAL_FUNC",
        2 => "ILLEGAL_ADDRESS",
        3 => "ILLEGAL_VALUE",
        4 => "DEVICE_FAILURE",
        // The request is accepted, and takes long.
        5 => return Status::Answer(Word::new(b"ACKNOWLEDGE")),
        6 => "DEVICE_BUSY",
        7 => "NEGATIVE_ACK",
        8 => "PARITY_ERROR",
        10 => "GATEWAY_PATH",
        11 => "GATEWAY_TARGET",
        other => return Status::Error(Word::new(format!("EXCEPTION_{other}").as_bytes())),
    };
    Status::Error(Word::new(name.as_bytes()))
}
