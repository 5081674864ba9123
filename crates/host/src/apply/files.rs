//! Files of settings below /proc/sys and /sys. A name that leaves its root, by `..` or by a symbolic link, is an error.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::error::ChangeError;
use crate::patience::patiently;

/// The longest value of a setting, bytes. /proc/sys and /sys have at most a page.
pub const VALUE_LIMIT: u64 = 64 * 1024;

/// A tree of files that hold settings.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree below `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The value in a file, without the line end. Of a list with the choice in brackets, as of an I/O scheduler, the choice.
    ///
    /// # Errors
    /// When the name is not one below the root, or the file cannot be read, is too long or is not text.
    pub fn read(&self, path: &str) -> Result<String, ChangeError> {
        let file = self.open(path, OFlags::RDONLY, "reading")?;
        let mut bytes = Vec::new();
        file.take(VALUE_LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(ChangeError::io("reading", self.root.join(path)))?;
        if bytes.len() as u64 > VALUE_LIMIT {
            return Err(self.outside(path, format!("it is longer than {VALUE_LIMIT} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| self.outside(path, "it is not text"))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Ok(chosen(text).unwrap_or(text).to_owned())
    }

    /// Writes a value.
    ///
    /// # Errors
    /// When the name is not one below the root, or the kernel rejects the value.
    pub fn write(&self, path: &str, value: &str) -> Result<(), ChangeError> {
        let mut file = self.open(path, OFlags::WRONLY | OFlags::TRUNC, "opening")?;
        // One write: the kernel takes each as a whole value.
        file.write_all(format!("{value}\n").as_bytes())
            .map_err(ChangeError::io("writing", self.root.join(path)))
    }

    /// Whether a file is there and has no permission to write.
    #[must_use]
    pub fn is_read_only(&self, path: &str) -> bool {
        use std::os::unix::fs::PermissionsExt as _;
        let file = self.open(path, OFlags::RDONLY, "opening");
        let mode =
            file.ok().and_then(|file| file.metadata().ok()).map(|metadata| metadata.permissions().mode());
        mode.is_some_and(|mode| mode & 0o222 == 0)
    }

    fn open(&self, path: &str, flags: OFlags, doing: &'static str) -> Result<File, ChangeError> {
        self.check(path)?;
        let root = File::open(&self.root).map_err(ChangeError::io("opening", &self.root))?;
        // Links within the root, as /sys/class/net has them, are followed; one that leads out of it is an error (EXDEV).
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = patiently(|| Ok(openat2(&root, path, flags, Mode::empty(), resolve)?));
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EXDEV) => self.outside(path, "a symbolic link leads out of it"),
            _ => ChangeError::Io { doing, path: self.root.join(path), source: error },
        })?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(ChangeError::io(doing, self.root.join(path)))?;
        if metadata.is_file() { Ok(file) } else { Err(self.outside(path, "it is not a regular file")) }
    }

    fn check(&self, path: &str) -> Result<(), ChangeError> {
        if path.is_empty() || path.starts_with('/') {
            return Err(self.outside(path, "it must be a path below it, such as class/net/eth0/mtu"));
        }
        if path.contains('\0') || path.split('/').any(|part| part == "..") {
            return Err(self.outside(path, "'..' and NUL are not allowed"));
        }
        Ok(())
    }

    fn outside(&self, path: &str, why: impl Into<String>) -> ChangeError {
        ChangeError::Outside { path: path.to_owned(), root: self.root.clone(), why: why.into() }
    }

    /// The paths that match a pattern whose parts may contain one `*` each, sorted; at most `limit`.
    #[must_use]
    pub fn matches(&self, pattern: &str, limit: usize) -> Vec<String> {
        if self.check(pattern).is_err() {
            return Vec::new();
        }
        let mut found = vec![String::new()];
        for part in pattern.split('/') {
            found = found.iter().flat_map(|path| self.step(path, part)).take(limit).collect();
        }
        found.sort();
        found
    }

    fn step(&self, path: &str, part: &str) -> Vec<String> {
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let Some((start, end)) = part.split_once('*') else {
            let path = join(part);
            return if self.root.join(&path).exists() { vec![path] } else { Vec::new() };
        };
        let fits = |name: &str| {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        };
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.iter().filter(|name| fits(name)).map(|name| join(name)).collect()
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// The file of a kernel parameter: dots separate its parts, and a slash within a part stands for a dot (sysctl(8)).
///
/// # Errors
/// When a part is empty or `..`.
pub fn sysctl_path(name: &str) -> Result<String, ChangeError> {
    let parts: Vec<String> = name.split('.').map(|part| part.replace('/', ".")).collect();
    let is_wrong = |part: &String| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    if parts.iter().any(is_wrong) {
        let why = "its parts are names with dots between them, such as net.ipv4.tcp_rmem".to_owned();
        return Err(ChangeError::Outside { path: name.to_owned(), root: "/proc/sys".into(), why });
    }
    Ok(parts.join("/"))
}

/// The word in brackets of `mq-deadline [none]`.
fn chosen(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace().filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let first = words.next()?;
    words.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("sys");
        std::fs::create_dir_all(root.join("class/net")).unwrap();
        std::fs::create_dir_all(root.join("devices/net/eth0")).unwrap();
        std::fs::write(root.join("devices/net/eth0/mtu"), "1500\n").unwrap();
        std::fs::write(folder.path().join("secret"), "keep").unwrap();
        symlink("../../devices/net/eth0", root.join("class/net/eth0")).unwrap();
        symlink("../../secret", root.join("class/out")).unwrap();
        symlink("/etc", root.join("class/absolute")).unwrap();
        (folder, Tree::new(root))
    }

    #[test]
    fn links_within_the_root_are_followed() {
        let (_folder, tree) = tree();
        assert_eq!(tree.read("class/net/eth0/mtu").unwrap(), "1500");
        tree.write("class/net/eth0/mtu", "9000").unwrap();
        assert_eq!(tree.read("devices/net/eth0/mtu").unwrap(), "9000");
    }

    #[test]
    fn what_is_renamed_elsewhere_stops_no_reading() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (folder, tree) = tree();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
                std::fs::create_dir(&one).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let read: Vec<_> = (0..5_000).map(|_| tree.read("class/net/eth0/mtu")).collect();
            done.store(true, Ordering::Relaxed);
            assert!(read.iter().all(Result::is_ok), "{:?}", read.iter().find(|read| read.is_err()));
        });
    }

    #[test]
    fn no_name_leaves_the_root() {
        let (folder, tree) = tree();
        for path in [
            "",
            "/etc/passwd",
            "../secret",
            "class/../../secret",
            "class/net/eth0/../../../secret",
            "class/out",
            "class/absolute/passwd",
            "class/net",
            "class/none",
            "a\0b",
        ] {
            assert!(tree.read(path).is_err(), "{path}");
            assert!(tree.write(path, "x").is_err(), "{path}");
        }
        assert_eq!(std::fs::read(folder.path().join("secret")).unwrap(), b"keep");
        assert!(!tree.root().join("class/none").exists(), "a file that is missing is not made");
    }

    #[test]
    fn names_of_kernel_parameters_are_paths() {
        assert_eq!(sysctl_path("net.ipv4.tcp_rmem").unwrap(), "net/ipv4/tcp_rmem");
        assert_eq!(
            sysctl_path("net.ipv4.conf.eth0/100.rp_filter").unwrap(),
            "net/ipv4/conf/eth0.100/rp_filter"
        );
        for name in ["", "net..x", ".net", "net.", "net.//.x", "net./.x", "../../etc/passwd"] {
            assert!(sysctl_path(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_choice_in_brackets_is_the_value() {
        for (text, value) in [
            ("mq-deadline kyber [none]\n", "none"),
            ("[none]\n", "none"),
            ("a b\n", "a b"),
            ("[a] [b]\n", "[a] [b]"),
            ("1\n\n", "1\n"),
            ("", ""),
        ] {
            let (_folder, tree) = tree();
            std::fs::write(tree.root().join("scheduler"), text).unwrap();
            assert_eq!(tree.read("scheduler").unwrap(), value, "{text:?}");
        }
    }

    #[test]
    fn long_and_binary_files_are_errors() {
        let (_folder, tree) = tree();
        std::fs::write(tree.root().join("long"), vec![b'a'; VALUE_LIMIT as usize + 1]).unwrap();
        std::fs::write(tree.root().join("binary"), [0xff, 0xfe]).unwrap();
        assert!(tree.read("long").unwrap_err().to_string().contains("longer than"));
        assert!(tree.read("binary").unwrap_err().to_string().contains("not text"));
    }

    #[test]
    fn patterns_name_existing_files() {
        let (_folder, tree) = tree();
        for cpu in ["cpu0", "cpu1", "cpufreq"] {
            std::fs::create_dir_all(tree.root().join("cpu").join(cpu)).unwrap();
        }
        for cpu in ["cpu0", "cpu1"] {
            std::fs::write(tree.root().join("cpu").join(cpu).join("governor"), "x").unwrap();
        }
        assert_eq!(tree.matches("cpu/cpu*/governor", 9), ["cpu/cpu0/governor", "cpu/cpu1/governor"]);
        assert_eq!(tree.matches("cpu/cpu*/governor", 1), ["cpu/cpu0/governor"]);
        assert_eq!(tree.matches("cpu/../cpu*/governor", 9), Vec::<String>::new());
        assert_eq!(tree.matches("cpu/cpu0/governor", 9), ["cpu/cpu0/governor"]);
        assert_eq!(tree.matches("cpu/cpu7/governor", 9), Vec::<String>::new());
    }
}
