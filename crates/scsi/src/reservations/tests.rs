//! Reservations of two initiators, A and B.

use super::change::REGISTRATIONS_OF_INITIATOR_MAX;
use super::*;
use crate::cdb::opcode;
use crate::command::PersistentReserveOut;
use crate::disk::{Disk, Durable, example};
use crate::ports::Ports;
use crate::sense::{Sense, SenseKey};

const A: &str = "iqn.a,i,0x000000000001,t,0x0001";
const B: &str = "iqn.b,i,0x000000000002,t,0x0001";

fn nexus(port: &str, instance: u64) -> Nexus {
    Nexus::new(port, 1, instance)
}

/// RESERVATION KEY and SERVICE ACTION RESERVATION KEY.
#[derive(Clone, Copy)]
struct Keys(u64, u64);

const REGISTER_AND_MOVE: u8 = 7;

fn request(action: u8, kind: u8) -> PersistentReserveOut {
    PersistentReserveOut { action, scope: 0, kind, parameter_bytes: 24 }
}

fn list(keys: Keys, more: &[u8]) -> Vec<u8> {
    [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), more].concat()
}

/// PERSISTENT RESERVE OUT on a disk without durable state.
fn change(
    reservations: &Reservations,
    port: &str,
    action: u8,
    kind: u8,
    keys: Keys,
) -> Result<(u8, Effects), Sense> {
    let list = list(keys, &[0; 8]);
    reservations.change(&Ports::default(), false, &request(action, kind), &list, port, &|_| Ok(()))
}

/// The status of PERSISTENT RESERVE OUT.
fn out(reservations: &Reservations, port: &str, action: u8, kind: u8, keys: Keys) -> Result<u8, Sense> {
    change(reservations, port, action, kind, keys).map(|(status, _)| status)
}

/// The effects of a PERSISTENT RESERVE OUT that succeeds.
fn effects(reservations: &Reservations, port: &str, action: u8, kind: u8, keys: Keys) -> Effects {
    let (status, effects) = change(reservations, port, action, kind, keys).unwrap();
    assert_eq!(status, status::GOOD);
    effects
}

fn read_in(reservations: &Reservations, action: u8) -> Vec<u8> {
    let mut data = Vec::new();
    reservations.report(&Ports::default(), false, action, &mut data).unwrap();
    data
}

fn conflicts(reservations: &Reservations, code: u8, port: &str) -> bool {
    let mut cdb = [0; 16];
    cdb[0] = code;
    reservations.conflicts(&Command::decode(&cdb), port)
}

const GOOD: Result<u8, Sense> = Ok(status::GOOD);
const CONFLICT: Result<u8, Sense> = Ok(status::RESERVATION_CONFLICT);

#[test]
fn access_under_each_reservation_type() {
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
        assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
        assert_eq!(out(&r, A, 1, kind, Keys(11, 0)), GOOD);
        let may = |port| (!conflicts(&r, opcode::READ_10, port), !conflicts(&r, opcode::WRITE_10, port));
        assert_eq!(may(A), (true, true), "{kind}");
        assert_eq!(may(B), unregistered, "{kind}");
        assert!(!conflicts(&r, opcode::INQUIRY, B) && !conflicts(&r, opcode::PERSISTENT_RESERVE_IN, B));
        assert_eq!(out(&r, B, 0, 0, Keys(0, 22)), GOOD);
        assert_eq!(may(B), registered, "{kind}");
        // A release by another registrant is no error and does nothing.
        let after = if kind >= 7 { None } else { Some(kind) };
        assert_eq!(out(&r, B, 2, kind, Keys(22, 0)), GOOD);
        assert_eq!(read_in(&r, 1).get(21).copied(), after);
    }
}

#[test]
fn checks_keys_and_counts_generations() {
    let r = Reservations::default();
    assert_eq!(out(&r, A, 0, 0, Keys(5, 11)), CONFLICT, "not registered, and a key");
    assert_eq!(out(&r, A, 1, 1, Keys(0, 0)), CONFLICT, "not registered");
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(out(&r, A, 0, 0, Keys(12, 13)), CONFLICT);
    assert_eq!(out(&r, A, 6, 0, Keys(99, 13)), GOOD, "ignores the key there is");
    assert_eq!(read_in(&r, 0), [0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 13]);
    assert_eq!(out(&r, A, 1, 2, Keys(13, 0)), Err(Sense::invalid_field(2)), "no such type");
    assert_eq!(out(&r, A, 1, 1, Keys(13, 0)), GOOD);
    assert_eq!(out(&r, A, 2, 3, Keys(13, 0)), Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x04)));
    assert_eq!(out(&r, A, 0, 0, Keys(13, 0)), GOOD, "leaves, and takes the reservation along");
    assert!(!conflicts(&r, opcode::WRITE_10, B) && !r.busy.load(Ordering::Relaxed));
    assert_eq!(read_in(&r, 1).len(), 8);
}

#[test]
fn preempt_moves_the_reservation_and_raises_unit_attentions() {
    let r = Reservations::default();
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(out(&r, B, 0, 0, Keys(0, 22)), GOOD);
    assert_eq!(out(&r, A, 1, 3, Keys(11, 0)), GOOD);
    assert_eq!(out(&r, B, 1, 3, Keys(22, 0)), CONFLICT);
    assert_eq!(out(&r, B, 4, 5, Keys(22, 99)), CONFLICT, "no registrant has that key");
    let attentions = vec![(A.to_owned(), UnitAttention::RegistrationsPreempted)];
    assert_eq!(
        effects(&r, B, 4, 5, Keys(22, 11)),
        Effects { attentions, aborted: vec![] },
        "PREEMPT aborts nothing"
    );
    assert!(conflicts(&r, opcode::WRITE_10, A) && !conflicts(&r, opcode::WRITE_10, B));
    assert_eq!(read_in(&r, 1)[8..], [0, 0, 0, 0, 0, 0, 0, 22, 0, 0, 0, 0, 0, 5, 0, 0]);
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    let attentions = vec![(A.to_owned(), UnitAttention::ReservationsPreempted)];
    assert_eq!(effects(&r, B, 3, 0, Keys(22, 0)), Effects { attentions, aborted: vec![] });
    assert_eq!(read_in(&r, 0)[4..8], [0; 4]);
}

#[test]
fn preempt_and_abort_lists_the_nexuses_to_abort() {
    let r = Reservations::default();
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(out(&r, B, 0, 0, Keys(0, 22)), GOOD);
    assert_eq!(out(&r, A, 1, 5, Keys(11, 0)), GOOD);
    assert_eq!(effects(&r, B, 5, 5, Keys(22, 11)).aborted, [A]);
}

#[test]
fn limits_registrations_of_one_initiator() {
    let r = Reservations::default();
    let port = |n: usize| format!("iqn.a,i,{n:#014x},t,0x0001");
    for n in 0..REGISTRATIONS_OF_INITIATOR_MAX {
        assert_eq!(out(&r, &port(n), 0, 0, Keys(0, 1)), GOOD);
    }
    let full = Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
    assert_eq!(out(&r, &port(999), 0, 0, Keys(0, 1)), full);
    assert_eq!(out(&r, &port(999), 6, 0, Keys(0, 1)), full, "nor with REGISTER AND IGNORE EXISTING KEY");
    assert_eq!(out(&r, &format!("{},u,other", port(998)), 0, 0, Keys(0, 1)), full, "nor as another user");
    assert_eq!(out(&r, B, 0, 0, Keys(0, 22)), GOOD, "others still can");
}

#[test]
fn limits_registrations_of_one_user_with_many_names() {
    let r = Reservations::default();
    let port = |n: usize, user: &str| format!("iqn.a{n},i,0x000000000001,t,0x0001,u,{user}");
    for n in 0..REGISTRATIONS_OF_INITIATOR_MAX {
        assert_eq!(out(&r, &port(n, "ops"), 0, 0, Keys(0, 1)), GOOD);
    }
    let full = Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x04));
    assert_eq!(out(&r, &port(999, "ops"), 0, 0, Keys(0, 1)), full);
    assert_eq!(out(&r, &port(999, "bob"), 0, 0, Keys(0, 1)), GOOD, "another user still can");
}

#[test]
fn a_registration_belongs_to_the_proven_user() {
    let r = Reservations::default();
    let (alice, bob) = (format!("{A},u,alice"), format!("{A},u,bob"));
    assert_eq!(out(&r, &alice, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(out(&r, &alice, 1, 3, Keys(11, 0)), GOOD);
    assert!(conflicts(&r, opcode::WRITE_10, &bob), "the same name and ISID, another user");
    assert_eq!(out(&r, &bob, 2, 3, Keys(11, 0)), CONFLICT);
    assert!(!conflicts(&r, opcode::WRITE_10, &alice));
}

#[test]
fn set_target_port_groups_conflicts_with_a_reservation() {
    let r = Reservations::default();
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(out(&r, A, 1, 3, Keys(11, 0)), GOOD);
    assert!(conflicts(&r, opcode::MAINTENANCE_OUT, B) && !conflicts(&r, opcode::MAINTENANCE_OUT, A));
    assert!(!conflicts(&r, opcode::MAINTENANCE_IN, B), "reporting them is free");
}

#[test]
fn a_change_that_cannot_be_saved_is_not_made() {
    let disk = Disk { is_durable: true, ..example() };
    let r = &disk.shared.reservations;
    let change = |list: &[u8], saved: Result<(), Sense>| {
        r.change(&disk.ports, true, &request(0, 0), list, A, &|_| saved)
    };
    let mut list = [0; 24];
    (list[15], list[20]) = (11, 1);
    let failed = change(&list, Err(Sense::INTERNAL_FAILURE));
    assert_eq!(failed, Err(Sense::INTERNAL_FAILURE));
    assert_eq!(read_in(r, 0)[4..8], [0; 4], "no key is registered");
    assert!(!r.busy.load(Ordering::Relaxed));
    assert!(change(&list, Ok(())).is_ok());
    // Now APTPL is in force, so every change is saved before it is.
    let mut other = [0; 24];
    (other[7], other[15]) = (11, 12);
    assert!(change(&other, Err(Sense::INTERNAL_FAILURE)).is_err());
    assert_eq!(read_in(r, 0)[8..], [0, 0, 0, 0, 0, 0, 0, 11], "the key is what it was");
}

#[test]
fn a_simple_reservation_excludes_other_initiators_until_it_ends() {
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
    assert_eq!(out(&r, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!((r.reserve(&a), r.release(&b)), (status::RESERVATION_CONFLICT, status::RESERVATION_CONFLICT));
}

/// Registers A with APTPL, reserves, and moves the reservation to B.
#[test]
fn register_and_move_survives_a_restart() {
    let disk = Disk { is_durable: true, ..example() };
    let r = &disk.shared.reservations;
    let saved = std::cell::RefCell::new(None);
    let run = |port: &str, action: u8, kind: u8, keys: Keys, more: &[u8]| {
        r.change(&disk.ports, true, &request(action, kind), &list(keys, more), port, &|reservations| {
            saved.replace(reservations);
            Ok(())
        })
        .map(|(status, _)| status)
    };
    let aptpl = [0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(run(A, 0, 0, Keys(0, 11), &aptpl), GOOD);
    assert_eq!(run(A, 1, 3, Keys(11, 0), &[0; 8]), GOOD);
    assert!(saved.borrow().is_some());
    // To B through port 1, which leaves A.
    let mut transport = vec![0x45, 0, 0, 24];
    transport.extend(b"iqn.b,i,0x000000000002\0\0");
    let to = [&[0, 2, 0, 1, 0, 0, 0, 28][..], &transport].concat();
    assert_eq!(run(B, REGISTER_AND_MOVE, 0, Keys(11, 22), &to), CONFLICT, "not registered");
    assert_eq!(run(A, REGISTER_AND_MOVE, 0, Keys(11, 0), &to), Err(Sense::invalid_parameter(8)));
    let elsewhere = [&[0, 2, 0, 9, 0, 0, 0, 28][..], &transport].concat();
    assert_eq!(run(A, REGISTER_AND_MOVE, 0, Keys(11, 22), &elsewhere), Err(Sense::invalid_parameter(18)));
    assert_eq!(run(A, REGISTER_AND_MOVE, 0, Keys(11, 22), &to[..30]), Err(Sense::PARAMETER_LENGTH));
    assert_eq!(run(A, REGISTER_AND_MOVE, 0, Keys(11, 22), &to), GOOD);
    assert!(conflicts(r, opcode::WRITE_10, A) && !conflicts(r, opcode::WRITE_10, B));
    // The target is started again.
    let after = Disk { shared: std::sync::Arc::default(), ..disk.clone() };
    after.shared.restore(&Durable { reservations: saved.take(), mode: None });
    let r = &after.shared.reservations;
    assert!(conflicts(r, opcode::WRITE_10, A) && !conflicts(r, opcode::WRITE_10, B));
    assert_eq!(read_in(r, 0)[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 22]);
}

#[test]
fn without_aptpl_nothing_is_saved() {
    let disk = Disk { is_durable: true, ..example() };
    assert_eq!(out(&disk.shared.reservations, A, 0, 0, Keys(0, 11)), GOOD);
    assert_eq!(disk.shared.reservations.durable(), None);
    let list = list(Keys(0, 11), &[0, 0, 0, 0, 1, 0, 0, 0]);
    let rejected =
        Reservations::default().change(&Ports::default(), false, &request(0, 0), &list, A, &|_| Ok(()));
    assert_eq!(rejected, Err(Sense::invalid_parameter(20)), "APTPL on a disk without durable state");
}
