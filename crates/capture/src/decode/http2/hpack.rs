//! Header fields (HPACK, RFC 7541), as far as they tell what a request is for and how it was answered.
//!
//! A passive reader needs what decoders for peers refuse: to go on where fields are unknown, because the capture does not hold the
//! block that named them. The dynamic table counts from its newest entry, so that everything that is inserted behind a hole has its
//! right place, and what is older is unknown, never something else.

use std::collections::VecDeque;

use record::Word;

use super::huffman;

/// Most bytes of a table, as its encoder counts them; of a larger one the oldest entries are unknown.
const TABLE_MAX: usize = 16 << 10;
/// What an entry costs besides its bytes (RFC 7541 4.1).
const ENTRY_BYTES: usize = 32;
/// Most bytes of a value that are kept.
const VALUE_MAX: usize = 512;

/// The name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Method,
    Path,
    Scheme,
    Status,
    ContentType,
    GrpcStatus,
    /// Another pseudo-header field.
    Pseudo,
    Other,
    Unknown,
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            b"content-type" => Self::ContentType,
            b"grpc-status" => Self::GrpcStatus,
            [b':', ..] => Self::Pseudo,
            _ => Self::Other,
        }
    }

    /// Whether values of the name are of use.
    fn is_read(self) -> bool {
        !matches!(self, Self::Scheme | Self::Pseudo | Self::Other | Self::Unknown)
    }
}

/// The static table (RFC 7541 appendix A), of which only these values are of use.
fn of_static(index: usize) -> (Name, &'static [u8]) {
    match index {
        1 => (Name::Pseudo, b""),
        2 => (Name::Method, b"GET"),
        3 => (Name::Method, b"POST"),
        4 => (Name::Path, b"/"),
        5 => (Name::Path, b"/index.html"),
        6 | 7 => (Name::Scheme, b""),
        8 => (Name::Status, b"200"),
        9 => (Name::Status, b"204"),
        10 => (Name::Status, b"206"),
        11 => (Name::Status, b"304"),
        12 => (Name::Status, b"400"),
        13 => (Name::Status, b"404"),
        14 => (Name::Status, b"500"),
        31 => (Name::ContentType, b""),
        _ => (Name::Other, b""),
    }
}

/// Entries of the static table.
const STATIC: usize = 61;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Grpc,
    /// Server-sent events: a body without an end.
    Events,
    Other,
}

impl Content {
    fn of(value: &[u8]) -> Self {
        let kind = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        // Not grpc-web, whose status is in the body.
        match kind.strip_prefix(b"application/grpc") {
            Some([] | [b'+', ..]) => Self::Grpc,
            _ if kind == b"text/event-stream" => Self::Events,
            _ => Self::Other,
        }
    }
}

/// What a block of fields says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: Option<Word>,
    pub(super) path: Option<Vec<u8>>,
    pub(super) status: Option<u16>,
    pub(super) content: Option<Content>,
    pub(super) grpc_status: Option<u8>,
    pub(super) has_scheme: bool,
    /// Whether its first field is a regular one: trailers.
    pub(super) is_trailer: bool,
    /// Whether some of its fields are unknown.
    pub(super) is_partial: bool,
    fields: u32,
}

impl Head {
    fn field(&mut self, name: Name, value: &[u8]) {
        self.fields += 1;
        if self.fields == 1 {
            self.is_trailer = matches!(name, Name::Other | Name::ContentType | Name::GrpcStatus);
        }
        match name {
            Name::Method => self.method = Some(Word::new(value)),
            Name::Path => self.path = Some(value.to_vec()),
            Name::Scheme => self.has_scheme = true,
            Name::Status => self.status = number(value).filter(|code| (100..1000).contains(code)),
            Name::ContentType => self.content = Some(Content::of(value)),
            Name::GrpcStatus => self.grpc_status = number(value).and_then(|code| u8::try_from(code).ok()),
            Name::Pseudo | Name::Other => {}
            Name::Unknown => self.is_partial = true,
        }
    }

    /// What a block that was not seen says.
    pub(super) fn unseen() -> Self {
        Self { is_partial: true, ..Self::default() }
    }
}

fn number(value: &[u8]) -> Option<u16> {
    std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

#[derive(Debug)]
struct Entry {
    name: Name,
    value: Box<[u8]>,
    size: usize,
}

/// The dynamic table of one direction.
#[derive(Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
}

impl Default for Table {
    fn default() -> Self {
        // An encoder keeps no more than its peer allows, and names no entry that it has dropped.
        Self { entries: VecDeque::new(), size: 0, size_max: TABLE_MAX }
    }
}

impl Table {
    /// Blocks are missing: which entries there are is unknown.
    pub(super) fn lose(&mut self) {
        *self = Self::default();
    }

    fn insert(&mut self, name: Name, value: &[u8], length: usize) {
        let size = length.saturating_add(ENTRY_BYTES);
        let value = if name.is_read() { value.get(..value.len().min(VALUE_MAX)) } else { None };
        self.entries.push_front(Entry { name, value: value.unwrap_or_default().into(), size });
        self.size = self.size.saturating_add(size);
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.size_max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size;
        }
    }

    fn entry(&self, index: usize) -> (Name, &[u8], usize) {
        match index.checked_sub(STATIC + 1) {
            None => {
                let (name, value) = of_static(index);
                (name, value, 0)
            }
            Some(place) => match self.entries.get(place) {
                Some(entry) => (entry.name, &entry.value, entry.size),
                None => (Name::Unknown, &[], 0),
            },
        }
    }

    /// Reads a block. One that is wrong says nothing, and nothing of the table is known behind it.
    pub(super) fn read(&mut self, block: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        let mut rest = block;
        while !rest.is_empty() {
            if self.field(&mut rest, &mut head).is_none() {
                self.lose();
                return None;
            }
        }
        Some(head)
    }

    /// Reads a field (RFC 7541 6).
    fn field(&mut self, rest: &mut &[u8], head: &mut Head) -> Option<()> {
        let &first = rest.first()?;
        if first & 0x80 != 0 {
            let index = integer(rest, 7).filter(|&index| index > 0)?;
            let (name, value, _) = self.entry(index);
            head.field(name, value);
            return Some(());
        }
        if first & 0xe0 == 0x20 {
            self.size_max = integer(rest, 5)?.min(TABLE_MAX);
            self.evict();
            return Some(());
        }
        let is_inserted = first & 0xc0 == 0x40;
        let (name, name_length) = match integer(rest, if is_inserted { 6 } else { 4 })? {
            0 => {
                let name = string(rest)?;
                (Name::of(&name), name.len())
            }
            // How long a name of the tables is matters only to when its entry is dropped: no encoder names it then.
            index => (self.entry(index).0, 0),
        };
        if !is_inserted && !name.is_read() {
            skip_string(rest)?;
            head.field(name, &[]);
            return Some(());
        }
        let value = string(rest)?;
        head.field(name, &value);
        if is_inserted {
            self.insert(name, &value, name_length + value.len());
        }
        Some(())
    }
}

/// An integer with a prefix of so many bits (RFC 7541 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, mut tail) = rest.split_first()?;
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(first) & most;
    if value == most {
        // Four bytes are more than any block has.
        for place in 0..4 {
            let (&next, behind) = tail.split_first()?;
            tail = behind;
            value += usize::from(next & 0x7f) << (7 * place);
            if next & 0x80 == 0 {
                *rest = tail;
                return Some(value);
            }
        }
        return None;
    }
    *rest = tail;
    Some(value)
}

/// A string (RFC 7541 5.2).
fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let is_huffman = rest.first()? & 0x80 != 0;
    let bytes = skip_string(rest)?;
    if is_huffman { huffman::decode(bytes) } else { Some(bytes.to_vec()) }
}

/// The bytes of a string as they are, and what follows it.
fn skip_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = integer(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
            .collect()
    }

    fn request(table: &mut Table, block: &str) -> (String, String) {
        let head = table.read(&hex(block)).unwrap_or_else(Head::unseen);
        let path = head.path.map_or("?".to_owned(), |path| String::from_utf8_lossy(&path).into_owned());
        (head.method.map_or("?".to_owned(), |method| method.to_string()), path)
    }

    // RFC 7541 C.4 and C.6.
    const REQUESTS: [&str; 3] = [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ];

    #[test]
    fn requests_of_the_specification() {
        let mut table = Table::default();
        let read = REQUESTS.map(|block| request(&mut table, block));
        let get = |path: &str| ("GET".to_owned(), path.to_owned());
        assert_eq!(read, [get("/"), get("/"), get("/index.html")]);
        assert_eq!(table.entries.len(), 3);
    }

    #[test]
    fn responses_of_the_specification_with_a_small_table() {
        let mut table = Table { size_max: 256, ..Table::default() };
        for (block, status) in [
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
                302,
            ),
            ("4883640effc1c0bf", 307),
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                200,
            ),
        ] {
            let head = table.read(&hex(block));
            assert_eq!(head.map(|head| (head.status, head.is_partial)), Some((Some(status), false)));
        }
    }

    #[test]
    fn behind_a_hole_fields_are_unknown_and_never_wrong() {
        // Two paths are inserted; the block with the second is lost.
        let (first, second, third) = ("8244022f61", "8244022f62", "8244022f63");
        let mut table = Table::default();
        assert_eq!(request(&mut table, first).1, "/a");
        table.lose();
        assert_eq!(request(&mut table, "82be"), ("GET".to_owned(), "?".to_owned()));
        assert!(table.read(&hex("82be")).is_some_and(|head| head.is_partial));
        // What comes later counts from the newest.
        assert_eq!(request(&mut table, third).1, "/c");
        assert_eq!(request(&mut table, second).1, "/b");
        let read = ["82be", "82bf", "82c0"].map(|block| request(&mut table, block).1);
        assert_eq!(read, ["/b", "/c", "?"]);
    }

    #[test]
    fn tables_are_bounded() {
        let mut table = Table::default();
        // A large size is announced, and filled.
        assert!(table.read(&hex("3fe1ff7f")).is_some());
        let insert = [&[0x44, 0x7f, 0x81, 0x06][..], &[b'/'; 896]].concat();
        for _ in 0..100 {
            assert!(table.read(&insert).is_some());
        }
        assert!(table.size <= TABLE_MAX && table.entries.iter().all(|entry| entry.value.len() <= VALUE_MAX));
        // The table is emptied.
        assert!(table.read(&hex("20")).is_some());
        assert_eq!((table.entries.len(), table.size), (0, 0));
        assert_eq!(request(&mut table, "82be").1, "?");
    }

    #[test]
    fn wrong_blocks_say_nothing() {
        for block in ["80", "ff8080808001", "44", "440a2f61", "4481ff", "7fffffffff"] {
            let mut table = Table::default();
            assert_eq!(request(&mut table, "8244022f61").1, "/a");
            assert_eq!(table.read(&hex(block)), None, "{block}");
            assert_eq!(table.entries.len(), 0);
        }
    }

    #[test]
    fn content_is_told_by_its_type() {
        for (value, content) in [
            ("application/grpc", Content::Grpc),
            ("application/grpc+proto", Content::Grpc),
            ("application/grpc; a=b", Content::Grpc),
            ("application/grpc-web", Content::Other),
            ("text/event-stream;charset=utf-8", Content::Events),
            ("text/html", Content::Other),
        ] {
            assert_eq!(Content::of(value.as_bytes()), content, "{value}");
        }
    }
}
