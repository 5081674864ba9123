//! The greeting and the login: what client and server agree on.

use super::plausible::head;

const COMPRESS: u32 = 1 << 5;
const PROTOCOL_41: u32 = 1 << 9;
const TLS: u32 = 1 << 11;
const DEPRECATE_EOF: u32 = 1 << 24;
const OPTIONAL_METADATA: u32 = 1 << 25;
const ZSTD: u32 = 1 << 26;
/// MariaDB's: its further capabilities count if it does not have the first one.
const MYSQL: u32 = 1;
const CACHE_METADATA: u32 = 1 << 4;
/// Length of the packet that asks for TLS: a login without a name.
const TLS_REQUEST: u64 = 32;

/// Longest greeting: a version, a scramble, and the name of a method.
const GREETING_MAX: u64 = 512;

/// What one side can do, or both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Login {
    pub(super) is_understood: bool,
    pub(super) is_tls: bool,
    pub(super) is_compressed: bool,
    pub(super) has_column_ends: bool,
    /// The number of columns stands behind a byte that tells whether they follow (MySQL), or before it (MariaDB).
    pub(super) has_flag_before: bool,
    pub(super) has_flag_behind: bool,
}

impl Login {
    fn of(capabilities: u32, further: u32) -> Self {
        let has = |bit: u32| capabilities & bit != 0;
        Self {
            is_understood: has(PROTOCOL_41),
            is_tls: has(TLS),
            is_compressed: has(COMPRESS | ZSTD),
            has_column_ends: !has(DEPRECATE_EOF),
            has_flag_before: has(OPTIONAL_METADATA),
            has_flag_behind: !has(MYSQL) && further & CACHE_METADATA != 0,
        }
    }

    /// What both can do.
    pub(super) fn and(self, other: &Self) -> Self {
        Self {
            is_compressed: self.is_compressed && other.is_compressed,
            has_column_ends: self.has_column_ends || other.has_column_ends,
            has_flag_before: self.has_flag_before && other.has_flag_before,
            has_flag_behind: self.has_flag_behind && other.has_flag_behind,
            ..self
        }
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A number of one to nine bytes, and what follows.
pub(super) fn lenenc(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let count = match first {
        0..=0xfa => return Some((first.into(), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(count)?;
    let mut value = [0; 8];
    value.get_mut(..count)?.copy_from_slice(number);
    Some((u64::from_le_bytes(value), rest))
}

/// The client's answer to the greeting.
pub(super) fn login(payload: &[u8], length: u64) -> Login {
    let capabilities = u32_at(payload, 0).unwrap_or(0);
    let login = Login::of(capabilities, u32_at(payload, 28).unwrap_or(0));
    Login { is_tls: login.is_tls && length == TLS_REQUEST, ..login }
}

/// What follows the version in a greeting.
fn behind_version(payload: &[u8]) -> Option<&[u8]> {
    let version = payload.strip_prefix(&[10])?;
    let end = version.iter().position(|&b| b == 0)?;
    let is_text = version[..end].iter().all(u8::is_ascii_graphic);
    let is =
        (3..=100).contains(&end) && version[0].is_ascii_digit() && is_text && version[..end].contains(&b'.');
    version.get(end + 1..).filter(|_| is)
}

/// What the server can do.
pub(super) fn greeting(payload: &[u8]) -> Option<Login> {
    let rest = behind_version(payload)?;
    let low = u32::from(u16_at(rest, 13)?);
    let high = u32::from(u16_at(rest, 18).unwrap_or(0));
    Some(Login::of(low | high << 16, u32_at(rest, 27).unwrap_or(0)))
}

/// Whether a server begins so: with its greeting, or with an error, behind which it closes the connection.
pub(super) fn begins(bytes: &[u8]) -> bool {
    let payload = bytes.get(4..).unwrap_or_default();
    let is_whole = head(bytes) == Some((payload.len() as u64, 0));
    is_greeting(bytes) || is_whole && refusal(payload).is_some()
}

/// The number of the error that a server's packet says instead of a greeting. The state is left out before the client has told its
/// capabilities; some servers send it.
pub(super) fn refusal(payload: &[u8]) -> Option<u16> {
    let code = u16_at(payload.strip_prefix(&[0xff])?, 0)?;
    let text = payload.get(3..)?;
    let is_text = text.len() >= 8 && text.iter().all(|&b| b >= b' ' && b != 0x7f);
    (is_text && (1000..5000).contains(&code)).then_some(code)
}

/// Whether a server greets so. Of a greeting in several segments, the first has the version.
pub(super) fn is_greeting(bytes: &[u8]) -> bool {
    let Some((length, 0)) = head(bytes) else { return false };
    let payload = bytes.get(4..).unwrap_or_default();
    if length > payload.len() as u64 {
        return length <= GREETING_MAX && behind_version(payload).is_some();
    }
    let filler = behind_version(payload).and_then(|rest| rest.get(12));
    length == payload.len() as u64 && filler == Some(&0) && greeting(payload).is_some()
}
