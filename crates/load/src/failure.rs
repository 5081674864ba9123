//! Failed operations by class: what the peer answered, or what became of the connection.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::http::HttpFailure;

/// Classes that a run distinguishes; further ones are counted together.
pub const CLASSES_MAX: usize = 16;

/// The name of the failures beyond [`CLASSES_MAX`] classes.
const FURTHER: &str = "other failures";

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// A SCSI status other than GOOD.
    Scsi {
        /// The status.
        status: u8,
        /// Its sense data, if there was any.
        sense: Option<SenseCodes>,
    },
    /// A command with status GOOD that transferred fewer bytes than it asked for.
    Short,
    /// The target rejected a PDU for this reason (RFC 7143 11.17.1).
    Rejected(u8),
    /// No answer within the time allowed.
    Timeout,
    /// The connection ended before the answer.
    ConnectionLost,
    /// An HTTP status outside 200 to 299.
    HttpStatus(u16),
    /// Another failure of an HTTP request.
    Http(HttpFailure),
}

/// Sense key and additional sense codes (SPC-4 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseCodes {
    /// Sense key, 0 to 15.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

impl SenseCodes {
    /// Reads sense data in fixed or descriptor format; `None` if it has neither or is cut off.
    #[must_use]
    pub fn read(sense: &[u8]) -> Option<Self> {
        let codes = |key: usize, asc: usize, ascq: usize| {
            Some(Self { key: sense.get(key)? & 0x0f, asc: *sense.get(asc)?, ascq: *sense.get(ascq)? })
        };
        match sense.first()? & 0x7f {
            0x70 | 0x71 => codes(2, 12, 13),
            0x72 | 0x73 => codes(1, 2, 3),
            _ => None,
        }
    }

    /// Returns whether the sense key is UNIT ATTENTION: the command was not begun and may be repeated (SAM-5 5.14).
    #[must_use]
    pub fn is_unit_attention(self) -> bool {
        self.key == 6
    }
}

impl fmt::Display for SenseCodes {
    /// `5/21/00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{:02x}/{:02x}", self.key, self.asc, self.ascq)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Scsi { status, sense } => {
                match scsi::names::status(status) {
                    Some(name) => f.write_str(name)?,
                    None => write!(f, "status {status:#04x}")?,
                }
                let Some(sense) = sense else { return Ok(()) };
                write!(f, ", {}", scsi::names::sense_key(sense.key))?;
                if let Some(name) = scsi::names::additional(sense.asc, sense.ascq) {
                    write!(f, ", {name}")?;
                }
                write!(f, " ({:02x}/{:02x}/{:02x})", sense.key, sense.asc, sense.ascq)
            }
            Self::Short => f.write_str("GOOD with fewer bytes than requested"),
            Self::Rejected(reason) => write!(f, "iSCSI Reject, reason {reason:#04x}"),
            Self::Timeout => f.write_str("no response in time"),
            Self::ConnectionLost => f.write_str("connection lost"),
            Self::HttpStatus(status) => write!(f, "HTTP status {status}"),
            Self::Http(failure) => failure.fmt(f),
        }
    }
}

/// Failed operations of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, such as `CHECK CONDITION, DATA PROTECT, WRITE PROTECTED (07/27/00)` or `HTTP status 503`.
    pub class: String,
    /// Operations.
    pub count: u64,
}

/// Counts failed operations by class, at most [`CLASSES_MAX`] classes.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    classes: Vec<Counted>,
    /// Failures of further classes.
    further: u64,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    class: FailureClass,
    count: u64,
}

impl Failures {
    /// Adds `count` failures of a class.
    pub fn add(&mut self, class: FailureClass, count: u64) {
        if let Some(known) = self.classes.iter_mut().find(|known| known.class == class) {
            known.count += count;
        } else if self.classes.len() < CLASSES_MAX {
            self.classes.push(Counted { class, count });
        } else {
            self.further += count;
        }
    }

    /// Adds the failures of another session.
    pub fn merge(&mut self, other: &Self) {
        other.classes.iter().for_each(|counted| self.add(counted.class, counted.count));
        self.further += other.further;
    }

    /// Returns the number of failures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.classes.iter().map(|counted| counted.count).sum::<u64>() + self.further
    }

    /// Returns the classes, the most frequent first; the last entry may stand for all further classes.
    #[must_use]
    pub fn list(&self) -> Vec<Failure> {
        let mut classes = self.classes.clone();
        classes.sort_by_key(|counted| std::cmp::Reverse(counted.count));
        let named = |counted: &Counted| Failure { class: counted.class.to_string(), count: counted.count };
        let mut list: Vec<Failure> = classes.iter().map(named).filter(|failure| failure.count > 0).collect();
        if self.further > 0 {
            list.push(Failure { class: FURTHER.to_owned(), count: self.further });
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_is_read_in_both_formats() {
        let text = |sense: &[u8]| SenseCodes::read(sense).map(|codes| codes.to_string());
        let fixed = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0];
        assert_eq!(text(&fixed).as_deref(), Some("5/21/00"));
        assert_eq!(text(&[0x72, 5, 0x25, 0]).as_deref(), Some("5/25/00"));
        assert_eq!(
            (text(&fixed[..12]), text(&[0x72, 5]), text(&[]), text(&[0x11; 18])),
            (None, None, None, None)
        );
    }

    #[test]
    fn classes_have_the_names_of_the_standards() {
        let sense = Some(SenseCodes { key: 7, asc: 0x27, ascq: 7 });
        let class = FailureClass::Scsi { status: 2, sense };
        let expected = "CHECK CONDITION, DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT (07/27/07)";
        assert_eq!(class.to_string(), expected);
        let unknown = Some(SenseCodes { key: 9, asc: 0x99, ascq: 1 });
        let unknown = FailureClass::Scsi { status: 0x7e, sense: unknown };
        assert_eq!(unknown.to_string(), "status 0x7e, VENDOR SPECIFIC (09/99/01)");
        assert_eq!(FailureClass::Scsi { status: 0x28, sense: None }.to_string(), "TASK SET FULL");
        assert_eq!(FailureClass::HttpStatus(503).to_string(), "HTTP status 503");
    }

    /// A peer that answers every command differently cannot make a report grow.
    #[test]
    fn classes_are_bounded_and_every_failure_is_counted() {
        let (mut all, mut one) = (Failures::default(), Failures::default());
        for status in 0..500 {
            one.add(FailureClass::HttpStatus(status), 1);
        }
        one.add(FailureClass::HttpStatus(3), 5);
        all.add(FailureClass::Timeout, 2);
        all.merge(&one);
        let list = all.list();
        assert_eq!((all.total(), list.len()), (507, CLASSES_MAX + 1));
        assert_eq!(list[0], Failure { class: "HTTP status 3".into(), count: 6 });
        assert_eq!(list[CLASSES_MAX], Failure { class: FURTHER.into(), count: 485 });
        assert_eq!(list.iter().map(|failure| failure.count).sum::<u64>(), 507);
    }
}
