//! Persistent wires: two namespaces with names, joined by a veth pair or by two network cards and the cable between them,
//! until they are taken down. A record is written before anything is changed, so that it can be undone after a crash.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cable::{Cable, CableConfig};
use crate::crossing::Crossing;
use crate::error::WireError;
use crate::interrupts;
use crate::namespace::Namespace;
use crate::nic::Nic;
use crate::state::{EndState, end_state};
use crate::tools::run;

/// The folder of wire records.
pub const STATE_FOLDER: &str = "/run/roundtrip/wires";

/// The record of a persistent wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRecord {
    /// Its name.
    pub name: String,
    /// Rate of each direction, bits per second; `None`: unlimited.
    pub bits_per_second: Option<u64>,
    /// MTU of both ends, bytes.
    pub mtu_bytes: u32,
    /// CPUs that receive, client's and server's.
    pub cpus: [Option<usize>; 2],
    /// Bytes that may wait, each direction.
    pub queue_bytes: u32,
    /// Default congestion control; `None`: the system's.
    pub congestion: Option<String>,
    /// Offloads are left on.
    pub offloads: bool,
    /// The moved network cards and their settings before: the client's and the server's.
    pub nics: Option<[Nic; 2]>,
}

/// A persistent wire.
#[derive(Clone, Debug)]
pub struct NamedWire {
    /// Its record.
    pub record: WireRecord,
    file: PathBuf,
}

impl NamedWire {
    /// Makes a wire; leaves nothing behind on an error.
    ///
    /// # Errors
    /// When there is one of that name, the configuration is impossible, a card must not be moved, or the process may not.
    pub fn up(state: &Path, record: WireRecord) -> Result<Self, WireError> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if record.name.is_empty() || record.name.len() > 20 || !record.name.chars().all(is_name) {
            let allowed = "1 to 20 small letters, digits and hyphens";
            return Err(WireError::Config { key: "name", given: record.name, allowed });
        }
        record.config().check()?;
        let file = state.join(format!("{}.json", record.name));
        if file.exists() {
            let allowed = "there is a wire of that name; take it down first, or choose another";
            return Err(WireError::Config { key: "name", given: record.name, allowed });
        }
        if !nix::unistd::geteuid().is_root() {
            return Err(WireError::NotPermitted);
        }
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| WireError::Io { what, source }
        };
        std::fs::create_dir_all(state).map_err(io("making the folder where wires are written down"))?;
        let text =
            serde_json::to_string_pretty(&record).map_err(|e| io("writing the wire down")(e.into()))?;
        // A new file: what has its name by now, a symbolic link too, is not written to.
        std::fs::File::create_new(&file)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(io("writing the wire down"))?;
        let wire = Self { record, file };
        match wire.make() {
            Ok(()) => Ok(wire),
            Err(error) => {
                // The first error is returned; errors of the clean-up are not.
                let _ = wire.down();
                Err(error)
            }
        }
    }

    fn make(&self) -> Result<(), WireError> {
        let names = self.namespaces();
        for name in &names {
            run("ip", &["netns", "add", name])?;
        }
        let [client, server] = [Namespace::named(&names[0])?, Namespace::named(&names[1])?];
        match &self.record.nics {
            None => Cable::join(client, server, &self.record.config()).map(drop),
            Some(nics) => {
                for (nic, name) in nics.iter().zip(&names) {
                    run("ip", &["link", "set", &nic.interface, "netns", name])?;
                }
                let cable = Cable::of(
                    [client, server],
                    nics.each_ref().map(|nic| nic.interface.clone()),
                    &self.record.config(),
                );
                cable.set_up(&self.record.config())?;
                for (nic, cpu) in nics.iter().zip(self.record.cpus) {
                    if let Some(cpu) = cpu {
                        interrupts::steer(&nic.interrupts, cpu);
                    }
                }
                Ok(())
            }
        }
    }

    /// The wire of that name.
    ///
    /// # Errors
    /// When there is none, or what is written down of it cannot be read.
    pub fn find(state: &Path, name: &str) -> Result<Self, WireError> {
        let file = state.join(format!("{name}.json"));
        let text = std::fs::read_to_string(&file).map_err(|_| WireError::NoWire { name: name.to_owned() })?;
        let record = serde_json::from_str(&text).map_err(|error| WireError::Io {
            what: format!("reading {}", file.display()),
            source: error.into(),
        })?;
        Ok(Self { record, file })
    }

    /// The names of all wires.
    #[must_use]
    pub fn all(state: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
            .collect();
        names.sort();
        names
    }

    /// The namespaces of client and server.
    #[must_use]
    pub fn namespaces(&self) -> [String; 2] {
        ["client", "server"].map(|side| format!("roundtrip-{}-{side}", self.record.name))
    }

    /// The ends as a cable.
    ///
    /// # Errors
    /// When a namespace is gone.
    pub fn cable(&self) -> Result<Cable, WireError> {
        let [client, server] = self.namespaces();
        let ends = [Namespace::named(&client)?, Namespace::named(&server)?];
        let interfaces = match &self.record.nics {
            None => Cable::INTERFACES.map(str::to_owned),
            Some(nics) => nics.each_ref().map(|nic| nic.interface.clone()),
        };
        Ok(Cable::of(ends, interfaces, &self.record.config()))
    }

    /// The settings and counters of both ends.
    ///
    /// # Errors
    /// When a namespace is gone, or a program fails.
    pub fn state(&self) -> Result<[EndState; 2], WireError> {
        let (cable, names) = (self.cable()?, self.namespaces());
        let [client, server] = names;
        Ok([end_state("client", client, &cable.client)?, end_state("server", server, &cable.server)?])
    }

    /// Makes exchanges over the wire and counts the packets of its ends.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn prove(&self) -> Result<Crossing, WireError> {
        Crossing::over(&self.cable()?)
    }

    /// Takes the wire down and restores its cards. Also works for a wire that was not completed.
    ///
    /// # Errors
    /// When a step could not be undone; the record is kept, so that it can be tried again.
    pub fn down(&self) -> Result<(), WireError> {
        let names = self.namespaces();
        let mut failure = None;
        for (nic, name) in self.record.nics.iter().flatten().zip(&names) {
            failure = failure.or(nic.give_back(name).err());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        for name in &names {
            if Path::new("/run/netns").join(name).exists() {
                run("ip", &["netns", "del", name])?;
            }
        }
        std::fs::remove_file(&self.file)
            .map_err(|source| WireError::Io { what: format!("removing {}", self.file.display()), source })
    }
}

impl WireRecord {
    fn config(&self) -> CableConfig {
        let [client_cpu, server_cpu] = self.cpus;
        CableConfig {
            bits_per_second: self.bits_per_second,
            mtu_bytes: self.mtu_bytes,
            client_cpu,
            server_cpu,
            queue_bytes: self.queue_bytes,
            congestion: self.congestion.clone(),
            offloads: self.offloads,
        }
    }
}
