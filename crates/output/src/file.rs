//! Output files.
//!
//! A folder may be writable by other users (a study in /tmp), so a file name there may be a symbolic link that another user
//! made. Nothing here follows a link at the last part of a path: a file that the user named is rejected if it is a link, and
//! the program's own files in a folder replace a link of their name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::Draft;

/// Opens a file for reading and appending, and creates it if it is missing.
///
/// # Errors
/// When it is a symbolic link or cannot be written.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).append(true).create(true))
}

pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path).map_err(|error| {
        // open(2): ELOOP for a link at the last part of a path.
        if error.raw_os_error() == Some(Errno::ELOOP as i32) {
            let text = "it is a symbolic link, which is not followed; name the file itself";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        } else {
            error
        }
    })
}

/// Writes a whole file that the user named: the old file stays until the new one is complete.
///
/// # Errors
/// As [`Draft::create`].
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut draft = Draft::create(path)?;
    draft.write_all(text.as_ref())?;
    draft.commit()
}

/// Creates a new file in a folder of the program's own, and replaces an existing one. A link is removed, not followed.
///
/// # Errors
/// When the old file cannot be removed or the new one cannot be created.
pub fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)
}

/// Writes a file atomically, and replaces an existing one: a reader sees the old file or the new one. A link is replaced, not
/// followed.
///
/// # Errors
/// When it cannot be written; then nothing has changed.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut draft = Draft::in_own_folder(path)?;
    draft.write_all(text.as_ref())?;
    draft.commit()
}

/// A name in the same folder that nothing else uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// Creates a folder within a folder of the program's own, if it is missing.
///
/// # Errors
/// When it cannot be created, or its name is taken by something else: a symbolic link is not followed.
pub fn folder(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if std::fs::symlink_metadata(path)?.is_dir() {
                return Ok(());
            }
            let text = format!("{} is not a folder", path.display());
            Err(io::Error::new(io::ErrorKind::NotADirectory, text))
        }
        outcome => outcome,
    }
}

/// Checks that files can be created in a folder.
///
/// # Errors
/// When they cannot be created.
pub fn probe(folder: &Path) -> io::Result<()> {
    let probe = beside(&folder.join("probe"));
    create_anew(&probe)?;
    std::fs::remove_file(&probe)
}

#[cfg(test)]
mod tests {
    use std::fs::{read_to_string, symlink_metadata};
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a file outside of it that a link in it points to.
    fn trap() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        std::fs::write(&victim, "keep").unwrap();
        symlink(&victim, &link).unwrap();
        (folder, victim, link)
    }

    #[test]
    fn a_symbolic_link_as_output_is_rejected() {
        let (folder, victim, link) = trap();
        for error in [write(&link, "new").unwrap_err(), append(&link).unwrap_err()] {
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
        symlink(folder.path().join("nowhere"), folder.path().join("dangling")).unwrap();
        assert!(write(&folder.path().join("dangling"), "new").is_err());
        assert!(!folder.path().join("nowhere").exists());
        assert_eq!(read_to_string(&victim).unwrap(), "keep");
        write(&victim, "new").unwrap();
        append(&victim).unwrap().write_all(b"er").unwrap();
        assert_eq!(read_to_string(&victim).unwrap(), "newer");
    }

    #[test]
    fn a_symbolic_link_inside_an_output_folder_is_replaced() {
        let (_folder, victim, link) = trap();
        replace(&link, "ours").unwrap();
        assert!(symlink_metadata(&link).unwrap().is_file());
        assert_eq!([read_to_string(&victim).unwrap(), read_to_string(&link).unwrap()], ["keep", "ours"]);
        replace(&link, "again").unwrap();
        assert_eq!(read_to_string(&link).unwrap(), "again");

        let (folder, victim, link) = trap();
        create_anew(&link).unwrap().write_all(b"ours").unwrap();
        create_anew(&folder.path().join("new")).unwrap();
        assert_eq!([read_to_string(&victim).unwrap(), read_to_string(&link).unwrap()], ["keep", "ours"]);
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(replace(&folder.path().join("taken"), "text").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symbolic_link_to_a_folder_is_rejected() {
        let (folder, _, _) = trap();
        let (own, link) = (folder.path().join("own"), folder.path().join("elsewhere"));
        symlink(folder.path(), &link).unwrap();
        assert!(self::folder(&link).is_err());
        self::folder(&own).unwrap();
        self::folder(&own).unwrap();
        probe(&own).unwrap();
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    }
}
