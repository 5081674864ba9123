//! Reason codes of MQTT 5 and return codes of MQTT 3.

use record::{Status, Word};

use super::packet::{Version, behind_properties};

/// The least code that is an error.
const ERROR: u8 = 0x80;

/// The name of an error of version 5 (MQTT 5.0, 2.4).
fn name(code: u8) -> Option<&'static str> {
    Some(match code {
        0x80 => "UNSPECIFIED",
        0x81 => "MALFORMED",
        0x82 => "PROTOCOL_ERROR",
        0x83 => "IMPLEMENTATION",
        0x84 => "BAD_VERSION",
        0x85 => "BAD_CLIENT_ID",
        0x86 => "BAD_CREDENTIALS",
        0x87 => "NOT_AUTHORIZED",
        0x88 => "SERVER_UNAVAIL",
        0x89 => "SERVER_BUSY",
        0x8a => "BANNED",
        0x8b => "SHUTTING_DOWN",
        0x8c => "BAD_AUTH_METHOD",
        0x8d => "KEEP_ALIVE",
        0x8e => "TAKEN_OVER",
        0x8f => "BAD_FILTER",
        0x90 => "BAD_TOPIC",
        0x91 => "ID_IN_USE",
        0x92 => "ID_NOT_FOUND",
        0x93 => "RECEIVE_MAX",
        0x94 => "BAD_ALIAS",
        0x95 => "TOO_LARGE",
        0x96 => "RATE_TOO_HIGH",
        0x97 => "QUOTA_EXCEEDED",
        0x98 => "ADMIN_ACTION",
        0x99 => "BAD_PAYLOAD",
        0x9a => "NO_RETAIN",
        0x9b => "QOS_TOO_HIGH",
        0x9c => "OTHER_SERVER",
        0x9d => "SERVER_MOVED",
        0x9e => "NO_SHARED",
        0x9f => "CONNECTION_RATE",
        0xa0 => "CONNECT_TIME",
        0xa1 => "NO_IDENTIFIERS",
        0xa2 => "NO_WILDCARDS",
        _ => return None,
    })
}

/// Whether version 5 has this code.
pub(super) fn is_known(code: u8) -> bool {
    // Success, granted QoS 1 and 2, a will, nobody or nothing subscribed, authentication goes on and begins anew.
    matches!(code, 0..=2 | 4 | 0x10 | 0x11 | 0x18 | 0x19) || name(code).is_some()
}

fn error(name: &str) -> Status {
    Status::Error(Word::new(name.as_bytes()))
}

/// The status of a reason code.
fn of(code: u8) -> Status {
    if code < ERROR {
        return Status::Good;
    }
    name(code).map_or(Status::Code(code.into()), error)
}

/// What a CONNACK says.
pub(super) fn of_connack(body: &[u8], version: Option<Version>) -> Status {
    let code = body.get(1).copied().unwrap_or_default();
    match code {
        // Return codes of version 3 (MQTT 3.1.1, 3.2.2.3). Version 5 has no such reason codes here.
        1 if version != Some(Version::Five) => error("BAD_VERSION"),
        2 if version != Some(Version::Five) => error("BAD_CLIENT_ID"),
        3 => error("SERVER_UNAVAIL"),
        4 if version != Some(Version::Five) => error("BAD_CREDENTIALS"),
        5 => error("NOT_AUTHORIZED"),
        code => of(code),
    }
}

/// What a PUBACK, PUBREC or PUBCOMP says: without a code it is a success.
pub(super) fn of_ack(body: &[u8]) -> Status {
    body.get(2).map_or(Status::Good, |&code| of(code))
}

/// What a DISCONNECT says: without a code it is a normal one.
pub(super) fn of_disconnect(body: &[u8]) -> Status {
    body.first().map_or(Status::Good, |&code| of(code))
}

/// What a SUBACK or UNSUBACK says of its filters: the first error.
pub(super) fn of_list(body: &[u8], is_subscribed: bool, version: Option<Version>) -> Status {
    let behind = body.get(2..).unwrap_or_default();
    let is_three = |codes: &[u8]| codes.iter().all(|&code| code < 3 || code == ERROR);
    if version == Some(Version::Three) || version.is_none() && is_three(behind) {
        // Version 3 has one code for all errors, and none in an UNSUBACK.
        let is_failure = is_subscribed && behind.contains(&ERROR);
        return if is_failure { error("FAILURE") } else { Status::Good };
    }
    let codes = behind_properties(behind).unwrap_or_default();
    codes.iter().find(|&&code| code >= ERROR).map_or(Status::Good, |&code| of(code))
}
