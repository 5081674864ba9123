//! The login phase (RFC 7143 6.3): what both sides share. [`target`] and [`initiator`] are the two state
//! machines.

pub mod chap;
pub mod initiator;
pub mod target;

/// Stage numbers (CSG and NSG).
pub mod stage {
    /// SecurityNegotiation.
    pub const SECURITY: u8 = 0;
    /// LoginOperationalNegotiation.
    pub const OPERATIONAL: u8 = 1;
    /// FullFeaturePhase.
    pub const FULL_FEATURE: u8 = 3;
}

/// Status of a Login Response: class in the high byte, detail in the low one (RFC 7143 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// Proceeding.
    pub const SUCCESS: Status = Status(0x0000);
    /// The target has moved temporarily to TargetAddress.
    pub const MOVED_TEMPORARILY: Status = Status(0x0101);
    /// The target has moved permanently to TargetAddress.
    pub const MOVED_PERMANENTLY: Status = Status(0x0102);
    /// Miscellaneous initiator error.
    pub const INITIATOR_ERROR: Status = Status(0x0200);
    /// The initiator could not be authenticated.
    pub const AUTHENTICATION_FAILURE: Status = Status(0x0201);
    /// The initiator may not use this target.
    pub const AUTHORIZATION_FAILURE: Status = Status(0x0202);
    /// No such target here.
    pub const NOT_FOUND: Status = Status(0x0203);
    /// No common protocol version.
    pub const UNSUPPORTED_VERSION: Status = Status(0x0205);
    /// Too many connections on this session.
    pub const TOO_MANY_CONNECTIONS: Status = Status(0x0206);
    /// A key that must be there is not.
    pub const MISSING_PARAMETER: Status = Status(0x0207);
    /// This connection cannot be one of that session.
    pub const CANNOT_INCLUDE: Status = Status(0x0208);
    /// Neither Normal nor Discovery.
    pub const SESSION_TYPE: Status = Status(0x0209);
    /// No session with this TSIH.
    pub const SESSION_DOES_NOT_EXIST: Status = Status(0x020a);
    /// A PDU that has no place in a login.
    pub const INVALID_DURING_LOGIN: Status = Status(0x020b);
    /// The target takes no logins at present.
    pub const SERVICE_UNAVAILABLE: Status = Status(0x0301);
    /// The target is at a limit.
    pub const OUT_OF_RESOURCES: Status = Status(0x0302);

    /// Whether the login continues.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.0 {
            0x0000 => "success",
            0x0101 => "target moved temporarily",
            0x0102 => "target moved permanently",
            0x0200 => "initiator error",
            0x0201 => "authentication failure",
            0x0202 => "authorization failure",
            0x0203 => "target not found",
            0x0204 => "target removed",
            0x0205 => "unsupported version",
            0x0206 => "too many connections",
            0x0207 => "missing parameter",
            0x0208 => "cannot include in session",
            0x0209 => "session type not supported",
            0x020a => "session does not exist",
            0x020b => "invalid during login",
            0x0300 => "target error",
            0x0301 => "service unavailable",
            0x0302 => "target out of resources",
            _ => "unknown status",
        };
        write!(f, "{text} (status {:#06x})", self.0)
    }
}

/// The type of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionType {
    /// Text only, to find targets.
    Discovery,
    /// SCSI.
    #[default]
    Normal,
}

/// Whether `name` has the form of an iSCSI name (RFC 7143 4.2.7): iqn., eui. or naa., at most 223 bytes of letters,
/// digits, `-`, `.` and `:` (RFC 3722), and `_`, which some initiators use. A comma would let a name look like a port's.
#[must_use]
pub fn is_iscsi_name(name: &str) -> bool {
    let typed = ["iqn.", "eui.", "naa."].iter().any(|kind| {
        name.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
            && name.len() > kind.len()
    });
    typed && name.len() <= 223 && name.chars().all(|c| c.is_alphanumeric() || "-.:_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names_have_a_type_and_no_blanks() {
        for good in
            ["iqn.2026-11.example:disk", "eui.02004567A425678D", "naa.52004567BA64678D", "IQN.2000-01.a"]
        {
            assert!(is_iscsi_name(good), "{good}");
        }
        for bad in [
            "",
            "iqn.",
            "disk",
            "iqn.2026-11.example disk",
            "iqn.\u{1}",
            "éqn.2026",
            &"iqn.".repeat(60),
            "iqn.a:b,i,0x4",
            "iqn.a\u{200b}",
            "iqn.a%2c",
        ] {
            assert!(!is_iscsi_name(bad), "{bad}");
        }
    }
}
