//! Brings the files that keep settings to what is wanted. A file of another program, or one that was edited, is left alone.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Desired, Kind, OwnFile};
use crate::error::ChangeError;
use crate::journal::{Journal, Lock, SIZE_LIMIT};
use crate::undo::Overwrite;

/// The list of the files that are ours, in the folder of the journal.
const LIST: &str = "files.list";

/// The files that are ours: each content that we have written and may be there, the last one at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    version: u32,
    files: BTreeMap<PathBuf, Vec<String>>,
}

/// What was done to files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Synced {
    /// Written.
    pub written: Vec<PathBuf>,
    /// Removed.
    pub removed: Vec<PathBuf>,
    /// Left as they are, with the reason.
    pub kept: Vec<KeptFile>,
}

/// A file that was left as it is, or is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptFile {
    /// Its path.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

enum Found {
    Nothing,
    Text(String),
    /// A symbolic link, which is never followed, or a file that is not text: a request by name may remove it, and loses no more.
    Removable,
    /// A folder, a FIFO or a device, which is not ours to remove.
    Foreign,
}

/// What a person can do about a thing in the place of a file of ours that nothing here removes.
const FOREIGN: &str = "a folder, FIFO or device is in its place; remove it by hand";

/// Writes the wanted files, and removes those of ours that are no longer wanted. `root` is `/` but in tests.
///
/// # Errors
/// When the list of our files cannot be read or written, or the disk fails.
pub fn sync(
    journal: &Journal,
    _lock: &Lock,
    root: &Path,
    desired: &Desired,
    overwrite: Overwrite,
) -> Result<Synced, ChangeError> {
    let list = journal.folder().join(LIST);
    let mut own = load(&list)?;
    let mut synced = Synced::default();
    let wanted = &desired.files;
    for file in wanted {
        let path = root.join(&file.path);
        let known = own.files.get(&file.path).map_or(&[][..], Vec::as_slice);
        match look(&path)? {
            Found::Text(text) if text == file.content => {
                own.files.insert(file.path.clone(), vec![text]);
                continue;
            }
            Found::Text(text) if !known.contains(&text) && overwrite != Overwrite::All => {
                let why = "another program has written it, or it was edited";
                synced.kept.push(KeptFile { path, why: why.to_owned() });
                continue;
            }
            Found::Removable if overwrite != Overwrite::All => {
                let why = "a symbolic link or a file that is not text is in its place; remove it by hand and repeat the change";
                synced.kept.push(KeptFile { path, why: why.to_owned() });
                continue;
            }
            Found::Foreign => {
                synced.kept.push(KeptFile { path, why: FOREIGN.to_owned() });
                continue;
            }
            Found::Removable => remove(&path)?,
            Found::Text(_) | Found::Nothing => {}
        }
        // Before the file, so that a crash between them leaves no file that nobody knows.
        own.files.entry(file.path.clone()).or_default().push(file.content.clone());
        save(&list, &own)?;
        write(&path, file).map_err(ChangeError::io("writing", &path))?;
        own.files.insert(file.path.clone(), vec![file.content.clone()]);
        synced.written.push(path);
    }
    for name in unwanted(&own, desired) {
        let path = root.join(&name);
        match look(&path)? {
            Found::Nothing => {}
            Found::Text(text) if own.files[&name].contains(&text) => {
                remove(&path)?;
                synced.removed.push(path);
            }
            Found::Text(_) | Found::Removable if overwrite == Overwrite::All => {
                remove(&path)?;
                synced.removed.push(path);
            }
            Found::Foreign => {
                synced.kept.push(KeptFile { path, why: FOREIGN.to_owned() });
                continue;
            }
            Found::Text(_) | Found::Removable => {
                let why = "it was edited since; remove it by hand, or with --force";
                synced.kept.push(KeptFile { path, why: why.to_owned() });
                continue;
            }
        }
        own.files.remove(&name);
    }
    if own.files.is_empty() && !list.exists() {
        return Ok(synced);
    }
    save(&list, &own)?;
    Ok(synced)
}

/// The files of ours that no change set wants any more.
fn unwanted(own: &Own, desired: &Desired) -> Vec<PathBuf> {
    let is_unwanted = |path: &&PathBuf| {
        !desired.files.iter().any(|file| file.path == **path) && !desired.untouched.contains(path)
    };
    own.files.keys().filter(is_unwanted).cloned().collect()
}

/// Files that are wanted and are not there with that content, and files of ours that should be gone and are still there.
///
/// # Errors
/// When a file or the list of our files cannot be read.
pub fn differences(journal: &Journal, root: &Path, desired: &Desired) -> Result<Vec<KeptFile>, ChangeError> {
    let mut all = Vec::new();
    for name in unwanted(&load(&journal.folder().join(LIST))?, desired) {
        let path = root.join(name);
        let why = match look(&path)? {
            Found::Nothing => continue,
            Found::Foreign => FOREIGN,
            Found::Text(_) | Found::Removable => {
                "no change set in force wants it, and it is still there; remove it by hand, or with roundtrip host undo --force"
            }
        };
        all.push(KeptFile { path, why: why.to_owned() });
    }
    for file in &desired.files {
        let path = root.join(&file.path);
        match look(&path)? {
            Found::Text(text) if text == file.content => {}
            Found::Nothing => all.push(KeptFile { path, why: "it is missing".to_owned() }),
            Found::Text(_) | Found::Removable | Found::Foreign => {
                all.push(KeptFile { path, why: "it has another content".to_owned() });
            }
        }
    }
    Ok(all)
}

fn look(path: &Path) -> Result<Found, ChangeError> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Found::Nothing);
        }
        metadata => metadata.map_err(ChangeError::io("reading", path))?,
    };
    if !metadata.is_file() && !metadata.is_symlink() {
        return Ok(Found::Foreign);
    }
    if metadata.is_symlink() || metadata.len() > SIZE_LIMIT {
        return Ok(Found::Removable);
    }
    let bytes = std::fs::read(path).map_err(ChangeError::io("reading", path))?;
    Ok(String::from_utf8(bytes).map_or(Found::Removable, Found::Text))
}

/// Removes a file or a symbolic link, and not what the link leads to.
fn remove(path: &Path) -> Result<(), ChangeError> {
    std::fs::remove_file(path)
        .and_then(|()| crate::journal::sync_folder(path))
        .map_err(ChangeError::io("removing", path))
}

fn write(path: &Path, file: &OwnFile) -> io::Result<()> {
    use std::io::Write as _;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut draft = output::Draft::in_own_folder(path)?;
    draft.write_all(file.content.as_bytes())?;
    let handle = draft.handle()?;
    let mode = if file.kind == Kind::Script { 0o755 } else { 0o644 };
    handle.set_permissions(std::fs::Permissions::from_mode(mode))?;
    handle.sync_all()?;
    draft.commit()?;
    crate::journal::sync_folder(path)
}

fn load(path: &Path) -> Result<Own, ChangeError> {
    let unusable = |why: String| ChangeError::Journal { path: path.to_owned(), why };
    match look(path)? {
        Found::Nothing => Ok(Own { version: 1, files: BTreeMap::new() }),
        Found::Removable | Found::Foreign => {
            Err(unusable("it is not a text file of less than 1 MiB".to_owned()))
        }
        Found::Text(text) => {
            let own: Own = serde_json::from_str(&text).map_err(|error| {
                unusable(format!("it is damaged: {error}; remove the files that begin with `# Written by` by hand, then this one"))
            })?;
            let is_below = |path: &PathBuf| {
                path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
            };
            if own.version != 1 || !own.files.keys().all(is_below) {
                return Err(unusable("it was not written by this program".to_owned()));
            }
            Ok(own)
        }
    }
}

fn save(path: &Path, own: &Own) -> Result<(), ChangeError> {
    let text = serde_json::to_vec_pretty(own)
        .map_err(|error| ChangeError::Journal { path: path.to_owned(), why: error.to_string() })?;
    crate::journal::durable_write(path, &text)
}
