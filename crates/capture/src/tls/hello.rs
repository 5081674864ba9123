//! What the hellos tell (RFC 8446 4.1): versions, suites, names.

use super::keys::{Random, Resumed};

/// Extensions.
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SESSION_TICKET: u16 = 35;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

/// TLS 1.3.
const VERSION_13: u16 = 0x0304;
/// The random number of a server that asks for another hello (RFC 8446 4.1.3).
const RETRY: Random = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Longest name that is kept, bytes: longer ones are none of DNS.
const NAME_MAX: usize = 253;

/// The application's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    Http1,
    Http2,
    Other,
}

impl Alpn {
    fn of(name: &[u8]) -> Self {
        match name {
            b"http/1.1" | b"http/1.0" => Alpn::Http1,
            b"h2" => Alpn::Http2,
            _ => Alpn::Other,
        }
    }

    /// Its name in reports.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Alpn::Http1 => Some("http/1.1"),
            Alpn::Http2 => Some("h2"),
            Alpn::Other => None,
        }
    }
}

/// What a client says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello {
    pub(super) random: Random,
    /// The name of the server that it looks for; empty: none.
    pub(super) server: String,
    /// What it can speak; only the first few.
    pub(super) offers: Vec<Alpn>,
    /// It sends data before the server's answer.
    pub(super) has_early_data: bool,
    /// The session of TLS 1.2 that it would go on with: its identifier, and its ticket (RFC 5077).
    pub(super) session: Option<Resumed>,
    pub(super) ticket: Option<Resumed>,
}

/// What a server says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) random: Random,
    pub(super) suite: u16,
    pub(super) is_13: bool,
    /// It asks for another hello.
    pub(super) is_retry: bool,
    /// What is to be spoken, in TLS 1.2.
    pub(super) alpn: Option<Alpn>,
    /// The session's identifier: the client's if it goes on (RFC 5246 7.4.1.3).
    pub(super) session: Option<Resumed>,
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(*self.take(1)?.first()?)
    }

    fn half(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    /// A vector with a length of one byte, and of two.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.half()?;
        self.take(length.into())
    }
}

/// The extensions that end a message; it may have none.
fn extensions(reader: &mut Reader<'_>, mut each: impl FnMut(u16, &[u8])) -> Option<()> {
    if reader.0.is_empty() {
        return Some(());
    }
    let mut all = Reader(reader.long()?);
    while !all.0.is_empty() {
        let kind = all.half()?;
        each(kind, all.long()?);
    }
    Some(())
}

/// The first name of a list of protocols, and whether there are others: what a server has chosen is alone.
fn protocols(list: &[u8]) -> Vec<Alpn> {
    let mut all = Reader(Reader(list).long().unwrap_or_default());
    std::iter::from_fn(|| all.short()).take(8).map(Alpn::of).collect()
}

/// The name of a host (RFC 6066 3), if it is one that may be shown.
fn host(list: &[u8]) -> Option<String> {
    let mut names = Reader(Reader(list).long()?);
    let kind = names.byte()?;
    let name = names.long()?;
    let is_name = kind == 0
        && name.len() <= NAME_MAX
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    is_name.then(|| name.iter().map(|b| char::from(b.to_ascii_lowercase())).collect())
}

/// Reads a ClientHello behind its head.
pub(super) fn client(body: &[u8]) -> Option<ClientHello> {
    let mut reader = Reader(body);
    reader.half()?;
    let random = *reader.take(32)?.first_chunk()?;
    let (session, _, _) = (reader.short()?, reader.long()?, reader.short()?);
    let session = Resumed::by_identifier(session);
    let mut hello = ClientHello { random, session, ..ClientHello::default() };
    extensions(&mut reader, |kind, data| match kind {
        SERVER_NAME => hello.server = host(data).unwrap_or_default(),
        ALPN => hello.offers = protocols(data),
        EARLY_DATA => hello.has_early_data = true,
        SESSION_TICKET => hello.ticket = Resumed::by_ticket(data),
        _ => {}
    })?;
    Some(hello)
}

/// The ticket of a NewSessionTicket of TLS 1.2, behind its head (RFC 5077 3.3).
pub(super) fn new_ticket(body: &[u8]) -> Option<Resumed> {
    let mut reader = Reader(body);
    // How long it is valid.
    reader.take(4)?;
    Resumed::by_ticket(reader.long()?)
}

/// Reads a ServerHello behind its head.
pub(super) fn server(body: &[u8]) -> Option<ServerHello> {
    let mut reader = Reader(body);
    let version = reader.half()?;
    let random = *reader.take(32)?.first_chunk()?;
    let session = Resumed::by_identifier(reader.short()?);
    let suite = reader.half()?;
    reader.byte()?;
    let (is_retry, is_13) = (random == RETRY, version == VERSION_13);
    let mut hello = ServerHello { random, suite, is_retry, is_13, alpn: None, session };
    extensions(&mut reader, |kind, data| match kind {
        SUPPORTED_VERSIONS => hello.is_13 = data == VERSION_13.to_be_bytes(),
        ALPN => hello.alpn = protocols(data).first().copied(),
        _ => {}
    })?;
    Some(hello)
}

/// What a server's encrypted extensions choose to be spoken.
pub(super) fn encrypted_extensions(body: &[u8]) -> Option<Alpn> {
    let mut chosen = None;
    extensions(&mut Reader(body), |kind, data| {
        if kind == ALPN {
            chosen = protocols(data).first().copied();
        }
    });
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(data)].concat()
    }

    fn client_hello(name: &[u8], extra: &[u8]) -> Vec<u8> {
        let host = [&[0][..], &vector(name)].concat();
        let names = [extension(SERVER_NAME, &vector(&host)), extra.to_vec()].concat();
        [&[3, 3][..], &[7; 32], &[0], &vector(&[0x13, 1]), &[1, 0], &vector(&names)].concat()
    }

    #[test]
    fn hellos_tell_names_and_versions() {
        let alpn = extension(ALPN, &vector(b"\x02h2\x08http/1.1"));
        let early = extension(EARLY_DATA, &[]);
        let hello = client(&client_hello(b"Shop.example.com", &[alpn, early].concat())).unwrap();
        assert_eq!((hello.server.as_str(), hello.random), ("shop.example.com", [7; 32]));
        assert_eq!((hello.offers, hello.has_early_data), (vec![Alpn::Http2, Alpn::Http1], true));
        for hostile in [&b"a\x1b[2Jb"[..], b"a b", &[b'a'; 300], "\u{fc}".as_bytes()] {
            assert_eq!(client(&client_hello(hostile, &[])).unwrap().server, "", "{hostile:?}");
        }
        let version = extension(SUPPORTED_VERSIONS, &[3, 4]);
        let of = |random: &[u8; 32], rest: &[u8]| {
            server(&[&[3, 3][..], random, &[0], &[0x13, 1], &[0], &vector(rest)].concat()).unwrap()
        };
        let answer = of(&[1; 32], &version);
        assert_eq!((answer.suite, answer.is_13, answer.is_retry), (0x1301, true, false));
        assert!(of(&RETRY, &version).is_retry);
        let old = of(&[1; 32], &extension(ALPN, &vector(b"\x02h2")));
        assert_eq!((old.is_13, old.alpn), (false, Some(Alpn::Http2)));
        assert!(
            server(&[&[3, 3][..], &[1; 32], &[0], &[0xc0, 0x2f], &[0]].concat()).is_some(),
            "none at all"
        );
    }

    proptest! {
        #[test]
        fn any_hello_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..90) {
            let _ = (client(&bytes), server(&bytes), encrypted_extensions(&bytes), new_ticket(&bytes));
            let whole = client_hello(b"a.example", &[]);
            let cut = cut.min(whole.len() - 1);
            // Without extensions it is whole.
            prop_assert!(client(&whole[..cut]).is_none() || cut == 41);
        }
    }
}
