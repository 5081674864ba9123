//! Names of statuses (MS-ERREF 2.3), shortened to fifteen letters.

use record::Status;

use super::word;

/// The request is not carried out yet.
pub(super) const PENDING: u32 = 0x0000_0103;

/// Answers that say more than that all went well, or that there is no more: no errors of anyone.
const ANSWERS: [(u32, &str); 12] = [
    (0x0000_010b, "NOTIFY_CLEANUP"),
    (0x0000_010c, "NOTIFY_ENUM_DIR"),
    (0x8000_0005, "BUFFER_OVERFLOW"),
    (0x8000_0006, "NO_MORE_FILES"),
    (0x8000_001a, "NO_MORE_ENTRIES"),
    (0x8000_002d, "SYMLINK"),
    (0xc000_000f, "NO_SUCH_FILE"),
    (0xc000_0011, "END_OF_FILE"),
    (0xc000_0016, "MORE_PROCESSING"),
    (0xc000_0120, "CANCELLED"),
    (0xc000_0257, "NOT_COVERED"),
    (0xc000_0225, "NOT_FOUND"),
];

const ERRORS: [(u32, &str); 70] = [
    (0xc000_0001, "UNSUCCESSFUL"),
    (0xc000_0002, "NOT_IMPLEMENTED"),
    (0xc000_0003, "BAD_INFO_CLASS"),
    (0xc000_0004, "BAD_LENGTH"),
    (0xc000_0008, "INVALID_HANDLE"),
    (0xc000_000d, "BAD_PARAMETER"),
    (0xc000_000e, "NO_SUCH_DEVICE"),
    (0xc000_0010, "BAD_REQUEST"),
    (0xc000_0013, "NO_MEDIA"),
    (0xc000_0017, "NO_MEMORY"),
    (0xc000_0022, "ACCESS_DENIED"),
    (0xc000_0023, "BUFFER_SMALL"),
    (0xc000_0032, "CORRUPT"),
    (0xc000_0033, "NAME_INVALID"),
    (0xc000_0034, "NAME_NOT_FOUND"),
    (0xc000_0035, "NAME_COLLISION"),
    (0xc000_003a, "NO_SUCH_PATH"),
    (0xc000_003b, "BAD_PATH"),
    (0xc000_003e, "DATA_ERROR"),
    (0xc000_003f, "CRC_ERROR"),
    (0xc000_0043, "SHARING"),
    (0xc000_0044, "QUOTA_EXCEEDED"),
    (0xc000_0054, "LOCK_CONFLICT"),
    (0xc000_0055, "LOCK_REFUSED"),
    (0xc000_0056, "DELETE_PENDING"),
    (0xc000_005e, "NO_LOGON_SERVER"),
    (0xc000_0064, "NO_SUCH_USER"),
    (0xc000_006a, "WRONG_PASSWORD"),
    (0xc000_006d, "LOGON_FAILURE"),
    (0xc000_006e, "RESTRICTED"),
    (0xc000_0071, "EXPIRED"),
    (0xc000_0072, "DISABLED"),
    (0xc000_007e, "NOT_LOCKED"),
    (0xc000_007f, "DISK_FULL"),
    (0xc000_009a, "NO_RESOURCES"),
    (0xc000_009c, "DATA_ERROR"),
    (0xc000_00a2, "WRITE_PROTECTED"),
    (0xc000_00a3, "NOT_READY"),
    (0xc000_00ac, "NO_PIPE"),
    (0xc000_00ae, "PIPE_BUSY"),
    (0xc000_00b0, "PIPE_ENDED"),
    (0xc000_00b5, "IO_TIMEOUT"),
    (0xc000_00ba, "IS_DIRECTORY"),
    (0xc000_00bb, "NOT_SUPPORTED"),
    (0xc000_00c9, "SHARE_DELETED"),
    (0xc000_00cc, "NO_SUCH_SHARE"),
    (0xc000_00d0, "NOT_ACCEPTED"),
    (0xc000_00d4, "OTHER_DEVICE"),
    (0xc000_00e5, "INTERNAL_ERROR"),
    (0xc000_00e9, "IO_ERROR"),
    (0xc000_0101, "NOT_EMPTY"),
    (0xc000_0102, "CORRUPT"),
    (0xc000_0103, "NOT_A_DIRECTORY"),
    (0xc000_011f, "TOO_MANY_FILES"),
    (0xc000_0121, "CANNOT_DELETE"),
    (0xc000_0123, "FILE_DELETED"),
    (0xc000_0128, "FILE_CLOSED"),
    (0xc000_014b, "PIPE_BROKEN"),
    (0xc000_0184, "BAD_STATE"),
    (0xc000_0185, "IO_DEVICE_ERROR"),
    (0xc000_0203, "SESSION_DELETED"),
    (0xc000_0205, "NO_RESOURCES"),
    (0xc000_0234, "LOCKED_OUT"),
    (0xc000_026e, "DISMOUNTED"),
    (0xc000_0275, "NOT_A_LINK"),
    (0xc000_02ea, "CANNOT_MAKE"),
    (0xc000_035c, "SESSION_EXPIRED"),
    (0xc000_0466, "UNAVAILABLE"),
    (0xc000_0467, "NOT_AVAILABLE"),
    (0xc000_05bb, "HASH_MISSING"),
];

/// The status of a number.
pub(super) fn of(number: u32) -> Status {
    let known = |table: &[(u32, &'static str)]| {
        table.iter().find(|(own, _)| *own == number).map(|(_, name)| word(name))
    };
    if number == 0 {
        return Status::Good;
    }
    if let Some(name) = known(&ANSWERS) {
        return Status::Answer(name);
    }
    let name = known(&ERRORS).unwrap_or_else(|| word(&format!("0x{number:08X}")));
    // The upper two bits say whether it is one.
    if number >> 30 == 3 { Status::Error(name) } else { Status::Answer(name) }
}
