//! What the control socket asks for, carried out on a running target.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use control::metrics::{self, Process};
use control::request::{AccessBody, DiskBody};
use control::view::Snapshot;
use control::{Refusal, Reply, Request};
use iscsi_target::{DiskNames, RunningTarget};
use sandbox::Sandbox;
use serde_json::{Value, json};
use target_config::{DiskSpec, NodeFile, Served, TargetFile, access, diff, file, written};

use super::{LOG_OUT_PATIENCE, TargetArgs, confine};
use crate::log;

/// A running target and everything that an operator can change of it.
pub(super) struct Operator<'a> {
    pub(super) args: &'a TargetArgs,
    pub(super) target: &'a RunningTarget,
    pub(super) served: &'a mut Served,
    pub(super) sandbox: &'a Sandbox,
    pub(super) process: Process,
    pub(super) started: Instant,
    /// Until when the initiators may log out before the target ends.
    pub(super) drains_until: Option<Instant>,
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::Invalid(error.to_string())
}

fn done() -> Result<Reply, Refusal> {
    Ok(Reply::Json(json!({})))
}

impl Operator<'_> {
    /// Carries out a request.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub(super) fn carry_out(&mut self, request: Request) -> Result<Reply, Refusal> {
        let json = |value: Value| Ok(Reply::Json(value));
        match request {
            Request::Status => {
                let mut status = self.snapshot().status();
                status["portals"] = self.portals();
                status["config"] = json!(self.saves_to());
                json(status)
            }
            Request::Targets => json(json!(self.snapshot().nodes)),
            Request::Portals => json(self.portals()),
            Request::Disks => json(self.disks()),
            Request::Sessions => json(json!(self.target.session_list())),
            Request::Connections => json(json!(self.snapshot().connections)),
            Request::Reservations => json(json!(self.target.reservations())),
            Request::Access => {
                let of = |node: &NodeFile| (node.name().to_owned(), json!(diff::rules(node.access.as_ref())));
                json(self.served.file().nodes.iter().map(of).collect::<serde_json::Map<_, _>>().into())
            }
            Request::Send => json(json!({ "policy": self.target.send().to_string() })),
            Request::LogLevel => json(json!({ "level": log::level() })),
            Request::Metrics => Ok(Reply::Metrics(metrics::text(self.snapshot(), &self.process))),
            Request::Config => {
                self.config().map(Reply::Text).map_err(|error| Refusal::Failed(format!("{error:#}")))
            }
            Request::AddTarget(iqn, body) => {
                let mut file = self.served.file().clone();
                if let Some(node) = file.nodes.iter_mut().find(|node| node.name().eq_ignore_ascii_case(&iqn))
                {
                    if body.groups.is_some() {
                        node.groups = body.groups;
                    }
                    body.access.iter().try_for_each(|rules| set_rules(node, rules))?;
                } else {
                    let groups = body.groups;
                    let mut node =
                        NodeFile { iqn: Some(iqn), groups, is_diskless: true, ..NodeFile::default() };
                    body.access.iter().try_for_each(|rules| set_rules(&mut node, rules))?;
                    file.nodes.push(node);
                }
                self.apply(file)
            }
            Request::RemoveTarget(iqn) => {
                let mut file = self.served.file().clone();
                let index = self.index(&iqn)?;
                if file.nodes.len() == 1 {
                    return Err(Refusal::Conflict(format!(
                        "'{iqn}' is the only target; remove its disks, or end the process (drain)"
                    )));
                }
                file.nodes.remove(index);
                self.apply(file)
            }
            Request::SetDisk(iqn, lun, body) => self.set_disk(&iqn, lun, body),
            Request::ResizeDisk(iqn, lun, body) => {
                record::units::parse_size(&body.size).map_err(invalid)?;
                self.resize(&iqn, lun, &body.size)
            }
            Request::RemoveDisk(iqn, lun) => {
                let mut file = self.served.file().clone();
                let index = self.index(&iqn)?;
                let luns = &mut file.nodes[index].luns;
                let before = luns.len();
                luns.retain(|(number, _)| *number != lun);
                if luns.len() == before {
                    return Err(no_disk(&iqn, lun));
                }
                self.apply(file)
            }
            Request::DropSession(id) => match self.target.drop_sessions(|one| one.id == id) {
                0 => Err(Refusal::NotFound(format!("there is no session {id}"))),
                dropped => json(json!({ "dropped": dropped })),
            },
            Request::DropInitiator(name) => {
                match self.target.drop_sessions(|one| one.initiator.eq_ignore_ascii_case(&name)) {
                    0 => Err(Refusal::NotFound(format!("the initiator '{name}' has no session"))),
                    dropped => json(json!({ "dropped": dropped })),
                }
            }
            Request::ClearReservations(iqn, lun) => match self.target.clear_reservations(&iqn, lun) {
                Ok(Some(cleared)) => {
                    tracing::info!(target: "audit", target_name = iqn, lun, cleared, "reservations cleared by the operator");
                    json(json!({ "cleared": cleared }))
                }
                Ok(None) => Err(no_disk(&iqn, lun)),
                Err(error) => Err(Refusal::Failed(error.to_string())),
            },
            Request::SetAccess(iqn, AccessBody { rules }) => {
                let mut file = self.served.file().clone();
                let index = self.index(&iqn)?;
                let node = &mut file.nodes[index];
                set_rules(node, &rules)?;
                self.apply(file)
            }
            Request::SetSend(body) => {
                let send = body.policy.parse().map_err(invalid)?;
                let file = TargetFile { send: Some(send), ..self.served.file().clone() };
                self.apply(file)?;
                // Also where the command line has set another one.
                self.target.set_send(send);
                done()
            }
            Request::SetLogLevel(body) => {
                log::set_level(&body.level).map_err(invalid)?;
                done()
            }
            Request::Reload => {
                let before = self.served.file().clone();
                self.reload().map_err(|error| Refusal::Conflict(format!("{error:#}")))?;
                json(json!({ "changes": diff::differences(&before, self.served.file()) }))
            }
            Request::Apply(body) => {
                let file =
                    self.complete(file::parse(&body.config).map_err(|error| invalid(format!("{error:#}")))?);
                let changes = diff::differences(self.served.file(), &file);
                if body.dry_run {
                    self.served.check(&file).map_err(|error| Refusal::Conflict(format!("{error:#}")))?;
                    confine::check(self.sandbox, &file.disks())
                        .map_err(|error| Refusal::Conflict(format!("{error:#}")))?;
                    return json(json!({ "changes": changes, "applied": false }));
                }
                self.apply(file)?;
                json(json!({ "changes": changes, "applied": true }))
            }
            Request::Drain(body) => {
                tracing::info!(target: "audit", patience = ?body.patience(), "draining: logins are refused from now on");
                self.target.drain(body.patience());
                self.drains_until = Some(Instant::now() + body.patience() + Duration::from_secs(1));
                json(json!({ "sessions": self.target.sessions() }))
            }
            // The control thread answers these.
            Request::Events | Request::OpenApi => Err(Refusal::Failed("not for the main thread".to_owned())),
        }
    }

    /// Reads the configuration file again and applies it.
    pub(super) fn reload(&mut self) -> anyhow::Result<()> {
        let explain = |error| confine::explain(self.sandbox, error);
        let file = super::read(self.args).map_err(explain)?;
        confine::check(self.sandbox, &file.disks())?;
        let before = self.served.file().clone();
        let send = self.args.send.or(file.send).unwrap_or_default();
        self.served.reload(file, self.target, LOG_OUT_PATIENCE).map_err(explain)?;
        self.target.set_send(send);
        tell(&before, self.served.file());
        Ok(())
    }

    /// Applies a declared state.
    fn apply(&mut self, file: TargetFile) -> Result<Reply, Refusal> {
        let conflict =
            |error: anyhow::Error| Refusal::Conflict(format!("{:#}", confine::explain(self.sandbox, error)));
        confine::check(self.sandbox, &file.disks()).map_err(conflict)?;
        let before = self.served.file().clone();
        self.served.apply(file, self.target, LOG_OUT_PATIENCE).map_err(conflict)?;
        // Where the file says nothing new, the command line's policy stays.
        let send = self.served.file().send;
        if before.send != send {
            self.target.set_send(send.unwrap_or_default());
        }
        tell(&before, self.served.file());
        done()
    }

    /// Adds what the command line sets and a running target cannot change.
    fn complete(&self, file: TargetFile) -> TargetFile {
        let now = self.served.file();
        let or = |given: Vec<_>, now: &Vec<_>| if given.is_empty() { now.clone() } else { given };
        TargetFile {
            portals: if file.portals.is_empty() { now.portals.clone() } else { file.portals },
            state: file.state.or_else(|| now.state.clone()),
            limits: or(file.limits, &now.limits),
            ..file
        }
    }

    fn index(&self, iqn: &str) -> Result<usize, Refusal> {
        let index = self.served.file().nodes.iter().position(|node| node.name().eq_ignore_ascii_case(iqn));
        index.ok_or_else(|| Refusal::NotFound(format!("there is no target '{iqn}'")))
    }

    fn set_disk(&mut self, iqn: &str, lun: u16, body: DiskBody) -> Result<Reply, Refusal> {
        let DiskBody { store, serial, naa, t10, vendor, product, revision, new } = body;
        let names = DiskNames { serial, naa: None, t10, vendor, product, revision };
        let spec = DiskSpec::named(&store, names, naa.as_deref()).map_err(invalid)?;
        let mut file = self.served.file().clone();
        let index = self.index(iqn)?;
        let node = &mut file.nodes[index];
        node.is_diskless = false;
        match node.luns.iter_mut().find(|(number, _)| *number == lun) {
            Some(_) if new => {
                return Err(Refusal::Conflict(format!(
                    "'{iqn}' has a LUN {lun}; remove it first, or choose another number"
                )));
            }
            Some((_, old)) => *old = spec,
            None => node.luns.push((lun, spec)),
        }
        self.apply(file)
    }

    fn resize(&mut self, iqn: &str, lun: u16, size: &str) -> Result<Reply, Refusal> {
        let mut file = self.served.file().clone();
        let index = self.index(iqn)?;
        let disk = file.nodes[index].luns.iter_mut().find(|(number, _)| *number == lun);
        let (_, spec) = disk.ok_or_else(|| no_disk(iqn, lun))?;
        let text = with_size(&spec.text, size);
        let store: store::StoreSpec = text.parse().map_err(|error: store::SpecError| invalid(error))?;
        *spec = DiskSpec { text, store, names: spec.names.clone() };
        self.apply(file)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.target, self.started)
    }

    fn portals(&self) -> Value {
        let portals = &self.served.file().portals;
        let group = |index: usize| portals.get(index).map_or(1, |portal| portal.group);
        let addresses = self.target.addresses();
        let portal = |(index, address): (usize, &std::net::SocketAddr)| json!({ "address": address, "group": group(index) });
        addresses.iter().enumerate().map(portal).collect()
    }

    /// The disks with the stores that they were declared with.
    fn disks(&self) -> Value {
        let mut disks = self.snapshot().disks();
        for disk in disks.as_array_mut().into_iter().flatten() {
            let (target, lun) = (disk["target"].as_str().unwrap_or_default(), disk["lun"].as_u64());
            let node = self.served.file().node(target);
            let spec =
                node.and_then(|node| node.luns.iter().find(|(number, _)| Some(u64::from(*number)) == lun));
            disk["store"] = json!(spec.map(|(_, spec)| spec.text.clone()));
        }
        disks
    }

    /// The file that changes can be saved to: what the command line sets would be there twice after a restart, and secrets of
    /// another file in this one.
    fn saves_to(&self) -> Option<PathBuf> {
        let TargetArgs { config, luns, iqn, access, .. } = self.args;
        let is_alone = luns.is_empty() && iqn.is_none() && access.is_none();
        config.as_ref().filter(|_| is_alone)?.canonicalize().ok()
    }

    /// The configuration file with the changes made since.
    fn config(&self) -> anyhow::Result<String> {
        let original = match &self.args.config {
            Some(path) => target_config::read_text(path)?,
            None => String::new(),
        };
        written::text(&original, self.served.file())
    }
}

fn no_disk(iqn: &str, lun: u16) -> Refusal {
    Refusal::NotFound(format!("'{iqn}' has no LUN {lun}"))
}

/// Gives a target the rules of a text: those of an access file, or the words open and nobody.
fn set_rules(node: &mut NodeFile, text: &str) -> Result<(), Refusal> {
    (node.access, node.rules, node.is_open_access) = match text.trim() {
        "open" => (None, None, true),
        "nobody" => (Some(access::nobody().0), None, false),
        _ => {
            let (access, rules) = access::rules(text).map_err(|error| invalid(format!("{error:#}")))?;
            (Some(access), Some(rules), false)
        }
    };
    Ok(())
}

/// Tells what has changed.
fn tell(before: &TargetFile, after: &TargetFile) {
    for change in diff::differences(before, after) {
        tracing::info!(target: "audit", change, "configuration changed");
    }
}

/// The text of a store with another size: of its `size` option, or behind the kind.
fn with_size(text: &str, size: &str) -> String {
    let mut parts: Vec<String> = text.split(',').map(str::to_owned).collect();
    if let Some(option) = parts.iter_mut().find(|part| part.starts_with("size=")) {
        *option = format!("size={size}");
    } else if let Some((kind @ ("ram" | "zero"), _)) = parts[0].split_once(':') {
        parts[0] = format!("{kind}:{size}");
    } else {
        parts.push(format!("size={size}"));
    }
    parts.join(",")
}

/// Binds the control socket. Only its owner may connect, or a group if one is named.
pub(super) fn bind(path: &Path, group: Option<&str>) -> anyhow::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    let name = || format!("--control {}", path.display());
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        anyhow::ensure!(metadata.file_type().is_socket(), "{} is not a socket; choose another path", name());
        // Nothing else shows that the process that has made it is gone.
        let gone = UnixStream::connect(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        anyhow::ensure!(gone, "{}: another target listens there", name());
        std::fs::remove_file(path).with_context(name)?;
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(name)?;
    }
    // Never open to others, not even between two calls.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = bound.with_context(name)?;
    if let Some(group) = group {
        let account = sandbox::Account::group(group).with_context(name)?;
        std::os::unix::fs::chown(path, None, Some(account)).with_context(name)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).with_context(name)?;
    }
    Ok(listener)
}

/// Where the control socket is, unless it is named.
pub(crate) fn default_socket() -> PathBuf {
    PathBuf::from("/run/roundtrip/control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_a_store_is_replaced_where_it_stands() {
        for (text, expected) in [
            ("ram:1G", "ram:7"),
            ("zero:1T,bs=4k", "zero:7,bs=4k"),
            ("file:/srv/d,size=1G,direct", "file:/srv/d,size=7,direct"),
            ("file:/srv/d,readonly", "file:/srv/d,readonly,size=7"),
        ] {
            assert_eq!(with_size(text, "7"), expected);
        }
    }
}
