//! The keys and values of the configuration file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use iscsi::login::is_iscsi_name;
use iscsi::login::target::Moved;
use iscsi_target::{Access, Portal, SendPolicy, TargetConfig};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::access::{self, AccessFile};
use crate::disk::{self, DiskEntry, DiskSpec};
use crate::limits;
use crate::open_disks::DiskKey;
use crate::text::{from_toml, read_text};
use crate::word_or::WordOr;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The first target's iSCSI name.
    iqn: Option<String>,
    /// The portal groups through which the first target is reached; all by default.
    groups: Option<Vec<u16>>,
    /// The folder for state that initiators ask to keep over a restart.
    state: Option<PathBuf>,
    /// The send policy (docs/send-policy.md).
    send: Option<String>,
    /// The portals.
    #[serde(default)]
    portal: Vec<PortalEntry>,
    /// The first target's disks by number, or "none".
    luns: Option<WordOr<BTreeMap<String, DiskEntry>>>,
    /// The first target's access rules, or "open".
    access: Option<WordOr<AccessFile>>,
    /// Further targets.
    #[serde(default)]
    target: Vec<TargetEntry>,
    /// Limits by name (docs/target.md).
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    limits: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TargetEntry {
    /// Its iSCSI name.
    iqn: String,
    /// The portal groups through which it is reached; all by default.
    groups: Option<Vec<u16>>,
    /// Its disks by number, or "none".
    luns: Option<WordOr<BTreeMap<String, DiskEntry>>>,
    /// Its access rules, or "open".
    access: Option<WordOr<AccessFile>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PortalEntry {
    /// The address and port to listen on.
    #[schemars(with = "String")]
    listen: SocketAddr,
    /// Its portal group; 1 by default.
    group: Option<u16>,
    /// The address that is reported to initiators, where it differs.
    #[schemars(with = "Option<String>")]
    advertise: Option<SocketAddr>,
    /// Logins are redirected there.
    moved: Option<MovedEntry>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MovedEntry {
    /// The address and port.
    address: String,
    /// For good.
    #[serde(default)]
    permanent: bool,
}

/// The settings of a file.
#[derive(Clone, Debug, Default)]
pub struct TargetFile {
    /// The folder for durable state.
    pub state: Option<PathBuf>,
    /// The send policy.
    pub send: Option<SendPolicy>,
    /// The portals.
    pub portals: Vec<Portal>,
    /// The targets; at least one.
    pub nodes: Vec<NodeFile>,
    /// Names and values of limits.
    pub limits: Vec<(String, String)>,
}

/// The settings of a target.
#[derive(Clone, Debug, Default)]
pub struct NodeFile {
    /// Its iSCSI name; `None` for [`DEFAULT_IQN`].
    pub iqn: Option<String>,
    /// The portal groups through which it is reached; `None` for all.
    pub groups: Option<Vec<u16>>,
    /// Numbers and stores of the disks.
    pub luns: Vec<(u16, DiskSpec)>,
    /// The file states that no disk is served (`luns = "none"`).
    pub is_diskless: bool,
    /// The access rules.
    pub access: Option<Access>,
    /// The rules as they were written.
    pub rules: Option<toml::Table>,
    /// The file states that every initiator may log in (`access = "open"`).
    pub is_open_access: bool,
}

/// The name of a target that is given none.
pub const DEFAULT_IQN: &str = "iqn.2026-11.example.roundtrip:target";

/// Returns the JSON Schema of a configuration file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(File)
}

/// Reads a configuration file.
///
/// # Errors
/// When it cannot be read or a key is invalid; the error names the key.
pub fn read(path: &Path) -> anyhow::Result<TargetFile> {
    parse(&read_text(path)?).with_context(|| path.display().to_string())
}

/// Parses a configuration file.
///
/// # Errors
/// When a key is invalid; the error names the key.
pub fn parse(text: &str) -> anyhow::Result<TargetFile> {
    let file: File = from_toml(text)?;
    // As it was written, to be written again.
    let raw: toml::Table = from_toml(text)?;
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
    // The keys of one target may stand at the top.
    let is_at_top =
        file.target.is_empty() || file.iqn.is_some() || file.luns.is_some() || file.access.is_some();
    let mut nodes = Vec::new();
    if is_at_top {
        nodes.push(node(file.iqn, file.groups, file.luns, file.access, Some(&raw))?);
    } else {
        ensure!(file.groups.is_none(), "groups: belongs to a target; write it under [[target]]");
    }
    let listed = raw.get("target").and_then(toml::Value::as_array);
    for (index, TargetEntry { iqn, groups, luns, access }) in file.target.into_iter().enumerate() {
        let name = iqn.clone();
        let raw = listed.and_then(|listed| listed.get(index)?.as_table());
        nodes.push(node(Some(iqn), groups, luns, access, raw).with_context(|| format!("target '{name}'"))?);
    }
    let read = TargetFile {
        state: file.state,
        send: file.send.as_deref().map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()?,
        portals: portals.collect(),
        nodes,
        limits: limits.collect::<anyhow::Result<_>>()?,
    };
    ensure!(read.portals.iter().all(|portal| portal.group != 0), "portal: groups are numbered from 1");
    for (index, node) in read.nodes.iter().enumerate() {
        let is_twice = read.nodes[..index].iter().any(|other| other.name().eq_ignore_ascii_case(node.name()));
        ensure!(!is_twice, "target '{}' is given twice", node.name());
    }
    Ok(read)
}

/// Checks the settings of a target.
fn node(
    iqn: Option<String>,
    groups: Option<Vec<u16>>,
    luns: Option<WordOr<BTreeMap<String, DiskEntry>>>,
    access: Option<WordOr<AccessFile>>,
    raw: Option<&toml::Table>,
) -> anyhow::Result<NodeFile> {
    let rules = raw.and_then(|raw| raw.get("access")?.as_table()).cloned();
    let (luns, is_diskless) = match luns {
        None => (BTreeMap::new(), false),
        Some(WordOr::Value(luns)) => (luns, false),
        Some(WordOr::Word(word)) if word == "none" => (BTreeMap::new(), true),
        Some(WordOr::Word(word)) => bail!("luns = '{word}': write \"none\", or a table of disks"),
    };
    let is_closed = matches!(&access, Some(WordOr::Word(word)) if word == access::NOBODY);
    let (access, is_open_access) = match access {
        None => (None, false),
        Some(WordOr::Value(access)) => (Some(access), false),
        Some(WordOr::Word(word)) if word == "open" => (None, true),
        Some(WordOr::Word(word)) if word == access::NOBODY => (None, false),
        Some(WordOr::Word(word)) => {
            bail!("access = '{word}': write \"open\", \"nobody\", or a table of rules")
        }
    };
    let luns = luns.into_iter().map(|(number, entry)| {
        let lun = || Ok((disk::number(&number)?, disk::parse(entry)?));
        lun().map_err(|error: String| anyhow::anyhow!("luns.{number}: {error}"))
    });
    if let Some(iqn) = iqn.as_ref().filter(|iqn| !is_iscsi_name(iqn)) {
        bail!("iqn '{iqn}': write iqn.YYYY-MM.reversed.domain:disk, eui. or naa.");
    }
    ensure!(
        groups.as_ref().is_none_or(|groups| !groups.is_empty()),
        "groups: name at least one, or omit the key"
    );
    let luns = luns.collect::<anyhow::Result<_>>()?;
    let access = access.map(access::checked).transpose().context("access")?;
    let access = if is_closed { Some(access::nobody().0) } else { access };
    Ok(NodeFile { iqn, groups, luns, is_diskless, access, rules, is_open_access })
}

impl NodeFile {
    /// Its iSCSI name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.iqn.as_deref().unwrap_or(DEFAULT_IQN)
    }

    /// Returns whether a disk is one of its own.
    #[must_use]
    pub fn has(&self, disk: &DiskKey) -> bool {
        disk.iqn.eq_ignore_ascii_case(self.name())
    }

    /// Checks that masks name configured disks: a wrong number would hide a disk, or show one that is added later.
    ///
    /// # Errors
    /// Names the initiator and the unknown LUN.
    fn check_masks(&self) -> anyhow::Result<()> {
        for initiator in self.access.iter().flat_map(|access| &access.initiators) {
            let mut shown = initiator.luns.iter().flatten().map(|shown| shown.disk);
            if let Some(missing) = shown.find(|shown| self.luns.iter().all(|(number, _)| number != shown)) {
                let name = &initiator.name;
                bail!(
                    "initiators: '{name}' lists LUN {missing}, which is not configured; add the LUN or remove it from the list"
                );
            }
        }
        Ok(())
    }
}

impl TargetFile {
    /// Checks that masks name configured disks.
    ///
    /// # Errors
    /// Names the initiator and the unknown LUN.
    pub fn check_masks(&self) -> anyhow::Result<()> {
        self.nodes.iter().try_for_each(|node| match self.nodes.len() {
            1 => node.check_masks(),
            _ => node.check_masks().with_context(|| format!("target '{}'", node.name())),
        })
    }

    /// Returns the target with this name.
    #[must_use]
    pub fn node(&self, iqn: &str) -> Option<&NodeFile> {
        self.nodes.iter().find(|node| node.name().eq_ignore_ascii_case(iqn))
    }

    /// Returns its disks.
    #[must_use]
    pub fn disks(&self) -> Vec<(DiskKey, DiskSpec)> {
        let disks = self.nodes.iter().flat_map(|node| {
            let iqn: Arc<str> = node.name().to_ascii_lowercase().into();
            node.luns
                .iter()
                .map(move |(number, spec)| (DiskKey { iqn: Arc::clone(&iqn), number: *number }, spec.clone()))
        });
        disks.collect()
    }
}

#[cfg(test)]
mod tests {
    use iscsi_target::Shown;

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
        assert_eq!((file.portals.len(), file.nodes[0].luns.len(), file.limits.len()), (1, 1, 2));
        let access = file.nodes[0].access.clone().expect("access");
        assert_eq!(access.initiators[0].luns, Some(vec![Shown::same(0)]));
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
            ("access = 'everybody'", "nobody"),
            ("luns = 'all'", "'all'"),
            ("luns = 5", "luns"),
            ("iqn = 'disk'", "'disk'"),
            ("groups = []", "at least one"),
            ("[[target]]\nluns = 'none'", "missing field `iqn`"),
            ("[[target]]\niqn = 'iqn.a:b'\nluns = { 0 = 'floppy:1M' }", "target 'iqn.a:b': luns.0"),
            ("iqn = 'iqn.a:b'\n[[target]]\niqn = 'IQN.a:B'", "given twice"),
            ("groups = [1]\n[[target]]\niqn = 'iqn.a:b'", "belongs to a target"),
            ("[luns.0]\nserial = 'a'", "missing field `store`"),
            ("[luns.0]\nstore = 'ram:1M'\nserial = 'a/b'", "luns.0: serial"),
            ("[luns.0]\nstore = 'ram:1M'\nnaa = '6001'", "naa"),
            ("[luns.0]\nstore = 'ram:1M'\nnaa = 'xyz'", "naa 'xyz'"),
            ("[luns.0]\nstore = 'ram:1M'\ncolour = 'red'", "colour"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }

    #[test]
    fn targets_are_listed_or_one_stands_at_the_top() {
        let file =
            parse("[[target]]\niqn = 'iqn.a:b'\n[[target]]\niqn = 'iqn.a:c'\ngroups = [2]").expect("two");
        assert_eq!(file.nodes.iter().map(NodeFile::name).collect::<Vec<_>>(), ["iqn.a:b", "iqn.a:c"]);
        assert_eq!(file.nodes[1].groups, Some(vec![2]));
        let file = parse("luns = 'none'\n[[target]]\niqn = 'iqn.a:b'").expect("two");
        assert_eq!(file.nodes.iter().map(NodeFile::name).collect::<Vec<_>>(), [DEFAULT_IQN, "iqn.a:b"]);
        let named = "[luns.0]\nstore = 'ram:1M'\nserial = 'a'\nnaa = 'naa.6001405000000000000000000000000a'";
        let (_, spec) = &parse(named).expect("named").nodes[0].luns[0];
        assert_eq!((spec.text.as_str(), spec.names.serial.as_deref()), ("ram:1M", Some("a")));
        assert_eq!(spec.names.naa.as_ref().map(Vec::len), Some(16));
        // What is written is read back.
        let entry = toml::to_string(&disk::entry(spec)).expect("text");
        assert_eq!(parse(&format!("[luns.0]\n{entry}")).expect(&entry).nodes[0].luns[0].1, *spec);
    }

    #[test]
    fn open_access_and_no_disks_have_keywords() {
        let file = parse("access = 'open'\nluns = 'none'").expect("words");
        let node = &file.nodes[0];
        assert!(node.is_open_access && node.is_diskless && node.access.is_none() && node.luns.is_empty());
        let closed = parse("access = 'nobody'").expect("word").nodes[0].access.clone().expect("rules");
        assert!(!closed.admits("iqn.a:b", [127, 0, 0, 1].into(), None));
        let file = parse("").expect("nothing");
        assert!(!file.nodes[0].is_open_access && !file.nodes[0].is_diskless);
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
