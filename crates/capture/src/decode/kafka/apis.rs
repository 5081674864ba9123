//! The requests of Kafka, and where in them and in their answers the fields stand that are told, by version: as the definitions of Apache
//! Kafka 4.1's messages have them, and those of older versions.

mod table;

use record::Word;

use super::Header;
use super::fields::Fields;
use table::APIS;

/// Topics or partitions of an answer that are looked into.
const WALKED_MAX: usize = 512;

/// A way to a field, from a version on: numbers are bytes to skip, `s` is a string, `u` a topic's id, `b` the list of brokers, `a` an array
/// whose first element is entered. `-` is no way.
type Ways = &'static [(i16, &'static str)];

/// A kind of request.
#[derive(Debug)]
pub(super) struct Api {
    key: i16,
    name: &'static str,
    /// The first version with compact fields.
    pub(super) flexible_from: i16,
    /// The newest version that is known.
    pub(super) newest: i16,
    /// The way to the name of a topic or a group in the request.
    named_at: Ways,
    /// The way to the error in the answer.
    error_at: Ways,
    /// Whether connections may begin with it.
    pub(super) opens: bool,
    /// Whether it is held until others come.
    pub(super) waits: bool,
}

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const METADATA: i16 = 3;
const JOIN_GROUP: i16 = 11;
const SYNC_GROUP: i16 = 14;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SHARE_FETCH: i16 = 78;

const fn api(
    key: i16,
    name: &'static str,
    flexible_from: i16,
    newest: i16,
    named_at: Ways,
    error_at: Ways,
) -> Api {
    let opens = matches!(key, PRODUCE | FETCH | METADATA | SASL_HANDSHAKE | API_VERSIONS);
    let waits = matches!(key, JOIN_GROUP | SYNC_GROUP | SHARE_FETCH);
    Api { key, name, flexible_from, newest, named_at, error_at, opens, waits }
}

impl Api {
    pub(super) fn operation(&self) -> Word {
        Word::new(self.name.as_bytes())
    }

    /// Whether its answers never have tagged fields in their header: a client that asks for the broker's versions knows none.
    pub(super) fn is_versions(&self) -> bool {
        self.key == API_VERSIONS
    }
}

/// The kind of request that has this key.
pub(super) fn of(key: i16) -> Option<&'static Api> {
    APIS.get(usize::try_from(key).ok()?).filter(|api| api.key == key)
}

/// The way for a version.
fn way(ways: Ways, version: i16) -> Option<&'static str> {
    ways.iter().rev().find(|(from, _)| *from <= version).map(|(_, way)| *way).filter(|way| *way != "-")
}

/// How a way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the field.
    Found,
    /// An array on it has no elements.
    Empty,
}

/// Goes a way. Nothing if it is not all there.
fn go(fields: &mut Fields<'_>, way: &str, version: i16) -> Option<End> {
    for step in way.bytes() {
        match step {
            b'a' if fields.array()? == 0 => return Some(End::Empty),
            b'a' => {}
            b's' => {
                fields.string()?;
            }
            b'u' => {
                fields.take(16)?;
            }
            b'b' => brokers(fields, version)?,
            digit => {
                fields.take(usize::from(digit.checked_sub(b'0')?))?;
            }
        }
    }
    Some(End::Found)
}

/// Skips the brokers of an answer to Metadata.
fn brokers(fields: &mut Fields<'_>, version: i16) -> Option<()> {
    for _ in 0..fields.array()? {
        fields.take(4)?;
        fields.string()?;
        fields.take(4)?;
        if version >= 1 {
            fields.string()?;
        }
        fields.tags()?;
    }
    Some(())
}

/// The first topic of a request, or its group.
pub(super) fn name<'a>(header: &Header, fields: Fields<'a>) -> Option<&'a [u8]> {
    let mut fields = fields;
    let way = way(header.api.named_at, header.version)?.strip_suffix('n')?;
    match go(&mut fields, way, header.version)? {
        End::Found => fields.string()?,
        End::Empty => None,
    }
}

/// Whether a request is a Produce without acknowledgements.
pub(super) fn wants_no_answer(header: &Header, fields: Fields<'_>) -> bool {
    let mut fields = fields;
    if header.api.key != PRODUCE || header.version >= 3 && fields.string().is_none() {
        return false;
    }
    fields.i16() == Some(0)
}

/// Whether a request is a Fetch that the broker may hold until there are data, or for a time.
pub(super) fn may_be_held(header: &Header, fields: Fields<'_>) -> bool {
    let mut fields = fields;
    if header.api.key != FETCH || header.version < NO_REPLICA_FROM && fields.i32().is_none() {
        return false;
    }
    let (longest_ms, least_bytes) = (fields.i32(), fields.i32());
    longest_ms.is_some_and(|ms| ms > 0) && least_bytes.is_some_and(|bytes| bytes > 0)
}

/// The version of Fetch from which on the replica's number is no field of its own (KIP-903).
const NO_REPLICA_FROM: i16 = 15;

/// What an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its error, or that of its first topic or partition.
    pub(super) error: Option<i16>,
    /// A Fetch has brought nothing.
    pub(super) is_empty: bool,
}

pub(super) fn answer(header: &Header, fields: Fields<'_>) -> Answer {
    let mut at_error = fields;
    let error = way(header.api.error_at, header.version).and_then(|way| {
        match go(&mut at_error, way, header.version)? {
            End::Found => at_error.i16(),
            End::Empty => Some(0),
        }
    });
    if header.api.key != FETCH {
        return Answer { error, is_empty: false };
    }
    if header.version >= 7 && error.is_none_or(|error| error != 0) {
        return Answer { error, is_empty: false };
    }
    match fetched(header.version, fields) {
        Some((of_partition, is_empty)) => Answer { error: Some(of_partition), is_empty },
        // Not all is there, so that it is long.
        None => Answer { error: first_of_fetch(header.version, fields).or(error), is_empty: false },
    }
}

/// Skips what comes before the topics of an answer to Fetch.
fn to_topics(version: i16, fields: &mut Fields<'_>) -> Option<()> {
    if version >= 1 {
        fields.take(4)?;
    }
    if version >= 7 {
        fields.take(6)?;
    }
    Some(())
}

/// The error of the first partition of an answer to Fetch.
fn first_of_fetch(version: i16, fields: Fields<'_>) -> Option<i16> {
    let mut fields = fields;
    to_topics(version, &mut fields)?;
    let topic = if version >= 13 { "aua4" } else { "asa4" };
    match go(&mut fields, topic, version)? {
        End::Found => fields.i16(),
        End::Empty => Some(0),
    }
}

/// The first error of the partitions of an answer to Fetch, and whether none of them has data. Nothing if they are not all there.
fn fetched(version: i16, fields: Fields<'_>) -> Option<(i16, bool)> {
    let mut fields = fields;
    to_topics(version, &mut fields)?;
    let (mut error, mut walked) = (0, 0);
    for _ in 0..fields.array()? {
        if version >= 13 {
            fields.take(16)?;
        } else {
            fields.string()?;
        }
        for _ in 0..fields.array()? {
            walked += 1;
            if walked > WALKED_MAX {
                return None;
            }
            let (of_partition, bytes) = partition(version, &mut fields)?;
            error = if error == 0 { of_partition } else { error };
            if bytes > 0 {
                return Some((error, false));
            }
        }
        fields.tags()?;
    }
    Some((error, error == 0))
}

/// The error of a partition, and the bytes of its records. Where there are some, what follows is not skipped.
fn partition(version: i16, fields: &mut Fields<'_>) -> Option<(i16, usize)> {
    fields.take(4)?;
    let error = fields.i16()?;
    fields.take(8)?;
    if version >= 4 {
        fields.take(8)?;
        if version >= 5 {
            fields.take(8)?;
        }
        // Aborted transactions.
        for _ in 0..fields.array()? {
            fields.take(16)?;
            fields.tags()?;
        }
    }
    if version >= 11 {
        fields.take(4)?;
    }
    let bytes = fields.bytes()?;
    if bytes == 0 {
        fields.tags()?;
    }
    Some((error, bytes))
}

#[cfg(test)]
impl Api {
    pub(super) fn name_length(&self) -> usize {
        self.name.len()
    }

    pub(super) fn has_sound_ways(&self) -> bool {
        let is_step = |step: char| "asub1248".contains(step);
        let named =
            |way: &str| way == "-" || way.strip_suffix('n').is_some_and(|way| way.chars().all(is_step));
        self.named_at.iter().all(|(_, way)| named(way))
            && self.error_at.iter().all(|(_, way)| way.chars().all(is_step))
    }
}
