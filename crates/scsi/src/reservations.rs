//! Reservations of a logical unit: persistent ones (SPC-4 5.13) and those of RESERVE (6) (SPC-2 7.21).
//!
//! What is registered with APTPL outlives the target, where the disk keeps such things ([`Reservations::durable`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cdb::{Cdb, be16, be32, opcode};
use crate::disk::{Disk, Durable};
use crate::nexus::{Nexus, UnitAttention, is_same, ports_of, user_of};
use crate::sense::{Sense, SenseKey};
use crate::status;

/// Persistent reservation types (SPC-4 table 64).
mod kind {
    pub(super) const WRITE_EXCLUSIVE: u8 = 1;
    pub(super) const EXCLUSIVE_ACCESS: u8 = 3;
    pub(super) const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
    pub(super) const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 6;
    pub(super) const WRITE_EXCLUSIVE_ALL: u8 = 7;
    pub(super) const EXCLUSIVE_ACCESS_ALL: u8 = 8;

    pub(super) fn is_known(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE | EXCLUSIVE_ACCESS) || is_for_registrants(kind)
    }
    pub(super) fn is_all_registrants(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL)
    }
    pub(super) fn is_for_registrants(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE_REGISTRANTS | EXCLUSIVE_ACCESS_REGISTRANTS) || is_all_registrants(kind)
    }
    pub(super) fn lets_read(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE | WRITE_EXCLUSIVE_REGISTRANTS | WRITE_EXCLUSIVE_ALL)
    }
}

/// Service actions of PERSISTENT RESERVE OUT.
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_MOVE: u8 = 7;
/// Most registrations of a logical unit.
const REGISTRATIONS_MAX: usize = 1024;
/// Most registrations of a logical unit by one initiator: every one of its ports (ISIDs) can register. A host with
/// more paths than this is not known; one that registers more would shut the others out.
const REGISTRATIONS_OF_INITIATOR_MAX: usize = 64;

/// An I_T nexus that has registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Registration {
    key: u64,
    port: String,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    kind: u8,
    /// Who holds it; with a type for all registrants, who made it.
    port: String,
}

/// Registrations and the reservation, as they are kept over a power loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedReservations {
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
}

#[derive(Clone, Debug, Default)]
struct State {
    generation: u32,
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
    /// Who holds a reservation of RESERVE (6) or (10), and with which session.
    reserved: Option<(String, u64)>,
    /// The last registration asked for a life beyond a power loss (APTPL).
    is_durable: bool,
}

/// What a change of reservations asks of the target beside its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Nexuses (by name, see [`Nexus::name`]) that are to learn of the change, and how.
    pub attentions: Vec<(String, UnitAttention)>,
    /// Nexuses whose tasks at the logical unit are aborted before the command is answered (PREEMPT AND ABORT).
    pub aborted: Vec<String>,
}

impl Effects {
    fn attend(&mut self, ports: Vec<String>, attention: UnitAttention) {
        self.attentions.extend(ports.into_iter().map(|port| (port, attention)));
    }
}

/// Whether a name that [`Effects`] has is that of the nexus of this name.
#[must_use]
pub fn names(noted: &str, nexus: &str) -> bool {
    is_same(noted, nexus)
}

/// The reservations of a logical unit, shared by all that see it.
#[derive(Debug, Default)]
pub struct Reservations {
    /// Whether there is anything to look at: reads and writes ask this first.
    busy: AtomicBool,
    state: Mutex<State>,
}

/// What a command does, as far as reservations care.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Nothing that a reservation protects.
    Free,
    Read,
    Write,
}

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        let idle = state.registrations.is_empty() && state.reservation.is_none() && state.reserved.is_none();
        self.busy.store(!idle, Ordering::Release);
        result
    }

    /// Whether a command of this initiator port conflicts with a reservation.
    #[inline]
    #[must_use]
    pub fn conflicts(&self, cdb: &Cdb, port: &str) -> bool {
        self.busy.load(Ordering::Acquire) && self.lock().conflicts(cdb, port)
    }

    /// RESERVE (6) and (10): the status.
    pub fn reserve(&self, nexus: &Nexus) -> u8 {
        self.update(|state| {
            let is_taken = state.reserved.as_ref().is_some_and(|(holder, _)| holder != nexus.name());
            if !state.registrations.is_empty() || is_taken {
                return status::RESERVATION_CONFLICT;
            }
            state.reserved = Some((nexus.name().to_owned(), nexus.instance()));
            status::GOOD
        })
    }

    /// RELEASE (6) and (10): the status. Who does not hold it releases nothing, and that is no error.
    pub fn release(&self, nexus: &Nexus) -> u8 {
        self.update(|state| {
            if !state.registrations.is_empty() {
                return status::RESERVATION_CONFLICT;
            }
            if state.reserved.as_ref().is_some_and(|(holder, _)| holder == nexus.name()) {
                state.reserved = None;
            }
            status::GOOD
        })
    }

    /// Frees what RESERVE took, unless `keeps` says so of its nexus and session. Persistent reservations stay.
    pub fn forget(&self, keeps: impl Fn(&str, u64) -> bool) {
        self.update(|state| {
            state.reserved = state.reserved.take().filter(|(name, instance)| keeps(name, *instance));
        });
    }

    /// What is to be kept over a power loss.
    #[must_use]
    pub fn durable(&self) -> Option<SavedReservations> {
        self.lock().durable()
    }

    /// What was kept comes back.
    pub(crate) fn restore(&self, saved: &SavedReservations) {
        self.update(|state| {
            state.registrations.clone_from(&saved.registrations);
            state.registrations.truncate(REGISTRATIONS_MAX);
            state.reservation.clone_from(&saved.reservation);
            state.is_durable = true;
        });
    }

    /// PERSISTENT RESERVE IN: appends the parameter data.
    ///
    /// # Errors
    /// The sense of a service action that does not exist.
    pub(crate) fn report(&self, disk: &Disk, cdb: &Cdb, out: &mut Vec<u8>) -> Result<(), Sense> {
        let state = self.lock();
        let start = out.len();
        out.extend_from_slice(&state.generation.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        match cdb[1] & 0x1f {
            0 => state.registrations.iter().for_each(|r| out.extend_from_slice(&r.key.to_be_bytes())),
            1 => {
                if let Some(reservation) = &state.reservation {
                    let key = if kind::is_all_registrants(reservation.kind) {
                        0
                    } else {
                        state.key_of(&reservation.port).unwrap_or(0)
                    };
                    out.extend_from_slice(&key.to_be_bytes());
                    out.extend_from_slice(&[0, 0, 0, 0, 0, reservation.kind, 0, 0]);
                }
            }
            2 => {
                out.truncate(start);
                // PTPL_C; TMV, PTPL_A, and the mask of the six types.
                let (can, does) = (u8::from(disk.is_durable), u8::from(state.is_durable));
                out.extend_from_slice(&[0, 8, can, 0x80 | does, 0xea, 0x01, 0, 0]);
                return Ok(());
            }
            3 => state.registrations.iter().for_each(|r| state.full_status(disk, r, out)),
            _ => {
                out.truncate(start);
                return Err(Sense::invalid_bit(1, 4));
            }
        }
        let length = (out.len() - start - 8) as u32;
        out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// PERSISTENT RESERVE OUT with its parameter list: the status, and what else is to be done. `save` keeps what is
    /// to outlive a power loss; a change that it cannot keep is not made.
    ///
    /// # Errors
    /// The sense of what is wrong with it, or of `save`.
    pub(crate) fn change(
        &self,
        disk: &Disk,
        cdb: &Cdb,
        data: &[u8],
        port: &str,
        save: &dyn Fn(&Durable) -> Result<(), Sense>,
    ) -> Result<(u8, Effects), Sense> {
        let (action, scope, reservation_kind) = (cdb[1] & 0x1f, cdb[2] >> 4, cdb[2] & 0x0f);
        let is_long = action == REGISTER_AND_MOVE;
        let Some(list) = data.first_chunk::<24>().filter(|_| is_long || data.len() == 24) else {
            return Err(Sense::PARAMETER_LENGTH);
        };
        let word =
            |at: usize| list[at..at + 8].iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        let (key, new_key) = (word(0), word(8));
        // SPEC_I_PT and ALL_TG_PT are not offered, APTPL only where something can be kept.
        let refused = if disk.is_durable { 0x0c } else { 0x0d };
        if matches!(action, 0 | 6) && list[20] & refused != 0 {
            return Err(Sense::invalid_parameter(20));
        }
        if matches!(action, 1 | 2 | 4 | 5) && (scope != 0 || !kind::is_known(reservation_kind)) {
            return Err(Sense::invalid_field(2));
        }
        // The change is made to a copy, which takes the place of what is in force once it is saved. Only RESERVE and
        // RELEASE change the rest of the state meanwhile, and they do nothing beside registrations.
        let saving = disk.shared.saving();
        let (before, mut effects) = (self.lock().clone(), Effects::default());
        let mut state = before.clone();
        let outcome = match action {
            0 => state.register(port, Some(key), new_key, &mut effects),
            6 => state.register(port, None, new_key, &mut effects),
            1..=5 if state.key_of(port) != Some(key) => Ok(status::RESERVATION_CONFLICT),
            1 => Ok(state.reserve(port, reservation_kind)),
            2 => state.release(port, reservation_kind, &mut effects),
            3 => Ok(state.clear(port, &mut effects)),
            4 | PREEMPT_AND_ABORT => state.preempt(port, new_key, reservation_kind, &mut effects),
            REGISTER_AND_MOVE => state.register_and_move(disk, port, (key, new_key), data),
            _ => Err(Sense::invalid_bit(1, 4)),
        }?;
        if outcome != status::GOOD {
            return Ok((outcome, Effects::default()));
        }
        if matches!(action, 0 | 6) {
            state.is_durable = list[20] & 1 != 0;
        }
        if action != PREEMPT_AND_ABORT {
            effects.aborted.clear();
        }
        if before.is_durable || state.is_durable {
            save(&Durable { mode: disk.shared.mode.saved(), reservations: state.durable() })?;
        }
        self.update(|there| {
            let reserved = there.reserved.take();
            *there = State { reserved, ..state };
        });
        drop(saving);
        Ok((outcome, effects))
    }
}

impl Registration {
    fn is_of(&self, port: &str) -> bool {
        is_same(&self.port, port)
    }
}

impl State {
    /// What is to be kept over a power loss.
    fn durable(&self) -> Option<SavedReservations> {
        let registrations = self.registrations.clone();
        let saved = SavedReservations { registrations, reservation: self.reservation.clone() };
        (self.is_durable && !saved.registrations.is_empty()).then_some(saved)
    }

    fn key_of(&self, port: &str) -> Option<u64> {
        self.registrations.iter().find(|r| r.is_of(port)).map(|r| r.key)
    }

    fn holds(&self, port: &str) -> bool {
        self.reservation.as_ref().is_some_and(|r| {
            is_same(&r.port, port) || (kind::is_all_registrants(r.kind) && self.key_of(port).is_some())
        })
    }

    /// Whether another registration of this initiator, or of anybody, has room.
    ///
    /// # Errors
    /// INSUFFICIENT REGISTRATION RESOURCES.
    fn admit(&self, port: &str) -> Result<(), Sense> {
        let initiator = initiator_of(port);
        let user = user_of(port);
        // A user that may take many names is one initiator here.
        let is_own =
            |other: &str| initiator_of(other) == initiator || (user.is_some() && user_of(other) == user);
        let own = self.registrations.iter().filter(|r| is_own(&r.port)).count();
        if own >= REGISTRATIONS_OF_INITIATOR_MAX || self.registrations.len() >= REGISTRATIONS_MAX {
            return Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
        }
        Ok(())
    }

    fn conflicts(&self, cdb: &Cdb, port: &str) -> bool {
        if let Some((holder, _)) = &self.reserved
            && holder != port
        {
            // Only what tells nothing of the medium passes (SPC-2 table 9).
            return !matches!(
                cdb[0],
                opcode::INQUIRY
                    | opcode::REPORT_LUNS
                    | opcode::REQUEST_SENSE
                    | opcode::RELEASE_6
                    | opcode::RELEASE_10
            );
        }
        let Some(reservation) = &self.reservation else { return false };
        if self.holds(port) || (kind::is_for_registrants(reservation.kind) && self.key_of(port).is_some()) {
            return false;
        }
        match access(cdb) {
            Access::Free => false,
            Access::Read => !kind::lets_read(reservation.kind),
            Access::Write => true,
        }
    }

    fn others(&self, port: &str) -> Vec<String> {
        self.registrations.iter().filter(|r| !r.is_of(port)).map(|r| r.port.clone()).collect()
    }

    /// REGISTER, or (without the key there is) REGISTER AND IGNORE EXISTING KEY.
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
        let ends = if kind::is_all_registrants(reservation.kind) {
            self.registrations.is_empty()
        } else {
            is_same(&reservation.port, port)
        };
        if ends {
            self.reservation = None;
            if kind::is_for_registrants(reservation.kind) {
                let others = self.others(port);
                effects.attend(others, UnitAttention::ReservationsReleased);
            }
        }
    }

    fn reserve(&mut self, port: &str, reservation_kind: u8) -> u8 {
        match &self.reservation {
            None => {
                self.reservation = Some(Reservation { kind: reservation_kind, port: port.to_owned() });
                status::GOOD
            }
            Some(there) if self.holds(port) && there.kind == reservation_kind => status::GOOD,
            Some(_) => status::RESERVATION_CONFLICT,
        }
    }

    fn release(&mut self, port: &str, reservation_kind: u8, effects: &mut Effects) -> Result<u8, Sense> {
        if !self.holds(port) {
            return Ok(status::GOOD);
        }
        if self.reservation.as_ref().is_some_and(|r| r.kind != reservation_kind) {
            // INVALID RELEASE OF PERSISTENT RESERVATION.
            return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x04));
        }
        self.reservation = None;
        if kind::is_for_registrants(reservation_kind) {
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
        reservation_kind: u8,
        effects: &mut Effects,
    ) -> Result<u8, Sense> {
        let all = self.reservation.as_ref().is_some_and(|r| kind::is_all_registrants(r.kind));
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
            let before =
                self.reservation.replace(Reservation { kind: reservation_kind, port: port.to_owned() });
            if before.is_some_and(|b| b.kind != reservation_kind && kind::is_for_registrants(b.kind)) {
                let others = self.others(port);
                effects.attend(others, UnitAttention::ReservationsReleased);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        effects.aborted.clone_from(&victims);
        effects.attend(victims, UnitAttention::RegistrationsPreempted);
        Ok(status::GOOD)
    }

    /// REGISTER AND MOVE (SPC-4 5.13.8): the reservation goes to another nexus, which is registered by that.
    fn register_and_move(
        &mut self,
        disk: &Disk,
        port: &str,
        (key, new_key): (u64, u64),
        data: &[u8],
    ) -> Result<u8, Sense> {
        if self.key_of(port) != Some(key) {
            return Ok(status::RESERVATION_CONFLICT);
        }
        let wrong = Sense::invalid_parameter;
        let relative = u16::from_be_bytes([data[18], data[19]]);
        let length = u32::from_be_bytes([data[20], data[21], data[22], data[23]]) as usize;
        let transport = data.get(24..).filter(|rest| rest.len() == length).ok_or(Sense::PARAMETER_LENGTH)?;
        let Some(reservation) = self.reservation.clone() else { return Ok(status::RESERVATION_CONFLICT) };
        if !self.holds(port) || kind::is_all_registrants(reservation.kind) {
            return Ok(status::RESERVATION_CONFLICT);
        }
        if new_key == 0 {
            return Err(wrong(8));
        }
        // The TransportID of an iSCSI initiator port: name and ISID, ended by zero.
        let name =
            transport.get(4..).filter(|_| transport[0] == 0x45).and_then(|n| n.split(|&b| b == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok()).filter(|n| n.contains(",i,0x"));
        let tag = disk.ports.tags().find(|(_, r)| *r == relative).map(|(tag, _)| tag).ok_or(wrong(18))?;
        let to = Nexus::new(name.ok_or(wrong(24))?, tag, 0).name().to_owned();
        if is_same(&to, port) {
            return Err(wrong(24));
        }
        // A registration of the same ports keeps the user that it was proven by.
        let to = match self.registrations.iter().find(|r| is_same(&to, &r.port)) {
            Some(there) => there.port.clone(),
            None => {
                self.admit(&to)?;
                to
            }
        };
        self.registrations.retain(|r| r.port != to);
        self.registrations.push(Registration { key: new_key, port: to.clone() });
        self.reservation = Some(Reservation { kind: reservation.kind, port: to });
        if data[17] & 0x02 != 0 {
            // UNREG: who moved it leaves.
            self.registrations.retain(|r| !r.is_of(port));
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(status::GOOD)
    }

    /// A full status descriptor (SPC-4 6.15.5) with its TransportID (7.6.4.6).
    fn full_status(&self, disk: &Disk, registration: &Registration, out: &mut Vec<u8>) {
        let holds = self.holds(&registration.port);
        let scope_type = self.reservation.as_ref().filter(|_| holds).map_or(0, |r| r.kind);
        let (port, tag) = ports_of(&registration.port);
        let [high, low] = disk.ports.relative(tag).to_be_bytes();
        let mut name = port.as_bytes()[..port.len().min(250)].to_vec();
        name.push(0);
        name.resize(name.len().next_multiple_of(4).max(20), 0);
        out.extend_from_slice(&registration.key.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), scope_type, 0, 0, 0, 0, high, low]);
        out.extend_from_slice(&(name.len() as u32 + 4).to_be_bytes());
        // An initiator port name of iSCSI.
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(&name);
    }
}

/// What a command does (SPC-4 table 68, SBC-3 table 13).
fn access(cdb: &Cdb) -> Access {
    match cdb[0] {
        opcode::INQUIRY
        | opcode::REPORT_LUNS
        | opcode::REQUEST_SENSE
        | opcode::TEST_UNIT_READY
        | opcode::READ_CAPACITY_10
        | opcode::PERSISTENT_RESERVE_IN
        | opcode::PERSISTENT_RESERVE_OUT
        | opcode::RECEIVE_COPY_RESULTS
        | opcode::MAINTENANCE_IN => Access::Free,
        opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == 0x10 => Access::Free,
        opcode::PREVENT_ALLOW_MEDIUM_REMOVAL if cdb[4] & 3 == 0 => Access::Free,
        opcode::START_STOP_UNIT if cdb[4] & 1 != 0 => Access::Free,
        opcode::READ_6
        | opcode::READ_10
        | opcode::READ_12
        | opcode::READ_16
        | opcode::VERIFY_10
        | opcode::VERIFY_12
        | opcode::VERIFY_16
        | opcode::PRE_FETCH_10
        | opcode::PRE_FETCH_16
        | opcode::READ_DEFECT_DATA_10
        | opcode::READ_DEFECT_DATA_12
        | opcode::SERVICE_ACTION_IN_16 => Access::Read,
        _ => Access::Write,
    }
}

/// The initiator's name in that of a nexus: all its ports share the bound on registrations.
fn initiator_of(nexus: &str) -> &str {
    let (port, _) = ports_of(nexus);
    port.rsplit_once(",i,").map_or(port, |(name, _)| name)
}

/// How much data PERSISTENT RESERVE OUT brings.
pub(crate) fn parameter_bytes(cdb: &Cdb) -> u64 {
    be32(cdb, 5).into()
}

/// ALLOCATION LENGTH of PERSISTENT RESERVE IN.
pub(crate) fn allocation(cdb: &Cdb) -> usize {
    be16(cdb, 7).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::example;

    const A: &str = "iqn.a,i,0x000000000001,t,0x0001";
    const B: &str = "iqn.b,i,0x000000000002,t,0x0001";

    fn nexus(port: &str, instance: u64) -> Nexus {
        Nexus::new(port, 1, instance)
    }

    fn out(
        reservations: &Reservations,
        port: &str,
        action: u8,
        kind: u8,
        keys: (u64, u64),
    ) -> Result<u8, Sense> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (opcode::PERSISTENT_RESERVE_OUT, action, kind);
        let mut list = [0; 24];
        list[..8].copy_from_slice(&keys.0.to_be_bytes());
        list[8..16].copy_from_slice(&keys.1.to_be_bytes());
        reservations.change(&example(), &cdb, &list, port, &|_| Ok(())).map(|(status, _)| status)
    }

    /// What a change asks for besides: who is told what, and whose tasks are aborted.
    fn effects(
        reservations: &Reservations,
        port: &str,
        action: u8,
        kind: u8,
        keys: (u64, u64),
    ) -> (Vec<(String, UnitAttention)>, Vec<String>) {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (opcode::PERSISTENT_RESERVE_OUT, action, kind);
        let list = [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), &[0; 8]].concat();
        let changed = reservations.change(&example(), &cdb, &list, port, &|_| Ok(())).unwrap();
        assert_eq!(changed.0, status::GOOD);
        (changed.1.attentions, changed.1.aborted)
    }

    fn read_in(reservations: &Reservations, action: u8) -> Vec<u8> {
        let mut cdb = [0; 16];
        cdb[1] = action;
        let mut data = Vec::new();
        reservations.report(&example(), &cdb, &mut data).unwrap();
        data
    }

    fn conflicts(reservations: &Reservations, code: u8, port: &str) -> bool {
        let mut cdb = [0; 16];
        cdb[0] = code;
        reservations.conflicts(&cdb, port)
    }

    const GOOD: Result<u8, Sense> = Ok(status::GOOD);
    const CONFLICT: Result<u8, Sense> = Ok(status::RESERVATION_CONFLICT);

    #[test]
    fn who_may_do_what_under_each_type() {
        // Type; may the unregistered read, write; may the registered read, write.
        for (kind, unregistered, registered) in [
            (1, (true, false), (true, false)),
            (3, (false, false), (false, false)),
            (5, (true, false), (true, true)),
            (6, (false, false), (true, true)),
            (7, (true, false), (true, true)),
            (8, (false, false), (true, true)),
        ] {
            let r = Reservations::default();
            assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
            assert_eq!(out(&r, A, 1, kind, (11, 0)), GOOD);
            let may = |port| (!conflicts(&r, opcode::READ_10, port), !conflicts(&r, opcode::WRITE_10, port));
            assert_eq!(may(A), (true, true), "{kind}");
            assert_eq!(may(B), unregistered, "{kind}");
            assert!(!conflicts(&r, opcode::INQUIRY, B) && !conflicts(&r, opcode::PERSISTENT_RESERVE_IN, B));
            assert_eq!(out(&r, B, 0, 0, (0, 22)), GOOD);
            assert_eq!(may(B), registered, "{kind}");
            // Release by who does not hold it is no error and does nothing.
            let after = if kind >= 7 { None } else { Some(kind) };
            assert_eq!(out(&r, B, 2, kind, (22, 0)), GOOD);
            assert_eq!(read_in(&r, 1).get(21).copied(), after);
        }
    }

    #[test]
    fn keys_are_checked_and_generations_counted() {
        let r = Reservations::default();
        assert_eq!(out(&r, A, 0, 0, (5, 11)), CONFLICT, "not registered, and a key");
        assert_eq!(out(&r, A, 1, 1, (0, 0)), CONFLICT, "not registered");
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(out(&r, A, 0, 0, (12, 13)), CONFLICT);
        assert_eq!(out(&r, A, 6, 0, (99, 13)), GOOD, "ignores the key there is");
        assert_eq!(read_in(&r, 0), [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 13]);
        assert_eq!(out(&r, A, 1, 2, (13, 0)), Err(Sense::invalid_field(2)), "no such type");
        assert_eq!(out(&r, A, 1, 1, (13, 0)), GOOD);
        assert_eq!(out(&r, A, 2, 3, (13, 0)), Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x04)));
        assert_eq!(out(&r, A, 0, 0, (13, 0)), GOOD, "leaves, and takes the reservation along");
        assert!(!conflicts(&r, opcode::WRITE_10, B) && !r.busy.load(Ordering::Relaxed));
        assert_eq!(read_in(&r, 1).len(), 8);
    }

    #[test]
    fn preempting_takes_over_and_tells_the_others() {
        let r = Reservations::default();
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(out(&r, B, 0, 0, (0, 22)), GOOD);
        assert_eq!(out(&r, A, 1, 3, (11, 0)), GOOD);
        assert_eq!(out(&r, B, 1, 3, (22, 0)), CONFLICT);
        assert_eq!(out(&r, B, 4, 5, (22, 99)), CONFLICT, "nobody has that key");
        let told = vec![(A.to_owned(), UnitAttention::RegistrationsPreempted)];
        assert_eq!(effects(&r, B, 4, 5, (22, 11)), (told, vec![]), "PREEMPT aborts nothing");
        assert!(conflicts(&r, opcode::WRITE_10, A) && !conflicts(&r, opcode::WRITE_10, B));
        assert_eq!(read_in(&r, 1)[8..], [0, 0, 0, 0, 0, 0, 0, 22, 0, 0, 0, 0, 0, 5, 0, 0]);
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        let told = vec![(A.to_owned(), UnitAttention::ReservationsPreempted)];
        assert_eq!(effects(&r, B, 3, 0, (22, 0)), (told, vec![]));
        assert_eq!(read_in(&r, 0)[4..8], [0; 4]);
    }

    #[test]
    fn preempt_and_abort_names_the_nexuses_whose_tasks_are_aborted() {
        let r = Reservations::default();
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(out(&r, B, 0, 0, (0, 22)), GOOD);
        assert_eq!(out(&r, A, 1, 5, (11, 0)), GOOD);
        assert_eq!(effects(&r, B, 5, 5, (22, 11)).1, [A]);
    }

    #[test]
    fn one_initiator_cannot_take_every_registration() {
        let r = Reservations::default();
        let port = |n: usize| format!("iqn.a,i,{n:#014x},t,0x0001");
        for n in 0..REGISTRATIONS_OF_INITIATOR_MAX {
            assert_eq!(out(&r, &port(n), 0, 0, (0, 1)), GOOD);
        }
        let full = Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
        assert_eq!(out(&r, &port(999), 0, 0, (0, 1)), full);
        assert_eq!(out(&r, &port(999), 6, 0, (0, 1)), full, "nor with REGISTER AND IGNORE EXISTING KEY");
        assert_eq!(out(&r, &format!("{},u,other", port(998)), 0, 0, (0, 1)), full, "nor as another user");
        assert_eq!(out(&r, B, 0, 0, (0, 22)), GOOD, "others still can");
    }

    #[test]
    fn one_user_cannot_take_every_registration_by_many_names() {
        let r = Reservations::default();
        let port = |n: usize, user: &str| format!("iqn.a{n},i,0x000000000001,t,0x0001,u,{user}");
        for n in 0..REGISTRATIONS_OF_INITIATOR_MAX {
            assert_eq!(out(&r, &port(n, "ops"), 0, 0, (0, 1)), GOOD);
        }
        let full = Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
        assert_eq!(out(&r, &port(999, "ops"), 0, 0, (0, 1)), full);
        assert_eq!(out(&r, &port(999, "bob"), 0, 0, (0, 1)), GOOD, "another user still can");
    }

    #[test]
    fn a_registration_belongs_to_the_proven_user() {
        let r = Reservations::default();
        let (alice, bob) = (format!("{A},u,alice"), format!("{A},u,bob"));
        assert_eq!(out(&r, &alice, 0, 0, (0, 11)), GOOD);
        assert_eq!(out(&r, &alice, 1, 3, (11, 0)), GOOD);
        assert!(conflicts(&r, opcode::WRITE_10, &bob), "the same name and ISID, another user");
        assert_eq!(out(&r, &bob, 2, 3, (11, 0)), CONFLICT);
        assert!(!conflicts(&r, opcode::WRITE_10, &alice));
    }

    #[test]
    fn set_target_port_groups_is_not_for_those_whom_a_reservation_excludes() {
        let r = Reservations::default();
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(out(&r, A, 1, 3, (11, 0)), GOOD);
        assert!(conflicts(&r, opcode::MAINTENANCE_OUT, B) && !conflicts(&r, opcode::MAINTENANCE_OUT, A));
        assert!(!conflicts(&r, opcode::MAINTENANCE_IN, B), "reporting them is free");
    }

    #[test]
    fn a_change_that_cannot_be_saved_is_not_in_force() {
        let disk = Disk { is_durable: true, ..example() };
        let r = &disk.shared.reservations;
        let (mut cdb, mut list) = ([0; 16], [0; 24]);
        cdb[0] = opcode::PERSISTENT_RESERVE_OUT;
        (list[15], list[20]) = (11, 1);
        let failed = r.change(&disk, &cdb, &list, A, &|_| Err(Sense::INTERNAL_FAILURE));
        assert_eq!(failed, Err(Sense::INTERNAL_FAILURE));
        assert_eq!(read_in(r, 0)[4..8], [0; 4], "no key is registered");
        assert!(!r.busy.load(Ordering::Relaxed));
        assert!(r.change(&disk, &cdb, &list, A, &|_| Ok(())).is_ok());
        // Now APTPL is in force, so every change is saved before it is.
        let mut other = [0; 24];
        (other[7], other[15]) = (11, 12);
        assert!(r.change(&disk, &cdb, &other, A, &|_| Err(Sense::INTERNAL_FAILURE)).is_err());
        assert_eq!(read_in(r, 0)[8..], [0, 0, 0, 0, 0, 0, 0, 11], "the key is what it was");
    }

    #[test]
    fn a_simple_reservation_shuts_out_everybody_else_until_it_goes() {
        let (a, b) = (nexus("iqn.a,i,0x000000000001", 7), nexus("iqn.b,i,0x000000000002", 8));
        let r = Reservations::default();
        assert_eq!(r.reserve(&a), status::GOOD);
        assert_eq!(r.reserve(&a), status::GOOD);
        assert_eq!(r.reserve(&b), status::RESERVATION_CONFLICT);
        assert!(conflicts(&r, opcode::TEST_UNIT_READY, B) && !conflicts(&r, opcode::INQUIRY, B));
        assert_eq!(r.release(&b), status::GOOD);
        assert!(conflicts(&r, opcode::READ_10, B));
        r.forget(|_, instance| instance != 6);
        assert!(conflicts(&r, opcode::READ_10, B), "an older session of the same nexus has ended");
        r.forget(|_, instance| instance != 7);
        assert!(!conflicts(&r, opcode::READ_10, B));
        // Not beside persistent ones.
        assert_eq!(out(&r, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(
            (r.reserve(&a), r.release(&b)),
            (status::RESERVATION_CONFLICT, status::RESERVATION_CONFLICT)
        );
    }

    /// Registers A with APTPL, reserves, and moves the reservation to B.
    #[test]
    fn a_reservation_moves_and_outlives_the_target() {
        let disk = Disk { is_durable: true, ..example() };
        let r = &disk.shared.reservations;
        let saved = std::cell::RefCell::new(None);
        let run = |port: &str, action: u8, kind: u8, keys: (u64, u64), more: &[u8]| {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[2]) = (opcode::PERSISTENT_RESERVE_OUT, action, kind);
            let list = [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), more].concat();
            r.change(&disk, &cdb, &list, port, &|kept| {
                saved.replace(Some(kept.clone()));
                Ok(())
            })
            .map(|(status, _)| status)
        };
        let aptpl = [0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(run(A, 0, 0, (0, 11), &aptpl), GOOD);
        assert_eq!(run(A, 1, 3, (11, 0), &[0; 8]), GOOD);
        assert!(saved.borrow().is_some());
        // To B through port 1, which leaves A.
        let mut transport = vec![0x45, 0, 0, 24];
        transport.extend(b"iqn.b,i,0x000000000002\0\0");
        let to = [&[0, 2, 0, 1, 0, 0, 0, 28][..], &transport].concat();
        assert_eq!(run(B, REGISTER_AND_MOVE, 0, (11, 22), &to), CONFLICT, "not registered");
        assert_eq!(run(A, REGISTER_AND_MOVE, 0, (11, 0), &to), Err(Sense::invalid_parameter(8)));
        let elsewhere = [&[0, 2, 0, 9, 0, 0, 0, 28][..], &transport].concat();
        assert_eq!(run(A, REGISTER_AND_MOVE, 0, (11, 22), &elsewhere), Err(Sense::invalid_parameter(18)));
        assert_eq!(run(A, REGISTER_AND_MOVE, 0, (11, 22), &to[..30]), Err(Sense::PARAMETER_LENGTH));
        assert_eq!(run(A, REGISTER_AND_MOVE, 0, (11, 22), &to), GOOD);
        assert!(conflicts(r, opcode::WRITE_10, A) && !conflicts(r, opcode::WRITE_10, B));
        // The target is started again.
        let after = Disk { shared: std::sync::Arc::default(), ..disk.clone() };
        after.shared.restore(&saved.take().expect("saved"));
        let r = &after.shared.reservations;
        assert!(conflicts(r, opcode::WRITE_10, A) && !conflicts(r, opcode::WRITE_10, B));
        assert_eq!(read_in(r, 0)[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 22]);
    }

    #[test]
    fn without_aptpl_nothing_is_kept() {
        let disk = Disk { is_durable: true, ..example() };
        assert_eq!(out(&disk.shared.reservations, A, 0, 0, (0, 11)), GOOD);
        assert_eq!(disk.shared.reservations.durable(), None);
        let mut list = [0; 24];
        (list[15], list[20]) = (11, 1);
        let refused = Reservations::default().change(&example(), &[0; 16], &list, A, &|_| Ok(()));
        assert_eq!(refused, Err(Sense::invalid_parameter(20)), "where nothing can be kept, APTPL is refused");
    }
}
