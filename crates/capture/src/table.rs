//! The connections that a capture point follows, bounded in number.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::encapsulation::Tag;
use crate::packet::Endpoint;

/// The two ends of a connection, and the encapsulation that tells it from others between the same ends.
pub(crate) type Ends = (Endpoint, Endpoint, Tag);

/// Connections by their two ends, each at a place that is stable while it is in the table.
///
/// The table keeps two lists, least recently used first: connections that are open, and connections that have ended.
/// Every operation takes constant time, so a capture of many short connections costs no more per packet than any other.
/// The order is that of the packets, not of their time stamps, which a capture file can choose freely.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: HashMap<Ends, usize, RandomState>,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    open: List,
    ended: List,
}

/// A place, and its neighbours in the list that it is in.
#[derive(Debug)]
struct Slot<T> {
    content: Option<(Ends, T)>,
    has_ended: bool,
    before: Option<usize>,
    after: Option<usize>,
}

/// The ends of a list.
#[derive(Debug, Default)]
struct List {
    first: Option<usize>,
    last: Option<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            places: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            open: List::default(),
            ended: List::default(),
        }
    }
}

impl<T> Table<T> {
    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the place of a connection.
    #[inline]
    pub(crate) fn find(&self, ends: &Ends) -> Option<usize> {
        self.places.get(ends).copied()
    }

    /// Returns the connection at a place.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.slots.get(place)?.content.as_ref().map(|(_, value)| value)
    }

    /// Returns the connection at a place, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.slots.get_mut(place)?.content.as_mut().map(|(_, value)| value)
    }

    /// Adds an open connection as the most recently used one and returns its place. The caller has made sure that no
    /// connection with these ends is in the table.
    pub(crate) fn insert(&mut self, ends: Ends, value: T) -> usize {
        let slot = Slot { content: Some((ends, value)), has_ended: false, before: None, after: None };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.places.insert(ends, place);
        self.append(place);
        place
    }

    /// Marks the connection at a place as the most recently used of its list; `has_ended` says which list that is.
    #[inline]
    pub(crate) fn touch(&mut self, place: usize, has_ended: bool) {
        let Some(slot) = self.slots.get(place) else { return };
        // Most packets follow another one of their connection.
        if slot.content.is_none() || (slot.after.is_none() && slot.has_ended == has_ended) {
            return;
        }
        self.unlink(place);
        self.slots[place].has_ended = has_ended;
        self.append(place);
    }

    /// Returns the connection that is to make room, and whether it has ended: of those that have ended the least recently
    /// used; if there is none, of the open ones.
    pub(crate) fn least_recent(&self) -> Option<(Ends, bool)> {
        let slot = &self.slots[self.ended.first.or(self.open.first)?];
        slot.content.as_ref().map(|&(ends, _)| (ends, slot.has_ended))
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, ends: &Ends) -> Option<T> {
        let place = self.places.remove(ends)?;
        self.unlink(place);
        self.free.push(place);
        self.slots[place].content.take().map(|(_, value)| value)
    }

    /// Returns the ends of all connections in the order of their places: the same input gives the same order.
    pub(crate) fn all(&self) -> Vec<Ends> {
        self.slots.iter().filter_map(|slot| slot.content.as_ref().map(|&(ends, _)| ends)).collect()
    }

    fn list(&mut self, has_ended: bool) -> &mut List {
        if has_ended { &mut self.ended } else { &mut self.open }
    }

    /// Links a place that is in no list to the end of its own.
    fn append(&mut self, place: usize) {
        let list = self.list(self.slots[place].has_ended);
        let before = list.last.replace(place);
        match before {
            Some(before) => self.slots[before].after = Some(place),
            None => list.first = Some(place),
        }
        let slot = &mut self.slots[place];
        (slot.before, slot.after) = (before, None);
    }

    /// Takes a place out of its list.
    fn unlink(&mut self, place: usize) {
        let Slot { before, after, has_ended, .. } = self.slots[place];
        match before {
            Some(before) => self.slots[before].after = after,
            None => self.list(has_ended).first = after,
        }
        match after {
            Some(after) => self.slots[after].before = before,
            None => self.list(has_ended).last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends(number: u16) -> Ends {
        (Endpoint { address: 1, port: number }, Endpoint { address: 2, port: 80 }, Tag::NONE)
    }

    #[test]
    fn ended_connections_make_room_before_open_ones() {
        let mut table = Table::default();
        let places: Vec<usize> = (0..4).map(|number| table.insert(ends(number), number)).collect();
        table.touch(places[2], true);
        table.touch(places[0], false);
        let mut order = Vec::new();
        while let Some((ends, has_ended)) = table.least_recent() {
            order.push((table.remove(&ends).unwrap(), has_ended));
        }
        assert_eq!(order, [(2, true), (1, false), (3, false), (0, false)]);
        assert_eq!((table.len(), table.find(&ends(0)), table.get(places[0])), (0, None, None));
    }

    proptest! {
        /// For any sequence of operations the table behaves like two plain queues.
        #[test]
        fn lists_agree_with_plain_queues(steps in prop::collection::vec((0_u8..4, 0_u16..12), 0..200)) {
            let mut table = Table::default();
            let mut queues: [Vec<u16>; 2] = Default::default();
            for (step, number) in steps {
                let place = table.find(&ends(number));
                prop_assert_eq!(place.is_some(), queues.iter().flatten().any(|&n| n == number));
                let was_over = queues[1].contains(&number);
                match (step, place) {
                    (0, None) => {
                        table.insert(ends(number), number);
                        queues[0].push(number);
                    }
                    (1 | 2, Some(place)) => {
                        let is_over = step == 2 || was_over;
                        table.touch(place, is_over);
                        queues.iter_mut().for_each(|queue| queue.retain(|&n| n != number));
                        queues[usize::from(is_over)].push(number);
                    }
                    (3, _) => {
                        prop_assert_eq!(table.remove(&ends(number)).is_some(), place.is_some());
                        queues.iter_mut().for_each(|queue| queue.retain(|&n| n != number));
                    }
                    _ => {}
                }
                let first = queues[1].first().map(|&n| (ends(n), true));
                let first = first.or(queues[0].first().map(|&n| (ends(n), false)));
                prop_assert_eq!(table.least_recent(), first);
                prop_assert_eq!(table.len(), queues[0].len() + queues[1].len());
                prop_assert_eq!(table.all().len(), table.len());
            }
        }
    }
}
