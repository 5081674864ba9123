//! A file that appears under its name only when it is complete.
//!
//! The content goes to a file without a name in the same folder, which the kernel removes with the process, however it
//! ends. [`Draft::commit`] gives it its name in one step. So a run that fails, is interrupted or is killed leaves an
//! older file of that name as it was, and no other file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};

use crate::file;

/// The content of a file until it is complete.
#[derive(Debug)]
pub struct Draft {
    file: File,
    /// Absent for a device, a pipe or a socket, which is written directly.
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// The temporary name, on file systems without nameless files; removed if the draft is dropped.
    named: Option<PathBuf>,
}

impl Draft {
    /// Begins a file that the user named. Devices, FIFOs and this process's own descriptors (`/dev/stdout`) are opened and
    /// written directly.
    ///
    /// # Errors
    /// When it is a symbolic link or a folder, is write-protected, or its folder cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        if is_own_descriptor(path) {
            return Ok(Self { file: OpenOptions::new().write(true).open(path)?, place: None });
        }
        let mut mode = None;
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => {
                let kind = metadata.file_type();
                let is_special = kind.is_char_device() || kind.is_block_device() || kind.is_fifo();
                // Fails for a link, a folder and a file without write permission, and changes nothing.
                let existing = file::open(path, OpenOptions::new().write(true))?;
                if is_special {
                    return Ok(Self { file: existing, place: None });
                }
                mode = Some(metadata.permissions().mode());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let draft = Self::beside(path)?;
        if let Some(mode) = mode {
            draft.file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        Ok(draft)
    }

    /// Begins a file in a folder of the program's own. A symbolic link of its name is replaced, not followed.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn in_own_folder(path: &Path) -> io::Result<Self> {
        Self::beside(path)
    }

    fn beside(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let nameless = OpenOptions::new().write(true).custom_flags(OFlag::O_TMPFILE.bits()).open(folder);
        let (file, named) = match nameless {
            Ok(file) => (file, None),
            // EOPNOTSUPP: the file system has no nameless files. EISDIR: the kernel has none.
            Err(error) if is_any(&error, &[Errno::EOPNOTSUPP, Errno::EISDIR, Errno::EINVAL]) => {
                let name = file::beside(path);
                (file::create_anew(&name)?, Some(name))
            }
            Err(error) => return Err(error),
        };
        Ok(Self { file, place: Some(Place { path: path.to_owned(), named }) })
    }

    /// Whether it is a device, a pipe or a socket, which is written directly.
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.place.is_none()
    }

    /// A second handle of the content, for a writer that owns its file.
    ///
    /// # Errors
    /// When the process may not open more files.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the content its name, in place of an older file of that name. Handles must have been flushed.
    ///
    /// # Errors
    /// When it cannot be renamed; then nothing has changed.
    pub fn commit(mut self) -> io::Result<()> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let name = match place.named.take() {
            Some(name) => name,
            None => {
                let name = file::beside(&place.path);
                link(&self.file, &name)?;
                name
            }
        };
        let renamed = std::fs::rename(&name, &place.path);
        if renamed.is_err() {
            let _ = std::fs::remove_file(&name);
        }
        renamed
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(Place { named: Some(name), .. }) = &self.place {
            let _ = std::fs::remove_file(name);
        }
    }
}

fn is_any(error: &io::Error, kinds: &[Errno]) -> bool {
    kinds.iter().any(|&kind| error.raw_os_error() == Some(kind as i32))
}

/// Whether a path names a descriptor of this process. These names are links that the system makes.
fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdout")
        || path == Path::new("/dev/stderr")
        || path.parent() == Some(Path::new("/dev/fd"))
}

/// Gives a nameless file a name (open(2), O_TMPFILE).
fn link(file: &File, name: &Path) -> io::Result<()> {
    let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let link = || nix::unistd::linkat(AT_FDCWD, &own, AT_FDCWD, name, AtFlags::AT_SYMLINK_FOLLOW);
    match link() {
        // Left by a process of the same number that was killed in this moment.
        Err(Errno::EEXIST) => {
            std::fs::remove_file(name)?;
            link().map_err(io::Error::from)
        }
        other => other.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_incomplete_file_never_appears() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"half").unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).unwrap()),
            (vec!["a.csv".into()], b"old".to_vec())
        );
        drop(draft);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let mut draft = Draft::create(&path).unwrap();
        draft.handle().unwrap().write_all(b"who").unwrap();
        draft.write_all(b"le").unwrap();
        draft.commit().unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).unwrap()),
            (vec!["a.csv".into()], b"whole".to_vec())
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().mode() & 0o777,
            0o640,
            "the permissions of the old file stay"
        );
    }

    /// File systems without nameless files have a file with a temporary name.
    #[test]
    fn a_temporary_name_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, name) = (folder.path().join("a"), folder.path().join(".a.new"));
        let draft = |path: &Path| Draft {
            file: file::create_anew(&name).unwrap(),
            place: Some(Place { path: path.to_owned(), named: Some(name.clone()) }),
        };
        drop(draft(&path));
        assert_eq!(names(folder.path()), [""; 0]);
        draft(&path).commit().unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(draft(&folder.path().join("folder")).commit().is_err());
        assert_eq!(names(folder.path()), ["a", "folder"]);
    }

    #[test]
    fn links_and_folders_are_rejected_and_devices_written() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, trap) = (folder.path().join("victim"), folder.path().join("trap"));
        std::fs::write(&victim, "keep").unwrap();
        symlink(&victim, &trap).unwrap();
        assert!(Draft::create(&trap).unwrap_err().to_string().contains("symbolic link"));
        assert!(Draft::create(folder.path()).is_err());
        assert!(Draft::create(&folder.path().join("none/a")).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"keep");
        let mut null = Draft::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"x").unwrap();
        null.commit().unwrap();
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        Draft::create(Path::new("/dev/stdout")).unwrap().commit().unwrap();
        let mut full = Draft::create(Path::new("/dev/full")).unwrap();
        assert!(full.write_all(b"x").is_err());
    }

    #[test]
    fn a_link_in_an_own_folder_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, trap) = (folder.path().join("victim"), folder.path().join("trap"));
        std::fs::write(&victim, "keep").unwrap();
        symlink(&victim, &trap).unwrap();
        let mut draft = Draft::in_own_folder(&trap).unwrap();
        draft.write_all(b"ours").unwrap();
        draft.commit().unwrap();
        assert_eq!(
            (std::fs::read(&victim).unwrap(), std::fs::read(&trap).unwrap()),
            (b"keep".to_vec(), b"ours".to_vec())
        );
        assert!(std::fs::symlink_metadata(&trap).unwrap().is_file());
    }
}
