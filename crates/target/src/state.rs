//! What initiators ask to be kept over a restart, in a folder: one small file for each disk.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use scsi::Durable;

use crate::error::TargetError;

/// A file that is larger than anything that was written is not read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder(PathBuf);

impl StateFolder {
    /// Opens the folder, which is made where it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, TargetError> {
        let failed = |source| TargetError::State { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, serial: &str) -> PathBuf {
        self.0.join(format!("{serial}.json"))
    }

    /// What was kept of a disk; nothing is kept of a new one.
    pub(crate) fn load(&self, serial: &str) -> Result<Durable, TargetError> {
        let path = self.file(serial);
        let failed = |source| TargetError::State { path: path.clone(), source };
        let length = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Durable::default()),
            Err(error) => return Err(failed(error)),
        };
        if length > FILE_BYTES_MAX {
            return Err(failed(std::io::Error::other(format!("{length} bytes are no state of a disk"))));
        }
        let text = std::fs::read(&path).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| failed(error.into()))
    }

    /// Keeps it: when this returns, it survives a power loss.
    pub(crate) fn save(&self, serial: &str, durable: &Durable) -> std::io::Result<()> {
        let (path, new) = (self.file(serial), self.0.join(format!("{serial}.new")));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(durable)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        // The name is in the folder's own data.
        File::open(&self.0)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_a_broken_file_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(&folder.path().join("deep/er")).unwrap();
        assert_eq!(state.load("a").unwrap(), Durable::default());
        let mode = scsi::mode::ModeValues { write_protected: true, ..Default::default() };
        let kept = Durable { mode: Some(mode), ..Durable::default() };
        state.save("a", &kept).unwrap();
        assert_eq!(state.load("a").unwrap(), kept);
        std::fs::write(folder.path().join("deep/er/a.json"), "{").unwrap();
        let error = state.load("a").unwrap_err().to_string();
        assert!(error.contains("a.json"), "{error}");
    }
}
