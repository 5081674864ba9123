//! Persistent reservation types.

use serde::{Deserialize, Serialize};

/// A persistent reservation type (SPC-4 table 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub(super) enum ReservationType {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// The type with this code.
    pub(super) fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::WriteExclusive,
            3 => Self::ExclusiveAccess,
            5 => Self::WriteExclusiveRegistrantsOnly,
            6 => Self::ExclusiveAccessRegistrantsOnly,
            7 => Self::WriteExclusiveAllRegistrants,
            8 => Self::ExclusiveAccessAllRegistrants,
            _ => return None,
        })
    }

    /// Its name in SPC-4.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
        }
    }

    /// The code in the TYPE field.
    pub(super) fn code(self) -> u8 {
        self as u8
    }

    /// Whether every registrant holds the reservation.
    pub(super) fn is_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Whether every registrant has access.
    pub(super) fn admits_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveRegistrantsOnly | Self::ExclusiveAccessRegistrantsOnly)
            || self.is_all_registrants()
    }

    /// Whether every initiator may read.
    pub(super) fn admits_reads(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }
}

impl From<ReservationType> for u8 {
    fn from(kind: ReservationType) -> Self {
        kind.code()
    }
}

impl TryFrom<u8> for ReservationType {
    type Error = String;

    fn try_from(code: u8) -> Result<Self, String> {
        Self::of(code).ok_or_else(|| format!("{code} is no persistent reservation type"))
    }
}
