//! Whether the long operations of a server are those of some keys: then these are slow, and the server does not pause.

use std::collections::{BTreeMap, HashMap};

use record::Key;

use super::longest::Long;
use super::{Detail, KEYS, Services};

/// Fewest long operations of a key that are no coincidence.
const LONG_MIN: u64 = 5;
/// Most connections whose keys are remembered.
const CONNECTIONS_MAX: usize = 65_536;

/// The key of each connection, if all of its requests have the same one.
#[derive(Debug, Default)]
pub(super) struct OnlyKeys {
    keys: HashMap<u32, Option<Key>, foldhash::fast::RandomState>,
}

impl OnlyKeys {
    #[inline]
    pub(super) fn add(&mut self, connection: u32, key: Key) {
        if let Some(known) = self.keys.get_mut(&connection) {
            *known = known.filter(|&known| known == key);
        } else if self.keys.len() < CONNECTIONS_MAX {
            self.keys.insert(connection, Some(key));
        }
    }

    fn has_only(&self, connection: u32, key: Key) -> bool {
        self.keys.get(&connection).is_some_and(|&only| only == Some(key))
    }
}

/// Keys whose operations are long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowKeys {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// Their connections carry nothing else, as those of a poll.
    pub(crate) is_apart: bool,
}

impl Services {
    /// The keys of a server's long operations, of which there are so many: nine in ten of these have them, at least half of the operations
    /// with each of them are long, and most operations of the server have others. `long` may be a part of them, the longest.
    pub(crate) fn slow_keys(&self, server: u32, long: &[Long], operations: u64) -> Option<SlowKeys> {
        let mut counts: BTreeMap<Key, u64> = BTreeMap::new();
        for long in long.iter().filter(|long| long.key != Key::NONE) {
            *counts.entry(long.key).or_default() += 1;
        }
        let scale = operations as f64 / long.len().max(1) as f64;
        let total = |key: Key| self.operations_with(|of, detail| of == server && detail == Detail::Key(key));
        counts.retain(|&key, count| {
            let all = total(key);
            *count >= LONG_MIN && all > 0 && *count as f64 * scale.max(1.0) * 2.0 >= all as f64
        });
        let found: u64 = counts.values().sum();
        let own: u64 = counts.keys().map(|&key| total(key)).sum();
        let all = self.operations_with(|of, _| of == server);
        if found == 0 || found * 10 < long.len() as u64 * 9 || own * 2 > all {
            return None;
        }
        let apart = long.iter().filter(|long| self.only_keys.has_only(long.connection, long.key)).count();
        let mut keys: Vec<(Key, u64)> = counts.into_iter().collect();
        keys.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let name = |(key, _): (Key, u64)| self.names.get(&key).map_or("unknown", Box::as_ref).to_owned();
        Some(SlowKeys {
            names: keys.into_iter().map(name).collect(),
            is_apart: apart as u64 * 10 >= long.len() as u64 * 9,
        })
    }

    /// The operations with a key of a server.
    fn operations_with(&self, is_counted: impl Fn(u32, Detail) -> bool) -> u64 {
        let of = |row: u16| self.rows.get(usize::from(row)).map_or(u32::MAX, |row| row.key.server);
        let counted = self.details[KEYS].iter().filter(|(row, detail, _)| is_counted(of(*row), *detail));
        counted.map(|(_, _, sums)| sums.operations).sum()
    }
}
