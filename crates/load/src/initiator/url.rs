//! URLs of disks in libiscsi's format without its secrets: `iscsi://[user@]host[:port]/iqn/lun`.

use std::str::FromStr;

use iscsi::login::is_iscsi_name;

use crate::initiator::error::InitiatorError;

/// The registered port of iSCSI.
pub const ISCSI_PORT: u16 = 3260;

/// A disk on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiUrl {
    /// The CHAP user.
    pub user: Option<String>,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The target's name.
    pub iqn: String,
    /// Logical unit number.
    pub lun: u16,
}

impl FromStr for IscsiUrl {
    type Err = InitiatorError;

    fn from_str(url: &str) -> Result<Self, InitiatorError> {
        let wrong = |reason| InitiatorError::Url { url: redacted(url), reason };
        let rest = url.strip_prefix("iscsi://").ok_or_else(|| wrong("does not begin with iscsi://"))?;
        // The last '@': a secret may contain one.
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(['%', ':', '/', '@']) => {
                return Err(wrong(
                    "a secret on a command line is visible to every user; name a file with --chap-secret-file",
                ));
            }
            Some(("", _)) => return Err(wrong("the user before '@' is missing")),
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, rest),
        };
        let mut parts = rest.splitn(3, '/');
        let authority = parts.next().unwrap_or_default();
        let iqn =
            parts.next().filter(|s| !s.is_empty()).ok_or_else(|| wrong("the target's name is missing"))?;
        let lun = parts.next().ok_or_else(|| wrong("the LUN is missing"))?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or_else(|| wrong("the address lacks its ']'"))?;
                (host, rest.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        // Only the zone of an address in brackets has a '%'; user%secret without its '@' would be looked up as a name.
        if host.contains('%') && !authority.starts_with('[') {
            return Err(wrong("the host has a '%'; a secret belongs in a file: --chap-secret-file"));
        }
        let port = match port {
            Some(port) => {
                port.parse().ok().filter(|&p| p != 0).ok_or_else(|| wrong("the port is not 1 to 65535"))?
            }
            None => ISCSI_PORT,
        };
        if !is_iscsi_name(iqn) {
            return Err(wrong("the target's name does not begin with iqn., eui. or naa."));
        }
        let lun =
            lun.parse().ok().filter(|&l| l < 16384).ok_or_else(|| wrong("the LUN is not 0 to 16383"))?;
        Ok(Self { user, host: host.to_owned(), port, iqn: iqn.to_owned(), lun })
    }
}

impl std::fmt::Display for IscsiUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("iscsi://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}/{}/{}", self.host, self.port, self.iqn, self.lun)
        } else {
            write!(f, "{}:{}/{}/{}", self.host, self.port, self.iqn, self.lun)
        }
    }
}

/// Removes what may be a secret from a URL that may be malformed: everything up to its last '@' behind the scheme, or,
/// without one, all of a text that has a '%'.
#[must_use]
pub fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let scheme =
        if scheme.is_empty() || scheme.contains(['%', '@']) { String::new() } else { format!("{scheme}://") };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}"),
        None if rest.contains('%') => format!("{scheme}***"),
        None => format!("{scheme}{rest}"),
    }
}

/// Splits `host:port`, `[address]:port`, or either without a port. `None` if it is malformed.
#[must_use]
pub(crate) fn host_and_port(place: &str) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        None => ISCSI_PORT,
        Some(port) => port.parse().ok().filter(|&port| port != 0)?,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_round_trip() {
        for url in [
            "iscsi://127.0.0.1:3261/iqn.2026-11.example:d/0",
            "iscsi://[::1]:3260/eui.02004567A425678D/7",
            "iscsi://alice@localhost:3260/iqn.x/0",
            "iscsi://[fe80::1%eth0]:3260/iqn.x/0",
        ] {
            assert_eq!(url.parse::<IscsiUrl>().unwrap().to_string(), url);
        }
        assert_eq!("iscsi://host/iqn.x/1".parse::<IscsiUrl>().unwrap().port, ISCSI_PORT);
    }

    #[test]
    fn errors_do_not_show_secrets() {
        for url in [
            "iscsi://alice%wonderland@h/iqn.x/0",
            "iscsi://alice%wonder@wonderland@h/iqn.x/0",
            "iscsi://alice:wonderland@h/iqn.x/0",
            "iscsi://alice%wonderland/h/iqn.x/0",
            "iscsi://alice%wonderland/iqn.x/0",
            "iscsi:/alice%wonderland@h/iqn.x/0",
            "alice%wonderland",
            "wonderland@://h/iqn.x/0",
            "iscsi//alice%wonderland://h",
        ] {
            let error = url.parse::<IscsiUrl>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("wonder"), "{error}");
        }
    }

    #[test]
    fn portals_have_a_host_and_perhaps_a_port() {
        let text = |place| host_and_port(place).map(|(host, port)| format!("{host} {port}"));
        for (place, expected) in [
            ("h:1", "h 1"),
            ("h", "h 3260"),
            ("[::1]", "::1 3260"),
            ("[::1]:7", "::1 7"),
            ("10.0.0.1:9", "10.0.0.1 9"),
        ] {
            assert_eq!(text(place).as_deref(), Some(expected));
        }
        for wrong in ["", ":1", "h:0", "h:x", "[::1", "[::1]7", "h:70000"] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (url, reason) in [
            ("http://h/iqn.x/0", "begin with iscsi://"),
            ("iscsi://h/iqn.x", "LUN is missing"),
            ("iscsi://h", "name is missing"),
            ("iscsi:///iqn.x/0", "host is missing"),
            ("iscsi://h:0/iqn.x/0", "port"),
            ("iscsi://h:99999/iqn.x/0", "port"),
            ("iscsi://h/disk/0", "iqn."),
            ("iscsi://h/iqn.x/-1", "LUN is not"),
            ("iscsi://u%p@h/iqn.x/0", "--chap-secret-file"),
            ("iscsi://@h/iqn.x/0", "user"),
        ] {
            let error = url.parse::<IscsiUrl>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
