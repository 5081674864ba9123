//! Target ports and asymmetric access to a logical unit through them, ALUA (SPC-4 5.15, 6.37, 6.44).
//!
//! Each portal group is one target port (RFC 7143 4.4.1) and one target port group.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::command::Command;
use crate::sense::{Sense, SenseKey};

/// Access to a logical unit through a target port group (SPC-4 table 319).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessState {
    /// Active/optimized.
    Optimized = 0,
    /// Active/non-optimized.
    NonOptimized = 1,
    /// Standby: only commands that manage the unit.
    Standby = 2,
    /// Unavailable: only commands that report about it.
    Unavailable = 3,
}

impl AccessState {
    /// The state with this code.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        [Self::Optimized, Self::NonOptimized, Self::Standby, Self::Unavailable].into_iter().nth(code.into())
    }
}

/// One target port group of a logical unit.
#[derive(Debug)]
struct Group {
    tag: u16,
    state: AtomicU8,
    /// STATUS CODE: 0 never changed, 1 by SET TARGET PORT GROUPS, 2 by the target.
    status: AtomicU8,
}

/// The target ports of a logical unit.
#[derive(Debug)]
pub struct Ports(Vec<Group>);

impl Default for Ports {
    /// One port, tag 1.
    fn default() -> Self {
        Self::new(&[1])
    }
}

impl Ports {
    /// Ports with these portal group tags, all active/optimized.
    #[must_use]
    pub fn new(tags: &[u16]) -> Self {
        let group = |&tag| Group { tag, state: AtomicU8::new(0), status: AtomicU8::new(0) };
        Self(tags.iter().map(group).collect())
    }

    /// The portal group tags, with the relative port identifier of each.
    pub fn tags(&self) -> impl Iterator<Item = (u16, u16)> {
        self.0.iter().enumerate().map(|(index, group)| (group.tag, index as u16 + 1))
    }

    /// The relative port identifier of a portal group; 0 where there is none.
    #[must_use]
    pub fn relative(&self, tag: u16) -> u16 {
        self.tags().find(|(t, _)| *t == tag).map_or(0, |(_, relative)| relative)
    }

    /// The state of a portal group.
    #[inline]
    #[must_use]
    pub fn state(&self, tag: u16) -> AccessState {
        let group = self.0.iter().find(|group| group.tag == tag);
        group.and_then(|g| AccessState::of(g.state.load(Ordering::Relaxed))).unwrap_or(AccessState::Optimized)
    }

    /// Whether all are as they were initially.
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.0.iter().all(|group| group.state.load(Ordering::Relaxed) == AccessState::Optimized as u8)
    }

    /// Changes a state by the target itself. Returns whether there is such a group.
    pub fn set(&self, tag: u16, state: AccessState) -> bool {
        self.change(tag, state, 2)
    }

    fn change(&self, tag: u16, state: AccessState, status: u8) -> bool {
        let Some(group) = self.0.iter().find(|group| group.tag == tag) else { return false };
        group.state.store(state as u8, Ordering::Relaxed);
        group.status.store(status, Ordering::Relaxed);
        true
    }

    /// Whether a command may pass through a portal group.
    ///
    /// # Errors
    /// The sense of a state in which it may not.
    #[inline]
    pub(crate) fn admit(&self, tag: u16, command: &Command) -> Result<(), Sense> {
        match self.state(tag) {
            AccessState::Optimized | AccessState::NonOptimized => Ok(()),
            AccessState::Standby if command.passes_standby() => Ok(()),
            AccessState::Unavailable if command.passes_unavailable() => Ok(()),
            AccessState::Standby => Err(Sense::new(SenseKey::NotReady, 0x04, 0x0b)),
            AccessState::Unavailable => Err(Sense::new(SenseKey::NotReady, 0x04, 0x0c)),
        }
    }

    /// REPORT TARGET PORT GROUPS, with or without the extended header.
    pub(crate) fn report(&self, extended: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        if extended {
            out.extend_from_slice(&[0x10, 0, 0, 0]);
        }
        for (group, relative) in self.0.iter().zip(1_u16..) {
            let [tag_high, tag_low] = group.tag.to_be_bytes();
            let [high, low] = relative.to_be_bytes();
            let (state, status) = (group.state.load(Ordering::Relaxed), group.status.load(Ordering::Relaxed));
            // Supported: unavailable, standby, active/non-optimized, active/optimized.
            out.extend_from_slice(&[state, 0x0f, tag_high, tag_low, 0, status, 0, 1, 0, 0, high, low]);
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// SET TARGET PORT GROUPS with its parameter list, which is applied entirely or not at all. Returns whether any state
    /// changed.
    ///
    /// # Errors
    /// The sense of a group or a state that does not exist.
    pub(crate) fn select(&self, list: &[u8]) -> Result<bool, Sense> {
        let (descriptors, rest) = list.get(4..).ok_or(Sense::PARAMETER_LENGTH)?.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        let mut changes = Vec::new();
        for (index, [state, _, high, low]) in descriptors.iter().enumerate() {
            let tag = u16::from_be_bytes([*high, *low]);
            let (state, exists) = (AccessState::of(state & 0x0f), self.relative(tag) != 0);
            let (Some(state), true) = (state, exists) else {
                return Err(Sense::invalid_parameter(4 + 4 * index as u16));
            };
            changes.push((tag, state));
        }
        let mut is_changed = false;
        for (tag, state) in changes {
            is_changed |= self.state(tag) != state;
            self.change(tag, state, 1);
        }
        Ok(is_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdb::opcode;

    #[test]
    fn golden_bytes_of_two_groups_and_a_change() {
        let ports = Ports::new(&[1, 300]);
        assert_eq!(ports.select(&[0, 0, 0, 0, 2, 0, 1, 44]), Ok(true));
        let mut out = Vec::new();
        ports.report(false, &mut out);
        let groups = [0, 0x0f, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0x0f, 1, 44, 0, 1, 0, 1, 0, 0, 0, 2];
        assert_eq!(out, [&[0, 0, 0, 24][..], &groups].concat());
        out.clear();
        ports.report(true, &mut out);
        assert_eq!(out, [&[0, 0, 0, 28, 0x10, 0, 0, 0][..], &groups].concat());
    }

    #[test]
    fn an_invalid_list_changes_nothing() {
        let ports = Ports::new(&[1, 2]);
        for wrong in [[1, 0, 0, 3], [4, 0, 0, 2]] {
            let list = [&[0, 0, 0, 0, 3, 0, 0, 1][..], &wrong].concat();
            assert_eq!(ports.select(&list), Err(Sense::invalid_parameter(8)));
        }
        assert_eq!(ports.select(&[0, 0, 0, 0, 1]), Err(Sense::PARAMETER_LENGTH));
        assert_eq!(ports.state(1), AccessState::Optimized);
    }

    #[test]
    fn each_access_state_admits_its_commands() {
        let ports = Ports::new(&[1, 2]);
        let may = |code: u8| {
            let mut cdb = [0; 16];
            cdb[0] = code;
            ports.admit(2, &Command::decode(&cdb)).is_ok()
        };
        let commands = [opcode::READ_10, opcode::MODE_SENSE_6, opcode::INQUIRY];
        for (state, expected) in [
            (AccessState::NonOptimized, [true, true, true]),
            (AccessState::Standby, [false, true, true]),
            (AccessState::Unavailable, [false, false, true]),
        ] {
            assert!(ports.set(2, state));
            assert_eq!(commands.map(may), expected, "{state:?}");
            assert!(ports.admit(1, &Command::decode(&[opcode::READ_10; 16])).is_ok(), "another port");
        }
        assert!(!ports.set(9, AccessState::Standby));
    }
}
