//! Interfaces that must not be changed without a way back: those that carry the caller's own connection or the default route, and
//! those above and below them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use netlink::route::{Address, Connection, Link, Route};

use crate::change::{Change, Setting};
use crate::error::ChangeError;

/// The most processes between this one and the login.
const DEPTH_LIMIT: usize = 64;

/// The largest environment of a process that is searched, bytes.
const ENVIRONMENT_LIMIT: u64 = 1 << 20;

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

/// The caller's own connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The address where the caller is.
    pub remote: Option<IpAddr>,
    /// The address of this host that the caller has connected to.
    pub local: Option<IpAddr>,
    /// Index of the interface that packets to the caller take.
    pub interface_to_remote: Option<u32>,
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

    /// The interfaces that carry a login or a default route, and those above and below them, each with the reason.
    #[must_use]
    pub fn lifelines(&self, logins: &[Login]) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        for login in logins {
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
        all
    }

    /// The error of changes of an interface that has no such name. The kernel also takes alternative names, under which an interface
    /// that carries the caller would not be recognised.
    #[must_use]
    pub fn missing(&self, changes: &[Change]) -> Option<ChangeError> {
        let mut names = changes.iter().flat_map(|change| change.setting.interfaces());
        let missing = names.find(|name| !self.links.iter().any(|link| link.name == *name))?;
        Some(ChangeError::Refused(format!(
            "there is no interface {missing}; `ip link` lists them, and alternative names are not taken"
        )))
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

/// The caller's logins: SSH_CONNECTION or SSH_CLIENT of this process and, as sudo removes them, of those that have started it.
#[must_use]
pub fn logins(proc: &Path) -> Vec<Login> {
    let mut found = Vec::new();
    let own: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    found.extend(login(&own));
    let mut process = std::process::id();
    for _ in 0..DEPTH_LIMIT {
        let Some(parent) = parent(proc, process).filter(|parent| *parent > 0) else { break };
        found.extend(login(&environment(proc, parent)));
        process = parent;
    }
    found.sort_by_key(|login| (login.remote, login.local));
    found.dedup();
    for login in &mut found {
        let to = login.remote.and_then(|remote| Connection::open().ok()?.route_to(remote).ok());
        login.interface_to_remote = to.and_then(|route| route.interface);
    }
    found
}

/// `client port server port` of SSH_CONNECTION; SSH_CLIENT has no server.
fn login(environment: &[(String, String)]) -> Option<Login> {
    let value = |key: &str| environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let words: Vec<&str> =
        value("SSH_CONNECTION").or_else(|| value("SSH_CLIENT"))?.split_whitespace().collect();
    let address = |at: usize| words.get(at).and_then(|word| without_zone(word).parse().ok());
    let local = if value("SSH_CONNECTION").is_some() { address(2) } else { None };
    let login = Login { remote: address(0), local, interface_to_remote: None };
    (login != Login::default()).then_some(login)
}

/// `fe80::1%eth0` as `fe80::1`.
fn without_zone(address: &str) -> &str {
    address.split('%').next().unwrap_or(address)
}

/// Whether addresses are equal; a server that listens on IPv6 sees IPv4 as `::ffff:10.0.0.1`.
fn same(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

fn parent(proc: &Path, process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn environment(proc: &Path, process: u32) -> Vec<(String, String)> {
    use std::io::Read as _;
    let Ok(file) = std::fs::File::open(proc.join(process.to_string()).join("environ")) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    if file.take(ENVIRONMENT_LIMIT).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
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

    fn names(lifelines: &BTreeMap<String, String>) -> Vec<&str> {
        lifelines.keys().map(String::as_str).collect()
    }

    #[test]
    fn everything_below_and_above_a_default_route_is_protected() {
        let mut topology = topology();
        topology.routes = vec![route(0, 6), route(24, 7)];
        let found = topology.lifelines(&[]);
        assert_eq!(names(&found), ["bond0", "br0", "eth0", "eth1", "vlan100"]);
        assert_eq!(found["eth0"], "it is below br0: a default route goes over that");
        assert_eq!(found["br0"], "a default route goes over it");
        topology.routes = vec![route(0, 2)];
        assert_eq!(names(&topology.lifelines(&[])), ["bond0", "br0", "eth0", "vlan100"]);
        assert_eq!(topology.lifelines(&[])["br0"], "it is above eth0: a default route goes over that");
    }

    #[test]
    fn a_vlan_beside_the_callers_is_free() {
        let mut topology = topology();
        topology.addresses = vec![address(9, "10.3.0.1"), address(10, "10.4.0.1")];
        let login = Login { local: Some("10.3.0.1".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&[login])), ["eth3", "vlan3"]);
    }

    #[test]
    fn the_callers_interface_is_that_of_either_address() {
        let mut topology = topology();
        topology.addresses = vec![address(7, "10.0.0.1")];
        let mapped = Login { local: Some("::ffff:10.0.0.1".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&[mapped])), ["eth2"]);
        // Packets to the caller may leave by another interface than they come in by.
        let other_way = Login {
            local: Some("10.0.0.1".parse().unwrap()),
            remote: Some("10.9.0.1".parse().unwrap()),
            interface_to_remote: Some(8),
        };
        assert_eq!(names(&topology.lifelines(&[other_way])), ["eth2", "eth3", "vlan3", "vlan4"]);
        let elsewhere = Login { local: Some("10.0.0.9".parse().unwrap()), ..Login::default() };
        assert_eq!(names(&topology.lifelines(&[elsewhere])), [""; 0]);
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
        assert_eq!(names(&topology.lifelines(&[])), ["a", "b"]);
    }

    #[test]
    fn half_a_default_route_counts() {
        let topology = Topology { routes: vec![route(1, 7)], ..topology() };
        assert_eq!(names(&topology.lifelines(&[])), ["eth2"]);
    }

    #[test]
    fn the_loopback_is_no_lifeline() {
        let topology = Topology { routes: vec![route(0, 1)], ..topology() };
        assert_eq!(names(&topology.lifelines(&[])), [""; 0]);
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
    fn a_login_is_found_through_sudo() {
        let proc = tempfile::tempdir().unwrap();
        let process = |id: u32, parent: u32, environ: &str| {
            let folder = proc.path().join(id.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
            std::fs::write(
                folder.join("environ"),
                environ.replace(' ', "\0").replace('_', " ").replace('+', "_"),
            )
            .unwrap();
        };
        // `_` stands for a space and `+` for `_`.
        process(std::process::id(), 50, "PATH=/bin");
        process(50, 40, "PATH=/bin SUDO+UID=1000");
        process(40, 1, "A=b SSH+CONNECTION=192.0.2.9_50000_192.0.2.1_22 C=d");
        process(1, 0, "");
        let found = logins(proc.path());
        let expected = Some(("192.0.2.9".parse().unwrap(), Some("192.0.2.1".parse().unwrap())));
        assert!(found.iter().any(|login| login.remote.zip(Some(login.local)) == expected), "{found:?}");
        // A process that is its own ancestor does not hang it.
        process(40, 50, "");
        let _ = logins(proc.path());
    }

    #[test]
    fn login_variables_are_parsed() {
        let with = |key: &str, value: &str| login(&[(key.to_owned(), value.to_owned())]);
        let full = with("SSH_CONNECTION", "fe80::1%eth0 5 fe80::2%eth0 22").unwrap();
        assert_eq!(full.local, Some("fe80::2".parse().unwrap()));
        let client = with("SSH_CLIENT", "10.0.0.9 5 22").unwrap();
        assert_eq!((client.remote, client.local), (Some("10.0.0.9".parse().unwrap()), None));
        for bad in ["", "x", "x y z"] {
            assert_eq!(with("SSH_CONNECTION", bad), None, "{bad}");
        }
        assert_eq!(with("PATH", "10.0.0.9 5 10.0.0.1 22"), None);
    }
}
