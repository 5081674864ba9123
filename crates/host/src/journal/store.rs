//! The files of the journal.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};
use output::Draft;

use super::{ChangeSet, Contents, Unreadable, VERSION};
use crate::error::ChangeError;

/// The largest file of a change set, bytes.
pub const SIZE_LIMIT: u64 = 1 << 20;

/// The most change sets of a journal.
pub const SET_LIMIT: usize = 10_000;

/// The folder of the journal.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
}

/// The right to change the host and the journal, which one process has at a time. The kernel takes it back with the process.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held until it is dropped")] Flock<File>);

impl Journal {
    /// The journal in a folder, which need not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder if it is missing, and waits until no other process changes the host.
    ///
    /// # Errors
    /// When the folder cannot be made or written.
    pub fn lock(&self) -> Result<Lock, ChangeError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.folder)
            .map_err(ChangeError::io("making the folder", &self.folder))?;
        let path = self.folder.join("lock");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A FIFO in its place would wait for a reader.
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(&path)
            .map_err(ChangeError::io("opening", &path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| ChangeError::Io {
            doing: "locking",
            path,
            source: errno.into(),
        })?;
        Ok(Lock(lock))
    }

    /// The numbers of its change sets, in order. None where the folder is missing.
    ///
    /// # Errors
    /// When the folder cannot be read or holds more than [`SET_LIMIT`].
    pub fn ids(&self) -> Result<Vec<u64>, ChangeError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ChangeError::io("reading", &self.folder)(error)),
        };
        // `01.json` and `+1.json` are not names of ours.
        let number = |name: &str| {
            let id = name.strip_suffix(".json")?.parse::<u64>().ok()?;
            (name == file_name(id)).then_some(id)
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<u64> = names.filter_map(|name| number(&name)).take(SET_LIMIT + 1).collect();
        if ids.len() > SET_LIMIT {
            let why = format!(
                "it has more than {SET_LIMIT} change sets; move old ones, which are undone, elsewhere"
            );
            return Err(ChangeError::Journal { path: self.folder.clone(), why });
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Reads a change set.
    ///
    /// # Errors
    /// When there is none of that number, or its file cannot be read, is too large or is damaged.
    pub fn load(&self, id: u64) -> Result<ChangeSet, ChangeError> {
        let path = self.path(id);
        let text = match read_regular(&path, SIZE_LIMIT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing(id)),
            read => read.map_err(ChangeError::io("reading", &path))?,
        };
        let damaged = |why: String| {
            let remedy = "restore it from a backup, or restore the values by hand and move it elsewhere";
            ChangeError::Journal { path: path.clone(), why: format!("{why}; {remedy}") }
        };
        if text.len() as u64 > SIZE_LIMIT {
            return Err(damaged(format!("it is larger than {SIZE_LIMIT} bytes")));
        }
        let set: ChangeSet =
            serde_json::from_slice(&text).map_err(|error| damaged(format!("it is damaged: {error}")))?;
        if set.version != VERSION || set.id != id {
            return Err(damaged(format!(
                "it says version {} and number {}, where {VERSION} and {id} are expected",
                set.version, set.id
            )));
        }
        Ok(set)
    }

    /// Reads all change sets, in order. One that cannot be read does not hide the others.
    ///
    /// # Errors
    /// As [`Self::ids`].
    pub fn all(&self) -> Result<Contents, ChangeError> {
        let mut contents = Contents::default();
        for id in self.ids()? {
            match self.load(id) {
                Ok(set) => contents.sets.push(set),
                Err(error) => {
                    contents.unreadable.push(Unreadable { path: self.path(id), why: error.to_string() });
                }
            }
        }
        Ok(contents)
    }

    /// Writes a new change set under the next number, which it gets.
    ///
    /// # Errors
    /// When it cannot be written or is too large.
    pub fn add(&self, _lock: &Lock, set: &mut ChangeSet) -> Result<(), ChangeError> {
        let last = self.ids()?.last().copied().unwrap_or(0);
        set.id = last.checked_add(1).ok_or_else(|| ChangeError::Journal {
            path: self.path(last),
            why: "no number is left after it; move it elsewhere".to_owned(),
        })?;
        self.write(set)
    }

    /// Writes a change set again. It is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written; then its last version stays.
    pub fn save(&self, _lock: &Lock, set: &ChangeSet) -> Result<(), ChangeError> {
        self.write(set)
    }

    fn write(&self, set: &ChangeSet) -> Result<(), ChangeError> {
        let path = self.path(set.id);
        let text = serde_json::to_vec_pretty(set)
            .map_err(|error| ChangeError::Journal { path: path.clone(), why: error.to_string() })?;
        if text.len() as u64 > SIZE_LIMIT {
            let why =
                format!("the change set needs more than {SIZE_LIMIT} bytes; change fewer settings at once");
            return Err(ChangeError::Journal { path, why });
        }
        durable_write(&path, &text)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.folder.join(file_name(id))
    }

    fn missing(&self, id: u64) -> ChangeError {
        let ids = self.ids().unwrap_or_default();
        let list: Vec<String> = ids.iter().rev().take(10).map(u64::to_string).collect();
        let known = if list.is_empty() {
            ", which has none".to_owned()
        } else {
            format!("; the last are {}", list.join(", "))
        };
        ChangeError::NoSet { id, folder: self.folder.clone(), known }
    }
}

fn file_name(id: u64) -> String {
    format!("{id}.json")
}

/// Reads a regular file: at most one byte more than `limit`. A FIFO or a device in its place is an error and is not waited for.
pub(crate) fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file; move it elsewhere",
        ));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file in one step; its content and its name are on the disk when this returns.
pub(crate) fn durable_write(path: &Path, text: &[u8]) -> Result<(), ChangeError> {
    let write = || -> io::Result<()> {
        let mut draft = Draft::in_own_folder(path)?;
        draft.write_all(text)?;
        draft.handle()?.sync_all()?;
        draft.commit()?;
        sync_folder(path)
    };
    write().map_err(ChangeError::io("writing", path))
}

/// Brings the names of a file's folder to the disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
