//! I_T nexuses and their pending unit attention conditions (SAM-5 5.14).

use std::collections::BTreeMap;

use crate::lun::Lun;
use crate::sense::{Sense, SenseKey};

/// A unit attention condition: a change that is reported to an initiator once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

    /// Whether it is about the list of logical units, and so the same at each of them.
    #[must_use]
    pub fn is_about_the_list(self) -> bool {
        self == UnitAttention::LunsChanged
    }
}

/// An initiator port and a target port, and its unit attention conditions.
#[derive(Clone, Debug, Default)]
pub struct Nexus {
    name: String,
    portal_group: u16,
    instance: u64,
    /// In the order of their establishment; at most one of a kind for each logical unit, which bounds them.
    pending: BTreeMap<Lun, Vec<UnitAttention>>,
}

/// Separates the initiator port and the portal group tag in a name.
const PORT_MARK: &str = ",t,";
/// Separates the portal group tag and the authenticated user in a name.
const USER_MARK: &str = ",u,";

/// The initiator port and the portal group tag in the name of a nexus.
pub(crate) fn ports_of(name: &str) -> (&str, u16) {
    let name = name.rsplit_once(USER_MARK).map_or(name, |(ports, _)| ports);
    let (port, tag) = name.rsplit_once(PORT_MARK).unwrap_or((name, ""));
    (port, u16::from_str_radix(tag.trim_start_matches("0x"), 16).unwrap_or(0))
}

/// The authenticated user in the name of a nexus.
pub(crate) fn user_of(name: &str) -> Option<&str> {
    name.rsplit_once(USER_MARK).map(|(_, user)| user)
}

/// Whether a recorded name means this nexus. A recorded name without a user comes from REGISTER AND MOVE, which names ports
/// only: it matches these ports with any user.
pub(crate) fn is_same(recorded: &str, nexus: &str) -> bool {
    nexus.strip_prefix(recorded).is_some_and(|rest| rest.is_empty() || rest.starts_with(USER_MARK))
}

impl Nexus {
    /// A nexus of an initiator port (`iqn...,i,0x` and the ISID, RFC 7143 4.4.1) with a portal group.
    /// `instance` tells this session from those before it.
    #[must_use]
    pub fn new(initiator_port: &str, portal_group: u16, instance: u64) -> Self {
        let name = format!("{initiator_port}{PORT_MARK}{portal_group:#06x}");
        Self { name, portal_group, instance, pending: BTreeMap::new() }
    }

    /// Adds the authenticated user to the name. Reservations belong to the authenticated identity: another user is another
    /// nexus, even with the same ports.
    #[must_use]
    pub fn proven(mut self, user: Option<&str>) -> Self {
        if let Some(user) = user {
            self.name.push_str(USER_MARK);
            // A comma would let a user's name look like the end of another nexus' name.
            self.name.push_str(&user.replace('%', "%25").replace(',', "%2c"));
        }
        self
    }

    /// Its name, which every session between these ports has.
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
        let pending = self.pending.entry(lun).or_default();
        if !pending.contains(&attention) {
            pending.push(attention);
        }
    }

    /// The conditions that have not been reported, by logical unit in their order.
    pub fn pending(&self) -> impl Iterator<Item = (Lun, UnitAttention)> {
        self.pending.iter().flat_map(|(&lun, all)| all.iter().map(move |&attention| (lun, attention)))
    }

    /// Takes the oldest condition of a logical unit.
    #[inline]
    pub fn take(&mut self, lun: Lun) -> Option<UnitAttention> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.get_mut(&lun)?;
        let oldest = (!pending.is_empty()).then(|| pending.remove(0));
        if pending.is_empty() {
            self.pending.remove(&lun);
        }
        oldest
    }

    /// Clears a condition at every logical unit, because the initiator has learnt of the change by other means.
    pub fn clear(&mut self, attention: UnitAttention) {
        self.pending.retain(|_, pending| {
            pending.retain(|there| *there != attention);
            !pending.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_attentions_are_reported_once_and_in_order() {
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
    fn unit_attentions_are_neither_lost_nor_duplicated() {
        let mut nexus = Nexus::default();
        for _ in 0..3 {
            for lun in 0..256 {
                nexus.raise(Lun(lun), UnitAttention::Reset);
                nexus.raise(Lun(lun), UnitAttention::CapacityChanged);
            }
        }
        for lun in 0..256 {
            assert_eq!(nexus.take(Lun(lun)), Some(UnitAttention::Reset));
            assert_eq!(nexus.take(Lun(lun)), Some(UnitAttention::CapacityChanged));
            assert_eq!(nexus.take(Lun(lun)), None);
        }
        assert!(nexus.pending.is_empty());
    }

    #[test]
    fn a_nexus_belongs_to_its_authenticated_user() {
        let port = "iqn.a,i,0x000000000001";
        let nexus = |user| Nexus::new(port, 1, 0).proven(user).name().to_owned();
        let (anonymous, alice, bob) = (nexus(None), nexus(Some("alice")), nexus(Some("bob")));
        assert!(is_same(&alice, &alice) && !is_same(&alice, &bob) && !is_same(&alice, &anonymous));
        assert!(
            is_same(&anonymous, &alice) && is_same(&anonymous, &anonymous),
            "a name without a user matches any user of its ports"
        );
        assert_eq!(ports_of(&alice), (port, 1));
        assert_eq!(ports_of(&nexus(Some("a,t,0x0009"))), (port, 1), "a user's name cannot look like a port");
    }

    #[test]
    fn clearing_a_unit_attention_clears_it_at_every_logical_unit() {
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
