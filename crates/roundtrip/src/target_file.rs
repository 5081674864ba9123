//! The configuration file of `roundtrip target --config`. Read again on SIGHUP: disks come, go and change their
//! size, and who may log in changes, while sessions go on. Portals, name, limits and the state folder stay as
//! they were at the start.
//!
//! ```toml
//! iqn = "iqn.2026-11.example.roundtrip:target"
//! state = "/var/lib/roundtrip"        # what initiators ask to be kept over a restart
//!
//! [[portal]]
//! listen = "192.0.2.1:3260"
//! group = 1                           # connections of a session share a group; each is a target port
//! advertise = "198.51.100.1:3260"     # what initiators are told, behind a router
//! moved = { address = "192.0.2.9:3260", permanent = true }   # logins are sent there
//!
//! [luns]
//! 0 = "ram:1G"
//!
//! [access]                            # as an access file has it
//! initiators = [{ name = "iqn.1993-08.org.debian:01:abc", luns = [0] }]
//!
//! [limits]
//! sessions = 64
//! login_time = "5s"
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use iscsi::login::target::Moved;
use serde::Deserialize;
use store::layer::Passed;
use store::{Store, StoreSpec};
use target::{Access, LunConfig, Portal, SendPolicy, TargetConfig};

use crate::access::AccessFile;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    iqn: Option<String>,
    state: Option<PathBuf>,
    send: Option<String>,
    #[serde(default)]
    portal: Vec<PortalEntry>,
    #[serde(default)]
    luns: BTreeMap<String, String>,
    access: Option<AccessFile>,
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

/// What a file says.
#[derive(Default)]
pub(crate) struct TargetFile {
    pub(crate) iqn: Option<String>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) send: Option<SendPolicy>,
    pub(crate) portals: Vec<Portal>,
    pub(crate) luns: Vec<(u16, StoreSpec)>,
    pub(crate) access: Option<Access>,
    /// Names and values of limits.
    pub(crate) limits: Vec<(String, String)>,
}

/// Reads a configuration file.
///
/// # Errors
/// When it cannot be read, with the key that is wrong.
pub(crate) fn read(path: &Path) -> anyhow::Result<TargetFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<TargetFile> {
    let file: File = toml::from_str(text)?;
    let luns = file.luns.iter().map(|(number, spec)| {
        crate::args::lun(&format!("{number}={spec}"))
            .map_err(|error| anyhow::anyhow!("luns.{number}: {error}"))
    });
    let portals = file.portal.into_iter().map(|entry| Portal {
        listen: entry.listen,
        group: entry.group.unwrap_or(1),
        advertise: entry.advertise,
        moved: entry.moved.map(|m| Moved { address: m.address, is_permanent: m.permanent }),
    });
    let limits = file.limits.into_iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // A wrong one is named here, where the file is.
        let mut config = TargetConfig::new((std::net::Ipv4Addr::LOCALHOST, 0).into(), "", Vec::new());
        set_limit(&mut config, &name, &value).map(|()| (name, value))
    });
    let read = TargetFile {
        iqn: file.iqn,
        state: file.state,
        send: file.send.as_deref().map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()?,
        portals: portals.collect(),
        luns: luns.collect::<anyhow::Result<_>>()?,
        access: file.access.map(AccessFile::checked).transpose().context("access")?,
        limits: limits.collect::<anyhow::Result<_>>()?,
    };
    ensure!(read.portals.iter().all(|portal| portal.group != 0), "portal: groups are numbered from 1");
    Ok(read)
}

/// The names of the limits, as in the file and on the command line.
pub(crate) const LIMITS: &str = "connections, connections_per_address, sessions, accepts_per_second, window, \
                                 text_bytes, gathered_bytes, job_bytes, disk_threads, abandoned_bytes, replay_bytes, unsent_bytes, login_time, ping_after, ping_answer, segment_bytes, \
                                 burst_bytes, first_burst_bytes, r2ts, session_connections, recovery_level";

/// Sets one limit by its name.
///
/// # Errors
/// When there is no such limit, or no such value.
pub(crate) fn set_limit(config: &mut TargetConfig, name: &str, value: &str) -> anyhow::Result<()> {
    let TargetConfig { limits, wishes, .. } = config;
    let wrong = |error: String| anyhow::anyhow!("limit {name}={value}: {error}");
    let count = || {
        let count: u32 = value.parse().map_err(|_| wrong("write a whole number".to_owned()))?;
        ensure!((1..=1 << 20).contains(&count), wrong(format!("1 to {} are possible", 1 << 20)));
        Ok(count)
    };
    let size = || {
        let size = crate::args::size(value).map_err(wrong)?;
        ensure!((1 << 10..=1 << 32).contains(&size), wrong("1KiB to 4GiB are possible".to_owned()));
        Ok(size as usize)
    };
    let time = || crate::args::time(value).map_err(wrong);
    // What RFC 7143 13 allows for lengths.
    let length = || {
        let length = crate::args::size(value).map_err(wrong)?;
        ensure!((512..1 << 24).contains(&length), wrong("512 to 16777215 are possible".to_owned()));
        Ok(length as u32)
    };
    let number = |least: u32, most: u32| match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(wrong(format!("{least} to {most} are possible"))),
    };
    match name {
        "connections" => limits.connections = count()? as usize,
        "connections_per_address" => limits.connections_per_address = count()? as usize,
        "sessions" => limits.sessions = count()? as usize,
        "accepts_per_second" => limits.accepts_per_second = count()?,
        "window" => limits.window = count()?,
        "text_bytes" => limits.text_bytes = size()?,
        "gathered_bytes" => limits.gathered_bytes = size()?,
        "job_bytes" => limits.job_bytes = size()?,
        "abandoned_bytes" => limits.abandoned_bytes = size()?,
        "disk_threads" => limits.disk_threads = count()? as usize,
        "replay_bytes" => limits.replay_bytes = size()?,
        "unsent_bytes" => limits.unsent_bytes = size()?,
        "login_time" => limits.login_time = time()?,
        "ping_after" => limits.ping_after = time()?,
        "ping_answer" => limits.ping_answer = time()?,
        "segment_bytes" => wishes.max_recv_bytes = length()?,
        "burst_bytes" => wishes.max_burst_bytes = length()?,
        "first_burst_bytes" => wishes.first_burst_bytes = length()?,
        "r2ts" => wishes.max_outstanding_r2t = number(1, 32)?,
        "session_connections" => wishes.max_connections = number(1, 64)? as u16,
        "recovery_level" => wishes.error_recovery_level = number(0, 2)? as u8,
        _ => anyhow::bail!("'{name}' is no limit; use {LIMITS}"),
    }
    Ok(())
}

/// The disks that are served, and how each was written.
#[derive(Default)]
pub(crate) struct OpenDisks(BTreeMap<u16, (StoreSpec, Arc<dyn Store>)>);

impl OpenDisks {
    /// What has passed the disks that count it.
    pub(crate) fn statistics(&self) -> Vec<(u16, Vec<Passed>)> {
        let all = self.0.iter().map(|(&number, (_, store))| (number, store.statistics()));
        all.filter(|(_, passed)| !passed.is_empty()).collect()
    }

    /// Opens what is new, keeps what is the same, and gives another size to what differs in nothing else.
    ///
    /// # Errors
    /// When a disk cannot be opened, and nothing has changed then; or cannot have its new size.
    pub(crate) fn update(&mut self, luns: &[(u16, StoreSpec)]) -> anyhow::Result<Vec<LunConfig>> {
        let (mut open, mut resized) = (BTreeMap::new(), Vec::new());
        for (number, spec) in luns {
            let failed = || format!("LUN {number}");
            let store = match self.0.get(number) {
                Some((old, store)) if old == spec => Arc::clone(store),
                Some((old, store)) => match spec.size_bytes().filter(|&size| old.resized(size) == *spec) {
                    Some(size) => {
                        resized.push((*number, Arc::clone(store), size));
                        Arc::clone(store)
                    }
                    None => spec.open().with_context(failed)?,
                },
                None => spec.open().with_context(failed)?,
            };
            open.insert(*number, (spec.clone(), store));
        }
        // Only when all that is new is there: a disk that cannot be opened leaves the others as they were.
        for (number, store, size) in resized {
            store.resize(size).with_context(|| format!("LUN {number}"))?;
        }
        let configs = luns.iter().filter_map(|(number, spec)| {
            let (_, store) = open.get(number)?;
            let own = store.geometry().filter(|_| spec.own_blocks);
            Some(LunConfig {
                block_bytes: own.map_or(spec.block_bytes, |own| own.logical_bytes),
                physical_bytes: own.map_or(spec.physical_bytes, |own| own.physical_bytes),
                removable: spec.removable,
                ..LunConfig::new(*number, Arc::clone(store))
            })
        });
        let configs = configs.collect();
        self.0 = open;
        Ok(configs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_read_and_wrong_keys_are_named() {
        let example: String = include_str!("target_file.rs")
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
            ("[limits]\nsession = 1", "'session' is no limit"),
            ("[limits]\nsessions = 0", "sessions=0"),
            ("[limits]\nlogin_time = 'soon'", "login_time"),
            ("[limits]\nburst_bytes = '16M'", "burst_bytes=16M"),
            ("[limits]\nrecovery_level = 3", "0 to 2"),
            ("[[portal]]\nlisten = '127.0.0.1:3260'\ngroup = 0", "numbered from 1"),
            ("[access]\nchap = []", "access"),
            ("lun = 1", "unknown field"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }

    #[test]
    fn disks_that_stay_keep_their_stores() {
        let specs = |texts: &[&str]| -> Vec<(u16, StoreSpec)> {
            texts.iter().map(|text| crate::args::lun(text).expect(text)).collect()
        };
        let mut disks = OpenDisks::default();
        let first = disks.update(&specs(&["0=ram:1M", "1=ram:1M", "2=zero:1M"])).expect("first");
        let second = disks.update(&specs(&["0=ram:1M", "1=ram:2M", "3=ram:1M"])).expect("second");
        assert!(Arc::ptr_eq(&first[0].store, &second[0].store));
        assert!(Arc::ptr_eq(&first[1].store, &second[1].store));
        assert_eq!(second[1].store.size_bytes(), 2 << 20);
        let third = disks.update(&specs(&["0=ram:1M,bs=4k"])).expect("third");
        assert!(!Arc::ptr_eq(&first[0].store, &third[0].store), "another geometry is another disk");
        disks.update(&specs(&["0=zero:1M"])).expect("zero");
        assert!(disks.update(&specs(&["0=zero:2M"])).is_err(), "a store of fixed size says so");
    }
}
