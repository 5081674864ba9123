//! `http://host[:port]/path`.

use std::fmt;
use std::str::FromStr;

/// The URL of a resource of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let wrong = |why| format!("'{url}': {why}; write http://host[:port]/path");
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong("does not begin with http://"))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("the port is not a number"))?)
            }
            _ => (authority, 80),
        };
        let is_plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || !path.chars().all(is_plain) || !host.chars().all(is_plain) {
            return Err(wrong("host or path is missing or has an invalid character"));
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port, path: path.to_owned() })
    }
}
