//! Reservations of a logical unit: persistent ones (SPC-4 5.13) and those of RESERVE (6) (SPC-2 7.21).
//!
//! Registrations with APTPL survive a restart of the target on a disk with durable state ([`Reservations::durable`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::command::{Access, Command};
use crate::nexus::{Nexus, UnitAttention, is_same};
use crate::status;

use kind::ReservationType;

mod change;
mod kind;
mod report;

/// Most registrations of a logical unit.
const REGISTRATIONS_MAX: usize = 1024;
/// An I_T nexus that has registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Registration {
    key: u64,
    port: String,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    kind: ReservationType,
    /// The name of the nexus that holds it, or with an all-registrants type that made it.
    port: String,
}

/// Registrations and the reservation as they are saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedReservations {
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
}

/// Registrations and the reservation as another process takes them over, with or without APTPL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedReservations {
    all: SavedReservations,
    generation: u32,
    is_durable: bool,
}

/// A reservation by RESERVE (6) or (10).
#[derive(Clone, Debug)]
struct SimpleReservation {
    /// The name of the nexus.
    nexus: String,
    /// The session, as a reservation ends with it.
    instance: u64,
}

#[derive(Clone, Debug, Default)]
struct State {
    generation: u32,
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
    reserved: Option<SimpleReservation>,
    /// APTPL of the last registration: the registrations survive a power loss.
    is_durable: bool,
}

/// The effects of a change of reservations on other nexuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Nexuses (by name, see [`Nexus::name`]) for which a unit attention is established, and which.
    pub attentions: Vec<(String, UnitAttention)>,
    /// Nexuses whose tasks at the logical unit are aborted before the command is answered (PREEMPT AND ABORT).
    pub aborted: Vec<String>,
}

impl Effects {
    fn attend(&mut self, ports: Vec<String>, attention: UnitAttention) {
        self.attentions.extend(ports.into_iter().map(|port| (port, attention)));
    }
}

/// Whether a name in [`Effects`] means the nexus of this name.
#[must_use]
pub fn names(name: &str, nexus: &str) -> bool {
    is_same(name, nexus)
}

/// The registrations and the reservation of a logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The names of the registered nexuses (without the session), and their keys.
    pub registrations: Vec<(String, u64)>,
    /// Who holds the persistent reservation, and its type.
    pub holder: Option<(String, &'static str)>,
    /// Who holds a reservation by RESERVE(6).
    pub reserved: Option<String>,
}

/// The reservations of a logical unit, shared by all that see it.
#[derive(Debug, Default)]
pub struct Reservations {
    /// Whether there is any reservation or registration. Reads and writes check this before they lock the state.
    busy: AtomicBool,
    state: Mutex<State>,
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
    pub fn conflicts(&self, command: &Command, port: &str) -> bool {
        self.busy.load(Ordering::Acquire) && self.lock().conflicts(command, port)
    }

    /// RESERVE (6) and (10): returns the status.
    pub fn reserve(&self, nexus: &Nexus) -> u8 {
        self.update(|state| {
            let is_taken = state.reserved.as_ref().is_some_and(|r| r.nexus != nexus.name());
            if !state.registrations.is_empty() || is_taken {
                return status::RESERVATION_CONFLICT;
            }
            let reserved = SimpleReservation { nexus: nexus.name().to_owned(), instance: nexus.instance() };
            state.reserved = Some(reserved);
            status::GOOD
        })
    }

    /// RELEASE (6) and (10): returns the status. A release by another nexus does nothing and is no error.
    pub fn release(&self, nexus: &Nexus) -> u8 {
        self.update(|state| {
            if !state.registrations.is_empty() {
                return status::RESERVATION_CONFLICT;
            }
            if state.reserved.as_ref().is_some_and(|r| r.nexus == nexus.name()) {
                state.reserved = None;
            }
            status::GOOD
        })
    }

    /// Ends a reservation by RESERVE unless `keeps` accepts its nexus and session. Persistent reservations remain.
    pub fn forget(&self, keeps: impl Fn(&str, u64) -> bool) {
        self.update(|state| {
            state.reserved = state.reserved.take().filter(|r| keeps(&r.nexus, r.instance));
        });
    }

    /// Returns the state to save, if the last registration had APTPL.
    #[must_use]
    pub fn durable(&self) -> Option<SavedReservations> {
        self.lock().durable()
    }

    /// Returns the state that a process takes over from the one before. A reservation by RESERVE (6) or (10) is not part of it.
    #[must_use]
    pub fn carried(&self) -> CarriedReservations {
        let state = self.lock();
        let all = SavedReservations {
            registrations: state.registrations.clone(),
            reservation: state.reservation.clone(),
        };
        CarriedReservations { all, generation: state.generation, is_durable: state.is_durable }
    }

    /// Takes over the state of the process before.
    pub fn carry(&self, carried: &CarriedReservations) {
        self.restore(&carried.all);
        self.update(|state| {
            state.generation = carried.generation;
            state.is_durable = carried.is_durable;
        });
    }

    /// Whether a session has reserved the disk by RESERVE (6) or (10).
    #[must_use]
    pub fn is_reserved_by_session(&self) -> bool {
        self.lock().reserved.is_some()
    }

    /// Returns who is registered, and who holds the reservation.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let state = self.lock();
        Overview {
            registrations: state.registrations.iter().map(|one| (one.port.clone(), one.key)).collect(),
            holder: state.reservation.as_ref().map(|held| (held.port.clone(), held.kind.name())),
            reserved: state.reserved.as_ref().map(|held| held.nexus.clone()),
        }
    }

    /// Ends every registration and reservation, persistent or not, on behalf of an operator. Returns the nexuses that had one: a
    /// unit attention (REGISTRATIONS PREEMPTED) is due to them.
    pub fn clear(&self) -> Vec<String> {
        self.update(|state| {
            let mut ended: Vec<String> = state.registrations.drain(..).map(|one| one.port).collect();
            state.reservation = None;
            ended.extend(state.reserved.take().map(|held| held.nexus));
            state.generation = state.generation.wrapping_add(1);
            state.is_durable = false;
            ended
        })
    }

    /// Restores saved state.
    pub(crate) fn restore(&self, saved: &SavedReservations) {
        self.update(|state| {
            state.registrations.clone_from(&saved.registrations);
            state.registrations.truncate(REGISTRATIONS_MAX);
            state.reservation.clone_from(&saved.reservation);
            state.is_durable = true;
        });
    }
}

impl Registration {
    fn is_of(&self, port: &str) -> bool {
        is_same(&self.port, port)
    }
}

impl State {
    /// Returns the state to save, if the last registration had APTPL.
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
            is_same(&r.port, port) || (r.kind.is_all_registrants() && self.key_of(port).is_some())
        })
    }

    fn conflicts(&self, command: &Command, port: &str) -> bool {
        if self.reserved.as_ref().is_some_and(|reserved| reserved.nexus != port) {
            return !command.passes_simple_reservation();
        }
        let Some(reservation) = &self.reservation else { return false };
        if self.holds(port) || (reservation.kind.admits_registrants() && self.key_of(port).is_some()) {
            return false;
        }
        match command.access() {
            Access::None => false,
            Access::Read => !reservation.kind.admits_reads(),
            Access::Write => true,
        }
    }
}

#[cfg(test)]
mod tests;
