//! A machine's files in a folder.

use std::os::unix::fs::symlink;
use std::path::Path;

use host::read::Roots;
use tempfile::TempDir;

/// `/proc`, `/sys` and `/etc` below a folder of their own.
pub(crate) struct Tree(TempDir);

impl Tree {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::below(self.0.path())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes files, given as `path: contents` in lines.
    pub(crate) fn write(&self, files: &str) {
        for line in files.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, contents) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
            self.file(path, &format!("{contents}\n"));
        }
    }

    pub(crate) fn file(&self, path: &str, contents: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, contents).expect("a file");
    }

    pub(crate) fn link(&self, path: &str, to: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        symlink(to, path).expect("a link");
    }
}
