//! A connection of the tests: both ends, and what the capture has of them.

use std::collections::BTreeSet;

use super::*;

/// The random numbers of the hellos.
const RANDOMS: [[u8; 32]; 2] = [[0xc1; 32], [0x5e; 32]];

/// The secret of a side in a phase of the handshake; 48 bytes for TLS 1.2.
fn secret(side: Side, phase: u8, length: usize) -> Vec<u8> {
    vec![0x11 * (1 + side as u8) + phase; length]
}

/// The key log of the tests' connections, whose secrets are spoiled.
pub(super) fn key_log(spoil: impl Fn(&mut [u8]), is_13: bool, length: usize) -> Keys {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let line = |label: &str, mut secret: Vec<u8>| {
        spoil(&mut secret);
        format!("{label} {} {}\n", hex(&RANDOMS[0]), hex(&secret))
    };
    let text = if is_13 {
        [
            line("CLIENT_HANDSHAKE_TRAFFIC_SECRET", secret(Client, 0, length)),
            line("SERVER_HANDSHAKE_TRAFFIC_SECRET", secret(Server, 0, length)),
            line("CLIENT_TRAFFIC_SECRET_0", secret(Client, 1, length)),
            line("SERVER_TRAFFIC_SECRET_0", secret(Server, 1, length)),
        ]
        .concat()
    } else {
        line("CLIENT_RANDOM", secret(Client, 0, 48))
    };
    let keys = Keys::default();
    assert_eq!(keys.read(text.as_bytes()).unwrap().wrong_lines, 0);
    keys
}

/// A record without protection.
pub(super) fn plain(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[kind, 3, 3, high, low], content].concat()
}

fn vector(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (body.len() as u32).to_be_bytes();
    [&[kind, a, b, c], body].concat()
}

/// A hello in its record.
pub(super) fn hello_of(side: Side, number: u16, is_13: bool, is_early: bool) -> Vec<u8> {
    let extension = |kind: u16, data: &[u8]| [&kind.to_be_bytes()[..], &vector(data)].concat();
    let suite = number.to_be_bytes();
    let mut extensions = Vec::new();
    let body = match side {
        Client => {
            let host = vector(&[&[0][..], &vector(b"a.example")].concat());
            extensions.extend(extension(0, &host));
            extensions.extend(extension(16, &vector(b"\x02h2\x08http/1.1")));
            if is_early {
                extensions.extend(extension(42, &[]));
            }
            [&[3, 3][..], &RANDOMS[0], &[0], &vector(&suite), &[1, 0], &vector(&extensions)].concat()
        }
        Server => {
            if is_13 {
                extensions.extend(extension(43, &[3, 4]));
            }
            [&[3, 3][..], &RANDOMS[1], &[0], &suite, &[0], &vector(&extensions)].concat()
        }
    };
    plain(HANDSHAKE, &message(if side == Client { 1 } else { 2 }, &body))
}

/// See the module.
pub(super) struct Talk {
    pub(super) application: Application,
    seen: Seen,
    ns: u64,
    next: [u32; 2],
    epochs: [Option<Epoch>; 2],
    numbers: [u64; 2],
    /// Largest segment.
    pub(super) segment: usize,
    /// When each of what was sent began and ended.
    pub(super) sent: Vec<(u64, u64)>,
    ends: Vec<u32>,
    pub(super) padding: usize,
    pub(super) lose_record: bool,
    /// Bytes that are kept of each segment.
    pub(super) kept: usize,
    /// The number of the message that is lost, and of those so far.
    pub(super) lost: Option<usize>,
    said: usize,
    /// Bytes of a side that are lost, behind the handshake, and the requests that they touch.
    pub(super) hole: Option<(Side, u32, u32)>,
    pub(super) touched: BTreeSet<usize>,
    begun: [u32; 2],
    asked: usize,
    /// The body of the server's encrypted extensions.
    pub(super) alpn: &'static [u8],
}

/// What it has shown.
pub(super) struct Told {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) unanswered: usize,
    pub(super) counted: Counted,
    pub(super) ends: Vec<u32>,
    names: Vec<(record::Key, String)>,
}

impl Talk {
    fn new(application: Application, keys: Keys) -> Self {
        let mut application = application.with_keys(keys);
        application.responses_begin_at(5000);
        Self {
            application,
            seen: Seen::default(),
            ns: 0,
            next: [1000, 5000],
            epochs: [None, None],
            numbers: [0; 2],
            segment: 5000,
            sent: Vec::new(),
            ends: Vec::new(),
            padding: 0,
            lose_record: false,
            kept: usize::MAX,
            lost: None,
            said: 0,
            hole: None,
            touched: BTreeSet::new(),
            begun: [0; 2],
            asked: 0,
            alpn: b"",
        }
    }

    pub(super) fn with(keys: Keys) -> Self {
        Self::new(Application::new(1, 443, Protocol::Auto, Shown::default(), false), keys)
    }

    pub(super) fn in_the_middle(keys: Keys) -> Self {
        Self::new(Application::new(1, 443, Protocol::Auto, Shown::default(), true), keys)
    }

    /// Behind the handshake.
    pub(super) fn of(number: u16, is_13: bool) -> Self {
        Self::keyed(number, is_13, key_log(|_| {}, is_13, suite(number, is_13).unwrap().hash.bytes()))
    }

    pub(super) fn keyed(number: u16, is_13: bool, keys: Keys) -> Self {
        let mut talk = Self::with(keys);
        talk.handshake(number, is_13);
        talk
    }

    /// As [`Talk::of`], with early data of the client.
    pub(super) fn early(number: u16) -> Self {
        let mut talk = Self::with(key_log(|_| {}, true, 32));
        talk.send(Client, &hello_of(Client, number, true, true));
        for _ in 0..2 {
            talk.send(Client, &plain(APPLICATION_DATA, &[0xea; 60]));
        }
        talk.send(Server, &hello_of(Server, number, true, false));
        talk.phase(number, 0);
        talk.seal_and_send(Server, HANDSHAKE, &[message(8, &[0, 0]), message(20, &[1; 32])].concat());
        for _ in 0..5 {
            talk.send(Client, &plain(APPLICATION_DATA, &[0xea; 21]));
        }
        talk.seal_and_send(Client, HANDSHAKE, &message(20, &[2; 32]));
        talk.phase(number, 1);
        talk
    }

    fn phase(&mut self, number: u16, phase: u8) {
        let suite = suite(number, true).unwrap();
        for side in [Client, Server] {
            let secret = Secret::new(&secret(side, phase, suite.hash.bytes())).unwrap();
            self.epochs[side as usize] = Epoch::tls13(suite, &secret);
            self.numbers[side as usize] = 0;
        }
    }

    pub(super) fn handshake(&mut self, number: u16, is_13: bool) {
        let suite = suite(number, is_13).unwrap();
        self.send(Client, &hello_of(Client, number, is_13, false));
        self.send(Server, &hello_of(Server, number, is_13, false));
        if is_13 {
            let change = plain(CHANGE_CIPHER_SPEC, &[1]);
            self.send(Server, &change);
            self.phase(number, 0);
            let alpn = if self.alpn.is_empty() { vec![0, 0] } else { self.alpn.to_vec() };
            let flight = [message(8, &alpn), message(11, &[7; 900])].concat();
            self.seal_and_send(Server, HANDSHAKE, &flight[..300]);
            self.seal_and_send(
                Server,
                HANDSHAKE,
                &[&flight[300..], &message(20, &vec![1; suite.hash.bytes()])].concat(),
            );
            self.send(Client, &change);
            self.seal_and_send(Client, HANDSHAKE, &message(20, &vec![2; suite.hash.bytes()]));
            self.phase(number, 1);
        } else {
            self.send(Server, &plain(HANDSHAKE, &[message(11, &[7; 900]), message(14, &[])].concat()));
            self.send(Client, &plain(HANDSHAKE, &message(16, &[7; 33])));
            let master = Secret::new(&secret(Client, 0, 48)).unwrap();
            for side in [Client, Server] {
                self.send(side, &plain(CHANGE_CIPHER_SPEC, &[1]));
                self.epochs[side as usize] = Epoch::tls12(suite, &master, [&RANDOMS[0], &RANDOMS[1]], side);
                self.seal_and_send(side, HANDSHAKE, &message(20, &[1; 12]));
            }
        }
        self.begun = self.next;
        (self.sent, self.ends) = Default::default();
    }

    /// The next keys.
    pub(super) fn update(&mut self, side: Side) {
        self.epochs[side as usize] = self.epochs[side as usize].as_ref().and_then(Epoch::updated);
        self.numbers[side as usize] = 0;
    }

    /// PostgreSQL begins, in records.
    pub(super) fn send_startup(&mut self) {
        let startup = b"\0\0\0\x13\0\x03\0\0user\0me\0x\0\0";
        self.say(Client, [&(startup.len() as u32).to_be_bytes()[..], &startup[4..]].concat());
        self.say(Server, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
    }

    /// Of the messages from here on, this one is lost.
    pub(super) fn lose_next(&mut self, number: usize) {
        self.lost = Some(self.said + number);
    }

    /// A protected record.
    pub(super) fn seal(&mut self, side: Side, kind: u8, content: &[u8]) -> Vec<u8> {
        let number = self.numbers[side as usize];
        self.numbers[side as usize] += 1;
        self.epochs[side as usize].as_ref().unwrap().seal(number, kind, content, self.padding)
    }

    pub(super) fn seal_and_send(&mut self, side: Side, kind: u8, content: &[u8]) {
        let record = self.seal(side, kind, content);
        self.send(side, &record);
    }

    /// Application data in a record.
    pub(super) fn say(&mut self, side: Side, content: impl AsRef<[u8]>) {
        let record = self.seal(side, APPLICATION_DATA, content.as_ref());
        if side == Client {
            self.asked += 1;
        }
        if self.lose_record || self.lost == Some(self.said) {
            self.lose(side, record.len() as u64);
        } else {
            self.send(side, &record);
        }
        self.said += 1;
    }

    pub(super) fn alert(&mut self, side: Side, content: &[u8]) {
        self.seal_and_send(side, ALERT, content);
    }

    /// Sends bytes, in segments.
    pub(super) fn send(&mut self, side: Side, bytes: &[u8]) {
        let began = self.ns + 1000;
        for bytes in bytes.chunks(self.segment) {
            let seq = self.next[side as usize];
            let from = seq.wrapping_sub(self.begun[side as usize]);
            let hole = self.hole.filter(|(of, at, count)| {
                *of == side && self.begun[0] > 0 && from < at + count && from + bytes.len() as u32 > *at
            });
            if hole.is_some() {
                self.touched.insert(self.asked);
                self.lose(side, bytes.len() as u64);
                continue;
            }
            self.ns += 1000;
            let at = At { ns: self.ns, frame: self.ns / 1000 };
            self.application.packet(side, seq, self.next[side.peer() as usize]);
            self.next[side as usize] += bytes.len() as u32;
            let (kept, cut) = bytes.split_at(bytes.len().min(self.kept));
            self.application.bytes(side, kept, at, &mut self.seen);
            if !cut.is_empty() {
                self.application.missing(side, Absent::Uncaptured, cut.len() as u64, at, &mut self.seen);
            }
        }
        self.sent.push((began, self.ns));
        self.ends.push(self.next[side as usize]);
    }

    /// Bytes that the capture does not have.
    pub(super) fn lose(&mut self, side: Side, count: u64) {
        self.ns += 1000;
        self.next[side as usize] = self.next[side as usize].wrapping_add(count as u32);
        self.application.missing(side, Absent::Lost, count, At { ns: self.ns, frame: 0 }, &mut self.seen);
    }

    /// The side has closed its stream.
    pub(super) fn close(&mut self, side: Side) {
        let at = At { ns: self.ns, frame: 0 };
        self.application.closed(side, at, &mut self.seen);
    }

    pub(super) fn end(mut self) -> Told {
        let at = At { ns: self.ns, frame: 0 };
        for side in [Client, Server] {
            self.application.closed(side, at, &mut self.seen);
        }
        let counted = self.application.finish(&mut self.seen);
        let ended = self.application.pace().ended;
        let Seen { exchanges, unanswered, names, .. } = self.seen;
        assert_eq!(exchanges.len() as u64, ended, "every exchange is told once");
        Told { exchanges, unanswered: unanswered.len(), counted, ends: self.ends, names }
    }
}

impl Told {
    pub(super) fn name_of(&self, exchange: &Exchange) -> &str {
        let named = self.names.iter().find(|(key, _)| *key == exchange.key);
        named.map_or("", |(_, name)| name)
    }

    /// Operation, key and status of each exchange.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |e: &Exchange| {
            format!("{} {} {}", e.op.verb.name(), self.name_of(e), e.status.text()).replace("  ", " ")
        };
        self.exchanges.iter().map(line).collect()
    }

    /// That request n has answer n.
    pub(super) fn assert_pairs(&self) {
        for exchange in &self.exchanges {
            let Status::Http(code) = exchange.status else { panic!("{exchange:?}") };
            let name = self.name_of(exchange);
            let expected = format!("/{}", char::from(b'a' + (code - 400) as u8));
            // The head of a request may be missing.
            assert!(
                name == expected || name.is_empty(),
                "{name} was answered with {code}: {:?}",
                self.lines()
            );
        }
    }
}
