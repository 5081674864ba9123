//! Commands of MongoDB, and what their replies say.

use record::{Status, Word};

use super::super::Shown;
use super::super::keys::folded_path;
use super::bson::{Element, Elements};

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: Word,
    pub(super) key: String,
    /// It is held until an event comes.
    pub(super) waits: bool,
    /// The cursor that it reads on.
    pub(super) cursor: Option<i64>,
    /// It opens a cursor that waits for events.
    pub(super) opens_waiting: bool,
}

/// Whether the value of a command is the name of a collection: others name users, roles and parameters.
fn is_of_collection(command: &[u8]) -> bool {
    matches!(
        command,
        b"find"
            | b"insert"
            | b"update"
            | b"delete"
            | b"aggregate"
            | b"count"
            | b"distinct"
            | b"findAndModify"
            | b"findandmodify"
            | b"mapReduce"
            | b"mapreduce"
            | b"create"
            | b"drop"
            | b"createIndexes"
            | b"dropIndexes"
            | b"listIndexes"
            | b"collMod"
            | b"collStats"
            | b"collstats"
            | b"validate"
            | b"compact"
            | b"reIndex"
            | b"killCursors"
    )
}

impl Command {
    pub(super) fn read(document: Elements<'_>, shown: Shown) -> Option<Self> {
        let outer = { document }.next()?;
        // Drivers that speak OP_QUERY put some commands into `$query`, beside a read preference.
        let inner = outer.document().filter(|_| matches!(outer.name, b"$query" | b"query"));
        let document = inner.unwrap_or(document);
        let first = { document }.next()?;
        let text = |name: &str| document.find(name).and_then(|element| element.text());
        let number = |name: &str| document.find(name).and_then(|element| element.number());
        let is_get_more = first.name == b"getMore";
        let collection = match first.name {
            b"getMore" => text("collection"),
            name if is_of_collection(name) => first.text(),
            _ => None,
        };
        let key = [text("$db").unwrap_or_default(), collection.unwrap_or_default()];
        let key = key.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'.');
        let is_hello = matches!(first.name, b"hello" | b"isMaster" | b"ismaster");
        Some(Self {
            name: Word::new(first.name),
            key: folded_path(&key, shown),
            // Only a getMore of a cursor that waits may have a time.
            waits: is_hello && number("maxAwaitTimeMS").is_some()
                || is_get_more && number("maxTimeMS").is_some(),
            cursor: first.number().filter(|_| is_get_more),
            opens_waiting: match first.name {
                b"find" => number("awaitData") == Some(1),
                b"aggregate" => document.find("pipeline").is_some_and(|pipeline| is_change_stream(&pipeline)),
                _ => false,
            },
        })
    }
}

/// Whether a pipeline begins with `$changeStream`.
fn is_change_stream(pipeline: &Element<'_>) -> bool {
    let stage = pipeline.document().and_then(|mut stages| stages.next());
    let operator = stage.and_then(|stage| stage.document()).and_then(|mut stage| stage.next());
    operator.is_some_and(|operator| operator.name == b"$changeStream")
}

/// The cursor that a reply returns.
pub(super) fn cursor(reply: Elements<'_>) -> Option<i64> {
    let cursor = reply.find("cursor")?.document()?;
    cursor.find("id")?.number().filter(|&id| id != 0)
}

/// What a reply says. An error is short, so that a reply whose end is not there is none.
pub(super) fn status(reply: Option<Elements<'_>>) -> Status {
    let Some(reply) = reply else { return Status::Unknown };
    if reply.find("ok").and_then(|ok| ok.number()) == Some(0) || reply.find("$err").is_some() {
        return error(reply);
    }
    // The command was carried out, and one of its writes was not.
    let write = reply.find("writeErrors").and_then(|errors| errors.document()?.next()?.document());
    let concern = || reply.find("writeConcernError").and_then(|concern| concern.document());
    write.or_else(concern).map_or(Status::Good, error)
}

/// The name of an error, or its number.
fn error(of: Elements<'_>) -> Status {
    let named = |name: &[u8]| Status::Error(Word::new(name));
    if let Some(name) = of.find("codeName").and_then(|name| name.text()) {
        return named(name);
    }
    match of.find("code").and_then(|code| code.number()) {
        Some(11_000) => named(b"DuplicateKey"),
        Some(121) => named(b"DocumentValidationFailure"),
        Some(112) => named(b"WriteConflict"),
        Some(64) => named(b"WriteConcernFailed"),
        Some(code) => Status::Code(u32::try_from(code).unwrap_or(u32::MAX)),
        None => named(b"error"),
    }
}
