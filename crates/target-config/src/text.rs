//! Reading of settings files.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// Largest settings file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Parses TOML. The error tells place and key, but quotes no line: it may hold a secret, and errors go to logs.
///
/// # Errors
/// When the text is not what is expected.
pub(crate) fn from_toml<T: serde::de::DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let message = without_value(error.message());
        let Some(span) = error.span() else { return anyhow::anyhow!("{message}") };
        let before = text.get(..span.start).unwrap_or_default();
        let (line, start) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |at| at + 1));
        let column = before[start..].chars().count() + 1;
        let is_key = |key: &&str| {
            key.len() <= 64 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let key = before[start..].split_once('=').map(|(key, _)| key.trim()).filter(is_key);
        let key = key.map_or_else(String::new, |key| format!("{key}: "));
        anyhow::anyhow!("line {line}, column {column}: {key}{message}")
    })
}

/// A message without the value that was found in place of another: `invalid type: string "...", expected a number`.
fn without_value(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let found = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find(|kind| first.starts_with(**kind));
    match (found, first.rsplit_once(", expected ")) {
        (Some(kind), Some((value, expected))) => {
            let what = value[kind.len()..].split([' ', '`', '"']).next().unwrap_or_default();
            format!("{kind}{what}, expected {expected}")
        }
        _ => first.to_owned(),
    }
}

/// Reads a settings file.
///
/// # Errors
/// When it cannot be read, is too large, or is not a regular file: reading a FIFO could block forever.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
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
