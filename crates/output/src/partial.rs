//! A file that grows under a name of its own, `NAME.part`, until it is complete: what a live capture has recorded survives
//! the end of the process, however it ends, and an older file of that name stays until then.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::Draft;

/// A file that grows beside its final name.
#[derive(Debug)]
pub struct Partial {
    file: File,
    /// The names until and from its end; absent for a device, a pipe or a socket, which is written directly.
    names: Option<(PathBuf, PathBuf)>,
}

impl Partial {
    /// Begins the file `path`, as `path.part`.
    ///
    /// # Errors
    /// As [`Draft::create`], and when `path.part` exists: it holds what an interrupted run has recorded.
    pub fn create(path: &Path) -> io::Result<Self> {
        let draft = Draft::create(path)?;
        if draft.is_special() {
            return Ok(Self { file: draft.handle()?, names: None });
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let file = File::create_new(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let text = format!(
                    "{} exists: an interrupted run has left it; rename or remove it first",
                    part.display()
                );
                io::Error::new(error.kind(), text)
            }
            _ => error,
        })?;
        Ok(Self { file, names: Some((part, path.to_owned())) })
    }

    /// A second handle of the content, for a writer that owns its file.
    ///
    /// # Errors
    /// When the process may not open more files.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Its name until it is complete; `None` if it is written directly.
    #[must_use]
    pub fn part(&self) -> Option<&Path> {
        self.names.as_ref().map(|(part, _)| part.as_path())
    }

    /// Gives the complete file its name, in place of an older one.
    ///
    /// # Errors
    /// When it cannot be renamed; then it keeps the name `path.part`.
    pub fn commit(self) -> io::Result<()> {
        self.names.map_or(Ok(()), |(part, path)| std::fs::rename(part, path))
    }

    /// Removes the file, in which nothing has been recorded.
    pub fn discard(self) {
        if let Some((part, _)) = &self.names {
            let _ = std::fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_interrupted_recording_survives_beside_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, part) = (folder.path().join("a.pcapng"), folder.path().join("a.pcapng.part"));
        std::fs::write(&path, "old").unwrap();
        let partial = Partial::create(&path).unwrap();
        partial.handle().unwrap().write_all(b"half").unwrap();
        drop(partial);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!([read(&path), read(&part)], ["old", "half"]);
        let error = Partial::create(&path).unwrap_err();
        assert!(error.to_string().contains("a.pcapng.part exists"), "{error}");
        assert_eq!(read(&part), "half", "what was recorded is not overwritten");
        std::fs::remove_file(&part).unwrap();
        let partial = Partial::create(&path).unwrap();
        partial.handle().unwrap().write_all(b"whole").unwrap();
        partial.commit().unwrap();
        assert!(read(&path) == "whole" && !part.exists());
        Partial::create(&path).unwrap().discard();
        assert!(read(&path) == "whole" && !part.exists());
        let null = Partial::create(Path::new("/dev/null")).unwrap();
        assert!(null.part().is_none());
        null.commit().unwrap();
    }
}
