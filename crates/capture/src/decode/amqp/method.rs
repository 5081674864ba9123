//! Methods of AMQP 0-9-1 and of RabbitMQ's extensions: which ask, what answers them, and what they are about.

use record::{Side, Status, Word};

use super::super::Shown;
use super::super::keys::folded_path;
use super::frame::u16_at;

/// A method: its class, and its number in it.
pub(super) type Method = (u16, u16);

pub(super) const START: Method = (10, 10);
pub(super) const SECURE: Method = (10, 20);
pub(super) const SECURE_OK: Method = (10, 21);
pub(super) const TUNE: Method = (10, 30);
pub(super) const CONNECTION_CLOSE: Method = (10, 50);
pub(super) const CONNECTION_CLOSE_OK: Method = (10, 51);
pub(super) const CHANNEL_OPEN: Method = (20, 10);
pub(super) const CHANNEL_CLOSE: Method = (20, 40);
pub(super) const CHANNEL_CLOSE_OK: Method = (20, 41);
pub(super) const PUBLISH: Method = (60, 40);
pub(super) const RETURN: Method = (60, 50);
pub(super) const DELIVER: Method = (60, 60);
pub(super) const GET: Method = (60, 70);
pub(super) const GET_OK: Method = (60, 71);
pub(super) const GET_EMPTY: Method = (60, 72);
pub(super) const ACK: Method = (60, 80);
pub(super) const NACK: Method = (60, 120);
pub(super) const CONFIRM_SELECT: Method = (85, 10);

/// What a method that asks is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Nothing,
    /// A short string behind so many bytes, and the bit of the byte behind it, or behind so many more strings, that wants no answer.
    Name(usize, Option<(usize, u8)>),
    /// A bit of the first byte that wants no answer.
    Flag(u8),
}

/// The name of a method that the client asks with, and what it is about.
fn asking(method: Method) -> Option<(&'static str, About)> {
    use About::{Flag, Name, Nothing};
    Some(match method {
        (10, 11) => ("login", Nothing),
        (10, 40) => ("Conn.Open", Name(0, None)),
        CONNECTION_CLOSE => ("Conn.Close", Nothing),
        (10, 70) => ("Conn.Secret", Nothing),
        CHANNEL_OPEN => ("Channel.Open", Nothing),
        (20, 20) => ("Channel.Flow", Nothing),
        CHANNEL_CLOSE => ("Channel.Close", Nothing),
        (40, 10) => ("Exch.Declare", Name(2, Some((1, 4)))),
        (40, 20) => ("Exch.Delete", Name(2, Some((0, 1)))),
        (40, 30) => ("Exch.Bind", Name(2, Some((2, 0)))),
        (40, 40) => ("Exch.Unbind", Name(2, Some((2, 0)))),
        (50, 10) => ("Queue.Declare", Name(2, Some((0, 4)))),
        (50, 20) => ("Queue.Bind", Name(2, Some((2, 0)))),
        (50, 30) => ("Queue.Purge", Name(2, Some((0, 0)))),
        (50, 40) => ("Queue.Delete", Name(2, Some((0, 2)))),
        (50, 50) => ("Queue.Unbind", Name(2, None)),
        (60, 10) => ("Basic.Qos", Nothing),
        (60, 20) => ("Basic.Consume", Name(2, Some((1, 3)))),
        // The name is that of a consumer.
        (60, 30) => ("Basic.Cancel", Name(0, Some((0, 0)))),
        GET => ("Basic.Get", Name(2, None)),
        (60, 110) => ("Basic.Recover", Nothing),
        CONFIRM_SELECT => ("Confirm.Select", Flag(0)),
        (90, 10) => ("Tx.Select", Nothing),
        (90, 20) => ("Tx.Commit", Nothing),
        (90, 30) => ("Tx.Rollback", Nothing),
        _ => return None,
    })
}

/// Which method of the client a method of the server answers.
pub(super) fn answered(method: Method) -> Option<Method> {
    let (class, number) = method;
    match method {
        TUNE => Some((10, 11)),
        GET_EMPTY => Some(GET),
        (40, 51) => Some((40, 40)),
        _ => Some((class, number.checked_sub(1)?))
            .filter(|&asked| asked != (10, 11) && asking(asked).is_some()),
    }
}

/// Whether a side may send a method.
pub(super) fn may_send(side: Side, method: Method) -> bool {
    let is_of_both =
        matches!(method, CONNECTION_CLOSE | CONNECTION_CLOSE_OK | CHANNEL_CLOSE | CHANNEL_CLOSE_OK)
            || matches!(method, (20, 20 | 21) | (60, 30 | 31) | ACK | NACK);
    is_of_both
        || match side {
            Side::Client => {
                asking(method).is_some() || matches!(method, SECURE_OK | (10, 31) | PUBLISH | (60, 90 | 100))
            }
            Side::Server => {
                answered(method).is_some()
                    || matches!(method, START | SECURE | (10, 60 | 61) | RETURN | DELIVER)
            }
        }
}

/// The method that the payload of a frame begins with.
pub(super) fn of(payload: &[u8]) -> Option<Method> {
    Some((u16_at(payload, 0)?, u16_at(payload, 2)?))
}

/// A short string, and what follows.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}

/// What the client asks with a method.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) operation: Word,
    pub(super) key: String,
}

/// What the client asks with the method of a payload, if it is answered.
pub(super) fn read(payload: &[u8], shown: Shown) -> Option<Asking> {
    let (name, about) = asking(of(payload)?)?;
    let arguments = payload.get(4..).unwrap_or_default();
    let is_set = |byte: Option<&u8>, bit: u8| byte.is_some_and(|byte| byte >> bit & 1 > 0);
    let mut key = String::new();
    match about {
        About::Flag(bit) if is_set(arguments.first(), bit) => return None,
        About::Nothing | About::Flag(_) => {}
        About::Name(at, no_wait) => {
            let (about, mut rest) = arguments.get(at..).and_then(short).unwrap_or_default();
            if let Some((strings, bit)) = no_wait {
                for _ in 0..strings {
                    rest = short(rest).map_or(&[], |(_, rest)| rest);
                }
                if is_set(rest.first(), bit) {
                    return None;
                }
            }
            if name != "Basic.Cancel" {
                key = folded_path(about, shown);
            }
        }
    }
    Some(Asking { operation: Word::new(name.as_bytes()), key })
}

/// The exchange and the routing key of a Basic.Publish; the default exchange has no name, and the key is that of a queue.
pub(super) fn published(payload: &[u8], shown: Shown) -> String {
    let (exchange, rest) = payload.get(6..).and_then(short).unwrap_or_default();
    let (key, _) = short(rest).unwrap_or_default();
    match (exchange, key) {
        (name, []) | ([], name) => folded_path(name, shown),
        (exchange, key) => folded_path(&[exchange, b"/", key].concat(), shown),
    }
}

/// Tag and flags of a Basic.Ack or Basic.Nack: whether it is of several.
pub(super) fn acknowledged(payload: &[u8]) -> Option<(u64, bool)> {
    let tag = super::frame::u64_at(payload, 4)?;
    Some((tag, payload.get(12)? & 1 > 0))
}

/// The status with which a Close ends what is open; `None`: it is no error.
pub(super) fn closing(payload: &[u8]) -> Option<Status> {
    let code = u16_at(payload, 4)?;
    let name = match code {
        200 => return None,
        311 => "TOO_LARGE",
        312 => "NO_ROUTE",
        313 => "NO_CONSUMERS",
        320 => "FORCED",
        402 => "INVALID_PATH",
        403 => "ACCESS_REFUSED",
        404 => "NOT_FOUND",
        405 => "RESOURCE_LOCKED",
        406 => "PRECONDITION",
        501 => "FRAME_ERROR",
        502 => "SYNTAX_ERROR",
        503 => "COMMAND_INVALID",
        504 => "CHANNEL_ERROR",
        505 => "UNEXPECTED",
        506 => "RESOURCE_ERROR",
        530 => "NOT_ALLOWED",
        540 => "NOT_IMPLEMENTED",
        541 => "INTERNAL_ERROR",
        code => return Some(Status::Code(code.into())),
    };
    Some(Status::Error(Word::new(name.as_bytes())))
}
