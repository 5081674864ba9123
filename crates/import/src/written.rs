//! The file that is written: its tables, and the check that the target would accept it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use iscsi::login::is_iscsi_name;
use serde::Serialize;
use target_config::file;

use crate::disks::Disk;
use crate::notes::Notes;
use crate::rules::Rules;
use crate::{FILE_BYTES_MAX, ImportError, Imported};

/// A target of the file.
pub(crate) struct Target {
    /// Where it stands in the other target's file.
    pub(crate) place: String,
    pub(crate) iqn: String,
    pub(crate) groups: Option<Vec<u16>>,
    pub(crate) disks: BTreeMap<u16, Disk>,
    pub(crate) rules: Rules,
}

/// A value that is a keyword or a table.
#[derive(Serialize)]
#[serde(untagged)]
enum WordOr<'a, T> {
    Word(&'static str),
    Value(&'a T),
}

#[derive(Serialize)]
struct TargetEntry<'a> {
    iqn: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<&'a [u16]>,
    luns: WordOr<'a, BTreeMap<String, &'a Disk>>,
    access: WordOr<'a, crate::rules::Table>,
}

#[derive(Serialize)]
struct PortalEntry {
    listen: SocketAddr,
    group: u16,
}

#[derive(Serialize)]
struct Targets<'a> {
    target: [TargetEntry<'a>; 1],
}

#[derive(Serialize)]
struct Portals {
    portal: [PortalEntry; 1],
}

/// Serves no disk to nobody: the file of an import without targets. Without it the target would have its default name and
/// admit every initiator.
const NO_TARGET: &str = "luns = \"none\"\naccess = \"nobody\"\n";

/// Writes the file.
///
/// # Errors
/// When the target would not accept it.
pub(crate) fn file(
    source: &str,
    portals: &[(SocketAddr, u16)],
    targets: Vec<Target>,
    mut notes: Notes,
) -> Result<Imported, ImportError> {
    let refused = |error: &dyn std::fmt::Display| ImportError::Refused(error.to_string());
    let mut parts = Vec::new();
    for &(listen, group) in portals {
        let table = Portals { portal: [PortalEntry { listen, group }] };
        parts.push(toml::to_string(&table).map_err(|error| refused(&error))?);
    }
    let mut names: Vec<String> = Vec::new();
    for target in targets {
        let name = target.iqn.to_ascii_lowercase();
        if !is_iscsi_name(&target.iqn) {
            notes.add(
                &target.place,
                "left out: its name is not an iSCSI name (iqn., eui. or naa.); give it one and import again",
            );
        } else if names.contains(&name) {
            notes.add(
                &target.place,
                "left out: another target has this name; names do not differ in case alone",
            );
        } else {
            let text = table(&target).map_err(|error| refused(&error))?;
            match check(&text) {
                Ok(()) => {
                    names.push(name);
                    parts.push(text);
                }
                Err(error) => notes.add(&target.place, format!("left out: it would be refused: {error}")),
            }
        }
    }
    if names.is_empty() {
        notes.add("the file", "no target was imported; the result serves nothing and admits nobody");
        // Keys of the top come before tables.
        parts.insert(0, NO_TARGET.to_owned());
    }
    let toml = format!(
        "# Imported from {source}.\n# Read the notes of the import before this file is used. It may contain\n# secrets: restrict read access.\n\n{}",
        parts.join("\n")
    );
    check(&toml).map_err(|error| refused(&error))?;
    if toml.len() > FILE_BYTES_MAX {
        return Err(ImportError::Refused(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Imported { toml, notes: notes.into_all() })
}

/// Returns a target's table.
fn table(target: &Target) -> Result<String, toml::ser::Error> {
    let disks: BTreeMap<String, &Disk> =
        target.disks.iter().map(|(number, disk)| (number.to_string(), disk)).collect();
    let entry = TargetEntry {
        iqn: &target.iqn,
        groups: target.groups.as_deref(),
        luns: if disks.is_empty() { WordOr::Word("none") } else { WordOr::Value(&disks) },
        access: match &target.rules {
            Rules::Open => WordOr::Word("open"),
            Rules::Nobody => WordOr::Word("nobody"),
            Rules::Table(table) => WordOr::Value(table),
        },
    };
    let text = toml::to_string(&Targets { target: [entry] })?;
    let is_closed = matches!(target.rules, Rules::Nobody);
    Ok(if is_closed { format!("# admits nobody: see the notes\n{text}") } else { text })
}

/// Reads a file as the target does.
fn check(text: &str) -> Result<(), String> {
    let read = file::parse(text).and_then(|file| file.check_masks());
    read.map_err(|error| format!("{error:#}"))
}

/// Returns whether the target accepts this disk.
pub(crate) fn check_disk(disk: &Disk) -> Result<(), String> {
    #[derive(Serialize)]
    struct Luns<'a> {
        luns: BTreeMap<&'static str, &'a Disk>,
    }
    let text = toml::to_string(&Luns { luns: BTreeMap::from([("0", disk)]) });
    check(&text.map_err(|error| error.to_string())?)
}
