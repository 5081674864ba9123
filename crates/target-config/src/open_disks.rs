//! The served disks, and their atomic replacement: all changes take effect or none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use iscsi_target::LunConfig;
use store::layer::Passed;
use store::spec::StoreKind;
use store::{Owner, Store, StoreSpec};

use crate::disk::DiskSpec;
use crate::file::DEFAULT_IQN;

/// A disk of a target: the target's name in lower case, and the number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskKey {
    /// The target's iSCSI name, in lower case.
    pub iqn: Arc<str>,
    /// The disk's number.
    pub number: u16,
}

impl fmt::Display for DiskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LUN {}", self.number)?;
        // A target without a name is the only one.
        if *self.iqn == *DEFAULT_IQN { Ok(()) } else { write!(f, " of {}", self.iqn) }
    }
}

/// The served disks with their specifications.
#[derive(Default)]
pub struct OpenDisks(BTreeMap<DiskKey, OpenDisk>);

#[derive(Clone)]
struct OpenDisk {
    spec: DiskSpec,
    store: Arc<dyn Store>,
    /// The owner that its file is claimed for.
    owner: Arc<Owner>,
}

/// A prepared set of disks, checked and open. It does not affect the current disks until [`Next::commit`]; dropping it
/// undoes the preparation.
pub struct Next {
    disks: BTreeMap<DiskKey, OpenDisk>,
    resizes: Vec<Resize>,
    /// Disks that end with the change. Their files may be opened by the new disks.
    leaving: Vec<Arc<Owner>>,
    /// The state of files before new disks were opened over them.
    files: Vec<FileBefore>,
    is_committed: bool,
}

/// Which disks are to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of the change.
    Next,
    /// Those of before: the change has failed.
    Previous,
}

struct Resize {
    key: DiskKey,
    store: Arc<dyn Store>,
    before: u64,
    after: u64,
    is_done: bool,
}

impl Resize {
    fn grows(&self) -> bool {
        self.after > self.before
    }

    fn carry_out(&mut self) -> anyhow::Result<()> {
        self.store.resize(self.after).with_context(|| self.key.to_string())?;
        self.is_done = true;
        Ok(())
    }

    fn undo(&mut self) {
        if !std::mem::take(&mut self.is_done) {
            return;
        }
        if let Err(error) = self.store.resize(self.before) {
            tracing::error!("{}: cannot restore the size of {} bytes: {error}", self.key, self.before);
        }
    }
}

impl std::fmt::Debug for OpenDisks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl OpenDisks {
    /// Returns whether there are no disks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sizes of the stores now, bytes: some change without being asked to.
    pub(crate) fn sizes(&self) -> Vec<(DiskKey, u64)> {
        self.0.iter().map(|(key, disk)| (key.clone(), disk.store.size_bytes())).collect()
    }

    /// Returns the disks as a target's configuration.
    pub(crate) fn configs(&self) -> Vec<(DiskKey, LunConfig)> {
        configs(&self.0)
    }

    /// Returns the statistics of disks with a `stats` layer.
    pub fn statistics(&self) -> Vec<(DiskKey, Vec<Passed>)> {
        let all = self.0.iter().map(|(key, disk)| (key.clone(), disk.store.statistics()));
        all.filter(|(_, passed)| !passed.is_empty()).collect()
    }

    /// Opens the first disks.
    ///
    /// # Errors
    /// As for [`OpenDisks::prepare`].
    pub fn open(&mut self, luns: &[(DiskKey, DiskSpec)]) -> anyhow::Result<Vec<(DiskKey, LunConfig)>> {
        let next = self.prepare(luns)?;
        let configs = configs(&next.disks);
        next.commit(self, |_, _| Ok(()))?;
        Ok(configs)
    }

    /// Opens new disks, keeps unchanged ones, and checks that disks that differ only in size can be resized.
    ///
    /// # Errors
    /// When a disk cannot be opened or resized, or a LUN occurs twice.
    pub fn prepare(&self, luns: &[(DiskKey, DiskSpec)]) -> anyhow::Result<Next> {
        let mut next = Next {
            disks: BTreeMap::new(),
            resizes: Vec::new(),
            leaving: Vec::new(),
            files: Vec::new(),
            is_committed: false,
        };
        let mut new = Vec::new();
        for (key, spec) in luns {
            ensure!(luns.iter().filter(|(other, _)| other == key).count() == 1, "{key} is given twice");
            let Some(old) = self.0.get(key) else {
                new.push((key, spec));
                continue;
            };
            let (was, is) = (&old.spec.store, &spec.store);
            if was != is {
                let Some(after) = is.size_bytes().filter(|&size| was.resized(size) == *is) else {
                    new.push((key, spec));
                    continue;
                };
                let store = Arc::clone(&old.store);
                let before = store.size_bytes();
                store.can_resize(after).with_context(|| format!("{key}: {after} bytes"))?;
                next.resizes.push(Resize { key: key.clone(), store, before, after, is_done: false });
            }
            next.disks.insert(key.clone(), OpenDisk { spec: spec.clone(), ..old.clone() });
        }
        next.leaving = self
            .0
            .iter()
            .filter(|(n, _)| !next.disks.contains_key(n))
            .map(|(_, d)| Arc::clone(&d.owner))
            .collect();
        next.leaving.iter().for_each(|owner| owner.set_leaving(true));
        for (key, spec) in new {
            next.files.extend(FileBefore::of(&spec.store));
            let owner = Owner::new(key.to_string());
            let store = spec.store.open_for(&owner).with_context(|| key.to_string())?;
            next.disks.insert(key.clone(), OpenDisk { spec: spec.clone(), store, owner });
        }
        for (key, config) in configs(&next.disks) {
            let resize = next.resizes.iter().find(|resize| resize.key == key);
            let size = resize.map_or_else(|| config.store.size_bytes(), |resize| resize.after);
            let block = config.block_bytes;
            let is_possible = size > 0 && size.is_multiple_of(block.into());
            ensure!(is_possible, "{key}: {size} B is not a multiple of its logical block of {block} B");
        }
        Ok(next)
    }
}

impl Next {
    /// Grows the disks that become larger: the step of a change that can fail for lack of space.
    ///
    /// # Errors
    /// When a disk cannot grow.
    pub fn grow(&mut self) -> anyhow::Result<()> {
        self.resizes
            .iter_mut()
            .filter(|resize| resize.grows() && !resize.is_done)
            .try_for_each(Resize::carry_out)
    }

    /// Replaces the current disks. `serve` makes disks visible to initiators and must change nothing when it fails.
    ///
    /// Disks shrink last, because truncated data cannot be restored.
    ///
    /// # Errors
    /// When a disk cannot be resized or served. Everything is then restored.
    pub fn commit(
        mut self,
        present: &mut OpenDisks,
        serve: impl Fn(Which, &[(DiskKey, LunConfig)]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.grow()?;
        let after = configs(&self.disks);
        serve(Which::Next, &after)?;
        let mut shrinks = self.resizes.iter_mut().filter(|resize| !resize.grows()).peekable();
        if shrinks.peek().is_some() {
            let shrunk = shrinks.try_for_each(Resize::carry_out).and_then(|()| serve(Which::Next, &after));
            if let Err(error) = shrunk {
                self.resizes.iter_mut().for_each(Resize::undo);
                if let Err(error) = serve(Which::Previous, &configs(&present.0)) {
                    tracing::error!("cannot serve the previous disks: {error:#}");
                }
                return Err(error);
            }
        }
        self.is_committed = true;
        present.0 = std::mem::take(&mut self.disks);
        Ok(())
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        self.resizes.iter_mut().for_each(Resize::undo);
        // New stores are closed before their files are restored.
        self.disks.clear();
        self.files.iter().for_each(FileBefore::restore);
        self.leaving.iter().for_each(|owner| owner.set_leaving(false));
    }
}

/// The state of a file before a disk was opened over it, which may create or grow the file.
struct FileBefore {
    path: PathBuf,
    /// `None`: there was no file.
    length: Option<u64>,
}

impl FileBefore {
    fn of(spec: &StoreSpec) -> Option<Self> {
        let StoreKind::File { path, size_bytes: Some(_), device: false, .. } = &spec.kind else {
            return None;
        };
        let length = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Some(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            _ => return None,
        };
        Some(Self { path: path.clone(), length })
    }

    fn restore(&self) {
        let restored = match self.length {
            // A dangling symbolic link is kept; only its target is removed.
            None => std::fs::canonicalize(&self.path).and_then(std::fs::remove_file),
            Some(length) => std::fs::File::options()
                .write(true)
                .open(&self.path)
                .and_then(|file| if file.metadata()?.len() > length { file.set_len(length) } else { Ok(()) }),
        };
        if let Err(error) = restored
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot restore {}: {error}", self.path.display());
        }
    }
}

/// Returns the disks as a target's configuration.
fn configs(disks: &BTreeMap<DiskKey, OpenDisk>) -> Vec<(DiskKey, LunConfig)> {
    let config =
        |(key, OpenDisk { spec: DiskSpec { store: spec, names, .. }, store, .. }): (&DiskKey, &OpenDisk)| {
            let own = store.geometry().filter(|_| spec.own_blocks);
            let config = LunConfig {
                block_bytes: own.map_or(spec.block_bytes, |own| own.logical_bytes),
                physical_bytes: own.map_or(spec.physical_bytes, |own| own.physical_bytes),
                removable: spec.removable,
                names: names.clone(),
                ..LunConfig::new(key.number, Arc::clone(store))
            };
            (key.clone(), config)
        };
    disks.iter().map(config).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::Path;

    use super::*;

    fn specs(texts: &[String]) -> Vec<(DiskKey, DiskSpec)> {
        let lun = |text: &String| {
            let (number, spec) = crate::disk::lun(text).expect(text);
            (DiskKey { iqn: DEFAULT_IQN.into(), number }, spec)
        };
        texts.iter().map(lun).collect()
    }

    fn words(texts: &[&str]) -> Vec<(DiskKey, DiskSpec)> {
        specs(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn change(disks: &mut OpenDisks, luns: &[(DiskKey, DiskSpec)]) -> anyhow::Result<Vec<LunConfig>> {
        let served = RefCell::new(Vec::new());
        disks.prepare(luns)?.commit(disks, |_, luns| {
            *served.borrow_mut() = luns.iter().map(|(_, lun)| lun.clone()).collect();
            Ok(())
        })?;
        Ok(served.into_inner())
    }

    #[test]
    fn unchanged_disks_keep_their_stores() {
        let mut disks = OpenDisks::default();
        let first = disks.open(&words(&["0=ram:1M", "1=ram:1M", "2=zero:1M"])).expect("first");
        let second = change(&mut disks, &words(&["0=ram:1M", "1=ram:2M", "3=ram:1M"])).expect("second");
        assert!(Arc::ptr_eq(&first[0].1.store, &second[0].store));
        assert!(Arc::ptr_eq(&first[1].1.store, &second[1].store));
        assert_eq!(second[1].store.size_bytes(), 2 << 20);
        let third = change(&mut disks, &words(&["0=ram:1M,bs=4k"])).expect("third");
        assert!(!Arc::ptr_eq(&first[0].1.store, &third[0].store), "a new geometry opens a new disk");
        change(&mut disks, &words(&["0=zero:1M"])).expect("zero");
        assert!(
            change(&mut disks, &words(&["0=zero:2M"])).is_err(),
            "a store of fixed size rejects a resize"
        );
    }

    /// Returns the specification of a disk in a file of `folder`.
    fn file(folder: &tempfile::TempDir, number: u16, name: &str, rest: &str) -> String {
        format!("{number}=file:{}{rest}", folder.path().join(name).display())
    }

    /// Returns the length of a file, if it exists.
    fn length(folder: &tempfile::TempDir, name: &str) -> Option<u64> {
        folder.path().join(name).metadata().map(|metadata| metadata.len()).ok()
    }

    #[test]
    fn rejected_change_preserves_sizes_and_contents() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disks = OpenDisks::default();
        let before = [
            "0=ram:2M".into(),
            "1=zero:1M".into(),
            file(&folder, 2, "a", ",size=2M"),
            file(&folder, 3, "b", ",size=1M"),
        ];
        let stores: Vec<_> =
            disks.open(&specs(&before)).expect("first").into_iter().map(|(_, l)| l.store).collect();
        let end = (2 << 20) - 512;
        stores[0].write_at(end, &[7; 512]).expect("ram");
        stores[2].write_at(end, &[8; 512]).expect("file");
        std::fs::write(folder.path().join("grown"), [1; 4096]).expect("a file");
        std::os::unix::fs::symlink("nothing", folder.path().join("link")).expect("a link");
        let zero_grows = "1=zero:2M".to_owned();
        let no_file = file(&folder, 1, "none", "");
        let no_block = file(&folder, 1, "odd", "");
        std::fs::write(folder.path().join("odd"), [1; 700]).expect("a file");
        for wrong in [zero_grows, no_file, no_block] {
            let luns = [
                "0=ram:1M".into(),
                wrong.clone(),
                file(&folder, 2, "a", ",size=1M"),
                file(&folder, 3, "b", ",size=4M"),
                file(&folder, 5, "made", ",size=1M"),
                file(&folder, 6, "grown", ",size=1M"),
                file(&folder, 7, "link", ",size=1M"),
            ];
            assert!(change(&mut disks, &specs(&luns)).is_err(), "{wrong}");
            let mut there = [0; 512];
            stores[0].read_at(end, &mut there).expect("ram");
            assert_eq!(there, [7; 512], "{wrong}");
            stores[2].read_at(end, &mut there).expect("file");
            assert_eq!(there, [8; 512], "{wrong}");
            assert_eq!((stores[3].size_bytes(), length(&folder, "b")), (1 << 20, Some(1 << 20)), "{wrong}");
            let made = ["made", "grown", "nothing"].map(|name| length(&folder, name));
            assert_eq!(made, [None, Some(4096), None], "{wrong}");
            assert!(folder.path().join("link").is_symlink());
        }
    }

    #[test]
    fn failed_serve_restores_disk_sizes() {
        let folder = tempfile::tempdir().expect("folder");
        let mut disks = OpenDisks::default();
        let before = ["0=ram:2M".into(), "1=ram:1M".into(), file(&folder, 2, "a", ",size=1M")];
        let stores: Vec<_> =
            disks.open(&specs(&before)).expect("first").into_iter().map(|(_, l)| l.store).collect();
        let after =
            ["0=ram:1M".into(), "1=ram:2M".into(), file(&folder, 2, "a", ",size=2M"), "3=ram:1M".into()];
        let sizes = || stores.iter().map(|store| store.size_bytes() >> 20).collect::<Vec<_>>();
        // Fails at the first call, or only after a disk was shrunk.
        for refused in [1, 2] {
            let (calls, served) = (RefCell::new(0), RefCell::new(Vec::new()));
            let committed =
                disks.prepare(&specs(&after)).expect("possible").commit(&mut disks, |which, luns| {
                    assert_eq!(which == Which::Previous, *calls.borrow() == 2);
                    *calls.borrow_mut() += 1;
                    ensure!(*calls.borrow() != refused, "no");
                    *served.borrow_mut() = luns.iter().map(|(key, _)| key.number).collect();
                    Ok(())
                });
            assert!(committed.is_err());
            assert_eq!(sizes(), [2, 1, 1]);
            assert_eq!(length(&folder, "a"), Some(1 << 20));
            let expected: &[u16] = if refused == 1 { &[] } else { &[0, 1, 2] };
            assert_eq!(*served.borrow(), expected, "the previous disks are served");
        }
        change(&mut disks, &specs(&after)).expect("possible");
        assert_eq!(sizes(), [1, 2, 2]);
    }

    #[test]
    fn file_may_move_to_another_lun_but_not_back_two() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (a, b) = (at("a"), at("b"));
        let mut disks = OpenDisks::default();
        let two = [format!("0=file:{a},size=1M"), format!("1=file:{a},size=1M")];
        let error = disks.open(&specs(&two)).map(drop).expect_err("one file");
        assert!(
            format!("{error:#}").contains("LUN 1") && format!("{error:#}").contains("in use by LUN 0"),
            "{error:#}"
        );
        assert!(!Path::new(&a).exists(), "a rejected start leaves no file");
        disks
            .open(&specs(&[format!("0=file:{a},size=1M"), format!("1=file:{b},size=1M")]))
            .expect("two files");
        for luns in [
            vec![format!("0=file:{a},direct"), format!("1=file:{b},readonly")],
            vec![format!("0=file:{b}"), format!("1=file:{a},engine=threads")],
            vec![format!("2=file:{b}"), format!("3=file:{a}"), "0=ram:1M".into()],
        ] {
            change(&mut disks, &specs(&luns)).expect("each file is one disk");
        }
        let error = change(&mut disks, &specs(&[format!("2=file:{b}"), format!("4=file:{b}")])).map(drop);
        let error = format!("{:#}", error.expect_err("one file"));
        assert!(error.contains("LUN 4") && error.contains("in use by LUN 2"), "{error}");
        // The rejected change released its claims.
        assert!(format!("file:{a}").parse::<StoreSpec>().expect("spec").open().is_err());
        let both = [format!("2=file:{b},shared=yes"), format!("4=file:{b},shared=yes")];
        change(&mut disks, &specs(&both)).expect("shared by intent");
        change(&mut disks, &[]).expect("none");
        format!("file:{a}").parse::<StoreSpec>().expect("spec").open().expect("free again");
    }
}
