//! An I_T nexus: who talks to us, through which port, and the unit attention conditions it has yet to be told
//! of (SAM-5 5.14).

use std::collections::VecDeque;

use crate::lun::Lun;
use crate::sense::{Sense, SenseKey};

/// A change that an initiator must be told of, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitAttention {
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    PowerOn,
    /// BUS DEVICE RESET FUNCTION OCCURRED: another initiator reset the logical unit.
    Reset,
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    CommandsCleared,
    /// REPORTED LUNS DATA HAS CHANGED.
    LunsChanged,
    /// CAPACITY DATA HAS CHANGED.
    CapacityChanged,
    /// MODE PARAMETERS CHANGED.
    ModeParametersChanged,
    /// ASYMMETRIC ACCESS STATE CHANGED.
    AccessStateChanged,
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    MediumChanged,
    /// RESERVATIONS PREEMPTED.
    ReservationsPreempted,
    /// RESERVATIONS RELEASED.
    ReservationsReleased,
    /// REGISTRATIONS PREEMPTED.
    RegistrationsPreempted,
}

impl UnitAttention {
    /// Its sense data.
    #[must_use]
    pub fn sense(self) -> Sense {
        let (asc, ascq) = match self {
            UnitAttention::PowerOn => (0x29, 0x00),
            UnitAttention::Reset => (0x29, 0x03),
            UnitAttention::CommandsCleared => (0x2f, 0x00),
            UnitAttention::LunsChanged => (0x3f, 0x0e),
            UnitAttention::CapacityChanged => (0x2a, 0x09),
            UnitAttention::ModeParametersChanged => (0x2a, 0x01),
            UnitAttention::AccessStateChanged => (0x2a, 0x06),
            UnitAttention::MediumChanged => (0x28, 0x00),
            UnitAttention::ReservationsPreempted => (0x2a, 0x03),
            UnitAttention::ReservationsReleased => (0x2a, 0x04),
            UnitAttention::RegistrationsPreempted => (0x2a, 0x05),
        };
        Sense::new(SenseKey::UnitAttention, asc, ascq)
    }
}

/// An initiator port and a target port, and its unit attention conditions.
#[derive(Clone, Debug, Default)]
pub struct Nexus {
    name: String,
    portal_group: u16,
    instance: u64,
    pending: VecDeque<(Lun, UnitAttention)>,
}

/// What stands between the initiator port and the portal group tag in a name.
const PORT_MARK: &str = ",t,";

/// The initiator port and the portal group tag in the name of a nexus.
pub(crate) fn ports_of(name: &str) -> (&str, u16) {
    let (port, tag) = name.rsplit_once(PORT_MARK).unwrap_or((name, ""));
    (port, u16::from_str_radix(tag.trim_start_matches("0x"), 16).unwrap_or(0))
}

impl Nexus {
    /// Conditions kept at most; older ones give way to newer.
    pub const PENDING_MAX: usize = 256;

    /// A nexus of an initiator port (`iqn...,i,0x` and the ISID, RFC 7143 4.4.1) with a portal group.
    /// `instance` tells this session from those before it.
    #[must_use]
    pub fn new(initiator_port: &str, portal_group: u16, instance: u64) -> Self {
        let name = format!("{initiator_port}{PORT_MARK}{portal_group:#06x}");
        Self { name, portal_group, instance, pending: VecDeque::new() }
    }

    /// Its name: the same for every session between these two ports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The portal group that it came in on.
    #[must_use]
    pub fn portal_group(&self) -> u16 {
        self.portal_group
    }

    /// Which session it is.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Establishes a condition, unless it is there already.
    pub fn raise(&mut self, lun: Lun, attention: UnitAttention) {
        if self.pending.contains(&(lun, attention)) {
            return;
        }
        if self.pending.len() == Self::PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((lun, attention));
    }

    /// Takes the oldest condition of a logical unit.
    #[inline]
    pub fn take(&mut self, lun: Lun) -> Option<UnitAttention> {
        if self.pending.is_empty() {
            return None;
        }
        let index = self.pending.iter().position(|(l, _)| *l == lun)?;
        self.pending.remove(index).map(|(_, attention)| attention)
    }

    /// Takes back a condition that the initiator has learnt of in another way, at every logical unit.
    pub fn clear(&mut self, attention: UnitAttention) {
        self.pending.retain(|(_, pending)| *pending != attention);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_told_once_to_its_logical_unit_in_order() {
        let mut nexus = Nexus::default();
        nexus.raise(Lun(1), UnitAttention::PowerOn);
        nexus.raise(Lun(1), UnitAttention::PowerOn);
        nexus.raise(Lun(1), UnitAttention::Reset);
        assert_eq!(nexus.take(Lun(0)), None);
        assert_eq!(nexus.take(Lun(1)), Some(UnitAttention::PowerOn));
        assert_eq!(nexus.take(Lun(1)), Some(UnitAttention::Reset));
        assert_eq!(nexus.take(Lun(1)), None);
    }

    #[test]
    fn conditions_never_pile_up_and_the_newest_stay() {
        let mut nexus = Nexus::default();
        for lun in 0..=Nexus::PENDING_MAX as u16 {
            nexus.raise(Lun(lun), UnitAttention::Reset);
        }
        assert_eq!(nexus.pending.len(), Nexus::PENDING_MAX);
        assert_eq!(nexus.take(Lun(0)), None);
        assert_eq!(nexus.take(Lun(Nexus::PENDING_MAX as u16)), Some(UnitAttention::Reset));
    }

    #[test]
    fn a_cleared_condition_goes_everywhere_and_takes_no_other_with_it() {
        let mut nexus = Nexus::default();
        for lun in [Lun(0), Lun(1)] {
            nexus.raise(lun, UnitAttention::LunsChanged);
            nexus.raise(lun, UnitAttention::Reset);
        }
        nexus.clear(UnitAttention::LunsChanged);
        for lun in [Lun(0), Lun(1)] {
            assert_eq!(nexus.take(lun), Some(UnitAttention::Reset));
            assert_eq!(nexus.take(lun), None);
        }
    }
}
