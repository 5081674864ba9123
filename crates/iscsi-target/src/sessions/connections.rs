//! The connections of a target, counted by address: what admission asks of each new one costs the same with ten thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::Limits;
use crate::mailbox::Mailbox;

#[derive(Debug)]
struct Connected {
    mailbox: Arc<Mailbox>,
    address: IpAddr,
}

#[derive(Debug, Default)]
struct FromAddress {
    connections: usize,
    /// Those whose login is in progress. Numbers rise: the first is the oldest.
    logins: BTreeSet<u64>,
}

/// All connections. Ordered maps keep simulation runs deterministic.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: BTreeMap<u64, Connected>,
    addresses: BTreeMap<IpAddr, FromAddress>,
    logins: usize,
}

impl Connections {
    /// Adds a connection in login. When all slots are taken, the oldest login in progress of the address with the most of
    /// them is removed and returned, unless the new connection comes from that address.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn enter(
        &mut self,
        id: u64,
        mailbox: &Arc<Mailbox>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<Option<Arc<Mailbox>>, &'static str> {
        let same = self.addresses.get(&address);
        if same.map_or(0, |same| same.connections) >= limits.connections_per_address {
            return Err("the limit of connections from one address is reached");
        }
        let mut evicted = None;
        if self.logins >= limits.logins || self.all.len() >= limits.connections {
            let own = same.map_or(0, |same| same.logins.len());
            let most = self.addresses.values().map(|from| &from.logins).max_by_key(|logins| logins.len());
            let most = most.filter(|logins| logins.len() > own.max(1));
            let Some(&oldest) = most.and_then(BTreeSet::first) else {
                return Err(match self.all.len() >= limits.connections {
                    true => "the limit of connections is reached",
                    false => "the limit of logins in progress is reached",
                });
            };
            evicted = self.leave(oldest);
        }
        self.all.insert(id, Connected { mailbox: Arc::clone(mailbox), address });
        let from = self.addresses.entry(address).or_default();
        from.connections += 1;
        from.logins.insert(id);
        self.logins += 1;
        Ok(evicted)
    }

    /// A connection's login has succeeded.
    pub(super) fn logged_in(&mut self, id: u64) {
        let address = self.all.get(&id).map(|connected| connected.address);
        let from = address.and_then(|address| self.addresses.get_mut(&address));
        if from.is_some_and(|from| from.logins.remove(&id)) {
            self.logins -= 1;
        }
    }

    /// Removes a connection.
    pub(super) fn leave(&mut self, id: u64) -> Option<Arc<Mailbox>> {
        self.logged_in(id);
        let Connected { mailbox, address } = self.all.remove(&id)?;
        if let Some(from) = self.addresses.get_mut(&address) {
            from.connections -= 1;
            if from.connections == 0 {
                self.addresses.remove(&address);
            }
        }
        Some(mailbox)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of logins in progress.
    pub(super) fn logins(&self) -> usize {
        self.logins
    }

    pub(super) fn mailboxes(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.all.values().map(|connected| &connected.mailbox)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a list of all connections says, without counters.
    #[derive(Default)]
    struct Plain(Vec<(u64, IpAddr, bool)>);

    impl Plain {
        fn enter(&mut self, id: u64, address: IpAddr, limits: &Limits) -> Result<Option<u64>, ()> {
            let of = |all: &Self, wanted: IpAddr| all.0.iter().filter(|(_, a, _)| *a == wanted).count();
            if of(self, address) >= limits.connections_per_address {
                return Err(());
            }
            let logins: Vec<_> = self.0.iter().filter(|(_, _, is_in)| !is_in).copied().collect();
            let mut evicted = None;
            if logins.len() >= limits.logins || self.0.len() >= limits.connections {
                let count = |wanted: IpAddr| logins.iter().filter(|(_, a, _)| *a == wanted).count();
                let most =
                    logins.iter().max_by_key(|(_, a, _)| (count(*a), *a)).map(|&(_, a, _)| a).ok_or(())?;
                if count(most) <= count(address).max(1) {
                    return Err(());
                }
                evicted = logins.iter().filter(|(_, a, _)| *a == most).map(|&(id, ..)| id).min();
                self.0.retain(|(id, ..)| Some(*id) != evicted);
            }
            self.0.push((id, address, false));
            Ok(evicted)
        }
    }

    proptest! {
        #[test]
        fn counters_agree_with_the_list_of_connections(
            steps in proptest::collection::vec((0_u8..8, 0_u8..4, 0_u64..40), 1..300),
        ) {
            let limits =
                Limits { connections: 12, connections_per_address: 7, logins: 6, ..Limits::default() };
            let (mut counted, mut plain) = (Connections::default(), Plain::default());
            let mailboxes: Vec<_> = (0..300).map(|_| Arc::new(Mailbox::new().unwrap())).collect();
            for (id, (kind, address, chosen)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        counted.leave(chosen);
                        plain.0.retain(|(id, ..)| *id != chosen);
                    }
                    1 | 2 => {
                        counted.logged_in(chosen);
                        plain.0.iter_mut().filter(|(id, ..)| *id == chosen).for_each(|(_, _, is_in)| *is_in = true);
                    }
                    _ => {
                        let address = IpAddr::from([10, 0, 0, address]);
                        let evicted = counted.enter(id as u64, &mailboxes[id], address, &limits);
                        let expected = plain.enter(id as u64, address, &limits);
                        prop_assert_eq!(evicted.is_ok(), expected.is_ok());
                        let number = |mailbox: Arc<Mailbox>| {
                            mailboxes.iter().position(|m| Arc::ptr_eq(m, &mailbox)).unwrap() as u64
                        };
                        prop_assert_eq!(evicted.ok().flatten().map(number), expected.ok().flatten());
                    }
                }
                prop_assert_eq!(counted.all.keys().copied().collect::<Vec<_>>(), {
                    let mut ids: Vec<_> = plain.0.iter().map(|&(id, ..)| id).collect();
                    ids.sort_unstable();
                    ids
                });
                prop_assert_eq!(counted.logins, plain.0.iter().filter(|(_, _, is_in)| !is_in).count());
            }
            let ids: Vec<u64> = plain.0.iter().map(|&(id, ..)| id).collect();
            ids.into_iter().for_each(|id| drop(counted.leave(id)));
            prop_assert!(counted.addresses.is_empty() && counted.logins == 0, "{:?}", counted);
        }
    }
}
