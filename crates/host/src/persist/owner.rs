//! Which program owns an interface, from what each of them has written down.

use std::path::{Path, PathBuf};

/// The program that configures an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// None but udev, which applies a `.link` file to every interface.
    Udev,
    /// systemd-networkd; speed and duplex are in udev's `.link` file.
    Networkd,
    /// NetworkManager, with the connection that is active.
    NetworkManager {
        /// Its UUID.
        uuid: String,
    },
    /// ifupdown, by /etc/network/interfaces.
    Ifupdown,
}

/// What programs have written down about an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerFacts {
    /// Its name.
    pub interface: String,
    /// /run/systemd/netif/links/INDEX.
    pub networkd: Option<String>,
    /// /run/NetworkManager/devices/INDEX.
    pub network_manager: Option<String>,
    /// /etc/network/interfaces and the files that it includes.
    pub interfaces: Vec<String>,
    /// Its permanent hardware address, where it has one.
    pub permanent_address: Option<String>,
    /// The `.link` file that udev has applied, or would apply.
    pub link_file: Option<LinkFile>,
}

/// A `.link` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFile {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub content: String,
}

/// The largest file that is read, bytes.
const SIZE_LIMIT: u64 = 1 << 20;

/// The most files that /etc/network/interfaces may include.
const INCLUDE_LIMIT: usize = 100;

impl OwnerFacts {
    /// The owner.
    #[must_use]
    pub fn owner(&self) -> Owner {
        if let Some(uuid) = self.network_manager.as_deref().and_then(connection) {
            return Owner::NetworkManager { uuid };
        }
        let state =
            |text: &str| text.lines().find_map(|line| line.strip_prefix("ADMIN_STATE=").map(str::to_owned));
        let is_networkds = self.networkd.as_deref().and_then(state).is_some_and(|state| state != "unmanaged");
        if is_networkds {
            return Owner::Networkd;
        }
        let is_named = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some("iface") && words.next() == Some(&self.interface)
        };
        if self.interfaces.iter().flat_map(|text| text.lines()).any(is_named) {
            Owner::Ifupdown
        } else {
            Owner::Udev
        }
    }

    /// Reads them. `root` is `/` but in tests.
    #[must_use]
    pub fn read(root: &Path, interface: &str) -> Option<Self> {
        let class = root.join("sys/class/net").join(interface);
        let index = text(&class.join("ifindex"))?.trim().to_owned();
        // addr_assign_type 0: the address is the permanent one.
        let is_permanent = text(&class.join("addr_assign_type")).is_some_and(|kind| kind.trim() == "0");
        let address = text(&class.join("address")).filter(|_| is_permanent);
        Some(Self {
            interface: interface.to_owned(),
            networkd: text(&root.join("run/systemd/netif/links").join(&index)),
            network_manager: text(&root.join("run/NetworkManager/devices").join(&index)),
            interfaces: interfaces(root),
            permanent_address: address.map(|address| address.trim().to_owned()),
            link_file: link_file(root, &index),
        })
    }
}

/// The UUID of the connection of a device that NetworkManager manages.
fn connection(state: &str) -> Option<String> {
    let value = |key: &str| state.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    if value("managed") == Some("false") {
        return None;
    }
    value("connection-uuid").filter(|uuid| !uuid.is_empty()).map(str::to_owned)
}

/// The `.link` file that udev's database names, or the one that applies to interfaces without another.
fn link_file(root: &Path, index: &str) -> Option<LinkFile> {
    let database = text(&root.join(format!("run/udev/data/n{index}"))).unwrap_or_default();
    let named = database.lines().find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE="));
    let path = PathBuf::from(named.unwrap_or("/usr/lib/systemd/network/99-default.link"));
    let content = text(&root.join(path.strip_prefix("/").unwrap_or(&path)))?;
    Some(LinkFile { path, content })
}

/// /etc/network/interfaces and the files that it includes by `source` and `source-directory` (interfaces(5)).
fn interfaces(root: &Path) -> Vec<String> {
    let folder = root.join("etc/network");
    let Some(main) = text(&folder.join("interfaces")) else { return Vec::new() };
    let mut all = Vec::new();
    for line in main.lines() {
        let mut words = line.split_whitespace();
        let include = match (words.next(), words.next()) {
            (Some("source" | "source-directory"), Some(path)) => path.trim_end_matches("/*"),
            _ => continue,
        };
        let path = match include.strip_prefix('/') {
            Some(absolute) => root.join(absolute),
            None => folder.join(include),
        };
        if path.is_file() {
            all.extend(text(&path));
        }
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        all.extend(entries.take(INCLUDE_LIMIT).filter_map(|entry| text(&entry.path())));
    }
    all.push(main);
    all
}

fn text(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(SIZE_LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> OwnerFacts {
        OwnerFacts { interface: "eth0".to_owned(), ..OwnerFacts::default() }
    }

    #[test]
    fn the_owner_is_who_manages_the_interface() {
        let networkd = |state: &str| Some(format!("# private\nADMIN_STATE={state}\nOPER_STATE=routable\n"));
        let manager = |managed: &str| Some(format!("[device]\nmanaged={managed}\nconnection-uuid=3f0c\n"));
        let ifupdown =
            vec!["auto lo\niface lo inet loopback\n".to_owned(), "  iface eth0 inet dhcp\n".to_owned()];
        assert_eq!(facts().owner(), Owner::Udev);
        assert_eq!(OwnerFacts { networkd: networkd("configured"), ..facts() }.owner(), Owner::Networkd);
        assert_eq!(OwnerFacts { networkd: networkd("unmanaged"), ..facts() }.owner(), Owner::Udev);
        assert_eq!(
            OwnerFacts { network_manager: manager("true"), ..facts() }.owner(),
            Owner::NetworkManager { uuid: "3f0c".to_owned() }
        );
        assert_eq!(OwnerFacts { interfaces: ifupdown.clone(), ..facts() }.owner(), Owner::Ifupdown);
        // NetworkManager leaves what ifupdown has alone, and networkd leaves both alone.
        let both = OwnerFacts {
            network_manager: manager("false"),
            networkd: networkd("unmanaged"),
            interfaces: ifupdown,
            ..facts()
        };
        assert_eq!(both.owner(), Owner::Ifupdown);
        let commented = vec!["# iface eth0 inet dhcp\niface eth01 inet dhcp\n".to_owned()];
        assert_eq!(OwnerFacts { interfaces: commented, ..facts() }.owner(), Owner::Udev);
    }

    #[test]
    fn facts_are_read_below_a_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(OwnerFacts::read(root.path(), "eth0"), None);
        write("sys/class/net/eth0/ifindex", "7\n");
        write("sys/class/net/eth0/addr_assign_type", "0\n");
        write("sys/class/net/eth0/address", "02:00:00:00:00:01\n");
        write("run/systemd/netif/links/7", "ADMIN_STATE=configured\n");
        write("run/udev/data/n7", "I:1\nE:ID_NET_LINK_FILE=/etc/systemd/network/50-a.link\n");
        write("etc/systemd/network/50-a.link", "[Link]\nMTUBytes=1400\n");
        write(
            "etc/network/interfaces",
            "source /etc/network/interfaces.d/*\nsource-directory more\nauto lo\n",
        );
        write("etc/network/interfaces.d/a", "iface a\n");
        write("etc/network/more/b", "iface b\n");
        let facts = OwnerFacts::read(root.path(), "eth0").unwrap();
        assert_eq!(facts.permanent_address.as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(facts.owner(), Owner::Networkd);
        assert_eq!(facts.link_file.unwrap().content, "[Link]\nMTUBytes=1400\n");
        assert_eq!(facts.interfaces.len(), 3);
        write("sys/class/net/eth0/addr_assign_type", "1\n");
        assert_eq!(OwnerFacts::read(root.path(), "eth0").unwrap().permanent_address, None);
    }
}
