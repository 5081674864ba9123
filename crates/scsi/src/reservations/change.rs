//! PERSISTENT RESERVE OUT (SPC-4 6.16).

use super::{
    Effects, REGISTRATIONS_MAX, Registration, Reservation, ReservationType, Reservations, SavedReservations,
    State,
};
use crate::command::PersistentReserveOut;
use crate::nexus::{Nexus, UnitAttention, is_same, ports_of, user_of};
use crate::ports::Ports;
use crate::sense::{Sense, SenseKey};
use crate::status;

/// Most registrations of a logical unit by one initiator: every one of its ports (ISIDs) can register. No known host has
/// more paths than this; without the limit, one initiator could shut the others out.
pub(super) const REGISTRATIONS_OF_INITIATOR_MAX: usize = 64;

/// A service action (SPC-4 table 203).
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServiceAction {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnoreExistingKey,
    RegisterAndMove,
}

impl ServiceAction {
    fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Register,
            Self::Reserve,
            Self::Release,
            Self::Clear,
            Self::Preempt,
            Self::PreemptAndAbort,
            Self::RegisterAndIgnoreExistingKey,
            Self::RegisterAndMove,
        ];
        all.get(usize::from(code)).copied()
    }

    fn registers(self) -> bool {
        matches!(self, Self::Register | Self::RegisterAndIgnoreExistingKey)
    }

    /// Whether the SCOPE and TYPE fields are valid.
    fn has_type(self) -> bool {
        matches!(self, Self::Reserve | Self::Release | Self::Preempt | Self::PreemptAndAbort)
    }
}

/// The two keys of the parameter list.
#[derive(Clone, Copy)]
struct Keys {
    /// RESERVATION KEY: the key with which the nexus is registered.
    registered: u64,
    /// SERVICE ACTION RESERVATION KEY: the new key, or the key to preempt.
    service_action: u64,
}

impl Reservations {
    /// PERSISTENT RESERVE OUT with its parameter list: returns the status, and the effects on other nexuses. `is_durable`
    /// says whether registrations can survive a power loss; `save` persists them. A change that cannot be saved is not
    /// made. The caller keeps two calls from overlapping.
    ///
    /// # Errors
    /// The sense of an invalid field, or of `save`.
    pub(crate) fn change(
        &self,
        ports: &Ports,
        is_durable: bool,
        request: &PersistentReserveOut,
        data: &[u8],
        port: &str,
        save: &dyn Fn(Option<SavedReservations>) -> Result<(), Sense>,
    ) -> Result<(u8, Effects), Sense> {
        let action = ServiceAction::of(request.action);
        // Only the list of REGISTER AND MOVE has a variable part.
        let is_long = action == Some(ServiceAction::RegisterAndMove);
        let Some(list) = data.first_chunk::<24>().filter(|_| is_long || data.len() == 24) else {
            return Err(Sense::PARAMETER_LENGTH);
        };
        let action = action.ok_or(Sense::invalid_bit(1, 4))?;
        let word =
            |at: usize| list[at..at + 8].iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        let keys = Keys { registered: word(0), service_action: word(8) };
        // SPEC_I_PT and ALL_TG_PT are not supported, APTPL only where registrations can be saved.
        let rejected = if is_durable { 0x0c } else { 0x0d };
        if action.registers() && list[20] & rejected != 0 {
            return Err(Sense::invalid_parameter(20));
        }
        // The only scope is the logical unit.
        let kind = ReservationType::of(request.kind).filter(|_| request.scope == 0);
        if action.has_type() && kind.is_none() {
            return Err(Sense::invalid_field(2));
        }
        // The change is made to a copy, which replaces the state in force once it is saved. Only RESERVE and RELEASE
        // can change the rest of the state meanwhile, and they do nothing while there are registrations.
        let before = self.lock().clone();
        let mut state = before.clone();
        let mut effects = Effects::default();
        let (key, new_key) = (keys.registered, keys.service_action);
        let outcome = match (action, kind) {
            (ServiceAction::Register, _) => state.register(port, Some(key), new_key, &mut effects)?,
            (ServiceAction::RegisterAndIgnoreExistingKey, _) => {
                state.register(port, None, new_key, &mut effects)?
            }
            (ServiceAction::RegisterAndMove, _) => state.register_and_move(ports, port, keys, data)?,
            _ if state.key_of(port) != Some(key) => status::RESERVATION_CONFLICT,
            (ServiceAction::Clear, _) => state.clear(port, &mut effects),
            (ServiceAction::Reserve, Some(kind)) => state.reserve(port, kind),
            (ServiceAction::Release, Some(kind)) => state.release(port, kind, &mut effects)?,
            (ServiceAction::Preempt | ServiceAction::PreemptAndAbort, Some(kind)) => {
                state.preempt(port, new_key, kind, &mut effects)?
            }
            (_, None) => return Err(Sense::invalid_field(2)),
        };
        if outcome != status::GOOD {
            return Ok((outcome, Effects::default()));
        }
        if action.registers() {
            state.is_durable = list[20] & 1 != 0;
        }
        if action != ServiceAction::PreemptAndAbort {
            effects.aborted.clear();
        }
        if before.is_durable || state.is_durable {
            save(state.durable())?;
        }
        self.update(|current| {
            let reserved = current.reserved.take();
            *current = State { reserved, ..state };
        });
        Ok((outcome, effects))
    }
}

impl State {
    /// Checks that one more registration of this initiator is within the limits.
    ///
    /// # Errors
    /// INSUFFICIENT REGISTRATION RESOURCES.
    fn admit(&self, port: &str) -> Result<(), Sense> {
        let initiator = initiator_of(port);
        let user = user_of(port);
        // A user that may log in with many initiator names counts as one initiator.
        let is_own =
            |other: &str| initiator_of(other) == initiator || (user.is_some() && user_of(other) == user);
        let own = self.registrations.iter().filter(|r| is_own(&r.port)).count();
        if own >= REGISTRATIONS_OF_INITIATOR_MAX || self.registrations.len() >= REGISTRATIONS_MAX {
            return Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
        }
        Ok(())
    }

    fn others(&self, port: &str) -> Vec<String> {
        self.registrations.iter().filter(|r| !r.is_of(port)).map(|r| r.port.clone()).collect()
    }

    /// REGISTER, or without a `key` REGISTER AND IGNORE EXISTING KEY.
    fn register(
        &mut self,
        port: &str,
        key: Option<u64>,
        new_key: u64,
        effects: &mut Effects,
    ) -> Result<u8, Sense> {
        let own = self.registrations.iter().position(|r| r.is_of(port));
        match own {
            None if key.is_some_and(|key| key != 0) => return Ok(status::RESERVATION_CONFLICT),
            None if new_key == 0 => return Ok(status::GOOD),
            None => {
                self.admit(port)?;
                self.registrations.push(Registration { key: new_key, port: port.to_owned() });
            }
            Some(place) => {
                if key.is_some_and(|key| key != self.registrations[place].key) {
                    return Ok(status::RESERVATION_CONFLICT);
                }
                if new_key == 0 {
                    self.unregister(port, effects);
                } else {
                    self.registrations[place].key = new_key;
                }
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(status::GOOD)
    }

    fn unregister(&mut self, port: &str, effects: &mut Effects) {
        self.registrations.retain(|r| !r.is_of(port));
        let Some(reservation) = self.reservation.clone() else { return };
        let ends = if reservation.kind.is_all_registrants() {
            self.registrations.is_empty()
        } else {
            is_same(&reservation.port, port)
        };
        if ends {
            self.reservation = None;
            if reservation.kind.admits_registrants() {
                let others = self.others(port);
                effects.attend(others, UnitAttention::ReservationsReleased);
            }
        }
    }

    fn reserve(&mut self, port: &str, kind: ReservationType) -> u8 {
        match &self.reservation {
            None => {
                self.reservation = Some(Reservation { kind, port: port.to_owned() });
                status::GOOD
            }
            Some(there) if self.holds(port) && there.kind == kind => status::GOOD,
            Some(_) => status::RESERVATION_CONFLICT,
        }
    }

    fn release(&mut self, port: &str, kind: ReservationType, effects: &mut Effects) -> Result<u8, Sense> {
        if !self.holds(port) {
            return Ok(status::GOOD);
        }
        if self.reservation.as_ref().is_some_and(|r| r.kind != kind) {
            // INVALID RELEASE OF PERSISTENT RESERVATION.
            return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x04));
        }
        self.reservation = None;
        if kind.admits_registrants() {
            let others = self.others(port);
            effects.attend(others, UnitAttention::ReservationsReleased);
        }
        Ok(status::GOOD)
    }

    fn clear(&mut self, port: &str, effects: &mut Effects) -> u8 {
        let others = self.others(port);
        self.registrations.clear();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        effects.attend(others, UnitAttention::ReservationsPreempted);
        status::GOOD
    }

    fn preempt(
        &mut self,
        port: &str,
        victim: u64,
        kind: ReservationType,
        effects: &mut Effects,
    ) -> Result<u8, Sense> {
        let all = self.reservation.as_ref().is_some_and(|r| r.kind.is_all_registrants());
        let holder_key = self.reservation.as_ref().filter(|_| !all).and_then(|r| self.key_of(&r.port));
        if victim == 0 && !all {
            return Err(Sense::invalid_parameter(8));
        }
        let takes_over = (all && victim == 0) || (holder_key.is_some() && holder_key == Some(victim));
        let is_victim = |r: &Registration| !r.is_of(port) && (r.key == victim || (all && victim == 0));
        let victims: Vec<String> =
            self.registrations.iter().filter(|r| is_victim(r)).map(|r| r.port.clone()).collect();
        if victims.is_empty() && !takes_over {
            return Ok(status::RESERVATION_CONFLICT);
        }
        self.registrations.retain(|r| !is_victim(r));
        if takes_over {
            let before = self.reservation.replace(Reservation { kind, port: port.to_owned() });
            // SPC-4 5.13.11: a new type is reported to every nexus that stays registered, whatever the types are.
            if before.is_some_and(|b| b.kind != kind) {
                let others = self.others(port);
                effects.attend(others, UnitAttention::ReservationsReleased);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        effects.aborted.clone_from(&victims);
        effects.attend(victims, UnitAttention::RegistrationsPreempted);
        Ok(status::GOOD)
    }

    /// REGISTER AND MOVE (SPC-4 5.13.8): registers another nexus and moves the reservation to it.
    fn register_and_move(&mut self, ports: &Ports, port: &str, keys: Keys, data: &[u8]) -> Result<u8, Sense> {
        if self.key_of(port) != Some(keys.registered) {
            return Ok(status::RESERVATION_CONFLICT);
        }
        let wrong = Sense::invalid_parameter;
        let relative = u16::from_be_bytes([data[18], data[19]]);
        let length = u32::from_be_bytes([data[20], data[21], data[22], data[23]]) as usize;
        let transport = data.get(24..).filter(|rest| rest.len() == length).ok_or(Sense::PARAMETER_LENGTH)?;
        let Some(reservation) = self.reservation.clone() else { return Ok(status::RESERVATION_CONFLICT) };
        if !self.holds(port) || reservation.kind.is_all_registrants() {
            return Ok(status::RESERVATION_CONFLICT);
        }
        if keys.service_action == 0 {
            return Err(wrong(8));
        }
        // The TransportID of an iSCSI initiator port: name and ISID, ended by zero.
        let name =
            transport.get(4..).filter(|_| transport[0] == 0x45).and_then(|n| n.split(|&b| b == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).filter(|n| n.contains(",i,0x"));
        let tag = ports.tags().find(|(_, r)| *r == relative).map(|(tag, _)| tag).ok_or(wrong(18))?;
        let to = Nexus::new(name.ok_or(wrong(24))?, tag, 0).name().to_owned();
        if is_same(&to, port) {
            return Err(wrong(24));
        }
        // An existing registration of the same ports keeps the user that it was made by.
        let to = match self.registrations.iter().find(|r| is_same(&to, &r.port)) {
            Some(there) => there.port.clone(),
            None => {
                self.admit(&to)?;
                to
            }
        };
        self.registrations.retain(|r| r.port != to);
        self.registrations.push(Registration { key: keys.service_action, port: to.clone() });
        self.reservation = Some(Reservation { kind: reservation.kind, port: to });
        if data[17] & 0x02 != 0 {
            // UNREG: the nexus that moved the reservation is unregistered.
            self.registrations.retain(|r| !r.is_of(port));
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(status::GOOD)
    }
}

/// The initiator's name in the name of a nexus.
fn initiator_of(nexus: &str) -> &str {
    let (port, _) = ports_of(nexus);
    port.rsplit_once(",i,").map_or(port, |(name, _)| name)
}
