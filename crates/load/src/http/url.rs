//! `http://host[:port]/path?query` and `https://...`.

use std::fmt;
use std::str::FromStr;

/// In a path: stands for the block size of the run, bytes.
const BLOCK_SIZE: &str = "{bs}";

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    const ALL: [Self; 2] = [Self::Http, Self::Https];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The URL of a resource of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// With or without TLS.
    pub scheme: Scheme,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query as requested; begins with a slash.
    pub path: String,
    /// Whether the URL contained `user:password@`. It is not kept, so that no message can show it.
    pub has_credentials: bool,
}

impl HttpUrl {
    /// Returns whether a URL has a scheme of this type.
    #[must_use]
    pub fn has_scheme(url: &str) -> bool {
        Scheme::ALL.iter().any(|scheme| strip_scheme(url, *scheme).is_some())
    }

    /// Returns the value of the Host field (RFC 9110 7.2): brackets around an IPv6 address, no port if it is the default
    /// one of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.bracketed();
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Returns whether the path depends on the block size: it contains `{bs}`.
    #[must_use]
    pub fn depends_on_block_size(&self) -> bool {
        self.path.contains(BLOCK_SIZE)
    }

    /// Returns the path and query with the block size in the place of `{bs}`.
    #[must_use]
    pub fn path_for(&self, block_bytes: u64) -> String {
        self.path.replace(BLOCK_SIZE, &block_bytes.to_string())
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}{}", self.scheme.name(), self.bracketed(), self.port, self.path)
    }
}

/// Returns what follows `scheme://`; the scheme is case-insensitive (RFC 9110 4.2.3).
fn strip_scheme(url: &str, scheme: Scheme) -> Option<&str> {
    let (name, rest) = url.split_once("://")?;
    name.eq_ignore_ascii_case(scheme.name()).then_some(rest)
}

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let (scheme, rest) = Scheme::ALL
            .into_iter()
            .find_map(|scheme| Some((scheme, strip_scheme(url, scheme)?)))
            .ok_or_else(|| format!("'{url}': begins neither with http:// nor with https://"))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // The fragment is not sent (RFC 9110 4.2.5).
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let has_credentials = authority.contains('@');
        let authority = authority.rsplit('@').next().unwrap_or_default();
        if has_credentials {
            // The caller refuses it without showing it; errors of arguments quote the whole argument.
            return Ok(Self {
                scheme,
                host: String::new(),
                port: scheme.default_port(),
                path,
                has_credentials,
            });
        }
        let wrong = |why| format!("'{url}': {why}; write {}://host[:port]/path", scheme.name());
        let (host, port) = split_port(authority).map_err(wrong)?;
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        if host.is_empty() || !is_plain(host) {
            return Err(wrong("host or path is missing or has an invalid character"));
        }
        if !is_plain(&path) {
            return Err(wrong("the path has an invalid character: percent-encode it"));
        }
        let port = match port {
            None | Some("") => scheme.default_port(),
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|port| *port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| wrong("the port is not a number from 1 to 65535"))?,
        };
        Ok(Self { scheme, host: host.to_owned(), port, path, has_credentials })
    }
}

/// Splits an authority into its host without brackets and its port.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("a port after an IPv6 address begins with a colon"),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("an IPv6 address is written in brackets"),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> HttpUrl {
        url.parse().unwrap()
    }

    #[test]
    fn the_path_and_the_host_field_are_those_of_the_url() {
        for (url, path, authority) in [
            ("http://host", "/", "host"),
            ("http://host/", "/", "host"),
            ("http://host:80/", "/", "host"),
            ("http://host:/", "/", "host"),
            ("http://host?a=b", "/?a=b", "host"),
            ("http://host:8080/a/b?c=d/e:f@g#h", "/a/b?c=d/e:f@g", "host:8080"),
            ("HTTPS://host/", "/", "host"),
            ("https://host:80/", "/", "host:80"),
            ("https://[::1]/", "/", "[::1]"),
            ("http://[::1]:8080/x", "/x", "[::1]:8080"),
        ] {
            let found = parsed(url);
            assert_eq!((&*found.path, &*found.authority()), (path, authority), "{url}");
        }
        assert_eq!(parsed("https://[::1]/").host, "::1");
        assert_eq!(parsed("http://[::1]/x").to_string(), "http://[::1]:80/x");
        assert_eq!(parsed("http://host/{bs}?{bs}").path_for(4096), "/4096?4096");
        assert!(!parsed("http://host/bs").depends_on_block_size());
    }

    #[test]
    fn unusable_urls_are_refused() {
        for url in [
            "ftp://host/",
            "http:/host",
            "http://",
            "http:///x",
            "http://:80/",
            "http://host:x/",
            "http://host:0/",
            "http://host:65536/",
            "http://host:+1/",
            "http://::1/",
            "http://[::1/",
            "http://[::1]80/",
            "http://ho st/",
            "http://host/a b",
            "http://host/\r\nX: y",
            "http://höst/",
        ] {
            assert!(url.parse::<HttpUrl>().is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_are_noticed_and_not_kept() {
        let url = parsed("http://user:secret@host/");
        assert!(url.has_credentials && !format!("{url:?} {url}").contains("secret"));
    }
}
