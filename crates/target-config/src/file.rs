//! The keys and values of the configuration file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use iscsi::login::target::Moved;
use iscsi_target::{Access, Portal, SendPolicy, TargetConfig};
use serde::Deserialize;
use store::StoreSpec;

use crate::access::AccessFile;
use crate::limits;
use crate::text::read_text;
use crate::word_or::WordOr;

/// Parses a disk, `NUMBER=STORE`.
///
/// # Errors
/// Names the invalid part and the valid values.
pub fn lun(text: &str) -> Result<(u16, StoreSpec), String> {
    let (number, spec) = text.split_once('=').ok_or("write NUMBER=STORE, such as 0=ram:1G")?;
    let number = number.parse().map_err(|_| format!("'{number}' is not a LUN; use 0 to 255"))?;
    if number > 255 {
        return Err(format!("LUN {number}: use 0 to 255"));
    }
    Ok((number, spec.parse().map_err(|e: store::SpecError| e.to_string())?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    iqn: Option<String>,
    state: Option<PathBuf>,
    send: Option<String>,
    #[serde(default)]
    portal: Vec<PortalEntry>,
    luns: Option<WordOr<BTreeMap<String, String>>>,
    access: Option<WordOr<AccessFile>>,
    #[serde(default)]
    limits: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortalEntry {
    listen: SocketAddr,
    group: Option<u16>,
    advertise: Option<SocketAddr>,
    moved: Option<MovedEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MovedEntry {
    address: String,
    #[serde(default)]
    permanent: bool,
}

/// The settings of a file.
#[derive(Debug, Default)]
pub struct TargetFile {
    /// The target's iSCSI name.
    pub iqn: Option<String>,
    /// The folder for durable state.
    pub state: Option<PathBuf>,
    /// The send policy.
    pub send: Option<SendPolicy>,
    /// The portals.
    pub portals: Vec<Portal>,
    /// Numbers and stores of the disks.
    pub luns: Vec<(u16, StoreSpec)>,
    /// The file states that no disk is served (`luns = "none"`).
    pub is_diskless: bool,
    /// The access rules.
    pub access: Option<Access>,
    /// The file states that every initiator may log in (`access = "open"`).
    pub is_open_access: bool,
    /// Names and values of limits.
    pub limits: Vec<(String, String)>,
}

/// Reads a configuration file.
///
/// # Errors
/// When it cannot be read or a key is invalid; the error names the key.
pub fn read(path: &Path) -> anyhow::Result<TargetFile> {
    parse(&read_text(path)?).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<TargetFile> {
    let file: File = toml::from_str(text)?;
    let (luns, is_diskless) = match file.luns {
        None => (BTreeMap::new(), false),
        Some(WordOr::Value(luns)) => (luns, false),
        Some(WordOr::Word(word)) if word == "none" => (BTreeMap::new(), true),
        Some(WordOr::Word(word)) => bail!("luns = '{word}': write \"none\", or a table of disks"),
    };
    let (access, is_open_access) = match file.access {
        None => (None, false),
        Some(WordOr::Value(access)) => (Some(access), false),
        Some(WordOr::Word(word)) if word == "open" => (None, true),
        Some(WordOr::Word(word)) => bail!("access = '{word}': write \"open\", or a table of rules"),
    };
    let luns = luns.iter().map(|(number, spec)| {
        lun(&format!("{number}={spec}")).map_err(|error| anyhow::anyhow!("luns.{number}: {error}"))
    });
    let portals = file.portal.into_iter().map(|entry| Portal {
        listen: entry.listen,
        group: entry.group.unwrap_or(1),
        advertise: entry.advertise,
        moved: entry.moved.map(|m| Moved { address: m.address, is_permanent: m.permanent }),
    });
    let limits = file.limits.into_iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // Checked while reading, so that the error names the file.
        let mut config = TargetConfig::new((std::net::Ipv4Addr::LOCALHOST, 0).into(), "", Vec::new());
        limits::set(&mut config, &name, &value).map(|()| (name, value))
    });
    let read = TargetFile {
        iqn: file.iqn,
        state: file.state,
        send: file.send.as_deref().map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()?,
        portals: portals.collect(),
        luns: luns.collect::<anyhow::Result<_>>()?,
        is_diskless,
        is_open_access,
        access: access.map(AccessFile::checked).transpose().context("access")?,
        limits: limits.collect::<anyhow::Result<_>>()?,
    };
    ensure!(read.portals.iter().all(|portal| portal.group != 0), "portal: groups are numbered from 1");
    Ok(read)
}

impl TargetFile {
    /// Checks that masks name configured disks: a wrong number would hide a disk, or show one that is added later.
    ///
    /// # Errors
    /// Names the initiator and the unknown LUN.
    pub fn check_masks(&self) -> anyhow::Result<()> {
        for initiator in self.access.iter().flat_map(|access| &access.initiators) {
            let mut shown = initiator.luns.iter().flatten();
            if let Some(missing) = shown.find(|shown| self.luns.iter().all(|(number, _)| number != *shown)) {
                let name = &initiator.name;
                bail!(
                    "initiators: '{name}' lists LUN {missing}, which is not configured; add the LUN or remove it from the list"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_example_parses_and_errors_name_the_key() {
        let example: String = include_str!("lib.rs")
            .lines()
            .skip_while(|line| !line.contains("```toml"))
            .skip(1)
            .take_while(|line| !line.contains("```"))
            .map(|line| format!("{}\n", line.trim_start_matches("//!")))
            .collect();
        let file = parse(&example).expect("the example");
        assert_eq!((file.portals.len(), file.luns.len(), file.limits.len()), (1, 1, 2));
        assert_eq!(file.access.expect("access").initiators[0].luns, Some(vec![0]));
        for (text, word) in [
            ("[luns]\n300 = 'ram:1M'", "luns.300"),
            ("[luns]\n0 = 'floppy:1M'", "floppy"),
            ("[limits]\nsession = 1", "'session' is not a limit"),
            ("[limits]\nsessions = 0", "sessions=0"),
            ("[limits]\nlogin_time = 'soon'", "login_time"),
            ("[limits]\nburst_bytes = '16M'", "burst_bytes=16M"),
            ("[limits]\nrecovery_level = 3", "0 to 2"),
            ("[[portal]]\nlisten = '127.0.0.1:3260'\ngroup = 0", "numbered from 1"),
            ("[access]\nchap = []", "access"),
            ("lun = 1", "unknown field"),
            ("[access]\nchaps = []", "unknown field `chaps`"),
            ("access = 'closed'", "'closed'"),
            ("access = 5", "access"),
            ("luns = 'all'", "'all'"),
            ("luns = 5", "luns"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }

    #[test]
    fn open_access_and_no_disks_have_keywords() {
        let file = parse("access = 'open'\nluns = 'none'").expect("words");
        assert!(file.is_open_access && file.is_diskless && file.access.is_none() && file.luns.is_empty());
        let file = parse("").expect("nothing");
        assert!(!file.is_open_access && !file.is_diskless);
    }

    #[test]
    fn mask_of_an_unconfigured_lun_is_rejected() {
        let access = "[access]\ninitiators = [{ name = 'iqn.a:alice', luns = [0, 99] }]";
        let file = |luns: &str| parse(&format!("[luns]\n{luns}\n{access}")).expect("a file");
        file("0 = 'ram:1M'\n99 = 'ram:1M'").check_masks().expect("both");
        let error = file("0 = 'ram:1M'").check_masks().expect_err("none").to_string();
        assert!(error.contains("iqn.a:alice") && error.contains("LUN 99"), "{error}");
    }
}
