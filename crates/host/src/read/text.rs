//! Small files of /proc and /sys, and the notations of processors in them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Files are read to this size, bytes: the largest, /proc/interrupts, has some 20 bytes for each processor in a line.
const LIMIT_BYTES: u64 = 4 << 20;

/// Processors are numbered below this: NR_CPUS of the largest kernels is 8192.
const CPUS: u32 = 8192;

/// The contents of a file, trimmed; `None` where it cannot be read. Bytes that are not UTF-8 are replaced.
pub(super) fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LIMIT_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The number in a file.
pub(super) fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// The names in a folder, sorted, those with numbers in them by the numbers' values.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_by_cached_key(|name| {
        (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), trailing(name))
    });
    names
}

/// The number at the end of a name.
pub(super) fn trailing(name: &str) -> Option<u32> {
    name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..].parse().ok()
}

/// Processors of a list: `0-3,8`. Parts that are no range are left out.
pub(super) fn cpu_list(list: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            cpus.extend(first..=last.min(CPUS));
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Processors of a mask: `ff,ffffffff`, words of 32 bits, the highest first.
pub(super) fn cpu_mask(mask: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for (base, word) in mask.trim().rsplit(',').enumerate().take(CPUS as usize / 32) {
        let bits = u32::from_str_radix(word.trim(), 16).unwrap_or(0);
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base as u32 * 32 + bit));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_of_processors_are_read_and_bounded() {
        assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list(""), [0; 0]);
        assert_eq!(cpu_list("1,x,3-2,2"), [1, 2]);
        assert_eq!(cpu_list("0-4294967295").len(), 8193);
        assert_eq!(cpu_mask("1,80000001"), [0, 31, 32]);
        assert_eq!(cpu_mask("0"), [0; 0]);
        assert_eq!(cpu_mask("zz"), [0; 0]);
        assert!(cpu_mask(&"ffffffff,".repeat(10_000)).len() <= 8192);
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rx-10", "rx-9", "tx-0"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(names(folder.path()), ["rx-9", "rx-10", "tx-0"]);
        assert!(names(&folder.path().join("absent")).is_empty());
    }
}
