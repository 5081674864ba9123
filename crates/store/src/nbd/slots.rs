//! The requests of a connection, by what stands for them on the wire.

use super::flight::Flight;

/// Requests by slot. The cookie on the wire is the slot with a number that changes with each use.
#[derive(Default)]
pub(super) struct Slots {
    all: Vec<(u32, Option<Flight>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, flight: Flight) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push((0, None));
            (self.all.len() - 1) as u32
        });
        self.all[slot as usize].1 = Some(flight);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Flight> {
        let (uses, flight) = self.all.get_mut(slot as usize)?;
        let flight = flight.take()?;
        *uses = uses.wrapping_add(1);
        self.free.push(slot);
        Some(flight)
    }

    pub(super) fn cookie(&self, slot: u32) -> u64 {
        let uses = self.all.get(slot as usize).map_or(0, |(uses, _)| *uses);
        u64::from(uses) << 32 | u64::from(slot)
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Flight> {
        self.all.get_mut(slot as usize)?.1.as_mut()
    }

    /// The slot of a cookie that is in use.
    pub(super) fn slot(&self, cookie: u64) -> Option<u32> {
        let slot = cookie as u32;
        let (_, flight) = self.all.get(slot as usize)?;
        (flight.is_some() && self.cookie(slot) == cookie).then_some(slot)
    }

    pub(super) fn used(&self) -> Vec<u32> {
        (0..).zip(&self.all).filter(|(_, (_, flight))| flight.is_some()).map(|(slot, _)| slot).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }
}
