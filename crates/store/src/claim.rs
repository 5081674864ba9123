//! Keeps two disks from writing to one file unawares.
//!
//! A store claims its file or device. Within the process a table of claims decides, which can name the disk that has
//! the file; towards other processes an advisory lock of an open file description (F_OFD_SETLK, fcntl(2)) does. The
//! process holds one lock for each file: exclusive while a claim is, shared otherwise.

use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::{major, minor};
use parking_lot::Mutex;

/// The disk that a store is opened for.
#[derive(Debug)]
pub struct Owner {
    label: String,
    is_leaving: AtomicBool,
}

impl Owner {
    /// An owner that errors call `label`, such as `LUN 3`.
    #[must_use]
    pub fn new(label: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { label: label.into(), is_leaving: AtomicBool::new(false) })
    }

    /// Sets whether the owner is about to close its store: then another one of this process may open the same file
    /// while it is still open.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::SeqCst);
    }
}

/// How a store uses its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Beside other shared users.
    Shared,
    /// Alone.
    Exclusive,
}

/// The identity of a file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    File(u64, u64),
    /// The number of a block device.
    Device(u64),
}

/// A file that is in use.
struct Claimed {
    identity: Identity,
    /// The description that holds the lock of this process; none where the file system has no locks.
    lock: Option<(Arc<File>, Mode)>,
    claims: Vec<Entry>,
}

struct Entry {
    number: u64,
    owner: Arc<Owner>,
    path: String,
    mode: Mode,
}

struct Table {
    files: Vec<Claimed>,
    next: u64,
}

static TABLE: Mutex<Table> = Mutex::new(Table { files: Vec::new(), next: 0 });

/// Why a file cannot be claimed.
enum Refused {
    /// It is locked, but no process that can be seen has it open.
    NobodyHasIt,
    Because(String),
}

/// How long a lock is waited for that no visible process holds.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

fn in_use(holder: &str) -> String {
    format!("in use by {holder}; use another file or device, or 'shared=yes' for all its users")
}

/// The right to use a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(u64);

impl Claim {
    /// Claims a file for its owner.
    ///
    /// The kernel closes the files of a killed process late where io_uring used them. So a lock of a process that is not
    /// there is waited for, for a while.
    ///
    /// # Errors
    /// When it is in use: by what, and what to do.
    pub(crate) fn new(
        file: &Arc<File>,
        metadata: &Metadata,
        path: &str,
        mode: Mode,
        owner: &Arc<Owner>,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::try_new(file, metadata, path, mode, owner) {
                Ok(claim) => return Ok(claim),
                Err(Refused::NobodyHasIt) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(Refused::NobodyHasIt) => return Err(in_use("another process")),
                Err(Refused::Because(reason)) => return Err(reason),
            }
        }
    }

    fn try_new(
        file: &Arc<File>,
        metadata: &Metadata,
        path: &str,
        mode: Mode,
        owner: &Arc<Owner>,
    ) -> Result<Self, Refused> {
        let identity = if metadata.file_type().is_block_device() {
            Identity::Device(metadata.rdev())
        } else {
            Identity::File(metadata.dev(), metadata.ino())
        };
        let mut table = TABLE.lock();
        let known = table.files.iter().position(|claimed| claimed.identity == identity);
        if let Some(known) = known {
            let is_in_the_way = |entry: &&Entry| {
                !entry.owner.is_leaving.load(Ordering::SeqCst) && mode.max(entry.mode) == Mode::Exclusive
            };
            if let Some(entry) = table.files[known].claims.iter().find(is_in_the_way) {
                let holder = format!("{} ({}) of this process", entry.owner.label, entry.path);
                return Err(Refused::Because(in_use(&holder)));
            }
        }
        let before = known.and_then(|known| table.files[known].lock.as_ref());
        let lock = take_lock(before, file, mode).map_err(|error| match error {
            Errno::EAGAIN | Errno::EACCES => {
                holder(metadata).map_or(Refused::NobodyHasIt, |holder| Refused::Because(in_use(&holder)))
            }
            error => {
                Refused::Because(format!("cannot be locked ({error}); 'shared=yes' does without a lock"))
            }
        })?;
        let number = table.next;
        table.next += 1;
        let entry = Entry { number, owner: Arc::clone(owner), path: path.to_owned(), mode };
        match known {
            Some(known) => {
                let claimed = &mut table.files[known];
                claimed.lock = lock;
                claimed.claims.push(entry);
            }
            None => table.files.push(Claimed { identity, lock, claims: vec![entry] }),
        }
        Ok(Self(number))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = TABLE.lock();
        let mine = |claimed: &Claimed| claimed.claims.iter().any(|entry| entry.number == self.0);
        let Some(index) = table.files.iter().position(mine) else { return };
        let claimed = &mut table.files[index];
        claimed.claims.retain(|entry| entry.number != self.0);
        let needed = claimed.claims.iter().map(|entry| entry.mode).max();
        // A part of the file may still be on its way to a socket, which keeps the description open: it is unlocked here.
        match (&mut claimed.lock, needed) {
            (Some((file, _)), None) => report(set_lock(file, libc::F_UNLCK)),
            (Some((file, held)), Some(needed)) if needed < *held => {
                report(set_lock(file, libc::F_RDLCK));
                *held = needed;
            }
            _ => {}
        }
        if needed.is_none() {
            table.files.swap_remove(index);
        }
    }
}

/// Giving up a lock, or a part of it, has no reason to fail.
fn report(outcome: Result<(), Errno>) {
    if let Err(error) = outcome {
        tracing::warn!("cannot unlock a file: {error}");
    }
}

/// Extends the lock that the process holds of a file, on a new description of it, where it does not suffice.
fn take_lock(
    before: Option<&(Arc<File>, Mode)>,
    file: &Arc<File>,
    mode: Mode,
) -> Result<Option<(Arc<File>, Mode)>, Errno> {
    match before {
        Some(held) if held.1 >= mode => Ok(Some(held.clone())),
        // The new description takes over. It gets a shared lock first, so that no other process comes in between.
        Some((old, _)) => {
            set_lock(file, libc::F_RDLCK)?;
            set_lock(old, libc::F_UNLCK)?;
            if let Err(error) = set_lock(file, libc::F_WRLCK) {
                report(set_lock(old, libc::F_RDLCK));
                report(set_lock(file, libc::F_UNLCK));
                return Err(error);
            }
            Ok(Some((Arc::clone(file), mode)))
        }
        None if mode == Mode::Exclusive => {
            set_lock(file, libc::F_WRLCK).map(|()| Some((Arc::clone(file), mode)))
        }
        None => match set_lock(file, libc::F_RDLCK) {
            Ok(()) => Ok(Some((Arc::clone(file), mode))),
            Err(error @ (Errno::EAGAIN | Errno::EACCES)) => Err(error),
            // Shared use needs no lock to be safe: only others miss it.
            Err(_) => Ok(None),
        },
    }
}

/// A lock of all of a file.
fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Sets the lock of a description on all of its file, without waiting.
fn set_lock(file: &File, kind: libc::c_int) -> Result<(), Errno> {
    let lock = whole_file(kind);
    fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock)).map(drop)
}

/// Checks that no other process that can be seen uses a file in a way that excludes `mode`.
///
/// # Errors
/// When one does: which, and what to do.
pub(crate) fn check(file: &File, mode: Mode) -> Result<(), String> {
    let kind = if mode == Mode::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let mut lock = whole_file(kind);
    // A user that cannot be detected now is detected when the file is claimed.
    let (Ok(_), Ok(metadata)) = (fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock)), file.metadata())
    else {
        return Ok(());
    };
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(());
    }
    holder(&metadata).map_or(Ok(()), |holder| Err(in_use(&holder)))
}

/// The other process that holds a lock of a file, where one can be seen. F_OFD_GETLK knows no process for such locks, but /proc does where it
/// may be read.
fn holder(metadata: &Metadata) -> Option<String> {
    let place = format!("{:02x}:{:02x}:{}", major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    let holds = |process: &std::path::Path| {
        let Ok(descriptors) = std::fs::read_dir(process.join("fdinfo")) else { return false };
        descriptors.flatten().any(|descriptor| {
            let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
            let mut locks = text.lines().filter(|line| line.starts_with("lock:"));
            locks.any(|line| line.split_whitespace().any(|word| word == place))
        })
    };
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if id != own && holds(&entry.path()) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            // A process may call itself anything.
            return Some(format!("process {id} ({})", name.trim_end().escape_debug()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::StoreSpec;

    const IN_CHILD: &str = "STORE_TEST_HOLDS";

    fn open(spec: &str, owner: &Arc<Owner>) -> Result<Arc<dyn crate::Store>, String> {
        spec.parse::<StoreSpec>().unwrap().open_for(owner).map_err(|error| error.to_string())
    }

    /// A process that has a disk open until it is killed.
    struct Other(Child);

    impl Other {
        fn with(spec: &str) -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "claim::tests::other_process", "--nocapture", "--ignored"])
                .env(IN_CHILD, spec)
                .stdout(Stdio::piped())
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
            let output_text: Vec<String> =
                lines.map(Result::unwrap).take_while(|line| !line.contains("it is open")).collect();
            assert!(child.try_wait().unwrap().is_none(), "{output_text:?}");
            Self(child)
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    #[ignore = "the other process of the tests of locks between processes"]
    fn other_process() {
        let Ok(spec) = std::env::var(IN_CHILD) else { return };
        let _store = open(&spec, &Owner::new("other")).unwrap();
        println!("it is open");
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    fn disk(folder: &Path, name: &str) -> String {
        format!("file:{}", folder.join(name).display())
    }

    #[test]
    fn a_file_in_use_is_rejected_by_any_path_and_engine() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(folder.path(), "a");
        let (first, second) = (Owner::new("LUN 0"), Owner::new("LUN 1"));
        let store = open(&format!("{path},size=1M"), &first).unwrap();
        std::fs::hard_link(folder.path().join("a"), folder.path().join("hard")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("soft")).unwrap();
        for name in ["a", "hard", "soft"] {
            for options in ["", ",readonly", ",direct", ",engine=threads", ",shared=yes", ",size=2M"] {
                let error = open(&(disk(folder.path(), name) + options), &second).err().expect(options);
                assert!(error.contains("in use by LUN 0") && error.contains("shared=yes"), "{error}");
            }
        }
        assert_eq!(
            folder.path().join("a").metadata().unwrap().len(),
            1 << 20,
            "a refused open grows nothing"
        );
        drop(store);
        drop(open(&path, &second).unwrap());
    }

    #[test]
    fn readers_and_shared_writers_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(folder.path(), "a");
        drop(open(&format!("{path},size=1M"), &Owner::new("LUN 0")).unwrap());
        for option in ["readonly", "shared=yes"] {
            let both = ["LUN 0", "LUN 1"].map(|l| open(&format!("{path},{option}"), &Owner::new(l)).unwrap());
            assert!(open(&path, &Owner::new("LUN 2")).is_err(), "{option}");
            drop(both);
        }
    }

    #[test]
    fn a_replaced_owner_passes_its_lock_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(folder.path(), "a");
        let first = Owner::new("LUN 0");
        for (old, new) in [("", ""), (",readonly", ""), ("", ",readonly"), ("", ",direct")] {
            let before =
                open(&format!("{path}{}", if old.is_empty() { ",size=1M" } else { old }), &first).unwrap();
            first.set_leaving(true);
            let after = open(&format!("{path}{new}"), &Owner::new("LUN 1")).unwrap();
            first.set_leaving(false);
            drop(before);
            let error = Other::refused(&path);
            assert!(error.contains(&format!("process {}", std::process::id())), "{old} {new}: {error}");
            assert_eq!(Other::refused(&format!("{path},readonly")).is_empty(), new == ",readonly");
            drop(after);
            assert_eq!(Other::refused(&path), "");
        }
    }

    impl Other {
        /// Why another process cannot open a disk; empty when it can.
        fn refused(spec: &str) -> String {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "claim::tests::other_process", "--nocapture", "--ignored"])
                .env(IN_CHILD, spec)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if output.status.success() { String::new() } else { output_text }
        }
    }

    #[test]
    fn a_file_of_another_process_is_rejected_with_its_pid() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(folder.path(), "a");
        let other = Other::with(&format!("{path},size=1M"));
        let error = open(&path, &Owner::new("LUN 0")).err().expect("in use");
        let early = path.parse::<StoreSpec>().unwrap().check_unused().expect_err("in use").to_string();
        assert_eq!(early, error);
        assert!(error.contains(&format!("process {} (", other.0.id())), "{error}");
        assert!(open(&format!("{path},readonly"), &Owner::new("LUN 0")).is_err(), "it is being written to");
        drop(other);
        // Readers do not keep readers away, and a writer that fails leaves them alone.
        let other = Other::with(&format!("{path},readonly"));
        let own = open(&format!("{path},readonly"), &Owner::new("LUN 0")).unwrap();
        let own_owner = Owner::new("LUN 1");
        assert!(open(&path, &own_owner).is_err());
        format!("{path},readonly").parse::<StoreSpec>().unwrap().check_unused().unwrap();
        assert!(path.parse::<StoreSpec>().unwrap().check_unused().is_err());
        drop(other);
        assert!(open(&path, &own_owner).is_err(), "LUN 0 reads it");
        assert_eq!(Other::refused(&format!("{path},readonly")), "");
        assert!(!Other::refused(&path).is_empty());
        drop(own);
        assert_eq!(Other::refused(&path), "");
    }
}
