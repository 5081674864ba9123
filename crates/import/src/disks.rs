//! Disks of the file, and the names by which hosts know them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::notes::Notes;
use crate::written::check_disk;

/// A disk of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    pub(crate) store: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) naa: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) t10: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
}

/// The disks of the file so far. A process serves each file once, and each name belongs to one disk.
#[derive(Default)]
pub(crate) struct Disks {
    /// Paths, and whether every disk on the path is read only.
    paths: BTreeMap<String, bool>,
    serials: BTreeSet<String>,
    naas: BTreeSet<String>,
}

/// Where a store's bytes are.
pub(crate) struct Backing<'a> {
    /// Its file or device; `None` for memory.
    pub(crate) path: Option<&'a str>,
    /// It is not written to.
    pub(crate) is_read_only: bool,
}

impl Disks {
    /// Returns the disk without names that the target would refuse; `None`, with a note, for a disk that cannot be served.
    pub(crate) fn accept(
        &mut self,
        place: &str,
        mut disk: Disk,
        backing: &Backing<'_>,
        notes: &mut Notes,
    ) -> Option<Disk> {
        // The comma would begin an option of the store.
        if backing.path.is_some_and(|path| path.contains(|c: char| c == ',' || c.is_control())) {
            notes.add(place, "left out: its path has a comma or a control character; give it a link without, and import again");
            return None;
        }
        let bare = Disk { store: disk.store.clone(), ..Disk::default() };
        if let Err(error) = check_disk(&bare) {
            notes.add(place, format!("left out: its store cannot be written: {error}"));
            return None;
        }
        keep_valid(place, &mut disk, notes);
        let naa = disk.naa.as_ref().map(|naa| naa.to_ascii_lowercase());
        if naa.as_ref().is_some_and(|naa| self.naas.contains(naa)) {
            // Under another name, a host would see it as another disk, and write to one disk as to two.
            notes.add(
                place,
                "left out: a disk before it has the same NAA identifier, so hosts take both for one disk with two paths; serve it from one target, through several portal groups",
            );
            return None;
        }
        if let Some(path) = backing.path {
            if !path.starts_with('/') {
                notes.add(
                    place,
                    "its path is relative: it is looked up in the folder where the target is started",
                );
            }
            if self.paths.get(path).is_some_and(|is_read_only| !(*is_read_only && backing.is_read_only)) {
                notes.add(
                    place,
                    format!("left out: {path} is served already; to serve it twice, add shared=yes to both disks by hand, if their initiators coordinate"),
                );
                return None;
            }
        }
        if let Some(serial) = disk.serial.take_if(|serial| self.serials.contains(&*serial)) {
            notes
                .add(place, format!("its serial number {serial} is not kept: a disk before it has the same"));
        }
        if let Some(path) = backing.path {
            self.paths.insert(path.to_owned(), backing.is_read_only);
        }
        self.naas.extend(naa);
        self.serials.extend(disk.serial.clone());
        Some(disk)
    }
}

/// Makes a disk with one name.
type With = fn(Option<String>) -> Disk;

/// Removes names that the target would refuse.
fn keep_valid(place: &str, disk: &mut Disk, notes: &mut Notes) {
    let store = "ram:1M".to_owned();
    let names: [(&str, &mut Option<String>, With); 6] = [
        ("serial number", &mut disk.serial, |serial| Disk { serial, ..Disk::default() }),
        ("NAA identifier", &mut disk.naa, |naa| Disk { naa, ..Disk::default() }),
        ("T10 identifier", &mut disk.t10, |t10| Disk { t10, ..Disk::default() }),
        ("vendor", &mut disk.vendor, |vendor| Disk { vendor, ..Disk::default() }),
        ("product", &mut disk.product, |product| Disk { product, ..Disk::default() }),
        ("revision", &mut disk.revision, |revision| Disk { revision, ..Disk::default() }),
    ];
    for (what, value, with) in names {
        let Some(name) = value.clone() else { continue };
        if let Err(error) = check_disk(&Disk { store: store.clone(), ..with(Some(name.clone())) }) {
            notes.add(place, format!("its {what} '{name}' is not kept, hosts see the default: {error}"));
            *value = None;
        }
    }
}

/// Returns the store of a path: a block device or a file.
pub(crate) fn path_store(path: &str, size: Option<u64>, options: &str) -> String {
    match size {
        Some(size) if !is_device(path) => format!("file:{path},size={size}{options}"),
        _ if is_device(path) => format!("dev:{path}{options}"),
        _ => format!("file:{path}{options}"),
    }
}

/// Returns whether a path is that of a device, by its folder.
pub(crate) fn is_device(path: &str) -> bool {
    path.starts_with("/dev/") && !path.starts_with("/dev/shm/")
}

/// Returns the first characters of a text, at most `most` bytes.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, naa: &str, serial: &str, is_read_only: bool) -> (Disk, String, bool) {
        let store = path_store(path, None, if is_read_only { ",readonly" } else { "" });
        let disk = Disk { store, naa: Some(naa.into()), serial: Some(serial.into()), ..Disk::default() };
        (disk, path.to_owned(), is_read_only)
    }

    #[test]
    fn paths_and_names_belong_to_one_disk() {
        let (mut disks, mut notes) = (Disks::default(), Notes::default());
        let naa = |n: u8| format!("6001405{n:025x}");
        let mut accept = |(disk, path, is_read_only): (Disk, String, bool)| {
            disks.accept("d", disk, &Backing { path: Some(&path), is_read_only }, &mut notes)
        };
        assert!(accept(file("/srv/a", &naa(1), "a", false)).is_some());
        assert_eq!(accept(file("/srv/a", &naa(2), "b", false)), None, "the path is in use");
        assert_eq!(accept(file("/srv/b", &naa(1), "b", false)), None, "the NAA is in use");
        assert_eq!(accept(file("/srv/c", &naa(3), "a", false)).expect("served").serial, None);
        assert!(accept(file("/srv/d", &naa(4), "d", true)).is_some());
        assert!(accept(file("/srv/d", &naa(5), "e", true)).is_some(), "readers share");
        assert_eq!(accept(file("/srv/d", &naa(6), "f", false)), None);
        assert_eq!(accept(file("/srv/a,direct", &naa(7), "g", false)), None, "a comma divides options");
        let kept = accept(file("/srv/h", "12", "a b", false)).expect("served");
        assert_eq!((kept.naa, kept.serial), (None, None));
        assert_eq!(notes.into_all().len(), 7);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("ab  ", 3), "ab");
        assert_eq!(path_store("/dev/sda", Some(1), ",direct"), "dev:/dev/sda,direct");
        assert_eq!(path_store("/srv/a", Some(512), ""), "file:/srv/a,size=512");
    }
}
