//! Modbus/TCP: requests to the units behind an address, paired by their transaction identifiers.
//!
//! A request is one function. Its key is the unit, and the thousand in which its first address is (`unit 3: 4000-4999`). The status is the
//! name of the exception. Clients that use one identifier for all requests (Messaging on TCP/IP Implementation Guide 1.0b, 4.4.2.1)
//! have their answers in order. Writes to unit 0 need no answer: a gateway to a serial line sends them to all units.

mod names;

use record::{Side, Status};

use super::numbers::Numbers;
use super::{Asked, Decoder, Length, Message, ProtocolEntry, Requests, Shown, Start};

/// Modbus/TCP, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "modbus", begins, new: |shown| Box::new(Modbus { shown, ..Modbus::default() }) };

/// Modbus's port.
const PORT: u16 = 502;
/// Bytes up to the length, which the length does not count.
const PREFIX: usize = 6;
/// Bytes up to the function, with it.
const HEAD: usize = 8;
/// Bytes behind the length: a unit and a function, and at most the 253 bytes of a serial line's message.
const LENGTHS: std::ops::RangeInclusive<u16> = 2..=254;
/// The flag of a function that says that it was not carried out.
const EXCEPTION: u8 = 0x80;
/// Addresses that have one key.
const FOLDED: u16 = 1000;

/// A connection.
#[derive(Debug, Default)]
struct Modbus {
    shown: Shown,
    numbers: Numbers,
}

/// A message.
#[derive(Clone, Copy, Debug)]
struct Adu<'a> {
    id: u16,
    unit: u8,
    function: u8,
    /// What follows the function, as far as it is there.
    rest: &'a [u8],
    /// All its bytes.
    length: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

impl<'a> Adu<'a> {
    /// The message of the side that begins with these bytes, if all that any has holds.
    fn of(side: Side, bytes: &'a [u8]) -> Option<Self> {
        let &[_, _, 0, 0, _, _, unit, function, ref rest @ ..] = bytes else { return None };
        let (id, length) = (u16_at(bytes, 0)?, u16_at(bytes, 4).filter(|length| LENGTHS.contains(length))?);
        let is_sound = match side {
            Side::Client => (1..EXCEPTION).contains(&function),
            Side::Server => !matches!(function, 0 | EXCEPTION) && (function < EXCEPTION || length == 3),
        };
        let adu = Self { id, unit, function, rest, length: PREFIX + usize::from(length) };
        is_sound.then_some(adu)
    }

    /// The data of a message that is complete.
    fn data(&self) -> Option<&'a [u8]> {
        self.rest.get(..self.length.checked_sub(HEAD)?)
    }

    /// Whether it is complete, and its data are what its function has.
    fn is_sound(&self, side: Side) -> bool {
        let Some(data) = self.data() else { return false };
        match side {
            Side::Client => is_request(self.function, data),
            Side::Server => is_answer(self.function, data),
        }
    }
}

/// Whether a count is that of the bytes behind it.
fn counts(data: &[u8]) -> bool {
    data.split_first().is_some_and(|(&count, rest)| usize::from(count) == rest.len())
}

fn is_request(function: u8, data: &[u8]) -> bool {
    let number = |at| u16_at(data, at).unwrap_or_default();
    let is_of = |most: u16| data.len() == 4 && (1..=most).contains(&number(2));
    match function {
        names::READ_COILS | names::READ_DISCRETE => is_of(2000),
        names::READ_HOLDING | names::READ_INPUT => is_of(125),
        names::WRITE_COIL => data.len() == 4 && matches!(number(2), 0 | 0xff00),
        names::WRITE_REGISTER => data.len() == 4,
        names::DIAGNOSTICS => data.len() >= 4 && data.len().is_multiple_of(2) && number(0) <= 20,
        names::WRITE_COILS => {
            let coils = number(2);
            data.get(4..).is_some_and(counts)
                && (1..=1968).contains(&coils)
                && data.len() == 5 + usize::from(coils.div_ceil(8))
        }
        names::WRITE_REGISTERS => {
            let registers = number(2);
            data.get(4..).is_some_and(counts)
                && (1..=123).contains(&registers)
                && data.len() == 5 + 2 * usize::from(registers)
        }
        names::READ_FILE => counts(data) && data.len() % 7 == 1 && data.len() > 1,
        names::WRITE_FILE => counts(data) && data.len() > 8,
        names::MASK_WRITE => data.len() == 6,
        names::READ_WRITE => {
            let registers = number(6);
            data.get(8..).is_some_and(counts)
                && (1..=125).contains(&number(2))
                && data.len() == 9 + 2 * usize::from(registers)
        }
        names::READ_FIFO => data.len() == 2,
        names::ENCAPSULATED => data.len() == 3 && data.first() == Some(&names::DEVICE_ID),
        _ => false,
    }
}

fn is_answer(function: u8, data: &[u8]) -> bool {
    match function {
        EXCEPTION.. => matches!(data, [1..=11]),
        names::READ_COILS | names::READ_DISCRETE | names::READ_FILE => counts(data) && data.len() > 1,
        names::READ_HOLDING | names::READ_INPUT | names::READ_WRITE => {
            counts(data) && data.len() > 1 && data.len() % 2 == 1
        }
        names::WRITE_COILS | names::WRITE_REGISTERS => data.len() == 4,
        names::READ_FIFO => u16_at(data, 0).is_some_and(|count| usize::from(count) + 2 == data.len()),
        names::ENCAPSULATED => data.len() >= 6 && data.first() == Some(&names::DEVICE_ID),
        // The answer repeats the request.
        names::WRITE_COIL
        | names::WRITE_REGISTER
        | names::DIAGNOSTICS
        | names::WRITE_FILE
        | names::MASK_WRITE => is_request(function, data),
        _ => false,
    }
}

/// Whether the bytes are messages of the side, whose data are what their functions have, from the first on. The last may go on.
fn are_sound(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut sound = 0;
    while rest.len() >= HEAD {
        let Some(adu) = Adu::of(side, rest) else { return false };
        let Some(behind) = rest.get(adu.length..) else { return sound > 0 };
        if !adu.is_sound(side) {
            return false;
        }
        (sound, rest) = (sound + 1, behind);
    }
    sound > 0
}

/// Whether the bytes are one message or several of the side, on the port of Modbus: of any functions, and with mistakes.
fn are_adus(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(adu) = Adu::of(side, rest) {
        let Some(behind) = rest.get(adu.length..) else { return false };
        if behind.is_empty() {
            return true;
        }
        rest = behind;
    }
    false
}

fn begins(start: &Start<'_>) -> bool {
    if start.is_at(PORT) {
        return are_adus(start.side, start.bytes);
    }
    // An answer holds less that only Modbus has.
    start.side == Side::Client && are_sound(Side::Client, start.bytes)
}

/// The unit, and where what is asked for begins.
fn key(adu: &Adu<'_>, shown: Shown) -> String {
    let unit = adu.unit;
    let data = adu.data().unwrap_or_default();
    let number = |at| u16_at(data, at);
    let (first, count) = match adu.function {
        names::READ_COILS..=names::READ_INPUT
        | names::WRITE_COILS
        | names::WRITE_REGISTERS
        | names::READ_WRITE => (number(0), number(2)),
        names::WRITE_COIL | names::WRITE_REGISTER | names::MASK_WRITE | names::READ_FIFO => {
            (number(0), Some(1))
        }
        _ => (None, None),
    };
    match (first, count) {
        (Some(first), Some(count)) if shown.verbatim => {
            format!("unit {unit}: {first}-{}", u32::from(first) + u32::from(count).saturating_sub(1))
        }
        (Some(first), Some(_)) => {
            let thousand = first / FOLDED * FOLDED;
            format!("unit {unit}: {thousand}-{}", thousand.saturating_add(FOLDED - 1))
        }
        _ => format!("unit {unit}"),
    }
}

impl Decoder for Modbus {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        match Adu::of(side, start) {
            Some(adu) => Length::Is(adu.length as u64),
            None if start.len() < HEAD => Length::More,
            None => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Some(adu) = Adu::of(message.side, message.bytes) else { return };
        match message.side {
            Side::Client => self.request(&adu, requests),
            Side::Server => self.answer(&adu, requests),
        }
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_sound(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Server {
            self.numbers.lost_answers(requests);
        }
    }
}

impl Modbus {
    fn request(&mut self, adu: &Adu<'_>, requests: &mut Requests) {
        let key = key(adu, self.shown);
        let asked = Asked { operation: names::name(adu.function), key: &key, stream: 0 };
        let of = self.numbers.ask(adu.id.into(), &asked, requests);
        if adu.unit == 0 && names::is_write(adu.function) {
            self.numbers.excuse(of, requests);
        }
    }

    fn answer(&mut self, adu: &Adu<'_>, requests: &mut Requests) {
        let operation = names::name(adu.function & !EXCEPTION);
        let may_be_of = |asked: &str| asked == operation.as_str();
        if let Some(of) = self.numbers.answer(adu.id.into(), may_be_of, requests) {
            requests
                .answer_says(operation.as_str().as_bytes(), |answered, asked| answered == asked.as_bytes());
            let exception = adu.rest.first().filter(|_| adu.function >= EXCEPTION);
            requests.answered(of, exception.map_or(Status::Good, |&code| names::status(code)));
        }
    }
}

#[cfg(test)]
mod tests;
