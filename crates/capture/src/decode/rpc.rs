//! ONC RPC over TCP, and NFS: calls and replies, paired by their numbers (XID).
//!
//! A request is a call; a call that is sent again while it is open is the same. Calls go both ways (NFS 4.1 calls the client back), so
//! that a message's type and not its side tells which it is. Procedures of NFS have their names, a COMPOUND that of its most
//! significant operation, the last of several; those of other programs have numbers (`mount3/1` is procedure 1 of version 3). The
//! status is that of NFS, or why the call was not carried out. There are no keys.

mod names;
mod xdr;

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Start};
use xdr::Xdr;

/// ONC RPC, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "rpc", begins, new: |_| Box::new(Rpc::default()) };

/// Ports of NFS and of the port mapper, where a reply alone is proof enough.
const PORTS: [u16; 2] = [2049, 111];
/// Bit of a fragment's length that says it is the last of its record.
const LAST: u32 = 1 << 31;
/// Longest fragment: servers read and write some megabytes at once.
const FRAGMENT_MAX: u32 = 64 << 20;
/// Bytes of a record that tell what it is: a call with the longest credentials, and the first operations of a COMPOUND.
const HEAD_MAX: usize = 1200;
/// Longest credentials and verifiers (RFC 5531 8.2).
const AUTHENTICATION_MAX: u32 = 400;
/// Numbers of programs that users choose, and transient ones (RFC 5531 8.3).
const OWN_PROGRAMS: std::ops::Range<u32> = 0x2000_0000..0x6000_0000;
/// Bytes of a reply up to its status.
const REPLY: usize = 12;

/// A connection.
#[derive(Debug, Default)]
struct Rpc {
    streams: [Record; 2],
}

/// The record at hand of a side.
#[derive(Debug, Default)]
struct Record {
    /// Its first bytes, without the lengths of fragments.
    head: Vec<u8>,
    /// Whose message it is, once known.
    of: Option<Of>,
    /// The call has been there before, or the record is none that is known.
    is_ignored: bool,
}

/// A call, as far as its head tells.
struct Call {
    program: u32,
    version: u32,
    procedure: u32,
    /// Version of the credentials, and what protects the arguments (RPCSEC_GSS).
    flavor: u32,
    protection: u32,
    /// A message that sets up a context of RPCSEC_GSS.
    is_set_up: bool,
}

/// The message type, behind the number of the call.
fn kind(head: &[u8]) -> Option<u32> {
    Xdr::new(head.get(4..)?).u32()
}

/// The call that a record begins with, and its arguments.
fn call(head: &[u8]) -> Option<(Call, Xdr<'_>)> {
    let mut xdr = Xdr::new(head.get(4..)?);
    if (xdr.u32()?, xdr.u32()?) != (0, 2) {
        return None;
    }
    let (program, version, procedure) = (xdr.u32()?, xdr.u32()?, xdr.u32()?);
    let is_plausible = (100_000..500_000).contains(&program) || OWN_PROGRAMS.contains(&program);
    if !is_plausible || version > 16 || procedure > 255 {
        return None;
    }
    let mut call = Call { program, version, procedure, flavor: xdr.u32()?, protection: 0, is_set_up: false };
    let credentials = xdr.opaque(AUTHENTICATION_MAX)?;
    if call.flavor == names::GSS {
        let mut gss = Xdr::new(credentials);
        gss.u32();
        call.is_set_up = gss.u32() != Some(0);
        gss.u32();
        call.protection = gss.u32().unwrap_or_default();
    }
    let verifier = xdr.u32()?;
    xdr.opaque(AUTHENTICATION_MAX)?;
    let is_known = |flavor: u32| flavor <= 7 || (390_000..400_000).contains(&flavor);
    (is_known(call.flavor) && is_known(verifier)).then_some((call, xdr))
}

/// What of the status of a reply precedes the results, and these.
fn reply(head: &[u8]) -> Option<(Result<(), Status>, Xdr<'_>)> {
    let mut xdr = Xdr::new(head.get(4..)?);
    if xdr.u32()? != 1 {
        return None;
    }
    let failed = |name: &str| Err(Status::Error(Word::new(name.as_bytes())));
    match xdr.u32()? {
        0 => {
            let flavor = xdr.u32()?;
            xdr.opaque(AUTHENTICATION_MAX)?;
            let outcome = match xdr.u32()? {
                0 => Ok(()),
                1 => failed("PROG_UNAVAIL"),
                2 => failed("PROG_MISMATCH"),
                3 => failed("PROC_UNAVAIL"),
                4 => failed("GARBAGE_ARGS"),
                5 => failed("SYSTEM_ERR"),
                _ => return None,
            };
            (flavor <= 7).then_some((outcome, xdr))
        }
        1 => match xdr.u32()? {
            0 => Some((failed("RPC_MISMATCH"), xdr)),
            1 => Some((failed("AUTH_ERROR"), xdr)),
            _ => None,
        },
        _ => None,
    }
}

/// The length of the fragment that begins here, and whether it is the last of its record.
fn fragment(bytes: &[u8]) -> Option<(u32, bool)> {
    let mark = Xdr::new(bytes).u32()?;
    Some((mark & !LAST, mark & LAST > 0)).filter(|&(length, _)| length <= FRAGMENT_MAX)
}

/// Whether a record begins so, with what only RPC has at these places.
fn is_call(bytes: &[u8]) -> bool {
    let Some((length, is_last)) = fragment(bytes) else { return false };
    let head = bytes.get(4..).unwrap_or_default();
    call(head).is_some_and(|(_, rest)| {
        let used = head.len().saturating_sub(rest.left());
        is_last && length % 4 == 0 && length as usize >= used
    })
}

/// Whether a reply begins so, and a further record where it ends.
fn is_reply(bytes: &[u8]) -> bool {
    let Some((length, is_last)) = fragment(bytes) else { return false };
    let head = bytes.get(4..).unwrap_or_default();
    let is_one = is_last && length % 4 == 0 && length as usize >= REPLY && reply(head).is_some();
    let behind = head.get(length as usize..).filter(|rest| rest.len() >= 12);
    is_one && behind.is_none_or(|rest| matches!(kind(rest.get(4..).unwrap_or_default()), Some(0 | 1)))
}

/// Whether a client begins with a record's length alone, in a segment of its own.
fn is_mark(start: &Start<'_>) -> bool {
    let is_only = start.side == Side::Client && start.is_first && start.bytes.len() == 4;
    is_only
        && fragment(start.bytes).is_some_and(|(length, is_last)| is_last && length >= 40 && length % 4 == 0)
}

fn begins(start: &Start<'_>) -> bool {
    is_call(start.bytes)
        || PORTS.iter().any(|&port| start.is_at(port)) && (is_reply(start.bytes) || is_mark(start))
}

impl Decoder for Rpc {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if start.len() < 4 {
            return Length::More;
        }
        let Some((length, is_last)) = fragment(start) else { return Length::Invalid };
        if self.streams[side as usize].head.is_empty() && length >= 8 {
            // A record begins: a call or a reply.
            let Some(kind) = kind(start.get(4..).unwrap_or_default()) else { return Length::More };
            if kind > 1 {
                return Length::Invalid;
            }
        }
        if length == 0 && is_last && self.streams[side as usize].head.is_empty() {
            return Length::Invalid;
        }
        Length::Is(4 + u64::from(length))
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let is_last = fragment(message.bytes).is_some_and(|(_, is_last)| is_last);
        let bytes = message.bytes.get(4..).unwrap_or_default();
        let mut record = std::mem::take(&mut self.streams[message.side as usize]);
        let room = HEAD_MAX.saturating_sub(record.head.len()).min(bytes.len());
        record.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
        record.pass(message.side, is_last, requests);
        if is_last {
            record.head.clear();
            record = Record { head: record.head, ..Record::default() };
        }
        self.streams[message.side as usize] = record;
    }

    fn kept(&self) -> usize {
        HEAD_MAX
    }

    fn resumes(&mut self, _: Side, start: &[u8]) -> bool {
        is_call(start) || is_reply(start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        self.streams[side as usize] = Record::default();
        // Callbacks are few: what a hole means for theirs is not told apart.
        match side {
            Side::Client => requests.lost_numbered_requests(),
            Side::Server => requests.lost_numbered_answers(|_| false),
        }
    }
}

/// A call's number in the table of requests: both sides number theirs.
fn number(xid: u32, caller: Side) -> Of {
    Of::Id(u64::from(xid) | u64::from(caller == Side::Server) << 32)
}

impl Record {
    /// A fragment of it has passed.
    fn pass(&mut self, side: Side, is_last: bool, requests: &mut Requests) {
        let Some(kind) = kind(&self.head).filter(|_| !self.is_ignored) else { return };
        let is_call = kind == 0;
        match self.of {
            None if is_last || self.is_telling(is_call) => self.begin(side, is_call, requests),
            None => return,
            Some(of) if is_call => requests.ask_more(of),
            Some(of) => {
                requests.answer(of);
            }
        }
        let Some(of) = self.of.filter(|_| is_last && !self.is_ignored) else { return };
        if is_call {
            requests.rename(of, &Asked::only(operation(&self.head)));
            requests.asked(of);
        } else {
            let operation = requests.operation(of).unwrap_or_default();
            requests.answered(of, status(&self.head, operation));
        }
    }

    /// Whether so much of it is there that it is known what it is.
    fn is_telling(&self, is_call: bool) -> bool {
        let is_full = self.head.len() >= HEAD_MAX;
        if is_call { is_full || call(&self.head).is_some() } else { self.head.len() >= REPLY }
    }

    fn begin(&mut self, side: Side, is_call: bool, requests: &mut Requests) {
        let xid = Xdr::new(&self.head).u32().unwrap_or_default();
        let of = number(xid, if is_call { side } else { side.peer() });
        self.of = Some(of);
        if !is_call {
            requests.answer(of);
        } else if call(&self.head).is_none() {
            self.is_ignored = true;
        } else {
            let operation = operation(&self.head);
            // Sent again, since no reply came: the call is what it was.
            self.is_ignored = requests.operation(of) == Some(operation);
            if !self.is_ignored {
                requests.ask(of, &Asked::only(operation));
            }
        }
    }
}

/// The operation's name.
fn operation(head: &[u8]) -> Word {
    let Some((call, arguments)) = call(head) else { return Word::new(b"call") };
    if call.is_set_up {
        return Word::new(b"gss");
    }
    let arguments = match (call.flavor == names::GSS, call.protection) {
        (true, 3) => None,
        // A length and a number come before arguments that are protected against changes.
        (true, 2) => arguments.skipped(8),
        _ => Some(arguments),
    };
    names::name(call.program, call.version, call.procedure, arguments)
}

/// The status that a reply states, to a call of an operation.
fn status(head: &[u8], operation: Word) -> Status {
    match reply(head) {
        None => Status::Unknown,
        Some((Err(status), _)) => status,
        Some((Ok(()), _)) if !names::has_status(operation) => Status::Good,
        Some((Ok(()), mut results)) => results.u32().map_or(Status::Good, names::status),
    }
}

#[cfg(test)]
mod tests;
