//! Interfaces that must not be changed without a way back: those that carry the caller's own connection or the default route, and
//! those above and below them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use netlink::route::{Address, Connection, Link, Route};

use crate::change::{Change, Setting};
use crate::error::ChangeError;

mod login;

pub use login::{Login, Logins, logins};

/// The longest name of an interface, bytes (IFNAMSIZ without its NUL).
const LONGEST_NAME_BYTES: usize = 15;

/// What the kernel knows about interfaces.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The interfaces.
    pub links: Vec<Link>,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// The routes.
    pub routes: Vec<Route>,
}

impl Topology {
    /// Reads it from the kernel, for the caller's network namespace.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn read() -> Result<Self, ChangeError> {
        let mut kernel = Connection::open().map_err(refused)?;
        Ok(Self {
            links: kernel.links().map_err(refused)?,
            addresses: kernel.addresses().map_err(refused)?,
            routes: kernel.routes().map_err(refused)?,
        })
    }

    /// The interfaces that carry a login or a default route, and those above and below them, each with the reason. All interfaces where
    /// a login cannot be told.
    #[must_use]
    pub fn lifelines(&self, logins: &Logins) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        for login in &logins.known {
            let owner =
                self.addresses.iter().find(|own| login.local.is_some_and(|local| same(own.address, local)));
            for index in owner.map(|own| own.interface).into_iter().chain(login.interface_to_remote) {
                reasons.entry(index).or_insert_with(|| "your connection goes over it".to_owned());
            }
        }
        for route in self.routes.iter().filter(|route| route.prefix_length <= 1) {
            // A VPN writes its default route as the two halves of all addresses.
            if let Some(index) = route.interface {
                reasons.entry(index).or_insert_with(|| "a default route goes over it".to_owned());
            }
        }
        let carriers: Vec<(u32, String)> = reasons.into_iter().collect();
        let mut all = BTreeMap::new();
        for (index, reason) in carriers {
            let Some(carrier) = self.link(index).filter(|link| !link.is_loopback) else { continue };
            all.insert(carrier.name.clone(), reason.clone());
            for (related, place) in self.related(index) {
                let text = format!(
                    "it is {place} {}: {}",
                    carrier.name,
                    reason.replace("goes over it", "goes over that")
                );
                all.entry(related.name.clone()).or_insert(text);
            }
        }
        if let Some(why) = logins.unreadable.first() {
            for link in self.links.iter().filter(|link| !link.is_loopback) {
                all.entry(link.name.clone())
                    .or_insert_with(|| format!("your connection may go over it: {why}"));
            }
        }
        all
    }

    /// The error of the first name that no interface has. The kernel also takes alternative names, under which an interface that
    /// carries the caller would not be recognised.
    #[must_use]
    pub fn missing(&self, names: impl IntoIterator<Item = String>) -> Option<ChangeError> {
        let missing = names.into_iter().find(|name| !self.links.iter().any(|link| link.name == *name))?;
        let is_name = (1..=LONGEST_NAME_BYTES).contains(&missing.len())
            && !missing.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0');
        Some(ChangeError::Refused(if is_name {
            format!(
                "there is no interface {missing}; `ip link` lists them, and alternative names are not taken"
            )
        } else {
            format!(
                "'{missing}' cannot be the name of an interface, which has 1 to {LONGEST_NAME_BYTES} bytes without spaces, '/' and ':'; \
                 `ip link` lists them"
            )
        }))
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The interfaces below a link (ports of a bridge or bond, what a VLAN is on) and above it, at any distance.
    fn related(&self, index: u32) -> Vec<(&Link, &'static str)> {
        let lower = |link: &Link| link.lower.filter(|_| !link.is_lower_elsewhere);
        let is_on = |upper: u32, below: &Link| {
            below.master == Some(upper)
                || self.link(upper).is_some_and(|upper| lower(upper) == Some(below.index))
        };
        let mut related = Vec::new();
        for (place, is_next) in [
            ("below", &(|from: u32, to: &Link| is_on(from, to)) as &dyn Fn(u32, &Link) -> bool),
            ("above", &|from: u32, to: &Link| self.link(from).is_some_and(|from| is_on(to.index, from))),
        ] {
            let mut open = vec![index];
            let mut seen = vec![index];
            while let Some(from) = open.pop() {
                for link in self.links.iter().filter(|link| is_next(from, link)) {
                    if !seen.contains(&link.index) {
                        seen.push(link.index);
                        open.push(link.index);
                        related.push((link, place));
                    }
                }
            }
        }
        related
    }
}

/// Why changes must not be made without a way back: for each interface at risk, the reason. `sysfs` is `/sys` but in tests.
#[must_use]
pub fn risks(
    sysfs: &Path,
    lifelines: &BTreeMap<String, String>,
    changes: &[Change],
) -> BTreeMap<String, String> {
    let settings =
        changes.iter().flat_map(|change| [Some(change.setting.clone()), reached(sysfs, &change.setting)]);
    let mut risks = BTreeMap::new();
    for setting in settings.flatten() {
        for name in setting.interfaces() {
            risks.extend(lifelines.get(&name).map(|reason| (name, reason.clone())));
        }
        if is_of_all_interfaces(&setting) {
            risks.extend(lifelines.iter().next().map(|(name, reason)| (name.clone(), reason.clone())));
        }
    }
    risks
}

/// The file below /sys that a path leads to: a link such as `subsystem` may lead from one interface to another.
fn reached(sysfs: &Path, setting: &Setting) -> Option<Setting> {
    let Setting::Sysfs { path } = setting else { return None };
    let (root, file) = (sysfs.canonicalize().ok()?, sysfs.join(path).canonicalize().ok()?);
    let path = file.strip_prefix(root).ok()?.to_str()?.to_owned();
    Some(Setting::Sysfs { path })
}

/// Whether a parameter is one of all interfaces at once: net.ipv6.conf.all.disable_ipv6.
fn is_of_all_interfaces(setting: &Setting) -> bool {
    let Setting::Sysctl { name } = setting else { return false };
    matches!(name.split('.').collect::<Vec<_>>()[..], ["net", _, "conf", "all", ..])
}

/// The error of changes that need a way back.
#[must_use]
pub fn refusal(risks: &BTreeMap<String, String>) -> Option<ChangeError> {
    let (interface, reason) = risks.iter().next()?;
    Some(ChangeError::Refused(format!(
        "{interface} is not changed: {reason}, and a mistake would cut it; --confirm-within 60s applies the change and takes it \
         back unless `roundtrip host confirm` follows in time"
    )))
}

/// Whether addresses are equal; a server that listens on IPv6 sees IPv4 as `::ffff:10.0.0.1`.
fn same(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: netlink::Error) -> ChangeError {
    ChangeError::Refused(format!("cannot tell which interfaces carry your connection: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), is_loopback: name == "lo", ..Link::default() }
    }

    fn route(prefix_length: u8, interface: u32) -> Route {
        Route {
            destination: "0.0.0.0".parse().unwrap(),
            prefix_length,
            gateway: None,
            interface: Some(interface),
            source: None,
            table: 254,
            priority: 0,
            metrics: netlink::route::RouteMetrics::default(),
        }
    }

    fn address(interface: u32, text: &str) -> Address {
        Address { interface, address: text.parse().unwrap(), prefix_length: 24 }
    }

    /// lo; eth0 and eth1 in bond0, vlan100 on bond0, br0 with vlan100; eth2; eth3 with vlan3 and vlan4.
    fn topology() -> Topology {
        let mut links: Vec<Link> =
            ["lo", "eth0", "eth1", "bond0", "vlan100", "br0", "eth2", "eth3", "vlan3", "vlan4"]
                .iter()
                .zip(1..)
                .map(|(name, index)| link(index, name))
                .collect();
        links[1].master = Some(4);
        links[2].master = Some(4);
        links[4].lower = Some(4);
        links[4].master = Some(6);
        links[8].lower = Some(8);
        links[9].lower = Some(8);
        Topology { links, addresses: Vec::new(), routes: Vec::new() }
    }

    fn known(login: Login) -> Logins {
        Logins { known: vec![login], ..Logins::default() }
    }

    fn names(lifelines: &BTreeMap<String, String>) -> Vec<&str> {
        lifelines.keys().map(String::as_str).collect()
    }

    #[test]
    fn everything_below_and_above_a_default_route_is_protected() {
        let mut topology = topology();
        topology.routes = vec![route(0, 6), route(24, 7)];
        let found = topology.lifelines(&Logins::default());
        assert_eq!(names(&found), ["bond0", "br0", "eth0", "eth1", "vlan100"]);
        assert_eq!(found["eth0"], "it is below br0: a default route goes over that");
        assert_eq!(found["br0"], "a default route goes over it");
        topology.routes = vec![route(0, 2)];
        assert_eq!(names(&topology.lifelines(&Logins::default())), ["bond0", "br0", "eth0", "vlan100"]);
        assert_eq!(
            topology.lifelines(&Logins::default())["br0"],
            "it is above eth0: a default route goes over that"
        );
    }

    #[test]
    fn a_vlan_beside_the_callers_is_free() {
        let mut topology = topology();
        topology.addresses = vec![address(9, "10.3.0.1"), address(10, "10.4.0.1")];
        let login = Login { local: Some("10.3.0.1".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&known(login))), ["eth3", "vlan3"]);
    }

    #[test]
    fn the_callers_interface_is_that_of_either_address() {
        let mut topology = topology();
        topology.addresses = vec![address(7, "10.0.0.1")];
        let mapped = Login { local: Some("::ffff:10.0.0.1".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&known(mapped))), ["eth2"]);
        // Packets to the caller may leave by another interface than they come in by.
        let other_way = Login {
            local: Some("10.0.0.1".parse().unwrap()),
            remote: Some("10.9.0.1".parse().unwrap()),
            interface_to_remote: Some(8),
        };
        assert_eq!(names(&topology.lifelines(&known(other_way))), ["eth2", "eth3", "vlan3", "vlan4"]);
        let elsewhere = Login { local: Some("10.0.0.9".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&known(elsewhere))), [""; 0]);
    }

    #[test]
    fn loops_of_interfaces_end_and_other_namespaces_do_not_count() {
        // The ends of a veth pair name each other.
        let mut links = vec![link(1, "a"), link(2, "b"), link(3, "c")];
        links[0].lower = Some(2);
        links[1].lower = Some(1);
        links[2].lower = Some(1);
        links[2].is_lower_elsewhere = true;
        let topology = Topology { links, addresses: Vec::new(), routes: vec![route(0, 1)] };
        assert_eq!(names(&topology.lifelines(&Logins::default())), ["a", "b"]);
    }

    #[test]
    fn half_a_default_route_counts() {
        let topology = Topology { routes: vec![route(1, 7)], ..topology() };
        assert_eq!(names(&topology.lifelines(&Logins::default())), ["eth2"]);
    }

    #[test]
    fn the_loopback_is_no_lifeline() {
        let topology = Topology { routes: vec![route(0, 1)], ..topology() };
        assert_eq!(names(&topology.lifelines(&Logins::default())), [""; 0]);
    }

    #[test]
    fn no_other_way_leads_to_a_protected_interface() {
        let sysfs = tempfile::tempdir().unwrap();
        for name in ["eth0", "eth1"] {
            let device = sysfs.path().join("devices/net").join(name);
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("mtu"), "1500").unwrap();
            std::fs::create_dir_all(sysfs.path().join("class/net")).unwrap();
            std::os::unix::fs::symlink(&device, sysfs.path().join("class/net").join(name)).unwrap();
            std::os::unix::fs::symlink(sysfs.path().join("class/net"), device.join("subsystem")).unwrap();
        }
        let lifelines = BTreeMap::from([("eth0".to_owned(), "a default route goes over it".to_owned())]);
        let file = |path: &str| Setting::Sysfs { path: path.to_owned() };
        let parameter = |name: &str| Setting::Sysctl { name: name.to_owned() };
        for (setting, is_refused) in [
            (file("class/net/eth0/mtu"), true),
            (file("devices/net/eth0/mtu"), true),
            (file("class/net/eth1/subsystem/eth0/mtu"), true),
            (file("class/net/eth1/mtu"), false),
            (parameter("net.ipv6.conf.all.disable_ipv6"), true),
            (parameter("net.ipv6.conf.eth0.disable_ipv6"), true),
            (parameter("net.ipv6.conf.eth1.disable_ipv6"), false),
            (parameter("net.ipv4.tcp_rmem"), false),
        ] {
            let change = Change { setting, value: "1".to_owned() };
            let refusal = refusal(&risks(sysfs.path(), &lifelines, std::slice::from_ref(&change)));
            assert_eq!(refusal.is_some(), is_refused, "{}", change.setting);
            if let Some(error) = refusal {
                let error = error.to_string();
                assert!(
                    error.contains("eth0 is not changed: a default route")
                        && error.contains("--confirm-within")
                );
            }
        }
    }

    #[test]
    fn a_login_that_cannot_be_told_protects_every_interface() {
        let mut topology = topology();
        topology.routes = vec![route(0, 7)];
        let unreadable =
            Logins { unreadable: vec!["SSH_CONNECTION is 'junk'".to_owned()], ..Logins::default() };
        let found = topology.lifelines(&unreadable);
        assert_eq!(found.len(), topology.links.len() - 1, "all but the loopback: {found:?}");
        assert_eq!(found["eth3"], "your connection may go over it: SSH_CONNECTION is 'junk'");
        assert_eq!(found["eth2"], "a default route goes over it", "a reason that is known comes first");
    }

    #[test]
    fn names_that_no_interface_has_are_named() {
        let why = |name: &str| topology().missing([name.to_owned()]).map(|error| error.to_string());
        assert_eq!(why("eth0"), None);
        assert!(why("eth7").unwrap().contains("there is no interface eth7"));
        for name in ["", "a b", "a/b", "a:b", "sixteen-letters-"] {
            assert!(why(name).unwrap().contains("cannot be the name of an interface"), "{name}");
        }
    }
}
