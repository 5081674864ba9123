//! The files and ports that the process may use: Landlock.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use nix::unistd::{AccessFlags, access};

use crate::{Mode, Plan, SandboxError, failed};

/// The newest ABI whose rights are handled; rights that an older kernel lacks are omitted.
const NEWEST: ABI = ABI::V7;
/// The oldest ABI that `--sandbox require` accepts: it covers truncation, so that read-only files are unchanged.
const LEAST: ABI = ABI::V3;
/// The kernel's description of block devices: block lengths and rotation.
const DEVICE_DESCRIPTIONS: [&str; 2] = ["/sys/dev/block", "/sys/devices"];

/// A process's access to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAccess {
    /// Read only.
    Read,
    /// Read and write.
    Write,
    /// Read and write; a missing file is created.
    Create,
}

/// A disk, or a folder for disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    pub(crate) writes: bool,
    /// A missing file is created.
    creates: bool,
    is_folder: bool,
}

impl Place {
    /// A disk in a file or on a device.
    #[must_use]
    pub fn disk(path: &Path, access: DiskAccess) -> Self {
        let writes = access != DiskAccess::Read;
        Self { path: path.to_owned(), writes, creates: access == DiskAccess::Create, is_folder: false }
    }

    /// A folder in which disks may be opened and created later.
    #[must_use]
    pub fn folder(path: &Path) -> Self {
        Self { path: path.to_owned(), writes: true, creates: false, is_folder: true }
    }

    pub(crate) fn is_disk(&self) -> bool {
        !self.is_folder
    }
}

/// Disks and folders for disks by their real paths.
#[derive(Debug)]
pub(crate) struct Files(Vec<Place>);

impl Files {
    /// The place that allows a path; places for writing take precedence.
    pub(crate) fn allows(&self, path: &Path) -> Option<&Place> {
        let real = real_path(path)?;
        let allowed = |place: &&Place| match place.is_folder {
            true => real.starts_with(&place.path),
            false => real == place.path,
        };
        self.0.iter().filter(allowed).max_by_key(|place| place.writes)
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<_> = self.0.iter().filter(|place| place.is_folder).collect();
        if folders.is_empty() {
            return f.write_str("none");
        }
        for (index, place) in folders.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, place.path.display())?;
        }
        Ok(())
    }
}

/// The path without symbolic links; the last part need not exist.
fn real_path(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    })
}

/// The files of a process that Landlock confines.
#[derive(Debug)]
pub(crate) struct Confined {
    pub(crate) files: Files,
    pub(crate) abi: i32,
    pub(crate) paths: usize,
}

pub(crate) fn can_write(path: &Path) -> bool {
    access(path, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

pub(crate) fn can_read(path: &Path) -> bool {
    access(path, AccessFlags::R_OK).is_ok()
}

/// Confines the calling thread and its later threads; `None` if Landlock is unavailable and not required.
pub(crate) fn confine(plan: &Plan) -> Result<Option<Confined>, SandboxError> {
    match try_confine(plan) {
        Ok(confined) => Ok(Some(confined)),
        Err(Refusal::Here(error)) => Err(error),
        Err(Refusal::Kernel(reason)) if plan.mode == Mode::Require => {
            Err(SandboxError::Unavailable { what: "Landlock", reason })
        }
        Err(Refusal::Kernel(reason)) => {
            tracing::warn!("sandbox: Landlock is not available: {reason}");
            Ok(None)
        }
    }
}

enum Refusal {
    /// A path that does not exist.
    Here(SandboxError),
    /// The kernel lacks a required feature.
    Kernel(String),
}

fn try_confine(plan: &Plan) -> Result<Confined, Refusal> {
    let kernel = |error: &dyn fmt::Display| Refusal::Kernel(error.to_string());
    let least = match plan.mode {
        Mode::Require => CompatLevel::HardRequirement,
        Mode::On | Mode::Off => CompatLevel::BestEffort,
    };
    let ruleset = Ruleset::default()
        .set_compatibility(least)
        .handle_access(AccessFs::from_all(LEAST))
        .and_then(|ruleset| {
            ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(NEWEST))
        })
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| kernel(&error))?;
    let (mut ruleset, mut paths, mut places) = (ruleset, 0, Vec::new());
    for (path, rights, is_needed) in rules(plan, &mut places).map_err(Refusal::Here)? {
        let opened = match PathFd::new(&path) {
            Ok(opened) => opened,
            // A missing path is reported later.
            Err(_) if !is_needed => continue,
            Err(error) => {
                let error = failed(path.display().to_string(), io::Error::other(error.to_string()));
                return Err(Refusal::Here(error));
            }
        };
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, rights)).map_err(|error| kernel(&error))?;
        paths += 1;
    }
    for &port in &plan.ports {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::BindTcp)).map_err(|error| kernel(&error))?;
    }
    for &port in &plan.servers.ports {
        ruleset =
            ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(|error| kernel(&error))?;
    }
    let status = ruleset.restrict_self().map_err(|error| kernel(&error))?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Err(Refusal::Kernel("it is not enabled in this kernel (lsm=landlock)".to_owned()))
        }
        (RulesetStatus::NotEnforced, _) => Err(Refusal::Kernel("this kernel lacks it".to_owned())),
        (_, LandlockStatus::Available { effective_abi, .. }) => {
            Ok(Confined { files: Files(places), abi: effective_abi as i32, paths })
        }
        (_, status) => Err(Refusal::Kernel(format!("{status:?}"))),
    }
}

/// A path, the access beneath it, and whether it must exist.
type Rule = (PathBuf, BitFlags<AccessFs>, bool);

/// The rules of a plan; `places` receives the real paths of disks and folders.
fn rules(plan: &Plan, places: &mut Vec<Place>) -> Result<Vec<Rule>, SandboxError> {
    let read = BitFlags::from(AccessFs::ReadFile);
    let write = read | AccessFs::WriteFile | AccessFs::Truncate;
    let mut rules = Vec::new();
    for place in &plan.disks {
        if place.creates {
            // A rule is for an inode. A file that cannot be created is reported when it is opened.
            let _ = std::fs::OpenOptions::new().write(true).create_new(true).open(&place.path);
        }
        if place.is_folder && !place.path.is_dir() {
            let error = io::Error::other("not a folder that exists");
            return Err(failed(format!("--disks {}", place.path.display()), error));
        }
        let rights = match (place.is_folder, place.writes) {
            // A reload that is rejected removes the files that it created.
            (true, _) => write | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::ReadDir,
            (false, true) => write,
            (false, false) => read,
        };
        rules.push((place.path.clone(), rights, place.is_folder));
        places.extend(real_path(&place.path).map(|path| Place { path, ..place.clone() }));
    }
    if let Some(path) = &plan.state {
        let rights = write | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::ReadDir;
        rules.push((path.clone(), rights, true));
    }
    for path in &plan.configuration {
        let real = real_path(path).unwrap_or_else(|| path.clone());
        // If the path is a link, a replacement of the link is found, too.
        let named = std::path::absolute(path).ok();
        if let Some(folder) =
            named.as_deref().and_then(Path::parent).filter(|folder| folder.parent().is_some())
        {
            rules.push((folder.to_owned(), read | AccessFs::ReadDir, false));
        }
        match real.parent().filter(|folder| folder.parent().is_some()) {
            Some(folder) => rules.push((folder.to_owned(), read | AccessFs::ReadDir, false)),
            // The root folder would include everything.
            None => rules.push((real, read, false)),
        }
    }
    if !plan.disks.is_empty() || !plan.configuration.is_empty() {
        rules.extend(DEVICE_DESCRIPTIONS.map(|path| (path.into(), read, false)));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_disks_and_folder_contents_only() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("disks")).unwrap();
        std::fs::create_dir(root.join("disks2")).unwrap();
        std::fs::write(root.join("one"), "").unwrap();
        std::os::unix::fs::symlink(root.join("one"), root.join("disks/link")).unwrap();
        let files =
            Files(vec![Place::disk(&root.join("one"), DiskAccess::Read), Place::folder(&root.join("disks"))]);
        let allows = |path: &str| files.allows(&root.join(path)).map(|place| place.writes);
        assert_eq!(allows("one"), Some(false));
        assert_eq!(allows("disks/new"), Some(true));
        assert_eq!(allows("disks/../one"), Some(false));
        assert_eq!(allows("disks/link"), Some(false), "a link counts as its destination");
        for outside in ["two", "disks2/new", "disks/../two", "disks/missing/new"] {
            assert_eq!(allows(outside), None, "{outside}");
        }
    }
}
