//! The secrets of connections, as programs write them for an analysis: the SSLKEYLOGFILE format.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, BufRead, Read as _};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use thiserror::Error;

/// Most secrets that are kept; a connection of TLS 1.3 has four. They take up to 50 MB.
pub const SECRETS_MAX: usize = 450_000;
/// Longest line: a label, 32 bytes and a secret.
const LINE_MAX: usize = 512;
/// Wrong lines that are told one by one.
const WRONG_TOLD: usize = 3;

/// A random number of a hello.
pub(crate) type Random = [u8; 32];

/// A secret, which is never shown.
#[derive(Clone)]
pub(crate) struct Secret {
    bytes: [u8; Self::BYTES_MAX],
    length: u8,
}

impl Secret {
    /// Longest secret: the output of SHA-384, and the master secret of TLS 1.2.
    pub(crate) const BYTES_MAX: usize = 48;

    /// A secret of these bytes, if they are not too many.
    pub(crate) fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, length: from.len() as u8 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    /// The master secret of TLS 1.2.
    Master,
    ClientHandshake,
    ServerHandshake,
    Client,
    Server,
}

impl Label {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "CLIENT_RANDOM" => Label::Master,
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Label::ClientHandshake,
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => Label::ServerHandshake,
            "CLIENT_TRAFFIC_SECRET_0" => Label::Client,
            "SERVER_TRAFFIC_SECRET_0" => Label::Server,
            _ => return None,
        })
    }
}

/// What a session of TLS 1.2 is resumed by, as a hash: its identifier or its ticket. Some clients log the secret of a session's first
/// handshake alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resumed(u64, u64);

impl Resumed {
    /// By an identifier; an empty one is none.
    pub(crate) fn by_identifier(identifier: &[u8]) -> Option<Self> {
        Self::new(0, identifier)
    }

    /// By a ticket; an empty one asks for a ticket.
    pub(crate) fn by_ticket(ticket: &[u8]) -> Option<Self> {
        Self::new(2, ticket)
    }

    fn new(kind: u8, what: &[u8]) -> Option<Self> {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (kind + salt, what).hash(&mut hasher);
            hasher.finish()
        };
        (!what.is_empty()).then(|| Self(hash(0), hash(1)))
    }
}

/// Most sessions that are kept.
const RESUMED_MAX: usize = 65_536;

/// Secrets by the client's random number, and those of sessions that were seen, shared by all who look for some.
#[derive(Clone, Default)]
pub struct Keys {
    logged: Arc<RwLock<Secrets>>,
    resumed: Arc<RwLock<HashMap<Resumed, Secret, RandomState>>>,
}

type Secrets = HashMap<(Random, Label), Secret, RandomState>;

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.count())
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.logged, &other.logged)
    }
}

impl Eq for Keys {}

/// A key log cannot be used.
#[derive(Debug, Error)]
pub enum KeyLogError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It has too many secrets.
    #[error("line {line}: more than {SECRETS_MAX} secrets; give only those of the capture's connections")]
    TooMany {
        /// The line that is too many.
        line: u64,
    },
}

/// What was in a key log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLog {
    /// Secrets that were read.
    pub secrets: u64,
    /// Lines that are none of a key log, the first few, and what is wrong with them.
    pub wrong: Vec<(u64, &'static str)>,
    /// All of these.
    pub wrong_lines: u64,
}

impl Keys {
    /// Reads a key log. Lines with other labels, empty ones and comments are passed over; wrong ones are told.
    ///
    /// # Errors
    /// When it cannot be read, or has too many secrets: those before it are known.
    pub fn read(&self, mut log: impl BufRead) -> Result<KeyLog, KeyLogError> {
        let mut read = KeyLog::default();
        let mut text = Vec::with_capacity(LINE_MAX);
        for line in 1.. {
            text.clear();
            if log.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let result = if text.len() == LINE_MAX && !text.ends_with(b"\n") {
                pass_over_line(&mut log)?;
                if text.starts_with(b"#") { Ok(None) } else { Err("it is too long") }
            } else {
                secret(&text)
            };
            match result {
                Ok(None) => {}
                Ok(Some((random, label, secret))) => {
                    let mut known = self.logged.write().unwrap_or_else(PoisonError::into_inner);
                    if known.len() >= SECRETS_MAX && !known.contains_key(&(random, label)) {
                        return Err(KeyLogError::TooMany { line });
                    }
                    known.insert((random, label), secret);
                    read.secrets += 1;
                }
                Err(what) => {
                    read.wrong_lines += 1;
                    if read.wrong.len() < WRONG_TOLD {
                        read.wrong.push((line, what));
                    }
                }
            }
        }
        Ok(read)
    }

    /// How many secrets are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.logged.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn find(&self, client: &Random, label: Label) -> Option<Secret> {
        self.logged.read().unwrap_or_else(PoisonError::into_inner).get(&(*client, label)).cloned()
    }

    /// Keeps the master secret of a session that may be resumed.
    pub(crate) fn keep(&self, session: Resumed, master: &Secret) {
        let mut resumed = self.resumed.write().unwrap_or_else(PoisonError::into_inner);
        if resumed.len() < RESUMED_MAX || resumed.contains_key(&session) {
            resumed.insert(session, master.clone());
        }
    }

    /// The master secret of a session that is resumed.
    pub(crate) fn resumed(&self, session: Resumed) -> Option<Secret> {
        self.resumed.read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }
}

/// Reads up to the end of a line.
fn pass_over_line(log: &mut impl BufRead) -> io::Result<()> {
    loop {
        let some = log.fill_buf()?;
        let (count, is_end) = match some.iter().position(|&b| b == b'\n') {
            Some(end) => (end + 1, true),
            None => (some.len(), some.is_empty()),
        };
        log.consume(count);
        if is_end {
            return Ok(());
        }
    }
}

/// The secret of a line, if it has one that is of use.
fn secret(line: &[u8]) -> Result<Option<(Random, Label, Secret)>, &'static str> {
    let text = line.trim_ascii();
    if text.is_empty() || text.starts_with(b"#") {
        return Ok(None);
    }
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let label = words.next().and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default();
    let is_label =
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !is_label {
        return Err("it does not begin with a label");
    }
    let Some(label) = Label::of(label) else { return Ok(None) };
    let (Some(random), Some(hex), None) = (words.next(), words.next(), words.next()) else {
        return Err("behind the label there are not two numbers");
    };
    let mut client = [0; 32];
    if bytes(random, &mut client) != Some(32) {
        return Err("the client's random number is not 64 hexadecimal digits");
    }
    let mut secret = [0; Secret::BYTES_MAX];
    let length = bytes(hex, &mut secret);
    let known = length.filter(|&length| length == 48 || label != Label::Master && length == 32);
    let secret = known.and_then(|length| Secret::new(secret.get(..length)?));
    let of = if label == Label::Master {
        "the secret is not 96 hexadecimal digits"
    } else {
        "the secret is not 64 or 96 hexadecimal digits"
    };
    Ok(Some((client, label, secret.ok_or(of)?)))
}

/// Hexadecimal digits as bytes; how many, if they are such and fit.
fn bytes(hex: &[u8], out: &mut [u8]) -> Option<usize> {
    let digit = |b: u8| char::from(b).to_digit(16);
    if !hex.len().is_multiple_of(2) || hex.len() / 2 > out.len() {
        return None;
    }
    for (pair, out) in hex.chunks(2).zip(out) {
        let &[high, low] = pair else { return None };
        *out = (digit(high)? << 4 | digit(low)?) as u8;
    }
    Some(hex.len() / 2)
}

#[cfg(test)]
mod tests;
