//! Outputs that would destroy something: a file that is read, or another output of the same command.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::Failure;

/// Rejects outputs of which one would replace another one or an input, under whatever name.
///
/// `outputs` are options and the files that they name, absent ones too; `inputs` are read by the command. Devices may be named
/// repeatedly: nothing is lost in them.
pub(crate) fn check<'a>(
    outputs: &[(&str, Option<&'a PathBuf>)],
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let inputs: Vec<&PathBuf> = inputs.into_iter().collect();
    let outputs: Vec<(&str, &PathBuf)> =
        outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (nth, (option, path)) in outputs.iter().enumerate() {
        if is_device(path) {
            continue;
        }
        if let Some(input) = inputs.iter().find(|input| is_same_file(path, input)) {
            return Err(Failure::Usage(anyhow!(
                "{option} {} would overwrite the input {}; name another file",
                path.display(),
                input.display()
            )));
        }
        let earlier = outputs
            .iter()
            .take(nth)
            .find(|(_, other)| is_same_file(path, other) || place(path) == place(other));
        if let Some((other, _)) = earlier {
            return Err(Failure::Usage(anyhow!(
                "{other} and {option} both write {}; name two files",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Rejects a folder of pictures in which one could replace an input or another output, under whatever name.
pub(crate) fn check_folder<'a>(
    option: &str,
    folder: Option<&PathBuf>,
    others: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let Some(folder) = folder else { return Ok(()) };
    for other in others {
        let (own_folder, name) = place(other);
        let is_picture = other.extension().is_some_and(|ending| ending == "svg" || ending == "png");
        let is_within = name.is_some() && place(&folder.join("x")).0 == own_folder;
        if is_same_file(folder, other) || place(folder) == place(other) || (is_within && is_picture) {
            return Err(Failure::Usage(anyhow!(
                "{option} {} could overwrite {}; name another directory",
                folder.display(),
                other.display()
            )));
        }
    }
    Ok(())
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Whether both exist and are one file, also by a link.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    file(a).is_some_and(|file_a| file(b) == Some(file_a))
}

/// Where a file is that may not exist yet: its folder, without links, and its name.
fn place(path: &Path) -> (PathBuf, Option<&std::ffi::OsStr>) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), path.file_name())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use super::*;

    fn message(outputs: &[(&str, &Path)], inputs: &[&Path]) -> Option<String> {
        let outputs: Vec<(&str, PathBuf)> =
            outputs.iter().map(|(o, path)| (*o, path.to_path_buf())).collect();
        let inputs: Vec<PathBuf> = inputs.iter().map(|path| path.to_path_buf()).collect();
        let named: Vec<(&str, Option<&PathBuf>)> = outputs.iter().map(|(o, path)| (*o, Some(path))).collect();
        match check(&named, &inputs) {
            Err(Failure::Usage(error)) => Some(error.to_string()),
            Err(Failure::Work(error)) => panic!("{error}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn a_folder_of_pictures_is_apart_from_pictures_that_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let verdict =
            |figures: &str, other: &str| check_folder("--figures", Some(&at(figures)), [&at(other)]).is_err();
        for (figures, other) in [
            ("sub", "sub/a.svg"),
            ("sub", "sub/../sub/a.png"),
            ("new", "new/a.svg"),
            ("file", "file"),
            ("new", "new"),
        ] {
            assert!(verdict(figures, other), "{figures}, {other}");
        }
        for (figures, other) in [("sub", "a.svg"), ("sub", "sub/a.csv"), ("sub", "new"), ("new", "sub/a.png")]
        {
            assert!(!verdict(figures, other), "{figures}, {other}");
        }
        assert!(check_folder("--figures", None, [&at("a.svg")]).is_ok());
    }

    #[test]
    fn a_file_is_named_once_however_it_is_spelled() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("old"), "").unwrap();
        std::fs::hard_link(at("old"), at("hard")).unwrap();
        std::os::unix::fs::symlink(folder.path(), at("link")).unwrap();
        let both = |a: &str, b: &str| message(&[("--ops", &at(a)), ("--chart", &at(b))], &[]);
        for (a, b) in
            [("new", "new"), ("new", "sub/../new"), ("new", "link/new"), ("new", "./new"), ("old", "hard")]
        {
            let text = both(a, b).unwrap_or_else(|| panic!("{a} and {b} are one file"));
            assert!(text.starts_with("--ops and --chart both write"), "{text}");
        }
        assert_eq!(both("new", "newer"), None);
        assert_eq!(both("old", "sub/old"), None, "one name in two folders");
        let null = Path::new("/dev/null");
        assert_eq!(message(&[("--ops", null), ("--chart", null)], &[null]), None);
        for name in ["old", "hard", "link/old"] {
            let text = message(&[("--ops", &at(name))], &[&at("new"), &at("old")]).unwrap();
            assert!(text.contains("would overwrite the input"), "{text}");
        }
        assert_eq!(message(&[("--ops", &at("new"))], &[&at("old"), Path::new("-")]), None);
        assert!(check(&[("--ops", None), ("--chart", None)], []).is_ok());
    }
}
