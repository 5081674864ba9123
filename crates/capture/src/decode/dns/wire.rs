//! Reads DNS messages (RFC 1035 4), behind their lengths.

use record::{Side, Word};

use crate::decode::Shown;

/// Bytes of a message's header.
pub(super) const HEADER: usize = 12;
/// Longest name, and its most labels.
const NAME_MAX: usize = 255;
const LABELS_MAX: usize = 127;
/// Longest name that is shown as it is.
const SHOWN_MAX: usize = 96;
/// Longest label that is a word.
const WORD_MAX: usize = 24;
/// Fewest hexadecimal digits that look like an identifier.
const HEX_MIN: usize = 8;
/// Labels of a name that are shown.
const SHOWN_LABELS: usize = 3;
/// Types of records.
pub(super) const SOA: u16 = 6;
const OPT: u16 = 41;
pub(super) const IXFR: u16 = 251;
pub(super) const AXFR: u16 = 252;
const TYPES: [(u16, &str); 38] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (SOA, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (37, "CERT"),
    (39, "DNAME"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (61, "OPENPGPKEY"),
    (63, "ZONEMD"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (99, "SPF"),
    (256, "URI"),
    (257, "CAA"),
];
/// Types that are asked for, and no records have (RFC 6895 3.1), and those of the transaction's own records.
const QUESTION_TYPES: [(u16, &str); 5] =
    [(249, "TKEY"), (250, "TSIG"), (IXFR, "IXFR"), (AXFR, "AXFR"), (255, "ANY")];

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Query,
    InverseQuery,
    Status,
    Notify,
    Update,
    /// DNS stateful operations (RFC 8490).
    Stateful,
}

impl Opcode {
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Query,
            1 => Self::InverseQuery,
            2 => Self::Status,
            4 => Self::Notify,
            5 => Self::Update,
            6 => Self::Stateful,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Query => "QUERY",
            Self::InverseQuery => "IQUERY",
            Self::Status => "STATUS",
            Self::Notify => "NOTIFY",
            Self::Update => "UPDATE",
            Self::Stateful => "DSO",
        }
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) is_response: bool,
    pub(super) opcode: Opcode,
    pub(super) code: u8,
    /// Whether the reserved bit is set.
    is_odd: bool,
    /// Questions, and records of the three sections.
    pub(super) counts: [u16; 4],
}

impl Header {
    /// The header of a message, if its operation code is known.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[i0, i1, high, low, q0, q1, a0, a1, n0, n1, r0, r1] = bytes.first_chunk::<HEADER>()?;
        let counts = [[q0, q1], [a0, a1], [n0, n1], [r0, r1]].map(u16::from_be_bytes);
        Some(Self {
            id: u16::from_be_bytes([i0, i1]),
            is_response: high & 0x80 != 0,
            opcode: Opcode::of(high >> 3 & 0xf)?,
            code: low & 0xf,
            is_odd: low & 0x40 != 0,
            counts,
        })
    }
}

/// What a message asks for.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) labels: Vec<&'a [u8]>,
    pub(super) kind: u16,
    class: u16,
}

/// A record, with what of its data is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: u16,
    class: u16,
    ttl: u32,
    pub(super) data: &'a [u8],
    is_whole: bool,
}

/// Reads what is behind a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn behind_header(message: &'a [u8]) -> Self {
        Self(message.get(HEADER..).unwrap_or_default())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Skips a name, of which the last part may be elsewhere in the message.
    fn skip_name(&mut self) -> Option<()> {
        for _ in 0..LABELS_MAX {
            match *self.take(1)?.first()? {
                0 => return Some(()),
                pointer @ 0xc0.. => {
                    // It is behind the header.
                    let low = *self.take(1)?.first()?;
                    let is_inside = usize::from(pointer & 0x3f) << 8 | usize::from(low) >= HEADER;
                    return is_inside.then_some(());
                }
                length @ ..0x40 => self.take(length.into())?,
                _ => return None,
            };
        }
        None
    }

    /// The question at hand: its name is the first of the message, so that all of it is here.
    pub(super) fn question(&mut self) -> Option<Question<'a>> {
        let mut labels = Vec::new();
        let mut length = 1;
        loop {
            let count = usize::from(*self.take(1)?.first()?);
            if count == 0 {
                break;
            }
            length += count + 1;
            if count >= 0x40 || length > NAME_MAX {
                return None;
            }
            labels.push(self.take(count)?);
        }
        Some(Question { labels, kind: self.u16()?, class: self.u16()? })
    }

    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        self.skip_name()?;
        let (kind, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        let length = usize::from(self.u16()?);
        let (data, is_whole) = match self.take(length) {
            Some(data) => (data, true),
            None => (std::mem::take(&mut self.0), false),
        };
        Some(Record { kind, class, ttl, data, is_whole })
    }
}

/// Whether a type is one that questions or records have.
fn is_known(kind: u16) -> bool {
    let is_of = |types: &[(u16, &str)]| types.iter().any(|(number, _)| *number == kind);
    is_of(&TYPES) || is_of(&QUESTION_TYPES)
}

impl Question<'_> {
    /// Whether it is one that is asked in practice: a class in use, a known type, and a name of printable characters.
    fn is_sound(&self) -> bool {
        let is_printable = self.labels.iter().all(|label| label.iter().all(u8::is_ascii_graphic));
        is_printable && is_known(self.kind) && matches!(self.class, 1 | 3 | 254 | 255)
    }
}

impl Record<'_> {
    /// Whether it has a known type and class. Those of EDNS and of signed transactions have meanings of their own.
    fn is_sound(&self) -> bool {
        match self.kind {
            OPT => true,
            // Types of private use (RFC 6895 3.1) are in zones of signers.
            kind => {
                (is_known(kind) || kind >= 0xff00)
                    && matches!(self.class, 1 | 3 | 254 | 255)
                    && self.ttl >> 31 == 0
            }
        }
    }
}

/// Whether a message of so many bytes, of which the first are given, is one that the side sends: its questions and records are
/// sound, and fill it.
pub(super) fn is_sound(side: Side, bytes: &[u8], length: usize) -> bool {
    let Some(header) = Header::read(bytes) else { return false };
    let is_response = side == Side::Server;
    let [questions, records @ ..] = header.counts;
    if header.is_response != is_response
        || header.is_odd
        || questions > 1
        || header.opcode == Opcode::Stateful
    {
        return false;
    }
    // A query has no answers but the serial number that an IXFR is behind, and EDNS and signatures.
    let is_query = !is_response && header.opcode == Opcode::Query;
    if is_query && (header.code != 0 || records[0] > 0 || records[1] > 1 || records[2] > 3) {
        return false;
    }
    if !is_response && questions == 0 {
        return false;
    }
    let mut reader = Reader::behind_header(bytes);
    if questions == 1 {
        match reader.question() {
            Some(question) if question.is_sound() => {}
            _ => return false,
        }
    }
    let count: u32 = records.iter().copied().map(u32::from).sum();
    let (mut seen, mut is_cut) = (0, false);
    while seen < count {
        let behind = reader.0.len();
        match reader.record() {
            Some(record) if !record.is_sound() => return false,
            Some(record) => (seen, is_cut) = (seen + 1, !record.is_whole),
            // A record is cut where the message goes on in the next segment.
            None if bytes.len() < length && behind < NAME_MAX + 10 => is_cut = true,
            None => return false,
        }
        if is_cut {
            break;
        }
    }
    let is_whole = bytes.len() == length;
    // Without a question a record must prove it.
    (questions == 1 || seen > 0)
        && if is_whole { !is_cut && reader.0.is_empty() } else { is_cut || seen < count }
}

/// A message's response code with the part that is in the record of EDNS (RFC 6891 6.1.3).
pub(super) fn code(header: &Header, bytes: &[u8]) -> u16 {
    let code = u16::from(header.code);
    let [questions, records @ ..] = header.counts;
    let mut reader = Reader::behind_header(bytes);
    if questions > 1 || questions == 1 && reader.question().is_none() {
        return code;
    }
    for _ in 0..records.iter().copied().map(u32::from).sum() {
        match reader.record() {
            Some(Record { kind: OPT, ttl, .. }) => return (ttl >> 24 << 4) as u16 | code,
            Some(record) if record.is_whole => {}
            _ => break,
        }
    }
    code
}

/// The serial number in the data of an SOA record, behind two names.
pub(super) fn serial(data: &[u8]) -> Option<u32> {
    let mut reader = Reader(data);
    reader.skip_name()?;
    reader.skip_name()?;
    reader.u32()
}

/// The name of a type.
pub(super) fn type_name(kind: u16) -> Word {
    let named = TYPES.iter().chain(&QUESTION_TYPES).find(|(number, _)| *number == kind);
    match named {
        Some((_, name)) => Word::new(name.as_bytes()),
        None => Word::new(format!("TYPE{kind}").as_bytes()),
    }
}

/// What a name is for: its last three labels in small letters (senders vary the case), with `*` for what else precedes them. A
/// label that looks like a number or an identifier is folded: `db17.eu.example.com` is `*.eu.example.com`, and `db17.example.com`
/// is `db*.example.com`.
pub(super) fn key(labels: &[&[u8]], shown: Shown) -> String {
    if labels.is_empty() {
        return ".".to_owned();
    }
    if shown.verbatim {
        let name = labels.join(&b'.').to_ascii_lowercase();
        return name.get(..name.len().min(SHOWN_MAX)).unwrap_or_default().escape_ascii().to_string();
    }
    let hidden = labels.len().saturating_sub(SHOWN_LABELS);
    let mut parts: Vec<String> = labels.iter().skip(hidden).map(|label| folded(label)).collect();
    if hidden > 0 {
        parts.insert(0, "*".to_owned());
    }
    parts.dedup_by(|one, other| one == "*" && other == "*");
    parts.join(".")
}

fn folded(label: &[u8]) -> String {
    let is_of_word = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_');
    let word = label.iter().take_while(|b| is_of_word(b)).count();
    let is_id = label.len() >= HEX_MIN
        && word < label.len()
        && label.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    if is_id || label.len() > WORD_MAX {
        return "*".to_owned();
    }
    let mut folded: String = label.iter().take(word).map(|b| char::from(b.to_ascii_lowercase())).collect();
    if word < label.len() {
        folded.push('*');
    }
    folded
}
