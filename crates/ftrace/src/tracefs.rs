//! Where tracefs is: its usual places, or a mount of our own that no other process sees.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::TraceError;

/// The usual places.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// More than the longest description.
const READ_BYTES: usize = 64 << 10;

/// Tracefs, and the mount that holds it where none was there.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds tracefs, or mounts it without attaching the mount to any folder.
    pub(crate) fn open() -> Result<Self, TraceError> {
        if let Some(place) = PLACES.iter().find(|place| Path::new(place).join("instances").is_dir()) {
            return Ok(Self { root: PathBuf::from(place), _mount: None });
        }
        let failed = |source: rustix::io::Errno| TraceError::io("mounting tracefs", source.into());
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
        fsconfig_create(&context).map_err(failed)?;
        let mount =
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map_err(failed)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { root, _mount: Some(mount) })
    }

    /// A file or folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The text of a file.
    pub(crate) fn read(&self, name: &str) -> Result<String, TraceError> {
        let read = || -> io::Result<String> {
            use io::Read as _;
            let mut file = fs::File::open(self.path(name))?;
            // Large reads: some of the files end after the first one, however short that was.
            let (mut text, mut part) = (Vec::new(), vec![0; READ_BYTES]);
            loop {
                match file.read(&mut part)? {
                    0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                    got => text.extend_from_slice(&part[..got]),
                }
            }
        };
        read().map_err(|source| TraceError::io(format!("reading tracefs's {name}"), source))
    }

    /// Writes to a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), TraceError> {
        let write = || -> io::Result<()> {
            use io::Write as _;
            fs::OpenOptions::new().write(true).open(self.path(name))?.write_all(text.as_bytes())
        };
        write().map_err(|source| TraceError::io(format!("writing '{text}' to tracefs's {name}"), source))
    }
}
