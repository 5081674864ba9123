//! Requests and replies of CIP (ODVA, The CIP Networks Library, volume 1, 2-4, 3-5.5, 5A and appendices B and C), and Rockwell's services for
//! tags (Logix 5000 Controllers Data Access, 1756-PM020).

use record::{Status, Word};

use super::super::Shown;
use super::super::keys::folded;
use super::u16_at;

/// The flag of a service that says that it is a reply.
pub(super) const REPLY: u8 = 0x80;

const MULTIPLE: u8 = 0x0a;
/// Of the connection manager, a request that it passes on; of a tag, a part of it.
const UNCONNECTED_SEND: u8 = 0x52;
const CONNECTION_MANAGER: u16 = 6;
/// Requests in requests that are looked into.
const NESTED_MAX: usize = 3;

/// What a path leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Target<'a> {
    class: Option<u16>,
    instance: Option<u16>,
    tag: Option<&'a [u8]>,
}

/// A request: its service, its target, and its data.
struct Request<'a> {
    service: u8,
    target: Target<'a>,
    data: &'a [u8],
}

impl<'a> Target<'a> {
    fn of(path: &'a [u8]) -> Self {
        let mut target = Self::default();
        let mut rest = path;
        while let [segment, behind @ ..] = rest {
            let (value, length) = match segment & 3 {
                0 => (behind.first().copied().map(u16::from), 2),
                1 => (u16_at(behind, 1), 4),
                _ => (None, 6),
            };
            let used = match segment {
                0x20..=0x23 => {
                    target.class = target.class.or(value);
                    length
                }
                0x24..=0x27 => {
                    target.instance = target.instance.or(value);
                    length
                }
                0x28..=0x3f => length,
                // What follows is a part of the tag.
                0x91 => {
                    let length = behind.first().copied().map(usize::from);
                    target.tag = length.and_then(|length| behind.get(1..)?.get(..length));
                    break;
                }
                // Of a port, which leads elsewhere, and others.
                _ => break,
            };
            rest = rest.get(used..).unwrap_or_default();
        }
        target
    }

    fn key(&self, shown: Shown) -> String {
        if let Some(tag) = self.tag {
            return folded(tag, shown);
        }
        let Some(class) = self.class else { return String::new() };
        let name = match class {
            1 => "Identity".to_owned(),
            2 => "Message Router".to_owned(),
            4 => "Assembly".to_owned(),
            CONNECTION_MANAGER => "Connection Manager".to_owned(),
            0x6b => "Symbol".to_owned(),
            0x6c => "Template".to_owned(),
            0xf5 => "TCP/IP".to_owned(),
            0xf6 => "Ethernet Link".to_owned(),
            _ => format!("class {class}"),
        };
        match self.instance {
            Some(instance) if shown.verbatim => format!("{name} {instance}"),
            _ => name,
        }
    }
}

impl<'a> Request<'a> {
    fn of(message: &'a [u8]) -> Option<Self> {
        let (&service, rest) = message.split_first()?;
        let (&words, rest) = rest.split_first()?;
        let path = rest.get(..usize::from(words) * 2)?;
        Some(Self { service, target: Target::of(path), data: rest.get(path.len()..)? })
    }

    fn is_of_manager(&self) -> bool {
        self.target.class == Some(CONNECTION_MANAGER) && self.target.tag.is_none()
    }

    /// The request that this one carries: one to be passed on, or the first of several.
    fn carried(&self) -> Option<Self> {
        if self.service == UNCONNECTED_SEND && self.is_of_manager() {
            let length = usize::from(u16_at(self.data, 2)?);
            let behind = self.data.get(4..)?;
            return Self::of(behind.get(..length.min(behind.len()))?);
        }
        if self.service == MULTIPLE {
            return Self::of(self.data.get(usize::from(u16_at(self.data, 2)?)..)?);
        }
        None
    }
}

/// The operation and the key of a request.
pub(super) fn request(message: &[u8], shown: Shown) -> (Word, String) {
    let Some(mut request) = Request::of(message) else {
        return (name(message.first().copied().unwrap_or_default(), false), String::new());
    };
    let mut operation = None;
    for _ in 0..NESTED_MAX {
        let Some(carried) = request.carried() else { break };
        if request.service == MULTIPLE {
            operation.get_or_insert(name(MULTIPLE, false));
        }
        request = carried;
    }
    let operation = operation.unwrap_or_else(|| name(request.service, request.is_of_manager()));
    (operation, request.target.key(shown))
}

/// A service's name; the connection manager has some of its own.
fn name(service: u8, is_of_manager: bool) -> Word {
    let name = match (service, is_of_manager) {
        (0x01, _) => "GET_ATTR_ALL",
        (0x02, _) => "SET_ATTR_ALL",
        (0x03, _) => "GET_ATTR_LIST",
        (0x04, _) => "SET_ATTR_LIST",
        (0x05, _) => "RESET",
        (0x06, _) => "START",
        (0x07, _) => "STOP",
        (0x08, _) => "CREATE",
        (0x09, _) => "DELETE",
        (MULTIPLE, _) => "MULTIPLE",
        (0x0e, _) => "GET_ATTR",
        (0x10, _) => "SET_ATTR",
        (0x11, _) => "FIND_NEXT",
        (0x4b, _) => "EXECUTE_PCCC",
        (0x4c, _) => "READ_TAG",
        (0x4d, _) => "WRITE_TAG",
        (0x4e, true) => "FORWARD_CLOSE",
        (0x4e, false) => "MODIFY_TAG",
        (UNCONNECTED_SEND, true) => "UNCONNECTED",
        (UNCONNECTED_SEND, false) => "READ_FRAGMENT",
        (0x53, _) => "WRITE_FRAGMENT",
        (0x54, true) => "FORWARD_OPEN",
        (0x55, false) => "GET_INSTANCES",
        (0x5b, true) => "LARGE_OPEN",
        (other, _) => return Word::new(format!("SERVICE_{other:02X}").as_bytes()),
    };
    Word::new(name.as_bytes())
}

/// A reply: its service without the flag, its general status, and the first word of the additional one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    service: u8,
    status: u8,
    additional: Option<u16>,
}

impl Reply {
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let &[service, _, status, words, ref rest @ ..] = message else { return None };
        let additional = u16_at(rest, 0).filter(|_| words > 0);
        (service & REPLY > 0).then_some(Self { service: service & !REPLY, status, additional })
    }

    /// Whether it may be of an operation. That of a request that could not be passed on is of the passing on.
    pub(super) fn may_answer(&self, operation: &str) -> bool {
        self.service == UNCONNECTED_SEND && self.status > 0
            || [true, false]
                .map(|is_of_manager| name(self.service, is_of_manager))
                .iter()
                .any(|name| name.as_str() == operation)
    }

    pub(super) fn status(&self) -> Status {
        let name = match (self.status, self.additional) {
            // What follows is asked for.
            (0 | 6, _) => return Status::Good,
            // The connection manager's own (volume 1, 3-5.5).
            (1, Some(0x0203 | 0x0204)) => "TIMEOUT",
            (1, Some(0x0113 | 0x0301 | 0x0302)) | (2, _) => "NO_RESOURCES",
            (1, _) => "CONNECT_FAILED",
            (3, _) => "INVALID_VALUE",
            (4, _) => "BAD_PATH",
            (5, _) => "UNKNOWN_TARGET",
            (7, _) => "CONNECTION_LOST",
            (8, _) => "NOT_SUPPORTED",
            (9, _) => "INVALID_ATTR",
            (0x0a, _) => "ATTR_LIST",
            (0x0b, _) => "ALREADY",
            (0x0c, _) => "STATE_CONFLICT",
            (0x0d, _) => "EXISTS",
            (0x0e, _) => "NOT_SETTABLE",
            (0x0f, _) => "NO_PRIVILEGE",
            (0x10, _) => "DEVICE_STATE",
            (0x11, _) => "REPLY_TOO_LARGE",
            (0x13, _) => "NOT_ENOUGH_DATA",
            (0x14, _) => "NO_ATTRIBUTE",
            (0x15, _) => "TOO_MUCH_DATA",
            (0x16, _) => "NO_OBJECT",
            (0x19, _) => "STORE_FAILURE",
            (0x1e, _) => "EMBEDDED",
            (0x1f, _) => "VENDOR",
            (0x20, _) => "INVALID_PARAM",
            (0x26, _) => "BAD_PATH_SIZE",
            (0xff, _) => "GENERAL",
            (other, _) => return Status::Error(Word::new(format!("CIP_{other:02X}").as_bytes())),
        };
        Status::Error(Word::new(name.as_bytes()))
    }
}
