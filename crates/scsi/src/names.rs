//! Names of statuses (SAM-5 5.3.1), sense keys and additional sense codes (SPC-4 annex D), for messages.

/// Returns the name of a SCSI status, `None` for a reserved one.
#[must_use]
pub fn status(status: u8) -> Option<&'static str> {
    Some(match status {
        0x00 => "GOOD",
        0x02 => "CHECK CONDITION",
        0x04 => "CONDITION MET",
        0x08 => "BUSY",
        0x18 => "RESERVATION CONFLICT",
        0x28 => "TASK SET FULL",
        0x30 => "ACA ACTIVE",
        0x40 => "TASK ABORTED",
        _ => return None,
    })
}

/// Returns the name of a sense key, of which only the low four bits count.
#[must_use]
pub fn sense_key(key: u8) -> &'static str {
    const NAMES: [&str; 16] = [
        "NO SENSE",
        "RECOVERED ERROR",
        "NOT READY",
        "MEDIUM ERROR",
        "HARDWARE ERROR",
        "ILLEGAL REQUEST",
        "UNIT ATTENTION",
        "DATA PROTECT",
        "BLANK CHECK",
        "VENDOR SPECIFIC",
        "COPY ABORTED",
        "ABORTED COMMAND",
        "RESERVED",
        "VOLUME OVERFLOW",
        "MISCOMPARE",
        "COMPLETED",
    ];
    NAMES[usize::from(key & 0x0f)]
}

/// Returns the name of an additional sense code and its qualifier, `None` for those that block devices rarely return.
#[must_use]
pub fn additional(asc: u8, ascq: u8) -> Option<&'static str> {
    Some(match (asc, ascq) {
        (0x00, 0x00) => "NO ADDITIONAL SENSE INFORMATION",
        (0x04, 0x00) => "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE",
        (0x04, 0x01) => "LOGICAL UNIT IS IN PROCESS OF BECOMING READY",
        (0x04, 0x02) => "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED",
        (0x04, 0x03) => "LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED",
        (0x04, 0x0a) => "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION",
        (0x04, 0x0b) => "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE",
        (0x04, 0x0c) => "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE",
        (0x08, _) => "LOGICAL UNIT COMMUNICATION FAILURE",
        (0x0c, 0x00) => "WRITE ERROR",
        (0x0c, 0x02) => "WRITE ERROR - AUTO REALLOCATION FAILED",
        (0x0e, 0x03) => "INVALID FIELD IN COMMAND INFORMATION UNIT",
        (0x10, _) => "LOGICAL BLOCK GUARD, APPLICATION TAG OR REFERENCE TAG CHECK FAILED",
        (0x11, 0x00) => "UNRECOVERED READ ERROR",
        (0x1a, 0x00) => "PARAMETER LIST LENGTH ERROR",
        (0x1d, 0x00) => "MISCOMPARE DURING VERIFY OPERATION",
        (0x20, 0x00) => "INVALID COMMAND OPERATION CODE",
        (0x21, 0x00) => "LOGICAL BLOCK ADDRESS OUT OF RANGE",
        (0x24, 0x00) => "INVALID FIELD IN CDB",
        (0x25, 0x00) => "LOGICAL UNIT NOT SUPPORTED",
        (0x26, 0x00) => "INVALID FIELD IN PARAMETER LIST",
        (0x27, 0x00) => "WRITE PROTECTED",
        (0x27, 0x07) => "SPACE ALLOCATION FAILED WRITE PROTECT",
        (0x29, 0x00) => "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
        (0x29, _) => "RESET OCCURRED",
        (0x2a, 0x09) => "CAPACITY DATA HAS CHANGED",
        (0x2a, _) => "PARAMETERS CHANGED",
        (0x38, 0x07) => "THIN PROVISIONING SOFT THRESHOLD REACHED",
        (0x3a, _) => "MEDIUM NOT PRESENT",
        (0x3f, 0x0e) => "REPORTED LUNS DATA HAS CHANGED",
        (0x3f, _) => "TARGET OPERATING CONDITIONS HAVE CHANGED",
        (0x44, 0x00) => "INTERNAL TARGET FAILURE",
        (0x47, _) => "SCSI PARITY ERROR",
        (0x49, 0x00) => "INVALID MESSAGE ERROR",
        (0x4b, _) => "DATA PHASE ERROR",
        (0x4e, 0x00) => "OVERLAPPED COMMANDS ATTEMPTED",
        (0x55, _) => "SYSTEM RESOURCE FAILURE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standards() {
        assert_eq!((status(0x18), status(0x01)), (Some("RESERVATION CONFLICT"), None));
        assert_eq!((sense_key(0x05), sense_key(0xf7)), ("ILLEGAL REQUEST", "DATA PROTECT"));
        assert_eq!(additional(0x27, 0x07), Some("SPACE ALLOCATION FAILED WRITE PROTECT"));
        assert_eq!(additional(0xff, 0xff), None);
    }
}
