//! The negotiation before the transmission: TLS, structured replies, the status of blocks, and the export (fixed newstyle, with
//! NBD_OPT_GO).

use std::io::{self, Read, Write};

use thiserror::Error;

use crate::wire::{u32_at, u64_at};

const INIT: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY: u64 = 0x0003_e889_0455_65a9;

/// Handshake flags: fixed newstyle, no zeroes.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPT_ABORT: u32 = 2;
const OPT_STARTTLS: u32 = 5;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_SET_META_CONTEXT: u32 = 10;

const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const REP_ERROR: u32 = 1 << 31;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// The context that says what is allocated.
const ALLOCATION: &str = "base:allocation";
/// Longest reply to an option: what fits an error message or a description.
const REPLY_BYTES_MAX: u32 = 16 << 10;
/// Most replies to one option.
const REPLIES_MAX: usize = 64;
/// Largest payload that a server without limits must accept (the protocol's default), bytes.
const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The export's name.
    pub export: &'a str,
}

/// What the server says about its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Replies are structured.
    pub is_structured: bool,
    /// What is allocated can be asked for.
    pub has_status: bool,
    /// Requests begin at, and have a length of, a multiple of this, bytes; a power of two.
    pub least_bytes: u32,
    /// Requests are best a multiple of this, bytes.
    pub best_bytes: u32,
    /// Largest payload of a request, bytes.
    pub most_bytes: u32,
}

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $bit:literal;)*) => {
        impl Export {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> bool { self.flags & 1 << $bit != 0 })*
        }
    };
}

flags! {
    /// Writes are refused.
    is_read_only: 1;
    /// There is a cache that a flush empties.
    has_flush: 2;
    /// A write can be asked to be stable when it is answered.
    has_fua: 3;
    /// The medium rotates.
    is_rotational: 4;
    /// Zeros can be written without sending them.
    has_write_zeroes: 6;
    /// A flush of one connection covers what was answered on any.
    has_many_connections: 8;
}

/// Why a negotiation ended.
#[derive(Debug, Error)]
pub enum NegotiateError {
    /// The connection failed.
    #[error("the negotiation failed: {0}")]
    Io(#[from] io::Error),
    /// It is no NBD server, or an old one.
    #[error("this is not an NBD server with the fixed newstyle negotiation: {0}")]
    Stranger(String),
    /// The server refuses an option that is needed.
    #[error("the server refuses {what}: {reason}")]
    Refused {
        /// What was asked for.
        what: String,
        /// Its reason.
        reason: String,
    },
    /// The server answers something that is not possible.
    #[error("the server answered {0}")]
    Protocol(String),
}

/// Begins: reads the server's greeting and answers it.
///
/// # Errors
/// If the connection fails, or it is no NBD server of today.
pub fn greet(stream: &mut (impl Read + Write)) -> Result<(), NegotiateError> {
    let mut bytes = [0; 18];
    stream.read_exact(&mut bytes)?;
    let stranger = |reason: &str| NegotiateError::Stranger(reason.to_owned());
    if u64_at(&bytes, 0) != Some(INIT) {
        return Err(stranger("its greeting is another one"));
    }
    if u64_at(&bytes, 8) != Some(OPTION) {
        return Err(stranger("its negotiation is the old style"));
    }
    let flags = u16::from_be_bytes([bytes[16], bytes[17]]);
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(stranger("it does not offer it"));
    }
    let answer = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&answer.to_be_bytes())?;
    Ok(stream.flush()?)
}

/// Asks for TLS, which begins on the stream when this returns.
///
/// # Errors
/// If the server refuses it.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), NegotiateError> {
    match ask(stream, OPT_STARTTLS, &[], |_, _| Ok(()))? {
        Answer::Accepted => Ok(()),
        Answer::Refused(reason) => Err(NegotiateError::Refused { what: "TLS".to_owned(), reason }),
    }
}

/// Chooses the export; the transmission begins when this returns.
///
/// # Errors
/// If the server refuses it, or says something that is not possible.
pub fn choose(stream: &mut (impl Read + Write), query: &Query<'_>) -> Result<Export, NegotiateError> {
    let is_structured = matches!(ask(stream, OPT_STRUCTURED_REPLY, &[], |_, _| Ok(()))?, Answer::Accepted);
    let has_status = is_structured && has_allocation(stream, query)?;
    let mut data = Vec::new();
    string(query.export, &mut data);
    // One request for information: block sizes.
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
    let (mut size, mut sizes) = (None, None);
    let answer = ask(stream, OPT_GO, &data, |kind, data| {
        if kind != REP_INFO {
            return Err(NegotiateError::Protocol(format!("the export with a reply of kind {kind}")));
        }
        let about = data.get(..2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        match about {
            Some(INFO_EXPORT) => {
                let (Some(bytes), Some(flags)) = (u64_at(data, 2), data.get(10..12)) else {
                    return Err(NegotiateError::Protocol("with a description that is too short".to_owned()));
                };
                size = Some((bytes, u16::from_be_bytes([flags[0], flags[1]])));
            }
            Some(INFO_BLOCK_SIZE) => {
                let (Some(least), Some(best), Some(most)) =
                    (u32_at(data, 2), u32_at(data, 6), u32_at(data, 10))
                else {
                    return Err(NegotiateError::Protocol("with block sizes that are too short".to_owned()));
                };
                sizes = Some((least, best, most));
            }
            // What was not asked for.
            _ => {}
        }
        Ok(())
    })?;
    if let Answer::Refused(reason) = answer {
        let what = format!("the export '{}'", query.export);
        return Err(NegotiateError::Refused { what, reason });
    }
    let Some((size_bytes, flags)) = size else {
        return Err(NegotiateError::Protocol("without the size of the export".to_owned()));
    };
    // A server that states no limits is asked in blocks of 512 bytes.
    let (least, best, most) = sizes.unwrap_or((512, 4096, PAYLOAD_BYTES_MAX));
    if !least.is_power_of_two() || least > 64 << 10 || most < least {
        let limits = format!("block sizes of {least} to {most} B, which the protocol forbids");
        return Err(NegotiateError::Protocol(limits));
    }
    let most_bytes = most.min(PAYLOAD_BYTES_MAX);
    let most_bytes = most_bytes - most_bytes % least;
    let best_bytes = if best.is_power_of_two() { best.clamp(least, PAYLOAD_BYTES_MAX) } else { least };
    if size_bytes > i64::MAX as u64 {
        return Err(NegotiateError::Protocol(format!(
            "with a size of {size_bytes} B, which is not possible"
        )));
    }
    Ok(Export { size_bytes, flags, is_structured, has_status, least_bytes: least, best_bytes, most_bytes })
}

/// Ends a negotiation politely; what the server answers does not matter.
pub fn abort(stream: &mut (impl Read + Write)) {
    let mut bytes = Vec::new();
    option(OPT_ABORT, &[], &mut bytes);
    let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
}

/// Asks for the context that says what is allocated.
fn has_allocation(stream: &mut (impl Read + Write), query: &Query<'_>) -> Result<bool, NegotiateError> {
    let mut data = Vec::new();
    string(query.export, &mut data);
    data.extend_from_slice(&1_u32.to_be_bytes());
    string(ALLOCATION, &mut data);
    let mut has = false;
    let answer = ask(stream, OPT_SET_META_CONTEXT, &data, |kind, data| {
        if kind == REP_META_CONTEXT {
            has |= data.get(4..) == Some(ALLOCATION.as_bytes());
        }
        Ok(())
    })?;
    Ok(has && matches!(answer, Answer::Accepted))
}

/// How an option is answered.
enum Answer {
    Accepted,
    Refused(String),
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn option(number: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&OPTION.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Sends an option and reads its replies until it is accepted or refused; `each` gets those before.
fn ask(
    stream: &mut (impl Read + Write),
    number: u32,
    data: &[u8],
    mut each: impl FnMut(u32, &[u8]) -> Result<(), NegotiateError>,
) -> Result<Answer, NegotiateError> {
    let mut bytes = Vec::new();
    option(number, data, &mut bytes);
    stream.write_all(&bytes)?;
    stream.flush()?;
    for _ in 0..REPLIES_MAX {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let (magic, about) = (u64_at(&head, 0), u32_at(&head, 8));
        let (kind, length) = (u32_at(&head, 12).unwrap_or(0), u32_at(&head, 16).unwrap_or(0));
        if magic != Some(REPLY) || about != Some(number) {
            return Err(NegotiateError::Protocol(format!("option {number} with something else")));
        }
        if length > REPLY_BYTES_MAX {
            return Err(NegotiateError::Protocol(format!("option {number} with {length} bytes")));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match kind {
            REP_ACK => return Ok(Answer::Accepted),
            REP_ERROR.. => return Ok(Answer::Refused(reason(kind, &data))),
            kind => each(kind, &data)?,
        }
    }
    Err(NegotiateError::Protocol(format!("option {number} with more than {REPLIES_MAX} replies")))
}

/// Why an option is refused, in words.
fn reason(kind: u32, data: &[u8]) -> String {
    let name = match kind - REP_ERROR {
        1 => "it does not know that",
        2 => "its policy forbids it",
        3 => "it takes the request for invalid",
        4 => "it is not built for that",
        5 => "it requires TLS; write nbds:// instead of nbd://",
        6 => "there is no such export",
        7 => "it is shutting down",
        8 => "it requires block sizes to be negotiated",
        9 => "the request is too large for it",
        _ => "with an unknown error",
    };
    let text: String =
        String::from_utf8_lossy(data).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().is_empty() { name.to_owned() } else { format!("{name} ({})", text.trim()) }
}

#[cfg(test)]
mod tests;
