//! Addresses of exports: `nbd://host:10809/export`, `nbds://host/export`, `nbd+unix:///export?socket=/run/nbd.sock`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The port of NBD servers (IANA).
pub const PORT: u16 = 10809;
/// Longest name of an export, bytes (the protocol's limit for strings).
const EXPORT_BYTES_MAX: usize = 4096;

/// The address of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where the server is.
    pub place: Place,
    /// The export's name; empty for the server's default.
    pub export: String,
    /// TLS is required.
    pub tls: bool,
    /// The folder with `ca-cert.pem`, and with `client-cert.pem` and `client-key.pem` where the server asks for them
    /// (`tls-certificates`); the system's authorities without it.
    pub certificates: Option<PathBuf>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// TCP: host name or address, without brackets, and port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// An address that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Another form.
    #[error(
        "'{0}' is not the address of an NBD export; write nbd://HOST[:PORT]/EXPORT, nbds:// with TLS, or \
         nbd+unix:///EXPORT?socket=PATH"
    )]
    Form(String),
    /// The port is none.
    #[error("'{0}' is not a port; use 1 to 65535")]
    Port(String),
    /// A percent sign without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("'{0}' is not percent-encoded UTF-8 without zero bytes; write a percent sign as %25")]
    Encoding(String),
    /// A parameter behind the question mark.
    #[error(
        "'{0}' is not a parameter of an NBD address; use socket=PATH with nbd+unix, tls-certificates=FOLDER with TLS"
    )]
    Parameter(String),
    /// No socket.
    #[error("a Unix socket needs its path: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// The name is too long.
    #[error("the name of the export has {0} bytes; at most {EXPORT_BYTES_MAX} are possible")]
    Long(usize),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let (tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(form()),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export)?;
        if export.len() > EXPORT_BYTES_MAX {
            return Err(AddressError::Long(export.len()));
        }
        let (mut socket, mut certificates) = (None, None);
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            let unknown = || AddressError::Parameter(parameter.to_owned());
            let (key, value) = parameter.split_once('=').ok_or_else(unknown)?;
            let value = PathBuf::from(decoded(value)?);
            match key {
                "socket" if is_unix && socket.is_none() => socket = Some(value),
                "tls-certificates" if tls && certificates.is_none() => certificates = Some(value),
                _ => return Err(unknown()),
            }
        }
        let place = if is_unix {
            if !authority.is_empty() {
                return Err(form());
            }
            Place::Unix(socket.filter(|path| !path.as_os_str().is_empty()).ok_or(AddressError::NoSocket)?)
        } else {
            let (host, port) = host_and_port(authority).ok_or_else(form)?;
            let port = match port {
                None => PORT,
                Some(port) => match port.parse() {
                    Ok(port @ 1..) => port,
                    _ => return Err(AddressError::Port(port.to_owned())),
                },
            };
            Place::Tcp(decoded(host)?, port)
        };
        Ok(Self { place, export, tls, certificates })
    }
}

/// Host and port of `host`, `host:port`, `[::1]` and `[::1]:port`. Names of users are not part of such an address.
fn host_and_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        return match behind {
            "" => Some((host, None)),
            behind => Some((host, Some(behind.strip_prefix(':')?))),
        };
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    (!host.is_empty() && !authority.contains('@')).then_some((host, port))
}

/// Decodes %XX.
fn decoded(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Encoding(text.to_owned());
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        // A sign is a digit for the parser, but not here.
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = is_hexadecimal.then(|| u8::from_str_radix(digits, 16).ok()).flatten();
        bytes.push(byte.ok_or_else(wrong)?);
        rest = &rest[2..];
    }
    // No name or path has a zero byte.
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(wrong)
}

/// Encodes what has a meaning in an address, or in the text of a disk.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls { "s" } else { "" };
        let export = encoded(&self.export);
        let mut separator = '?';
        match &self.place {
            Place::Tcp(host, port) if host.contains(':') => {
                write!(f, "nbd{secure}://[{host}]:{port}/{export}")?;
            }
            Place::Tcp(host, port) => write!(f, "nbd{secure}://{}:{port}/{export}", encoded(host))?,
            Place::Unix(path) => {
                write!(f, "nbd{secure}+unix:///{export}?socket={}", encoded(&path.to_string_lossy()))?;
                separator = '&';
            }
        }
        match &self.certificates {
            Some(folder) => write!(f, "{separator}tls-certificates={}", encoded(&folder.to_string_lossy())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Address, AddressError> {
        text.parse()
    }

    #[test]
    fn reads_every_form() {
        let tcp = |host: &str, port, export: &str| Address {
            place: Place::Tcp(host.to_owned(), port),
            export: export.to_owned(),
            tls: false,
            certificates: None,
        };
        assert_eq!(read("nbd://host"), Ok(tcp("host", 10809, "")));
        assert_eq!(read("nbd://host/"), Ok(tcp("host", 10809, "")));
        assert_eq!(read("nbd://host:99/a/b%2cc"), Ok(tcp("host", 99, "a/b,c")));
        assert_eq!(read("nbd://[fd00::1]:99/x"), Ok(tcp("fd00::1", 99, "x")));
        assert_eq!(read("nbd://[::1]"), Ok(tcp("::1", 10809, "")));
        let unix = read("nbd+unix:///disk?socket=/run/a%20b").unwrap();
        assert_eq!((unix.place, &*unix.export), (Place::Unix("/run/a b".into()), "disk"));
        let secure = read("nbds://host/x?tls-certificates=/etc/pki").unwrap();
        assert!(secure.tls && secure.certificates == Some("/etc/pki".into()));
    }

    #[test]
    fn says_what_is_wrong() {
        for text in [
            "nbd:host",
            "http://host",
            "nbd://",
            "nbd://u@host",
            "nbd://[::1",
            "nbd://[::1]x",
            "nbd+unix://h/x?socket=/s",
        ] {
            assert!(matches!(read(text), Err(AddressError::Form(_))), "{text}");
        }
        for text in ["nbd://h:0", "nbd://h:x", "nbd://h:65536", "nbd://h:"] {
            assert!(matches!(read(text), Err(AddressError::Port(_))), "{text}");
        }
        for text in ["nbd://h/%2", "nbd://h/%+1", "nbd://h/%ff", "nbd://h/a%00b"] {
            assert!(matches!(read(text), Err(AddressError::Encoding(_))), "{text}");
        }
        for text in [
            "nbd://h?socket=/s",
            "nbd://h?tls-certificates=/s",
            "nbds://h?tls-psk-file=/s",
            "nbd+unix:///x?socket=/a&socket=/b",
        ] {
            assert!(matches!(read(text), Err(AddressError::Parameter(_))), "{text}");
        }
        assert_eq!(read("nbd+unix:///x"), Err(AddressError::NoSocket));
        assert_eq!(read("nbd+unix:///x?socket="), Err(AddressError::NoSocket));
        assert_eq!(read(&format!("nbd://h/{}", "x".repeat(4097))), Err(AddressError::Long(4097)));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(text in "nbds?(\\+unix)?://(h|\\[::1\\])?(:[0-9]{1,6})?(/|/[a-z,%2c?&=ä]{0,8})?(\\?socket=[a-z/%20,]{0,6})?") {
            if let Ok(address) = read(&text) {
                let written = address.to_string();
                prop_assert!(!written.contains(','), "a comma ends it in the text of a disk: {}", written);
                prop_assert_eq!(read(&written), Ok(address));
            }
        }
    }
}
