//! Durable state of initiators (reservations with APTPL, saved mode pages) in a folder, one small file per disk.
//!
//! The folder is opened once and all accesses are relative to its descriptor, so that renaming or replacing the folder
//! has no effect. Symbolic links in it are never followed: a user who can write to the folder must not be able to choose
//! which other files the target reads or overwrites.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use scsi::Durable;

use crate::error::TargetError;

/// Largest file that is read; saved files are much smaller.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The state folder. It is locked while open: two targets would overwrite each other's state.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    /// The configured path, for messages.
    path: PathBuf,
    folder: File,
    /// Held while a file is replaced.
    saving: Mutex<()>,
}

impl StateFolder {
    /// Opens and locks the folder; creates it if it does not exist.
    ///
    /// # Errors
    /// When the folder cannot be created or opened, is a symbolic link, or is in use by another target.
    pub(crate) fn open(path: &Path) -> Result<Self, TargetError> {
        let failed = |source| TargetError::State { path: path.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|error| {
            let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
            failed(if is_link { symbolic_link() } else { error.into() })
        })?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            failed(match error {
                Errno::WOULDBLOCK => Error::other("in use by another target; give each a folder of its own"),
                error => error.into(),
            })
        })?;
        let (path, folder) = (path.to_owned(), folder.into());
        Ok(Self(Arc::new(Folder { path, folder, saving: Mutex::default() })))
    }

    /// Returns the saved state of a disk; the default for a new one.
    ///
    /// # Errors
    /// When its file cannot be read or was not written by [`StateFolder::save`].
    pub(crate) fn load(&self, serial: &str) -> Result<Durable, TargetError> {
        let name = format!("{serial}.json");
        let failed = |source| TargetError::State { path: self.0.path.join(&name), source };
        // O_NONBLOCK: opening a FIFO must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match rustix::fs::openat(&self.0.folder, &name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Ok(Durable::default()),
            Err(Errno::LOOP) => return Err(failed(symbolic_link())),
            Err(error) => return Err(failed(error.into())),
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(Error::other("not a regular file")));
        }
        let length = metadata.len();
        if length > FILE_BYTES_MAX {
            return Err(failed(Error::other(format!(
                "{length} bytes; disk state has at most {FILE_BYTES_MAX}"
            ))));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| failed(error.into()))
    }

    /// Saves the state of a disk. It survives a power loss once this returns.
    ///
    /// # Errors
    /// When it cannot be written; the previous file is then unchanged.
    pub(crate) fn save(&self, serial: &str, durable: &Durable) -> std::io::Result<()> {
        let text = serde_json::to_vec_pretty(durable)?;
        let (name, new) = (format!("{serial}.json"), format!("{serial}.new"));
        let folder = &self.0.folder;
        let remove_new = || match rustix::fs::unlinkat(folder, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::from(error)),
        };
        let _saving = self.0.saving.lock();
        // A crash may have left one.
        remove_new()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file: File = rustix::fs::openat(folder, &new, flags, Mode::RUSR | Mode::WUSR)?.into();
        let replaced = (file.write_all(&text))
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(folder, &new, folder, &name)?));
        if let Err(error) = replaced {
            let _ = remove_new();
            return Err(error);
        }
        // The rename is durable only after fsync of the folder.
        folder.sync_all()
    }
}

fn symbolic_link() -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        "is a symbolic link; symbolic links are not followed, use the real file or folder",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn kept() -> Durable {
        let mode = scsi::mode::ModeValues { write_protected: true, ..Default::default() };
        Durable { mode: Some(mode), ..Durable::default() }
    }

    #[test]
    fn saved_state_is_read_back_and_a_corrupt_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(&folder.path().join("deep/er")).unwrap();
        assert_eq!(state.load("a").unwrap(), Durable::default());
        state.save("a", &kept()).unwrap();
        assert_eq!(state.load("a").unwrap(), kept());
        std::fs::write(folder.path().join("deep/er/a.json"), "{").unwrap();
        let error = state.load("a").unwrap_err().to_string();
        assert!(error.contains("a.json"), "{error}");
    }

    #[test]
    fn symbolic_links_are_replaced_or_rejected_and_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("state"), folder.path().join("elsewhere"));
        let state = StateFolder::open(&path).unwrap();
        symlink(&elsewhere, path.join("a.new")).unwrap();
        symlink(&elsewhere, path.join("a.json")).unwrap();
        state.save("a", &kept()).unwrap();
        assert!(!elsewhere.exists(), "a file was written through a symbolic link");
        assert_eq!(state.load("a").unwrap(), kept());
        let file = path.join("a.json").symlink_metadata().unwrap();
        assert!(file.is_file() && file.permissions().mode() & 0o777 == 0o600, "{file:?}");
        // Valid content, but reached through a link.
        symlink(path.join("a.json"), path.join("b.json")).unwrap();
        let error = state.load("b").unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        symlink(&path, folder.path().join("link")).unwrap();
        let error = StateFolder::open(&folder.path().join("link")).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn leftover_temporary_file_is_replaced_and_a_fifo_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        std::fs::write(folder.path().join("a.new"), "half of").unwrap();
        state.save("a", &kept()).unwrap();
        assert_eq!(state.load("a").unwrap(), kept());
        nix::unistd::mkfifo(&folder.path().join("b.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = state.load("b").unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn renamed_folder_stays_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("state"), folder.path().join("moved"));
        let state = StateFolder::open(&path).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        state.save("a", &kept()).unwrap();
        assert!(moved.join("a.json").exists() && !path.exists());
    }

    #[test]
    fn second_target_cannot_open_the_state_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateFolder::open(folder.path()).unwrap();
        let clone = first.clone();
        drop(first);
        let error = StateFolder::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("in use by another target"), "{error}");
        assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        drop(clone);
        StateFolder::open(folder.path()).unwrap();
    }
}
