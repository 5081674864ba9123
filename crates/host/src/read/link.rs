//! Reads facts about network interfaces: the kernel's tables, and each driver's report, twice while counters are watched.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use netlink::Error;
use netlink::ethtool::{self, Features};
use netlink::route::{self, Link};

use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::link::{LinkFacts, OFFLOADS, Watched};

/// Reads facts about network interfaces: all but the loopback, or the one that is wanted. Waits for the time of `wanted.watch`.
#[must_use]
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<LinkFacts> {
    let mut tables = match route::Connection::open() {
        Ok(tables) => tables,
        Err(error) => {
            unseen.push(Unseen { what: "network interfaces".to_owned(), why: error.to_string() });
            return Vec::new();
        }
    };
    let links = match tables.links() {
        Ok(links) => links,
        Err(error) => {
            unseen.push(Unseen { what: "network interfaces".to_owned(), why: error.to_string() });
            return Vec::new();
        }
    };
    let surroundings = Surroundings::read(&mut tables, links, unseen);
    let mut cards = match ethtool::Connection::open() {
        Ok(cards) => Some(cards),
        Err(error) => {
            unseen.push(Unseen { what: "settings of network cards".to_owned(), why: error.to_string() });
            None
        }
    };
    let is_wanted = |link: &&Link| match &wanted.interface {
        Some(interface) => link.name == *interface,
        None => !link.is_loopback,
    };
    let mut found: Vec<LinkFacts> =
        surroundings.links.iter().filter(is_wanted).map(|link| surroundings.facts(roots, link)).collect();
    if let Some(cards) = &mut cards {
        found.iter_mut().for_each(|facts| read_card(cards, facts, unseen));
    }
    if let Some(interface) = wanted.interface.as_ref().filter(|_| found.is_empty()) {
        unseen.push(Unseen { what: format!("interface {interface}"), why: "there is none".to_owned() });
    }
    if !wanted.watch.is_zero() && !found.is_empty() {
        let begun = Instant::now();
        std::thread::sleep(wanted.watch);
        read_again(&mut tables, cards.as_mut(), &mut found, begun, unseen);
    }
    found
}

/// Reads one interface, without watching it.
///
/// # Errors
/// When there is none of this name, or the kernel's table cannot be read. A group that the driver lacks is none.
pub fn read_one(roots: &Roots, interface: &str, unseen: &mut Vec<Unseen>) -> Result<LinkFacts, Error> {
    let mut tables = route::Connection::open()?;
    let link = tables.link(interface)?;
    let links = tables.links()?;
    let mut facts = Surroundings::read(&mut tables, links, unseen).facts(roots, &link);
    read_card(&mut ethtool::Connection::open()?, &mut facts, unseen);
    Ok(facts)
}

/// What the tables say about all interfaces together.
struct Surroundings {
    links: Vec<Link>,
    addresses: Vec<route::Address>,
    /// Indexes of the interfaces of default routes.
    defaults: Vec<u32>,
    /// Index of the interface towards the caller.
    caller: Option<u32>,
}

impl Surroundings {
    fn read(tables: &mut route::Connection, links: Vec<Link>, unseen: &mut Vec<Unseen>) -> Self {
        let mut or_unseen = |what: &str, error: &Error| {
            unseen.push(Unseen { what: what.to_owned(), why: error.to_string() });
        };
        let addresses =
            tables.addresses().map_err(|error| or_unseen("addresses", &error)).unwrap_or_default();
        let routes = tables.routes().map_err(|error| or_unseen("routes", &error)).unwrap_or_default();
        let caller = std::env::var("SSH_CONNECTION").ok();
        let caller = caller.as_deref().and_then(super::system::caller);
        Self {
            links,
            addresses,
            defaults: routes
                .iter()
                .filter(|route| route.is_default())
                .filter_map(|route| route.interface)
                .collect(),
            caller: caller.and_then(|address| tables.route_to(address).ok()?.interface),
        }
    }

    fn facts(&self, roots: &Roots, link: &Link) -> LinkFacts {
        let is_its = |address: &&route::Address| address.interface == link.index;
        let text = |address: &route::Address| format!("{}/{}", address.address, address.prefix_length);
        LinkFacts {
            link: link.clone(),
            driver: driver(roots, link).or_else(|| link.kind.clone()),
            master_name: self
                .links
                .iter()
                .find(|other| Some(other.index) == link.master)
                .map(|l| l.name.clone()),
            addresses: self.addresses.iter().filter(is_its).map(text).collect(),
            carries_default_route: self.carries(link, &self.defaults),
            carries_caller: self.carries(link, self.caller.as_slice()),
            ..LinkFacts::default()
        }
    }

    /// Whether traffic of any of some interfaces passes a link: it is one of them, its part or below it.
    fn carries(&self, link: &Link, interfaces: &[u32]) -> bool {
        let mut of = interfaces.to_vec();
        // Each round goes one layer down; a loop of layers would end with the number of links.
        for _ in 0..self.links.len() {
            if of.contains(&link.index) {
                return true;
            }
            let parts =
                self.links.iter().filter(|part| part.master.is_some_and(|master| of.contains(&master)));
            let lower = self.links.iter().filter(|upper| of.contains(&upper.index) && is_layer(upper));
            of = parts.map(|part| part.index).chain(lower.filter_map(|upper| upper.lower)).collect();
        }
        false
    }
}

/// Whether an interface sends through its lower one; the lower one of a veth is its other end.
fn is_layer(link: &Link) -> bool {
    !link.is_lower_elsewhere && link.kind.as_deref() != Some("veth")
}

/// The driver below /sys, which may belong to another network namespace: the number tells.
fn driver(roots: &Roots, link: &Link) -> Option<String> {
    let folder = roots.sys.join("class/net").join(&link.name);
    let index = fs::read_to_string(folder.join("ifindex")).ok()?;
    if index.trim().parse() != Ok(link.index) {
        return None;
    }
    let target = fs::read_link(folder.join("device/driver")).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Asks the driver about each group of settings.
fn read_card(cards: &mut ethtool::Connection, facts: &mut LinkFacts, unseen: &mut Vec<Unseen>) {
    let name = facts.link.name.clone();
    let mut group = Group { interface: &name, unseen };
    facts.state = group.take("link state", cards.link_state(&name));
    facts.modes = group.take("speed and duplex", cards.link_modes(&name));
    facts.fec = group.take("FEC", cards.fec(&name));
    facts.pause = group.take("flow control", cards.pause(&name));
    facts.eee = group.take("EEE", cards.eee(&name));
    facts.rings = group.take("rings", cards.rings(&name));
    facts.coalescing = group.take("coalescing", cards.coalescing(&name));
    facts.channels = group.take("channels", cards.channels(&name));
    facts.offloads = group.take("offloads", cards.features(&name)).map(of_interest);
    facts.statistics = group.take("standard counters", cards.statistics(&name));
}

struct Group<'a> {
    interface: &'a str,
    unseen: &'a mut Vec<Unseen>,
}

impl Group<'_> {
    /// The answer, or none with the reason. What a driver does not have is no gap of the check.
    fn take<T>(&mut self, group: &str, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                if !error.is_unsupported() {
                    let why = if error.is_denied() {
                        format!("{error}; root may read it")
                    } else {
                        error.to_string()
                    };
                    self.unseen.push(Unseen { what: format!("{group} of {}", self.interface), why });
                }
                None
            }
        }
    }
}

fn of_interest(mut features: Features) -> Features {
    features.features.retain(|name, _| OFFLOADS.contains(&name.as_str()));
    features
}

/// The second reading: replaces the first one and notes what changed.
fn read_again(
    tables: &mut route::Connection,
    mut cards: Option<&mut ethtool::Connection>,
    found: &mut [LinkFacts],
    begun: Instant,
    unseen: &mut Vec<Unseen>,
) {
    for facts in found {
        let name = facts.link.name.clone();
        let mut after = facts.clone();
        match tables.link(&name) {
            Ok(link) => after.link = link,
            Err(error) => {
                unseen.push(Unseen { what: format!("changes of {name}"), why: error.to_string() });
                continue;
            }
        }
        if let Some(cards) = &mut cards {
            after.statistics = cards.statistics(&name).ok().or(after.statistics);
            after.pause = cards.pause(&name).ok().or(after.pause);
            after.fec = cards.fec(&name).ok().or(after.fec);
        }
        after.watched = Some(changes(facts, &after, begun.elapsed().as_secs_f64()));
        *facts = after;
    }
}

/// What changed from one reading to another that was taken some seconds later.
#[must_use]
pub fn changes(before: &LinkFacts, after: &LinkFacts, seconds: f64) -> Watched {
    let first = counters(before);
    // A counter that appears only now has no first reading.
    let grown = |(name, after): (String, u64)| {
        let before = first.get(&name).copied().unwrap_or(after);
        (name, after.saturating_sub(before))
    };
    let counters = counters(after).into_iter().map(grown).filter(|(_, grown)| *grown > 0).collect();
    let carrier = |facts: &LinkFacts| facts.link.carrier_changes.unwrap_or_default();
    Watched { seconds, carrier_changes: carrier(after).saturating_sub(carrier(before)), counters }
}

/// All counters of an interface by their names.
fn counters(facts: &LinkFacts) -> BTreeMap<String, u64> {
    let table = facts.link.counters.map(|counters| counters.all()).unwrap_or_default();
    let standard = facts.statistics.map(|counters| counters.counters()).unwrap_or_default();
    let standard = standard.into_iter().map(|(name, value)| (format!("standard_{name}"), value));
    let mut all: BTreeMap<String, u64> =
        table.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    all.extend(standard);
    let fec = facts.fec.as_ref();
    let others = [
        ("pause_received_frames", facts.pause.and_then(|pause| pause.received_frames)),
        ("pause_sent_frames", facts.pause.and_then(|pause| pause.sent_frames)),
        ("fec_corrected_blocks", fec.and_then(|fec| fec.corrected_blocks)),
        ("fec_uncorrectable_blocks", fec.and_then(|fec| fec.uncorrectable_blocks)),
    ];
    all.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    all
}

#[cfg(test)]
mod tests {
    use netlink::ethtool::Statistics;
    use netlink::route::Counters;

    use super::*;

    fn facts(counters: Counters, statistics: Statistics, carrier_changes: u32) -> LinkFacts {
        let link =
            Link { counters: Some(counters), carrier_changes: Some(carrier_changes), ..Link::default() };
        LinkFacts { link, statistics: Some(statistics), ..LinkFacts::default() }
    }

    #[test]
    fn counters_that_grew_are_listed_with_their_growth_and_others_left_out() {
        let before = facts(
            Counters { rx_crc_errors: 7, rx_packets: 100, tx_packets: 50, ..Counters::default() },
            Statistics { late_collisions: Some(2), ..Statistics::default() },
            3,
        );
        let after = facts(
            // A driver that was reset begins again.
            Counters { rx_crc_errors: 9, rx_packets: 100, tx_packets: 20, ..Counters::default() },
            Statistics { late_collisions: Some(5), symbol_errors: Some(1000), ..Statistics::default() },
            5,
        );
        let changes = changes(&before, &after, 2.0);
        let expected = [("rx_crc_errors".to_owned(), 2), ("standard_late_collisions".to_owned(), 3)];
        assert_eq!(changes, Watched { seconds: 2.0, carrier_changes: 2, counters: expected.into() });
    }

    #[test]
    fn the_default_route_over_a_bond_is_carried_by_its_parts_and_not_by_a_veths_other_end() {
        let link = |index, master, lower, kind: Option<&str>| Link {
            index,
            master,
            lower,
            kind: kind.map(str::to_owned),
            ..Link::default()
        };
        let links = vec![
            link(1, None, None, None),
            link(2, Some(4), None, None),
            link(3, Some(4), None, None),
            link(4, None, None, Some("bond")),
            link(5, None, Some(4), Some("vlan")),
            link(6, None, Some(7), Some("veth")),
            link(7, None, Some(6), Some("veth")),
        ];
        let around = Surroundings { links, addresses: Vec::new(), defaults: Vec::new(), caller: None };
        let carriers = |of: u32| -> Vec<u32> {
            around.links.iter().filter(|link| around.carries(link, &[of])).map(|link| link.index).collect()
        };
        assert_eq!(carriers(5), [2, 3, 4, 5]);
        assert_eq!(carriers(6), [6]);
        assert_eq!(carriers(1), [1]);
    }
}
