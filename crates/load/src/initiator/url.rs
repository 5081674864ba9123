//! URLs of disks in libiscsi's format: `iscsi://[user[%password]@]host[:port]/iqn/lun`.

use std::str::FromStr;

use iscsi::login::is_iscsi_name;

use crate::initiator::error::InitiatorError;

/// The registered port of iSCSI.
pub const ISCSI_PORT: u16 = 3260;

/// A disk on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiUrl {
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
        let wrong = |reason| InitiatorError::Url { url: url.to_owned(), reason };
        let rest = url.strip_prefix("iscsi://").ok_or_else(|| wrong("does not begin with iscsi://"))?;
        if rest.contains('@') {
            return Err(wrong("user names and passwords (CHAP) are not supported yet"));
        }
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
        Ok(Self { host: host.to_owned(), port, iqn: iqn.to_owned(), lun })
    }
}

impl std::fmt::Display for IscsiUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "iscsi://[{}]:{}/{}/{}", self.host, self.port, self.iqn, self.lun)
        } else {
            write!(f, "iscsi://{}:{}/{}/{}", self.host, self.port, self.iqn, self.lun)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_round_trip() {
        for url in
            ["iscsi://127.0.0.1:3261/iqn.2026-11.example:d/0", "iscsi://[::1]:3260/eui.02004567A425678D/7"]
        {
            assert_eq!(url.parse::<IscsiUrl>().unwrap().to_string(), url);
        }
        assert_eq!("iscsi://host/iqn.x/1".parse::<IscsiUrl>().unwrap().port, ISCSI_PORT);
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
            ("iscsi://u%p@h/iqn.x/0", "CHAP"),
        ] {
            let error = url.parse::<IscsiUrl>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
