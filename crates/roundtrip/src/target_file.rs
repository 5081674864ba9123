//! The configuration file of `roundtrip target --config`. Read again on SIGHUP: disks come, go and change their
//! size, and who may log in changes, while sessions go on. All of a file takes effect, or nothing. Portals, name,
//! limits and the state folder need a restart.
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
//! [luns]                              # luns = "none" serves no disk
//! 0 = "ram:1G"
//!
//! [access]                            # as an access file has it; access = "open" lets everybody in
//! initiators = [{ name = "iqn.1993-08.org.debian:01:abc", luns = [0] }]
//!
//! [limits]
//! sessions = 64
//! login_time = "5s"
//! ```

mod open_disks;
mod word_or;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use iscsi::login::target::Moved;
use iscsi_target::{Access, Portal, RunningTarget, SendPolicy, TargetConfig};
use serde::Deserialize;
use store::StoreSpec;

use crate::access::AccessFile;

pub(crate) use open_disks::OpenDisks;
pub(crate) use word_or::WordOr;

/// A file that is larger is not read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

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

/// What a file says.
#[derive(Default)]
pub(crate) struct TargetFile {
    pub(crate) iqn: Option<String>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) send: Option<SendPolicy>,
    pub(crate) portals: Vec<Portal>,
    pub(crate) luns: Vec<(u16, StoreSpec)>,
    /// It says that no disk is served (`luns = "none"`).
    pub(crate) says_none: bool,
    pub(crate) access: Option<Access>,
    /// It says that everybody may log in (`access = "open"`).
    pub(crate) says_open: bool,
    /// Names and values of limits.
    pub(crate) limits: Vec<(String, String)>,
}

/// Reads a configuration file.
///
/// # Errors
/// When it cannot be read, with the key that is wrong.
pub(crate) fn read(path: &Path) -> anyhow::Result<TargetFile> {
    parse(&read_text(path)?).with_context(|| path.display().to_string())
}

/// Reads a file with settings.
///
/// # Errors
/// When it cannot be read, is too large, or is not a regular file: reading a FIFO could wait forever.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = std::fs::File::options().read(true).custom_flags(nonblocking).open(path);
    let file = opened.with_context(|| format!("cannot read {name}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let kind = match kind {
            _ if kind.is_dir() => "a directory",
            _ if kind.is_fifo() => "a FIFO",
            _ if kind.is_char_device() || kind.is_block_device() => "a device",
            _ => "something else",
        };
        bail!("{name} is {kind}; settings are read from a regular file");
    }
    let mut text = String::new();
    // It may grow while it is read.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {name}"))?;
    ensure!(text.len() as u64 <= FILE_BYTES_MAX, "{name} is larger than {FILE_BYTES_MAX} bytes");
    Ok(text)
}

fn parse(text: &str) -> anyhow::Result<TargetFile> {
    let file: File = toml::from_str(text)?;
    let (luns, says_none) = match file.luns {
        None => (BTreeMap::new(), false),
        Some(WordOr::Value(luns)) => (luns, false),
        Some(WordOr::Word(word)) if word == "none" => (BTreeMap::new(), true),
        Some(WordOr::Word(word)) => bail!("luns = '{word}': write \"none\", or a table of disks"),
    };
    let (access, says_open) = match file.access {
        None => (None, false),
        Some(WordOr::Value(access)) => (Some(access), false),
        Some(WordOr::Word(word)) if word == "open" => (None, true),
        Some(WordOr::Word(word)) => bail!("access = '{word}': write \"open\", or a table of rules"),
    };
    let luns = luns.iter().map(|(number, spec)| {
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
        says_none,
        says_open,
        access: access.map(AccessFile::checked).transpose().context("access")?,
        limits: limits.collect::<anyhow::Result<_>>()?,
    };
    ensure!(read.portals.iter().all(|portal| portal.group != 0), "portal: groups are numbered from 1");
    Ok(read)
}

/// The names of the limits, as in the file and on the command line.
pub(crate) const LIMITS: &str = "connections, connections_per_address, logins, sessions, accepts_per_second, \
                                 accepts_per_address, window, text_bytes, memory_bytes, receive_bytes, \
                                 gathered_bytes, job_bytes, disk_threads, abandoned_bytes, replay_bytes, \
                                 lost_bytes, lost_sessions, retain_time, unsent_bytes, login_time, ping_after, ping_answer, segment_bytes, \
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
        "logins" => limits.logins = count()? as usize,
        "sessions" => limits.sessions = count()? as usize,
        "accepts_per_second" => limits.accepts_per_second = count()?,
        "accepts_per_address" => limits.accepts_per_address = count()?,
        "memory_bytes" => limits.memory_bytes = size()?,
        "receive_bytes" => limits.receive_bytes = size()?,
        "retain_time" => limits.retain_time = time()?,
        "lost_bytes" => limits.lost_bytes = size()?,
        "lost_sessions" => limits.lost_sessions = count()? as usize,
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
        _ => anyhow::bail!("'{name}' is not a limit; use {LIMITS}"),
    }
    Ok(())
}

impl TargetFile {
    /// Checks that masks name disks that there are: a wrong number would hide a disk, or show one that comes later.
    ///
    /// # Errors
    /// When one does not: the initiator and the number.
    pub(crate) fn check_masks(&self) -> anyhow::Result<()> {
        for initiator in self.access.iter().flat_map(|access| &access.initiators) {
            let mut shown = initiator.luns.iter().flatten();
            if let Some(missing) = shown.find(|shown| self.luns.iter().all(|(number, _)| number != *shown)) {
                let name = &initiator.name;
                bail!(
                    "initiators: '{name}' is to see LUN {missing}, which is not configured; add it, or remove it there"
                );
            }
        }
        Ok(())
    }
}

/// What a target serves, and the settings that it was started with.
pub(crate) struct Served {
    pub(crate) disks: OpenDisks,
    access: Option<Access>,
    iqn: Option<String>,
    portals: Vec<Portal>,
    state: Option<PathBuf>,
    limits: Vec<(String, String)>,
}

impl Served {
    /// What a target serves after it was started with a file.
    pub(crate) fn new(file: &TargetFile, disks: OpenDisks) -> Self {
        Self {
            disks,
            access: file.access.clone(),
            iqn: file.iqn.clone(),
            portals: file.portals.clone(),
            state: file.state.clone(),
            limits: file.limits.clone(),
        }
    }

    /// Serves what the file says now. Initiators that may no longer log in have `patience` to log out.
    ///
    /// # Errors
    /// When something in it is not possible, or would need a restart; then nothing has changed.
    pub(crate) fn reload(
        &mut self,
        file: TargetFile,
        target: &RunningTarget,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.check(&file)?;
        let mut next = self.disks.prepare(&file.luns)?;
        next.grow()?;
        // First the rules: no new disk is seen under the old ones.
        target.set_access(file.access.clone(), patience);
        if let Err(error) = next.commit(&mut self.disks, |luns| Ok(target.set_luns(luns)?)) {
            target.set_access(self.access.clone(), patience);
            return Err(error);
        }
        self.access = file.access;
        Ok(())
    }

    /// Checks that the file changes only what can change, and removes nothing by leaving it out: it may be half
    /// written.
    fn check(&self, file: &TargetFile) -> anyhow::Result<()> {
        let differs = [
            ("iqn", self.iqn != file.iqn),
            ("portal", self.portals != file.portals),
            ("state", self.state != file.state),
            ("limits", self.limits != file.limits),
        ];
        for (key, differs) in differs {
            ensure!(
                !differs,
                "{key}: it differs from what the target was started with; restart the target to change it"
            );
        }
        ensure!(
            file.access.is_some() || file.says_open || self.access.is_none(),
            "access: the file has no rules, but rules are in force; write access = \"open\" to let everybody in"
        );
        if let (Some(before), Some(after)) = (&self.access, &file.access) {
            check_rules(before, after)?;
        }
        ensure!(
            !file.luns.is_empty() || file.says_none || self.disks.is_empty(),
            "luns: the file has no disks, but disks are served; write luns = \"none\" to serve none"
        );
        Ok(())
    }
}

/// Checks that rules which are still there lose none of their kinds: secrets, the list, the mask of an initiator. A file
/// that was cut off between them would open the target.
fn check_rules(before: &Access, after: &Access) -> anyhow::Result<()> {
    ensure!(
        before.authentication.initiators.is_empty() || !after.authentication.initiators.is_empty(),
        "access.chap: the file has no secrets, but CHAP is in force; restart the target to end it"
    );
    ensure!(
        before.initiators.is_empty() || !after.initiators.is_empty(),
        "access.initiators: the file lists no initiators, but a list is in force; restart the target to end it"
    );
    for masked in before.initiators.iter().filter(|initiator| initiator.luns.is_some()) {
        let now = after.initiators.iter().find(|now| now.name.eq_ignore_ascii_case(&masked.name));
        ensure!(
            now.is_none_or(|now| now.luns.is_some()),
            "access.initiators: '{}' has no luns any more, which would show it all disks; name them",
            masked.name
        );
    }
    Ok(())
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
    fn everybody_and_no_disk_are_said_in_words() {
        let file = parse("access = 'open'\nluns = 'none'").expect("words");
        assert!(file.says_open && file.says_none && file.access.is_none() && file.luns.is_empty());
        let file = parse("").expect("nothing");
        assert!(!file.says_open && !file.says_none);
    }

    #[test]
    fn a_mask_of_a_disk_that_is_not_there_is_named() {
        let access = "[access]\ninitiators = [{ name = 'iqn.a:alice', luns = [0, 99] }]";
        let file = |luns: &str| parse(&format!("[luns]\n{luns}\n{access}")).expect("a file");
        file("0 = 'ram:1M'\n99 = 'ram:1M'").check_masks().expect("both");
        let error = file("0 = 'ram:1M'").check_masks().expect_err("none").to_string();
        assert!(error.contains("iqn.a:alice") && error.contains("LUN 99"), "{error}");
    }

    #[test]
    fn only_regular_files_of_a_fitting_size_are_read() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        std::fs::write(at("large"), vec![b'#'; FILE_BYTES_MAX as usize + 1]).expect("a file");
        std::fs::write(at("fits"), vec![b'#'; FILE_BYTES_MAX as usize]).expect("a file");
        assert_eq!(read_text(&at("fits")).expect("it fits").len() as u64, FILE_BYTES_MAX);
        for (path, word) in [
            (at("fifo"), "a FIFO"),
            (at("large"), "larger than"),
            (folder.path().to_owned(), "a directory"),
            ("/dev/zero".into(), "a device"),
            (at("none"), "cannot read"),
        ] {
            let error = format!("{:#}", read_text(&path).expect_err(word));
            assert!(error.contains(word) && error.contains(path.to_str().expect("text")), "{error}");
        }
    }
}
