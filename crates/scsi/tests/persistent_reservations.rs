//! Reservations as initiators see them (SPC-4 5.13, SPC-2 7.21): who may do what, who is told, and what is reported.

mod common;

use std::cell::Cell;

use common::{ask, cdb, disk, luns, nothing_to_save};
use scsi::ports::Ports;
use scsi::{Disk, Effects, Lun, Luns, Nexus, Plan, Sense, SenseKey, UnitAttention, status};

const OUT: u8 = 0x5f;
const IN: u8 = 0x5e;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ACCESS_REGISTRANTS: u8 = 6;
const WRITE_EXCLUSIVE_ALL: u8 = 7;
const EXCLUSIVE_ACCESS_ALL: u8 = 8;
const TYPES: [u8; 6] = [
    WRITE_EXCLUSIVE,
    EXCLUSIVE_ACCESS,
    WRITE_EXCLUSIVE_REGISTRANTS,
    EXCLUSIVE_ACCESS_REGISTRANTS,
    WRITE_EXCLUSIVE_ALL,
    EXCLUSIVE_ACCESS_ALL,
];

/// A, B and C, each with a key of its own: 11, 12, 13.
fn nexus(who: char) -> Nexus {
    Nexus::new(&format!("iqn.{},i,0x00000000000{}", who.to_ascii_lowercase(), key(who) - 10), 1, key(who))
}

fn key(who: char) -> u64 {
    11 + (who as u64 - 'A' as u64)
}

fn name(who: char) -> String {
    nexus(who).name().to_owned()
}

/// A disk with what it knows of reservations.
struct Unit(Luns);

impl Unit {
    fn new() -> Self {
        Self(luns(&[disk("a")]))
    }

    /// A disk at which these are registered.
    fn with(registered: &str) -> Self {
        let unit = Self::new();
        for who in registered.chars() {
            assert_eq!(unit.out(who, REGISTER, 0, (0, key(who))), Ok(Effects::default()));
        }
        unit
    }

    fn list(&self, who: char, action: u8, type_and_scope: u8, list: &[u8]) -> Result<Effects, Plan> {
        let command = cdb(&[OUT, action, type_and_scope]);
        match self.0.finish(Lun(0), &command, list, &nexus(who), &nothing_to_save) {
            Plan::Reserved { lun: Lun(0), status: status::GOOD, effects } => Ok(effects),
            other => Err(other),
        }
    }

    /// PERSISTENT RESERVE OUT with RESERVATION KEY and SERVICE ACTION RESERVATION KEY.
    fn out(&self, who: char, action: u8, kind: u8, keys: (u64, u64)) -> Result<Effects, Plan> {
        let list = [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), &[0; 8]].concat();
        self.list(who, action, kind, &list)
    }

    /// REGISTER AND MOVE of A's to the initiator port of this name, through the port with this relative identifier.
    fn move_to(
        &self,
        new_key: u64,
        unregister: bool,
        relative: u8,
        transport: &[u8],
    ) -> Result<Effects, Plan> {
        let length = (transport.len() as u32).to_be_bytes();
        let flags = [0, u8::from(unregister) << 1, 0, relative];
        let keys = [key('A').to_be_bytes(), new_key.to_be_bytes()].concat();
        self.list('A', REGISTER_AND_MOVE, 0, &[&keys[..], &flags, &length, transport].concat())
    }

    fn read(&self, action: u8) -> Vec<u8> {
        let (plan, data) = ask(&self.0, &mut nexus('C'), &[IN, action, 0, 0, 0, 0, 0, 16, 0]);
        assert_eq!(plan, Plan::Data);
        data
    }

    fn generation(&self) -> u8 {
        self.read(0)[3]
    }

    fn keys(&self) -> Vec<u8> {
        self.read(0)[8..].chunks(8).map(|key| key[7]).collect()
    }

    /// Key and type of the reservation.
    fn held(&self) -> Option<(u8, u8)> {
        let data = self.read(1);
        (data.len() > 8).then(|| (data[15], data[21]))
    }

    fn may(&self, who: char, command: &[u8]) -> bool {
        ask(&self.0, &mut nexus(who), command).0 != Plan::Status(status::RESERVATION_CONFLICT)
    }
}

fn attention_of(who: &str, attention: UnitAttention) -> Effects {
    Effects { attentions: who.chars().map(|who| (name(who), attention)).collect(), aborted: vec![] }
}

fn conflict<T>() -> Result<T, Plan> {
    Err(Plan::Reserved { lun: Lun(0), status: status::RESERVATION_CONFLICT, effects: Effects::default() })
}

fn wrong<T>(sense: Sense) -> Result<T, Plan> {
    Err(Plan::Check(sense))
}

#[test]
fn reservations_allow_inquiries_and_block_changes() {
    // SPC-4 table 68 and SBC-3 table 13, for an initiator that has not registered.
    let free: [&[u8]; 11] = [
        &[0x12],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0x03],
        &[0x00],
        &[0x25],
        &[0x9e, 0x10],
        &[IN],
        &[0xa3, 0x0a],
        &[0x1e, 0, 0, 0, 0],
        &[0x1b, 0, 0, 0, 1],
        &[OUT, 0, 0, 0, 0, 0, 0, 0, 24],
    ];
    let reads: [&[u8]; 13] = [
        &[0x08],
        &[0x28],
        &[0xa8],
        &[0x88],
        &[0x2f],
        &[0xaf],
        &[0x8f],
        &[0x34],
        &[0x90],
        &[0x37],
        &[0xb7],
        &[0x9e, 0x12],
        &[0x9e, 0x13],
    ];
    let writes: [&[u8]; 16] = [
        &[0x0a],
        &[0x2a],
        &[0xaa],
        &[0x8a],
        &[0x2e],
        &[0x41],
        &[0x42],
        &[0x89],
        &[0x35],
        &[0x48],
        &[0x15],
        &[0x1a],
        &[0x5a],
        &[0x83],
        &[0x1e, 0, 0, 0, 1],
        &[0x1b, 0, 0, 0, 0],
    ];
    for kind in TYPES {
        let unit = Unit::with("A");
        assert!(unit.out('A', RESERVE, kind, (11, 0)).is_ok());
        let lets_read = [WRITE_EXCLUSIVE, WRITE_EXCLUSIVE_REGISTRANTS, WRITE_EXCLUSIVE_ALL].contains(&kind);
        for (commands, may) in [(&free[..], true), (&reads, lets_read), (&writes, false)] {
            for command in commands {
                assert_eq!(unit.may('B', command), may, "type {kind}, {command:x?}");
                assert!(unit.may('A', command), "the holder, {command:x?}");
            }
        }
    }
}

#[test]
fn the_reservation_of_one_is_its_holders_and_that_of_all_is_everybodys() {
    for kind in TYPES {
        let unit = Unit::with("AB");
        assert!(unit.out('A', RESERVE, kind, (11, 0)).is_ok());
        let all = kind >= WRITE_EXCLUSIVE_ALL;
        assert_eq!(unit.held(), Some((if all { 0 } else { 11 }, kind)), "a key only where one holds it");
        assert!(unit.out('A', RESERVE, kind, (11, 0)).is_ok(), "again, the same");
        let other = if kind == WRITE_EXCLUSIVE { EXCLUSIVE_ACCESS } else { WRITE_EXCLUSIVE };
        assert_eq!(unit.out('A', RESERVE, other, (11, 0)), conflict(), "of another type");
        assert_eq!(unit.out('B', RESERVE, kind, (12, 0)).is_ok(), all);
        assert_eq!(unit.out('A', RELEASE, kind, (12, 0)), conflict(), "not its key");
    }
}

#[test]
fn releasing_a_registrants_reservation_raises_unit_attentions() {
    // SPC-4 5.13.11.2: a release tells the others where registering gave them something to lose.
    for kind in TYPES {
        let unit = Unit::with("ABC");
        assert!(unit.out('A', RESERVE, kind, (11, 0)).is_ok());
        let expected = if kind >= WRITE_EXCLUSIVE_REGISTRANTS {
            attention_of("BC", UnitAttention::ReservationsReleased)
        } else {
            Effects::default()
        };
        assert_eq!(unit.out('A', RELEASE, kind, (11, 0)), Ok(expected.clone()), "{kind}");
        assert_eq!((unit.held(), unit.generation()), (None, 3), "a release is no change of registrations");
        // Who leaves takes a reservation along, unless it is one of all.
        assert!(unit.out('A', RESERVE, kind, (11, 0)).is_ok());
        let left = unit.out('A', REGISTER, 0, (11, 0));
        if kind >= WRITE_EXCLUSIVE_ALL {
            assert_eq!((left, unit.held()), (Ok(Effects::default()), Some((0, kind))));
            assert!(unit.out('B', REGISTER, 0, (12, 0)).is_ok() && unit.held().is_some());
            assert!(unit.out('C', REGISTER, 0, (13, 0)).is_ok());
            assert_eq!(unit.held(), None, "the last one leaves");
        } else {
            assert_eq!((left, unit.held()), (Ok(expected), None));
        }
    }
}

#[test]
fn unregistering_a_nonholder_keeps_the_reservation() {
    let unit = Unit::with("AB");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS, (11, 0)).is_ok());
    assert_eq!(unit.out('B', REGISTER, 0, (12, 0)), Ok(Effects::default()));
    assert_eq!((unit.keys(), unit.held()), (vec![11], Some((11, EXCLUSIVE_ACCESS))));
    assert_eq!(unit.out('B', REGISTER, 0, (0, 0)), Ok(Effects::default()), "again: nothing to do");
    assert_eq!(unit.generation(), 3, "and no change");
    assert_eq!(unit.out('B', REGISTER_AND_IGNORE, 0, (99, 12)), Ok(Effects::default()));
    assert_eq!(unit.out('B', REGISTER, 0, (12, 14)), Ok(Effects::default()), "another key");
    assert_eq!((unit.keys(), unit.generation()), (vec![11, 14], 5));
}

#[test]
fn clearing_tells_everybody_else() {
    let unit = Unit::with("ABC");
    assert!(unit.out('A', RESERVE, WRITE_EXCLUSIVE, (11, 0)).is_ok());
    assert_eq!(
        unit.out('B', CLEAR, 0, (12, 0)),
        Ok(attention_of("AC", UnitAttention::ReservationsPreempted))
    );
    assert_eq!((unit.keys(), unit.held(), unit.generation()), (vec![], None, 4));
    assert!(unit.may('C', &[0x2a]));
}

#[test]
fn preempting_another_key_removes_its_registrations_alone() {
    let unit = Unit::with("ABC");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS, (11, 0)).is_ok());
    let expected = attention_of("B", UnitAttention::RegistrationsPreempted);
    assert_eq!(unit.out('C', PREEMPT, WRITE_EXCLUSIVE, (13, 12)), Ok(expected));
    assert_eq!((unit.keys(), unit.held()), (vec![11, 13], Some((11, EXCLUSIVE_ACCESS))));
    assert_eq!(unit.generation(), 4);
    assert_eq!(unit.out('C', PREEMPT, WRITE_EXCLUSIVE, (13, 12)), conflict(), "nobody has it any more");
    // SPC-4 5.13.11.4.2: a key of zero names nobody, unless all registrants hold the reservation.
    assert_eq!(unit.out('C', PREEMPT, WRITE_EXCLUSIVE, (13, 0)), wrong(Sense::invalid_parameter(8)));
}

#[test]
fn preempting_the_holders_key_takes_the_reservation() {
    let unit = Unit::with("ABC");
    assert!(unit.out('A', RESERVE, WRITE_EXCLUSIVE_REGISTRANTS, (11, 0)).is_ok());
    // A loses its registration. C keeps it, and what it gave.
    let mut expected = attention_of("C", UnitAttention::ReservationsReleased);
    expected.attentions.extend(attention_of("A", UnitAttention::RegistrationsPreempted).attentions);
    expected.aborted = vec![name('A')];
    assert_eq!(unit.out('B', PREEMPT_AND_ABORT, EXCLUSIVE_ACCESS, (12, 11)), Ok(expected));
    assert_eq!((unit.keys(), unit.held()), (vec![12, 13], Some((12, EXCLUSIVE_ACCESS))));
    // Of the same type there is nothing else to tell.
    let expected = attention_of("B", UnitAttention::RegistrationsPreempted);
    assert_eq!(unit.out('C', PREEMPT, EXCLUSIVE_ACCESS, (13, 12)), Ok(expected));
    // The holder may take its own: the type changes.
    assert_eq!(unit.out('C', PREEMPT, WRITE_EXCLUSIVE, (13, 13)), Ok(Effects::default()));
    assert_eq!((unit.keys(), unit.held()), (vec![13], Some((13, WRITE_EXCLUSIVE))));
}

#[test]
fn a_preempted_type_is_reported_to_the_nexuses_that_stay_registered() {
    for (before, after) in
        [(WRITE_EXCLUSIVE, EXCLUSIVE_ACCESS), (EXCLUSIVE_ACCESS, WRITE_EXCLUSIVE_REGISTRANTS)]
    {
        let unit = Unit::with("ABC");
        assert!(unit.out('A', RESERVE, before, (11, 0)).is_ok());
        let mut expected = attention_of("C", UnitAttention::ReservationsReleased);
        expected.attentions.extend(attention_of("A", UnitAttention::RegistrationsPreempted).attentions);
        assert_eq!(unit.out('B', PREEMPT, after, (12, 11)), Ok(expected), "{before} to {after}");
    }
}

#[test]
fn a_registration_moves_to_the_longest_name_there_is() {
    let unit = Unit::with("A");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS, (11, 0)).is_ok());
    // RFC 7143 4.2.7.1: 223 bytes; SPC-4 7.6.4.6 format 1 adds a separator, the ISID and padding.
    let name = format!("iqn.2026-11.example:{}", "x".repeat(203));
    let mut port = format!("{name},i,0x000000000009").into_bytes();
    port.resize(port.len().next_multiple_of(4).max(port.len() + 1).next_multiple_of(4), 0);
    let transport = [&[0x45, 0][..], &(port.len() as u16).to_be_bytes(), &port].concat();
    let length = 24 + transport.len();
    assert!(name.len() == 223 && length > 256);
    let command = [OUT, REGISTER_AND_MOVE, 0, 0, 0, 0, 0, (length >> 8) as u8, length as u8];
    let taken = Plan::Take { lun: Lun(0), length_bytes: length as u64 };
    assert_eq!(ask(&unit.0, &mut nexus('A'), &command).0, taken);
    assert!(unit.move_to(22, false, 1, &transport).is_ok());
    assert_eq!(unit.held(), Some((22, EXCLUSIVE_ACCESS)));
}

#[test]
fn with_all_registrants_a_key_of_zero_means_all_others() {
    let unit = Unit::with("ABC");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS_ALL, (11, 0)).is_ok());
    // A key names its registrations: the reservation stays with the rest.
    let expected = attention_of("A", UnitAttention::RegistrationsPreempted);
    assert_eq!(unit.out('B', PREEMPT, WRITE_EXCLUSIVE, (12, 11)), Ok(expected));
    assert_eq!((unit.keys(), unit.held()), (vec![12, 13], Some((0, EXCLUSIVE_ACCESS_ALL))));
    let expected = attention_of("C", UnitAttention::RegistrationsPreempted);
    assert_eq!(unit.out('B', PREEMPT, WRITE_EXCLUSIVE, (12, 0)), Ok(expected));
    assert_eq!((unit.keys(), unit.held()), (vec![12], Some((12, WRITE_EXCLUSIVE))));
}

/// The TransportID of an iSCSI initiator port (SPC-4 7.6.4.6).
fn transport(port: &str) -> Vec<u8> {
    let mut name = port.as_bytes().to_vec();
    name.push(0);
    name.resize(name.len().next_multiple_of(4), 0);
    [&[0x45, 0, 0, name.len() as u8][..], &name].concat()
}

fn port(who: char) -> String {
    name(who).split(",t,").next().unwrap_or_default().to_owned()
}

#[test]
fn a_moved_reservation_has_the_new_holders_key() {
    let unit = Unit::with("A");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS, (11, 0)).is_ok());
    assert_eq!(unit.move_to(22, false, 1, &transport(&port('B'))), Ok(Effects::default()));
    assert_eq!(
        (unit.keys(), unit.held()),
        (vec![11, 22], Some((22, EXCLUSIVE_ACCESS))),
        "A stays registered"
    );
    assert!(unit.may('B', &[0x2a]) && !unit.may('A', &[0x2a]));
    assert_eq!(unit.generation(), 2);
    assert_eq!(unit.move_to(23, false, 1, &transport(&port('B'))), conflict(), "A holds it no more");
    // To one that is registered: it gets the key; UNREG takes A's away.
    let unit = Unit::with("ABC");
    assert!(unit.out('A', RESERVE, WRITE_EXCLUSIVE, (11, 0)).is_ok());
    assert_eq!(unit.move_to(22, true, 1, &transport(&port('B'))), Ok(Effects::default()));
    assert_eq!((unit.keys(), unit.held()), (vec![13, 22], Some((22, WRITE_EXCLUSIVE))));
}

#[test]
fn a_reservation_moves_only_from_its_holder_to_an_iscsi_initiator_port() {
    let unit = Unit::with("A");
    let to = transport(&port('B'));
    assert_eq!(unit.move_to(22, false, 1, &to), conflict(), "nothing is reserved");
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS_ALL, (11, 0)).is_ok());
    assert_eq!(unit.move_to(22, false, 1, &to), conflict(), "all registrants hold it");
    assert!(unit.out('A', RELEASE, EXCLUSIVE_ACCESS_ALL, (11, 0)).is_ok());
    assert!(unit.out('A', RESERVE, EXCLUSIVE_ACCESS, (11, 0)).is_ok());
    let parameter = Sense::invalid_parameter;
    assert_eq!(unit.move_to(0, false, 1, &to), wrong(parameter(8)), "no key");
    assert_eq!(unit.move_to(22, false, 2, &to), wrong(parameter(18)), "no such port");
    let other = [&[0x05][..], &to[1..]].concat();
    assert_eq!(unit.move_to(22, false, 1, &other), wrong(parameter(24)), "an initiator device, and no port");
    assert_eq!(unit.move_to(22, false, 1, &transport("iqn.b")), wrong(parameter(24)), "without an ISID");
    assert_eq!(unit.move_to(22, false, 1, &transport(&port('A'))), wrong(parameter(24)), "to itself");
    assert_eq!(unit.move_to(22, false, 1, &[]), wrong(parameter(24)), "to nobody");
    // TRANSPORTID PARAMETER DATA LENGTH has to be what there is.
    let keys = [key('A').to_be_bytes(), 22_u64.to_be_bytes()].concat();
    let longer = [&keys[..], &[0, 0, 0, 1, 0, 0, 0, to.len() as u8 + 4], &to].concat();
    assert_eq!(unit.list('A', REGISTER_AND_MOVE, 0, &longer), wrong(Sense::PARAMETER_LENGTH));
    assert_eq!((unit.keys(), unit.held()), (vec![11], Some((11, EXCLUSIVE_ACCESS))), "nothing has changed");
    // With another's key nobody moves anything.
    let list = [&99_u64.to_be_bytes()[..], &keys[8..], &[0, 0, 0, 1, 0, 0, 0, to.len() as u8], &to].concat();
    assert_eq!(unit.list('A', REGISTER_AND_MOVE, 0, &list), conflict());
}

#[test]
fn full_status_names_every_registration_and_its_port() {
    // SPC-4 6.15.5: key, R_HOLDER, scope and type where it holds, relative target port, TransportID.
    let two = Disk { ports: Ports::new(&[1, 7]).into(), ..disk("a") };
    let unit = Unit(luns(&[two]));
    assert!(unit.out('A', REGISTER, 0, (0, 11)).is_ok());
    let other = Nexus::new(&port('B'), 7, 12);
    let list = [&[0; 8][..], &12_u64.to_be_bytes(), &[0; 8]].concat();
    let registered = unit.0.finish(Lun(0), &cdb(&[OUT]), &list, &other, &nothing_to_save);
    assert!(matches!(registered, Plan::Reserved { status: status::GOOD, .. }));
    assert!(unit.out('A', RESERVE, WRITE_EXCLUSIVE_REGISTRANTS, (11, 0)).is_ok());
    let descriptor = |key: u8, holds: bool, relative: u8, who: char| {
        let transport = transport(&port(who));
        let head = [0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, u8::from(holds)];
        let kind = if holds { WRITE_EXCLUSIVE_REGISTRANTS } else { 0 };
        let middle = [kind, 0, 0, 0, 0, 0, relative, 0, 0, 0, transport.len() as u8];
        [&head[..], &middle, &transport].concat()
    };
    let expected = [descriptor(11, true, 1, 'A'), descriptor(12, false, 2, 'B')].concat();
    let data = unit.read(3);
    assert_eq!(data[..8], [0, 0, 0, 2, 0, 0, 0, expected.len() as u8]);
    assert_eq!(data[8..], expected);
}

#[test]
fn capabilities_report_persistence_through_power_loss() {
    // SPC-4 6.15.4: PTPL_C where it can be, PTPL_A where it is; TMV, and the six types.
    let command = [IN, 2, 0, 0, 0, 0, 0, 0, 64];
    let capabilities = |disk: &Disk| ask(&luns(std::slice::from_ref(disk)), &mut nexus('A'), &command).1;
    assert_eq!(capabilities(&disk("a")), [0, 8, 0, 0x80, 0xea, 1, 0, 0]);
    let durable = Disk { is_durable: true, ..disk("a") };
    assert_eq!(capabilities(&durable), [0, 8, 1, 0x80, 0xea, 1, 0, 0]);
    let saves = Cell::new(0);
    let register = |aptpl: u8, keys: (u8, u8)| {
        let list = [0, 0, 0, 0, 0, 0, 0, keys.0, 0, 0, 0, 0, 0, 0, 0, keys.1, 0, 0, 0, 0, aptpl, 0, 0, 0];
        luns(std::slice::from_ref(&durable)).finish(Lun(0), &cdb(&[OUT]), &list, &nexus('A'), &|_| {
            saves.set(saves.get() + 1);
            Ok(())
        })
    };
    assert!(matches!(register(0, (0, 11)), Plan::Reserved { status: status::GOOD, .. }));
    assert_eq!((capabilities(&durable)[3], saves.get()), (0x80, 0));
    assert!(matches!(register(1, (11, 12)), Plan::Reserved { status: status::GOOD, .. }));
    assert_eq!((capabilities(&durable)[3], saves.get()), (0x81, 1));
    assert!(durable.shared.reservations.durable().is_some());
    // Without APTPL the next registration takes it back, and that has to be saved as well.
    assert!(matches!(register(0, (12, 13)), Plan::Reserved { status: status::GOOD, .. }));
    assert_eq!((capabilities(&durable)[3], saves.get()), (0x80, 2));
    assert!(durable.shared.reservations.durable().is_none());
    // A refused change is not saved.
    assert!(matches!(register(1, (99, 14)), Plan::Reserved { status: status::RESERVATION_CONFLICT, .. }));
    assert_eq!((capabilities(&durable)[3], saves.get()), (0x80, 2));
    // SPEC_I_PT and ALL_TG_PT are not offered.
    for bit in [0x08, 0x04] {
        assert_eq!(register(bit, (13, 14)), Plan::Check(Sense::invalid_parameter(20)));
    }
}

#[test]
fn a_list_of_another_length_scope_or_action_is_refused() {
    let unit = Unit::with("A");
    assert_eq!(unit.list('A', REGISTER, 0, &[0; 23]), wrong(Sense::PARAMETER_LENGTH));
    assert_eq!(unit.list('A', REGISTER, 0, &[0; 25]), wrong(Sense::PARAMETER_LENGTH));
    for action in [RESERVE, RELEASE, PREEMPT, PREEMPT_AND_ABORT] {
        for type_and_scope in [0x11, 0x00, 0x02, 0x04, 0x09, 0x0f] {
            let refused = unit.out('A', action, type_and_scope, (11, 11));
            assert_eq!(refused, wrong(Sense::invalid_field(2)), "{action} {type_and_scope:#x}");
        }
    }
    // Scope and type count for nothing else (SPC-4 table 212).
    assert!(unit.out('A', REGISTER, 0xff, (11, 11)).is_ok() && unit.out('A', CLEAR, 0xff, (11, 0)).is_ok());
    assert_eq!(unit.out('A', 8, 0, (0, 0)), wrong(Sense::invalid_bit(1, 4)), "REPLACE LOST RESERVATION");
    let (plan, data) = ask(&unit.0, &mut nexus('A'), &[IN, 4, 0, 0, 0, 0, 0, 0, 64]);
    assert_eq!((plan, data), (Plan::Check(Sense::invalid_bit(1, 4)), vec![]));
}

#[test]
fn registrations_of_a_logical_unit_have_a_bound() {
    let unit = luns(&[disk("a")]);
    let register = |host: usize, isid: usize| {
        let nexus = Nexus::new(&format!("iqn.{host},i,{isid:#014x}"), 1, 1);
        let list = [&[0; 8][..], &1_u64.to_be_bytes(), &[0; 8]].concat();
        unit.finish(Lun(0), &cdb(&[OUT]), &list, &nexus, &nothing_to_save)
    };
    for n in 0..1024 {
        assert!(matches!(register(n / 64, n % 64), Plan::Reserved { status: status::GOOD, .. }), "{n}");
    }
    let full = Sense::new(SenseKey::IllegalRequest, 0x55, 0x04);
    assert_eq!(register(99, 0), Plan::Check(full), "INSUFFICIENT REGISTRATION RESOURCES");
}

#[test]
fn beside_a_simple_reservation_little_is_let_through() {
    // SPC-2 table 9.
    let unit = luns(&[disk("a")]);
    assert_eq!(ask(&unit, &mut nexus('A'), &[0x56]).0, Plan::Status(status::GOOD));
    let may = |who: char, code: u8| {
        ask(&unit, &mut nexus(who), &[code]).0 != Plan::Status(status::RESERVATION_CONFLICT)
    };
    for code in 0..=255 {
        let passes = [0x12, 0xa0, 0x03, 0x17, 0x57].contains(&code);
        assert_eq!(may('B', code), passes, "{code:#x}");
    }
    assert!(may('A', 0x28), "its holder may, and B's release has released nothing");
    // Extents and third parties are obsolete.
    for flag in [0x01, 0x10] {
        assert_eq!(ask(&unit, &mut nexus('A'), &[0x16, flag]).0, Plan::Check(Sense::invalid_field(1)));
    }
    assert_eq!(ask(&unit, &mut nexus('A'), &[0x57]).0, Plan::Status(status::GOOD));
    assert!(may('B', 0x28));
}

#[test]
fn a_name_noted_without_a_user_is_that_of_the_same_ports() {
    use scsi::reservations::names;
    // REGISTER AND MOVE names ports alone: whoever proves to own them is meant.
    let ports = name('A');
    assert!(names(&ports, &ports) && names(&ports, &format!("{ports},u,alice")));
    assert!(!names(&format!("{ports},u,alice"), &ports) && !names(&ports, &format!("{ports}1")));
    assert!(!names(&format!("{ports},u,alice"), &format!("{ports},u,bob")));
}
