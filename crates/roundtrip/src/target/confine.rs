//! The sandbox plan of a target: the resources that it needs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use iscsi_target::TargetConfig;
use nbd::Place as ServerPlace;
use sandbox::{Account, DiskAccess, Mode, Place, Plan, Sandbox, Servers};
use store::StoreSpec;
use store::spec::StoreKind;
use target_config::{DiskKey, DiskSpec};

/// Privileges of a target.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Privileges")]
pub(crate) struct SandboxArgs {
    /// Run as this user (name or number) once portals and disks are open, without supplementary groups; needs root
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<Account>,
    /// Folder in which a reload (SIGHUP) may open and create disks in addition to those of the start; repeatable
    #[arg(long = "disks", value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Confine the process by Landlock, seccomp and capabilities: on (as far as the kernel supports them), require (an
    /// error if the kernel lacks Landlock or seccomp) or off
    #[arg(long, value_name = "on|require|off", default_value = "on")]
    sandbox: Mode,
}

impl SandboxArgs {
    /// The plan for a target of this configuration; `reread` are the files that a reload reads.
    pub(crate) fn plan(
        &self,
        config: &TargetConfig,
        luns: &[(DiskKey, DiskSpec)],
        reread: Vec<PathBuf>,
    ) -> Plan {
        let disks = luns.iter().filter_map(|(_, spec)| {
            let spec = &spec.store;
            let (path, writes) = file_of(spec)?;
            let access = match writes {
                true if spec.size_bytes().is_some() && !is_device(spec) => DiskAccess::Create,
                true => DiskAccess::Write,
                false => DiskAccess::Read,
            };
            Some(Place::disk(path, access))
        });
        Plan {
            mode: self.sandbox,
            user: self.user.clone(),
            disks: disks.chain(self.folders.iter().map(|folder| Place::folder(folder))).collect(),
            state: config.state.clone(),
            configuration: reread,
            ports: config.portals.iter().map(|portal| portal.listen.port()).collect(),
            servers: servers(luns),
            unconfined: unconfined(luns),
            tunes_network: config.tcp.congestion.is_some(),
        }
    }
}

/// The path of a file or device, and whether it is opened for writing.
fn file_of(spec: &StoreSpec) -> Option<(&Path, bool)> {
    match &spec.kind {
        StoreKind::File { path, .. } => Some((path, !spec.read_only)),
        StoreKind::Zero { .. } | StoreKind::Ram { .. } | StoreKind::Nbd { .. } | StoreKind::Rbd { .. } => {
            None
        }
    }
}

/// The server of a disk: its TCP port, or none for a Unix socket.
fn server_of(spec: &StoreSpec) -> Option<Option<u16>> {
    let StoreKind::Nbd { address, .. } = &spec.kind else { return None };
    match address.place {
        ServerPlace::Tcp(_, port) => Some(Some(port)),
        ServerPlace::Unix(_) => Some(None),
    }
}

/// What a disk needs that the sandbox cannot confine.
fn unconfined(luns: &[(DiskKey, DiskSpec)]) -> Option<&'static str> {
    let is_image = |spec: &DiskSpec| matches!(spec.store.kind, StoreKind::Rbd { .. });
    luns.iter().any(|(_, spec)| is_image(spec)).then_some(
        "an rbd: disk connects to every monitor and object store of its cluster, by a library that opens files of its own",
    )
}

fn servers(luns: &[(DiskKey, DiskSpec)]) -> Servers {
    let all = || luns.iter().filter_map(|(_, spec)| server_of(&spec.store));
    Servers { ports: all().flatten().collect(), has_unix: all().any(|port| port.is_none()) }
}

fn is_device(spec: &StoreSpec) -> bool {
    matches!(spec.kind, StoreKind::File { device: true, .. })
}

/// Refuses disks that the sandbox does not let the target open.
///
/// # Errors
/// Names the disk and the remedy.
pub(crate) fn check(sandbox: &Sandbox, luns: &[(DiskKey, DiskSpec)]) -> anyhow::Result<()> {
    for (key, spec) in luns {
        if let Some((path, writes)) = file_of(&spec.store) {
            sandbox.check_disk(path, writes).with_context(|| key.to_string())?;
        }
        if matches!(spec.store.kind, StoreKind::Rbd { .. }) {
            sandbox.check_unconfined().with_context(|| key.to_string())?;
        }
        if let Some(port) = server_of(&spec.store) {
            sandbox.check_server(port).with_context(|| key.to_string())?;
        }
    }
    Ok(())
}

/// Adds the possible role of the sandbox to a permission error.
pub(crate) fn explain(sandbox: &Sandbox, error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let is_denied = text.contains("Permission denied") || text.contains("Operation not permitted");
    match sandbox.explain_denial().filter(|_| is_denied) {
        Some(causes) => anyhow::anyhow!("{text} ({causes})"),
        None => error,
    }
}
