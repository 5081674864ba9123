//! Kernel parameters in sysctl.d and values of sysfs in tmpfiles.d.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Desired, HEADER, Kind, OwnFile, lost};
use crate::change::{Change, Setting};

/// After 99-sysctl.conf, which Debian makes of /etc/sysctl.conf: the last file that names a parameter wins.
const SYSCTL: &str = "etc/sysctl.d/99-zz-roundtrip.conf";
const TMPFILES: &str = "etc/tmpfiles.d/roundtrip.conf";

pub(super) fn sysctl(changes: &[Change], desired: &mut Desired) {
    let mut content = format!("{HEADER}# sysctl.d(5)\n");
    let before = content.len();
    for change in changes {
        let Setting::Sysctl { name } = &change.setting else { continue };
        let value = change.value.split_whitespace().collect::<Vec<_>>().join(" ");
        if is_one_line(name) && is_one_line(&change.value) {
            let _ = writeln!(content, "{name} = {value}");
        } else {
            desired.lost.push(lost(&change.setting, "its value has characters that sysctl.d cannot hold"));
        }
    }
    if content.len() > before {
        desired.files.push(OwnFile { path: PathBuf::from(SYSCTL), kind: Kind::Text, content });
        desired.notes.push(
            "/etc/sysctl.conf and later files of sysctl.d win where they name the same parameters".to_owned(),
        );
    }
}

pub(super) fn tmpfiles(changes: &[Change], desired: &mut Desired) {
    let mut content =
        format!("{HEADER}# tmpfiles.d(5): each line writes one value at boot, where the file exists\n");
    let before = content.len();
    for change in changes {
        let Setting::Sysfs { path } = &change.setting else { continue };
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '*' | '?' | '[');
        if path.chars().all(is_plain) && is_one_line(&change.value) {
            // Specifiers begin with % and escapes with a backslash.
            let value = change.value.replace('\\', "\\\\").replace('%', "%%");
            let _ = writeln!(content, "w /sys/{} - - - - {value}", path.replace('%', "%%"));
        } else {
            desired
                .lost
                .push(lost(&change.setting, "its path or value has characters that tmpfiles.d cannot hold"));
        }
    }
    if content.len() > before {
        desired.files.push(OwnFile { path: PathBuf::from(TMPFILES), kind: Kind::Text, content });
    }
}

fn is_one_line(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c == '\t' || !c.is_control())
}
