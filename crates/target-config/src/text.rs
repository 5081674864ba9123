//! Reading of settings files.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// Largest settings file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a settings file.
///
/// # Errors
/// When it cannot be read, is too large, or is not a regular file: reading a FIFO could block forever.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = std::fs::File::options().read(true).custom_flags(nonblocking).open(path);
    let file = opened.with_context(|| format!("cannot read {name}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let kind = match kind {
            _ if kind.is_dir() => "a directory",
            _ if kind.is_fifo() => "a FIFO",
            _ if kind.is_char_device() || kind.is_block_device() => "a device",
            _ => "something else",
        };
        bail!("{name} is {kind}; use a regular file");
    }
    let mut text = String::new();
    // It may grow while it is read.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {name}"))?;
    ensure!(text.len() as u64 <= FILE_BYTES_MAX, "{name} is larger than {FILE_BYTES_MAX} bytes");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_size_limit_are_read() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        std::fs::write(at("large"), vec![b'#'; FILE_BYTES_MAX as usize + 1]).expect("a file");
        std::fs::write(at("fits"), vec![b'#'; FILE_BYTES_MAX as usize]).expect("a file");
        assert_eq!(read_text(&at("fits")).expect("it fits").len() as u64, FILE_BYTES_MAX);
        for (path, word) in [
            (at("fifo"), "a FIFO"),
            (at("large"), "larger than"),
            (folder.path().to_owned(), "a directory"),
            ("/dev/zero".into(), "a device"),
            (at("none"), "cannot read"),
        ] {
            let error = format!("{:#}", read_text(&path).expect_err(word));
            assert!(error.contains(word) && error.contains(path.to_str().expect("text")), "{error}");
        }
    }
}
