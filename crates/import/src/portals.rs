//! Portals and their groups.
//!
//! Elsewhere a portal group belongs to a target; here its number is one of the process. Portals share a group only if the same
//! targets are reached through them, so that no target is reached through another one's portal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::notes::Notes;

/// The portals of each target.
#[derive(Default)]
pub(crate) struct Portals {
    /// For each address, the targets behind it and the tags of their portal groups; 0: it has no tag.
    uses: BTreeMap<SocketAddr, BTreeMap<usize, u32>>,
}

/// The portals with their groups.
pub(crate) struct Grouped {
    pub(crate) portals: Vec<(SocketAddr, u16)>,
    /// The groups of each target.
    pub(crate) groups: BTreeMap<usize, Vec<u16>>,
}

impl Portals {
    /// Adds a portal of a target.
    pub(crate) fn add(&mut self, address: SocketAddr, target: usize, tag: u32) {
        self.uses.entry(address).or_default().entry(target).or_insert(tag);
    }

    /// Returns the portals with their groups.
    pub(crate) fn grouped(mut self, name: impl Fn(usize) -> String, notes: &mut Notes) -> Grouped {
        self.drop_overlaps(notes);
        // Portals with the same targets are one group.
        let mut classes: BTreeMap<&BTreeMap<usize, u32>, Vec<SocketAddr>> = BTreeMap::new();
        for (address, targets) in &self.uses {
            classes.entry(targets).or_default().push(*address);
            if address.ip().is_unspecified() {
                notes.add(
                    &format!("portal {address}"),
                    "it listens on every address of the machine; name the addresses if it has others",
                );
            }
        }
        let wish = |targets: &BTreeMap<usize, u32>| {
            let tags: BTreeSet<u32> = targets.values().copied().collect();
            let tag = if tags.len() == 1 { tags.first().copied() } else { None };
            tag.and_then(|tag| u16::try_from(tag).ok()).filter(|&tag| tag > 0)
        };
        // Wishes come first, those of most targets before others, so that most numbers stay as they were.
        let mut order: Vec<&BTreeMap<usize, u32>> = classes.keys().copied().collect();
        order.sort_by_key(|targets| std::cmp::Reverse(targets.len()));
        let (mut taken, mut wishes) = (BTreeSet::new(), BTreeMap::new());
        for targets in order {
            if let Some(number) = wish(targets).filter(|number| taken.insert(*number)) {
                wishes.insert(targets, number);
            }
        }
        let (mut portals, mut groups) = (Vec::new(), BTreeMap::<usize, Vec<u16>>::new());
        let mut free = (1..=u16::MAX).filter(|number| !taken.contains(number));
        for (targets, addresses) in &classes {
            let wished = wishes.get(*targets).copied();
            let Some(number) = wished.or_else(|| free.next()) else { continue };
            for (&target, &tag) in *targets {
                groups.entry(target).or_default().push(number);
                if tag != 0 && tag != u32::from(number) {
                    notes.add(
                        &name(target),
                        format!(
                            "its portal group {tag} has the number {number} here, since another target has other portals; hosts that recorded the number must discover it again"
                        ),
                    );
                }
            }
            portals.extend(addresses.iter().map(|address| (*address, number)));
        }
        for (&target, numbers) in &mut groups {
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.len() > 1 {
                notes.add(
                    &name(target),
                    format!("its portals are in the groups {numbers:?}; a session with several connections stays within one"),
                );
            }
        }
        portals.sort_unstable_by_key(|&(address, group)| (group, address));
        Grouped { portals, groups }
    }

    /// Leaves out portals of every address, or those beside them: both could not be bound.
    fn drop_overlaps(&mut self, notes: &mut Notes) {
        let every: Vec<SocketAddr> =
            self.uses.keys().copied().filter(|address| address.ip().is_unspecified()).collect();
        let both = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        for wide in every {
            let targets = self.uses.get(&wide).cloned().unwrap_or_default();
            let covered: Vec<SocketAddr> = self
                .uses
                .keys()
                .copied()
                .filter(|other| *other != wide && other.port() == wide.port())
                .filter(|other| wide.ip() == both || (other.is_ipv4() && !other.ip().is_unspecified()))
                .collect();
            let others: Vec<_> =
                covered.iter().copied().filter(|other| self.uses.get(other) != Some(&targets)).collect();
            if let Some(other) = others.first() {
                // Its targets would be reached at the address of others.
                notes.add(
                    &format!("portal {wide}"),
                    format!("left out: the portal {other} is of other targets, and both cannot be bound; name the addresses instead"),
                );
                self.uses.remove(&wide);
                continue;
            }
            for other in covered {
                notes
                    .add(&format!("portal {other}"), format!("left out: it is covered by the portal {wide}"));
                self.uses.remove(&other);
            }
        }
    }
}

/// Reads an address with an optional port: `192.0.2.1`, `192.0.2.1:3260`, `[::1]:3260`, `[::1]` or `::1`.
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| bare_ip(text).map(|ip| SocketAddr::new(ip, 3260)))
}

/// Reads an address without a port, with or without the brackets of IPv6.
pub(crate) fn bare_ip(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        address(text).expect(text)
    }

    #[test]
    fn no_target_is_reached_through_a_portal_of_another() {
        let (mut portals, mut notes) = (Portals::default(), Notes::default());
        for (address, target, tag) in [
            ("192.0.2.1", 0, 1),
            ("192.0.2.2", 0, 1),
            ("192.0.2.2", 1, 1),
            ("192.0.2.3", 1, 1),
            ("[::1]:3261", 2, 7),
        ] {
            portals.add(at(address), target, tag);
        }
        let grouped = portals.grouped(|n| n.to_string(), &mut notes);
        let through = |target: usize| -> Vec<String> {
            let groups = &grouped.groups[&target];
            grouped.portals.iter().filter(|(_, g)| groups.contains(g)).map(|(a, _)| a.to_string()).collect()
        };
        let mut first = through(0);
        first.sort();
        assert_eq!(first, ["192.0.2.1:3260", "192.0.2.2:3260"]);
        assert_eq!(through(1).len(), 2);
        assert_eq!((through(2), &grouped.groups[&2]), (vec!["[::1]:3261".to_owned()], &vec![7]));
        assert!(notes.into_all().iter().any(|note| note.text.contains("must discover it again")));
    }

    #[test]
    fn portals_beside_those_of_every_address_are_left_out() {
        let (mut portals, mut notes) = (Portals::default(), Notes::default());
        for text in ["0.0.0.0:3260", "[::]:3260", "192.0.2.1:3260", "192.0.2.1:3261"] {
            portals.add(at(text), 0, 1);
        }
        let grouped = portals.grouped(|n| n.to_string(), &mut notes);
        let left: Vec<String> = grouped.portals.iter().map(|(address, _)| address.to_string()).collect();
        assert_eq!(left, ["192.0.2.1:3261", "[::]:3260"]);
        let (mut portals, mut notes) = (Portals::default(), Notes::default());
        portals.add(at("0.0.0.0"), 0, 1);
        portals.add(at("192.0.2.1"), 1, 1);
        let grouped = portals.grouped(|n| n.to_string(), &mut notes);
        assert_eq!(
            (grouped.portals.len(), grouped.groups.get(&0)),
            (1, None),
            "target 0 is not reached at 192.0.2.1"
        );
    }

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        assert_eq!(at("[2001:db8::1]").to_string(), "[2001:db8::1]:3260");
        assert_eq!(at("::1").to_string(), "[::1]:3260");
        assert_eq!((address("host"), address("192.0.2.1:x")), (None, None));
    }
}
