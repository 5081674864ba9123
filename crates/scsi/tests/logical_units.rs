//! Logical units as initiators meet them: what they state about themselves, who may use them through which port, and
//! what sessions leave behind.

mod common;

use common::{ask, cdb, disk, luns, nexus, nothing_to_save, plan, thin};
use scsi::cdb::opcode;
use scsi::ports::{AccessState, Ports};
use scsi::{Disk, Lun, Luns, Nexus, Plan, Sense, UnitAttention, status};

const GOOD: Plan = Plan::Status(status::GOOD);
const CONFLICT: Plan = Plan::Status(status::RESERVATION_CONFLICT);

/// The data of an answer.
fn data(disk: &Disk, bytes: &[u8]) -> Vec<u8> {
    let (plan, data) = ask(&luns(std::slice::from_ref(disk)), &mut nexus('a'), bytes);
    assert_eq!(plan, Plan::Data, "{bytes:x?}");
    data
}

#[test]
fn answers_are_appended_and_nothing_before_them_is_touched() {
    let luns = luns(&[thin()]);
    let commands: [&[u8]; 14] = [
        &[0x12, 0, 0, 0, 255],
        &[0x12, 1, 0x83, 0, 255],
        &[0x12, 1, 0x00, 0, 7],
        &[0x03, 0, 0, 0, 18],
        &[0x1a, 0, 0x3f, 0, 255],
        &[0x1a, 0, 0x3f, 0, 5],
        &[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 9],
        &[0x25],
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0x5e, 0, 0, 0, 0, 0, 0, 0, 64],
        &[0x5e, 2, 0, 0, 0, 0, 0, 0, 64],
        &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 4, 0],
    ];
    for command in commands {
        let (_, alone) = ask(&luns, &mut nexus('a'), command);
        let mut out = vec![0xee; 40];
        let plan = luns.plan([0; 8], &cdb(command), &mut nexus('a'), &mut out);
        assert_eq!(plan, Plan::Data, "{command:x?}");
        assert_eq!(out, [vec![0xee; 40], alone].concat(), "{command:x?}");
    }
}

#[test]
fn no_logical_unit_has_an_inquiry_of_its_own_length() {
    let nobody = Luns::default();
    let (plan, data) = ask(&nobody, &mut nexus('a'), &[0x12, 0, 0, 0, 255]);
    // SPC-4 6.6.2: qualifier 011b, type 1Fh; ADDITIONAL LENGTH counts what follows it.
    assert_eq!((plan, data.len(), data[0]), (Plan::Data, 36, 0x7f));
    assert_eq!(usize::from(data[4]), data.len() - 5);
    assert_eq!(data[8..], [b' '; 28], "no vendor, no product");
}

#[test]
fn a_thin_disk_says_that_it_is_one() {
    let thin = Disk { physical_exponent: 3, ..thin() };
    let capacity = data(&thin, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32]);
    assert_eq!(capacity[..12], [0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 2, 0]);
    assert_eq!(capacity[12..16], [0, 3, 0xc0, 0], "eight blocks in a physical one; LBPME and LBPRZ");
    assert_eq!(data(&thin, &[0x12, 1, 0xb2, 0, 255]), [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    let limits = data(&thin, &[0x12, 1, 0xb0, 0, 255]);
    // 2^20 blocks and 256 ranges at most; 4096 bytes are given memory together, aligned to themselves.
    assert_eq!(limits[20..36], [0, 16, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0x80, 0, 0, 0]);
    let rotating = data(&Disk { is_rotational: true, ..disk("a") }, &[0x12, 1, 0xb1, 0, 255]);
    assert_eq!(rotating[4..6], [0, 0], "it rotates, at a rate that is not known");
    assert_eq!(data(&Disk { removable: true, ..disk("a") }, &[0x12, 0, 0, 0, 5])[1], 0x80, "RMB");
}

#[test]
fn a_name_is_that_of_the_port_through_which_it_is_seen() {
    let two = Disk { ports: Ports::new(&[1, 300]).into(), ..disk("a") };
    let luns = luns(std::slice::from_ref(&two));
    let page = |tag: u16, code: u8| {
        ask(&luns, &mut Nexus::new("iqn.a,i,0x000000000001", tag, 1), &[0x12, 1, code, 0, 255]).1
    };
    let holds = |page: &[u8], part: &[u8]| page.windows(part.len()).any(|window| window == part);
    for (tag, relative) in [(1_u16, 1_u8), (300, 2)] {
        let [high, low] = tag.to_be_bytes();
        let names = page(tag, 0x83);
        assert!(holds(&names, &[0x51, 0x94, 0, 4, 0, 0, 0, relative]), "relative target port");
        assert!(holds(&names, &[0x51, 0x95, 0, 4, 0, 0, high, low]), "target port group");
        assert!(holds(&names, format!("iqn.2026-11.example:t,t,{tag:#06x}").as_bytes()));
    }
    let ports = page(1, 0x88);
    assert!(holds(&ports, b",t,0x0001\0") && holds(&ports, b",t,0x012c\0"), "all of them");
}

#[test]
fn a_serial_number_has_graphic_characters_alone() {
    let odd = disk("a\u{e9}b\n c\x7f");
    assert_eq!(data(&odd, &[0x12, 1, 0x80, 0, 255])[4..], *b"ab c");
    let long = disk(&"x".repeat(100));
    assert_eq!(data(&long, &[0x12, 1, 0x80, 0, 255]).len(), 4 + 64);
}

#[test]
fn supported_commands_are_answered_as_asked() {
    let ask_code = |bytes: &[u8]| {
        let command = [&[0xa3, 0x0c][..], bytes, &[0; 8]].concat();
        let mut command = command[..10].to_vec();
        command[8] = 0x10;
        common::ask(&luns(&[thin()]), &mut nexus('a'), &command)
    };
    // SPC-4 table 242: one command, by code (001b), or by code and service action (010b, 011b).
    let (plan, one) = ask_code(&[1, 0x28]);
    assert_eq!((plan, &one[..4]), (Plan::Data, &[0, 3, 0, 10][..]));
    assert_eq!(one[4..], [0x28, 0xfa, 255, 255, 255, 255, 0x1f, 255, 255, 0], "READ (10)");
    // The bits that count: flags, address, count, group number.
    assert_eq!(ask_code(&[1, 0xa8]).1[4..], [0xa8, 0xfa, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f, 0]);
    let long = [&[0x88, 0xfa][..], &[255; 12], &[0x1f, 0]].concat();
    assert_eq!(ask_code(&[1, 0x88]).1[4..], long, "READ (16)");
    let (plan, one) = ask_code(&[2, 0x9e, 0, 0x12]);
    assert_eq!(
        (plan, &one[..6]),
        (Plan::Data, &[0, 3, 0, 16, 0x9e, 0x12][..]),
        "GET LBA STATUS, by its action"
    );
    assert_eq!(ask_code(&[2, 0x9e, 0, 0x13]).1, [0, 1, 0, 0], "not supported");
    assert_eq!(ask_code(&[3, 0x28, 0, 0]).1[..4], [0, 3, 0, 10]);
    assert_eq!(ask_code(&[3, 0x28, 0, 1]).1, [0, 1, 0, 0], "READ (10) has no service actions");
    // The list, where each command may have a timeouts descriptor of twelve bytes behind it.
    let list = |options: u8| ask_code(&[options]).1;
    let (plain, timed) = (list(0), list(0x80));
    let count = (plain.len() - 4) / 8;
    assert_eq!((plain.len(), timed.len()), (4 + 8 * count, 4 + 20 * count));
    assert_eq!(timed[..4], (20 * count as u32).to_be_bytes());
    for (plain, timed) in plain[4..].chunks_exact(8).zip(timed[4..].chunks_exact(20)) {
        // CTDP, and SERVACTV as before.
        assert_eq!((&timed[..5], timed[5]), (&plain[..5], plain[5] | 2));
        assert_eq!(timed[8..], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn task_management_functions_are_listed_in_both_forms() {
    let ask = |repd: u8, allocation: u8| {
        ask(&luns(&[disk("a")]), &mut nexus('a'), &[0xa3, 0x0d, repd, 0, 0, 0, 0, 0, 0, allocation])
    };
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET.
    assert_eq!(ask(0, 16), (Plan::Data, vec![0xd8, 0, 0, 0]));
    assert_eq!(ask(0x80, 16).1, [&[0xd8, 0, 0, 12][..], &[0; 12]].concat());
    assert_eq!(ask(0, 4).0, Plan::Data);
    // SPC-4 6.36: an ALLOCATION LENGTH below four is an error.
    assert_eq!(ask(0, 3).0, Plan::Check(Sense::invalid_field(6)));
}

#[test]
fn reservation_and_defect_data_is_truncated_to_the_allocation_length() {
    assert_eq!(data(&disk("a"), &[0x5e, 0, 0, 0, 0, 0, 0, 0, 6]), [0; 6]);
    assert_eq!(data(&disk("a"), &[0x37, 0, 0x0d, 0, 0, 0, 0, 0, 255]), [0, 0x0d, 0, 0], "no defects");
    assert_eq!(data(&disk("a"), &[0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 0, 255]), [0, 0x0d, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn parameters_are_taken_in_their_lengths() {
    let take = |length_bytes| Plan::Take { lun: Lun(0), length_bytes };
    // PERSISTENT RESERVE OUT: 24 bytes, or more with a TransportID.
    let reserve_out = |length: u16| {
        let [high, low] = length.to_be_bytes();
        plan(&disk("a"), &[0x5f, 0, 0, 0, 0, 0, 0, high, low])
    };
    assert_eq!((reserve_out(24), reserve_out(512)), (take(24), take(512)));
    for length in [0, 23, 513] {
        assert_eq!(reserve_out(length), Plan::Check(Sense::PARAMETER_LENGTH), "{length}");
    }
    let groups = |length: u32| {
        let b = length.to_be_bytes();
        plan(&disk("a"), &[0xa4, 0x0a, 0, 0, 0, 0, b[0], b[1], b[2], b[3]])
    };
    assert_eq!((groups(0), groups(8)), (GOOD, take(8)));
    assert_eq!(groups(u32::MAX), take(4 << 20), "no more than is gathered for any command");
    let select = |bytes: &[u8]| plan(&disk("a"), bytes);
    assert_eq!(select(&[0x15, 0x10, 0, 0, 24]), take(24));
    assert_eq!(select(&[0x55, 0x10, 0, 0, 0, 0, 0, 1, 0]), take(256));
    assert_eq!(select(&[0x15, 0x10, 0, 0, 0]), GOOD);
    assert_eq!(select(&[0x15, 0x00, 0, 0, 24]), Plan::Check(Sense::invalid_bit(1, 4)), "PF");
}

#[test]
fn mode_pages_follow_their_header_and_block_descriptor() {
    // SPC-4 7.5.5: BLOCK DESCRIPTOR LENGTH says where the pages begin. The descriptor is what MODE SENSE gave.
    let descriptor = [0, 0, 8, 0, 0, 0, 2, 0];
    let control = |d_sense: u8| [0x0a, 10, d_sense << 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
    for descriptor in [&[][..], &descriptor] {
        let length = descriptor.len() as u8;
        let disk = disk("a");
        let select = |code: u8, header: &[u8], d_sense: u8| {
            common::finish(&disk, &[code, 0x10], &[header, descriptor, &control(d_sense)].concat())
        };
        assert!(matches!(select(0x15, &[0, 0, 0, length], 1), Plan::Changed { .. }), "(6), {length}");
        assert!(
            matches!(select(0x55, &[0, 0, 0, 0, 0, 0, 0, length], 0), Plan::Changed { .. }),
            "(10), {length}"
        );
        assert_eq!(select(0x15, &[0, 0, 0, length], 0), GOOD, "no change");
    }
}

#[test]
fn reservation_conflicts_apply_again_when_data_arrives() {
    let luns = luns(&[disk("a")]);
    let write_same = [0x41, 0, 0, 0, 0, 2, 0, 0, 3];
    assert!(matches!(ask(&luns, &mut nexus('a'), &write_same).0, Plan::Take { .. }));
    assert_eq!(ask(&luns, &mut nexus('b'), &[0x16]).0, GOOD, "B reserves meanwhile");
    let finish = |who: char| luns.finish(Lun(0), &cdb(&write_same), &[0; 512], &nexus(who), &nothing_to_save);
    assert_eq!(finish('a'), CONFLICT);
    assert!(matches!(finish('b'), Plan::Medium { .. }));
    let gone = luns.finish(Lun(9), &cdb(&write_same), &[0; 512], &nexus('a'), &nothing_to_save);
    assert_eq!(gone, Plan::Check(Sense::NO_SUCH_LUN));
}

#[test]
fn the_medium_may_be_read_ahead_where_a_read_would_be_let_through() {
    let disk = Disk { removable: true, ..disk("a") };
    let luns = luns(std::slice::from_ref(&disk));
    let may = || luns.may_read(Lun(0), &nexus('a'));
    assert!(may() && !luns.may_read(Lun(1), &nexus('a')));
    assert!(disk.ports.set(1, AccessState::Standby));
    assert!(!may(), "standby");
    assert!(disk.ports.set(1, AccessState::NonOptimized));
    assert!(may());
    assert_eq!(disk.shared.reservations.reserve(&nexus('b')), status::GOOD);
    assert!(!may(), "reserved by another");
    luns.reset(None);
    assert!(may());
    assert_eq!(disk.shared.loading.load(false), Ok(true));
    assert!(!may(), "ejected");
}

#[test]
fn a_session_that_ends_or_is_replaced_releases_its_state() {
    let disk = Disk { removable: true, ..disk("a") };
    let luns = luns(std::slice::from_ref(&disk));
    let session = |instance| Nexus::new("iqn.a,i,0x000000000001", 1, instance);
    let prevent = [0x1e, 0, 0, 0, 1];
    let eject = [0x1b, 0, 0, 0, 2];
    let is_free = || {
        let reserved = ask(&luns, &mut nexus('b'), &[0x28]).0 == CONFLICT;
        let prevented = disk.shared.loading.load(false) == Err(Sense::REMOVAL_PREVENTED);
        if !prevented {
            assert_eq!(disk.shared.loading.load(true), Ok(true));
        }
        assert_eq!(reserved, prevented, "both or none");
        !reserved
    };
    let seize = |instance| {
        assert_eq!(ask(&luns, &mut session(instance), &prevent).0, GOOD);
        assert_eq!(ask(&luns, &mut session(instance), &[0x16]).0, GOOD);
        let refused = Plan::Check(Sense::REMOVAL_PREVENTED);
        assert_eq!(ask(&luns, &mut session(instance), &eject).0, refused);
        assert!(!is_free());
    };
    seize(1);
    luns.end(&nexus('b'));
    assert!(!is_free(), "another session ends");
    luns.begin(&nexus('b'));
    assert!(!is_free(), "another nexus begins");
    luns.begin(&session(1));
    assert!(!is_free(), "the same session");
    luns.begin(&session(2));
    assert!(is_free(), "session reinstatement (RFC 7143 6.3.5)");
    seize(2);
    luns.end(&session(2));
    assert!(is_free());
    seize(3);
    luns.reset(Some(Lun(7)));
    assert!(!is_free(), "another logical unit is reset");
    luns.reset(Some(Lun(0)));
    assert!(is_free());
}

#[test]
fn each_port_state_has_its_own_sense() {
    let luns = luns(&[disk("a")]);
    let read = || ask(&luns, &mut nexus('a'), &[opcode::READ_10]).0;
    let sense = |ascq| Plan::Check(Sense::new(scsi::SenseKey::NotReady, 0x04, ascq));
    let disk = &luns.0[&Lun(0)];
    assert!(disk.ports.set(1, AccessState::Standby));
    assert_eq!(read(), sense(0x0b));
    assert!(disk.ports.set(1, AccessState::Unavailable));
    assert_eq!(read(), sense(0x0c));
    // The target itself changed it (STATUS CODE 2); SET TARGET PORT GROUPS gives 1.
    let groups = || ask(&luns, &mut nexus('a'), &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64]).1;
    assert_eq!(groups(), [0, 0, 0, 12, 3, 15, 0, 1, 0, 2, 0, 1, 0, 0, 0, 1]);
    let set = |state| {
        let list = [0, 0, 0, 0, state, 0, 0, 1];
        luns.finish(Lun(0), &cdb(&[0xa4, 0x0a]), &list, &nexus('a'), &nothing_to_save)
    };
    let changed = Plan::Changed { lun: Lun(0), attention: UnitAttention::AccessStateChanged };
    assert_eq!((set(0), set(0)), (changed, GOOD), "only a change is news");
    assert_eq!(groups()[4..10], [0, 15, 0, 1, 0, 1]);
    assert!(matches!(read(), Plan::Read { .. }));
}

#[test]
fn only_reads_bring_data_from_the_medium() {
    // What a read brings is counted and may be read ahead; what other commands bring describes the disk.
    for code in 0..=255 {
        let reads = [0x08, 0x28, 0xa8, 0x88].contains(&code);
        assert_eq!(scsi::cdb::reads_the_medium(&cdb(&[code])), reads, "{code:#x}");
    }
}

#[test]
fn every_unit_attention_has_the_codes_of_the_standard() {
    // SPC-4 annex D.2.
    for (attention, asc, ascq) in [
        (UnitAttention::PowerOn, 0x29, 0x00),
        (UnitAttention::Reset, 0x29, 0x03),
        (UnitAttention::CommandsCleared, 0x2f, 0x00),
        (UnitAttention::LunsChanged, 0x3f, 0x0e),
        (UnitAttention::CapacityChanged, 0x2a, 0x09),
        (UnitAttention::ModeParametersChanged, 0x2a, 0x01),
        (UnitAttention::AccessStateChanged, 0x2a, 0x06),
        (UnitAttention::MediumChanged, 0x28, 0x00),
        (UnitAttention::ReservationsPreempted, 0x2a, 0x03),
        (UnitAttention::ReservationsReleased, 0x2a, 0x04),
        (UnitAttention::RegistrationsPreempted, 0x2a, 0x05),
    ] {
        assert_eq!(attention.sense(), Sense::new(scsi::SenseKey::UnitAttention, asc, ascq));
        assert_eq!(attention.is_about_the_list(), attention == UnitAttention::LunsChanged);
    }
}

#[test]
fn the_user_is_part_of_the_nexus_identity() {
    let plain = Nexus::new("iqn.a,i,0x000000000001", 1, 1);
    assert_eq!(plain.name(), "iqn.a,i,0x000000000001,t,0x0001");
    assert_eq!(plain.clone().proven(None).name(), plain.name());
    let proven = plain.clone().proven(Some("a,u,b%"));
    assert_eq!(proven.name(), "iqn.a,i,0x000000000001,t,0x0001,u,a%2cu%2cb%25", "no user can end a name");
    assert_eq!((proven.portal_group(), proven.instance()), (1, 1));
}
