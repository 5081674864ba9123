//! Commands as initiators send them, and as none should.

use proptest::prelude::*;

use super::*;
use crate::cdb::{be16, be32};
use crate::disk::example;
use crate::plan::{Action, ByteRange};
use crate::ports;
use crate::sense::SenseKey;

fn luns() -> Luns {
    Luns(BTreeMap::from([(Lun(0), example()), (Lun(3), Disk { read_only: true, ..example() })]))
}

fn plan(lun: u8, bytes: &[u8]) -> (Plan, Vec<u8>) {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    let mut out = Vec::new();
    let plan = luns().plan([0, lun, 0, 0, 0, 0, 0, 0], &cdb, &mut Nexus::default(), &mut out);
    (plan, out)
}

fn check(lun: u8, bytes: &[u8]) -> (SenseKey, u8, u8) {
    match plan(lun, bytes).0 {
        Plan::Check(s) => (s.key, s.asc, s.ascq),
        other => panic!("{other:?}"),
    }
}

#[test]
fn plans_reads_and_writes_of_every_cdb_length() {
    let read = |offset_bytes, length_bytes| Plan::Read { lun: Lun(0), offset_bytes, length_bytes };
    assert_eq!(plan(0, &[0x08, 0, 0, 2, 0]).0, read(1024, 256 * 512), "0 means 256 blocks");
    assert_eq!(plan(0, &[0x28, 0, 0, 0, 0, 2, 0, 0, 3]).0, read(1024, 1536));
    assert_eq!(plan(0, &[0xa8, 0, 0, 0, 0, 2, 0, 0, 0, 3]).0, read(1024, 1536));
    assert_eq!(plan(0, &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]).0, read(1024, 1536));
    let write = |fua| Plan::Write { lun: Lun(0), offset_bytes: 1024, length_bytes: 512, fua };
    assert_eq!(plan(0, &[0x2a, 0, 0, 0, 0, 2, 0, 0, 1]).0, write(false));
    assert_eq!(plan(0, &[0x2a, 0x08, 0, 0, 0, 2, 0, 0, 1]).0, write(true));
    assert_eq!(plan(0, &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]).0, write(false));
}

#[test]
fn the_end_of_the_disk_is_exact() {
    let illegal = |asc| (SenseKey::IllegalRequest, asc, 0);
    let read_10 = |lba: u32, blocks: u8| {
        let b = lba.to_be_bytes();
        [0x28, 0, b[0], b[1], b[2], b[3], 0, 0, blocks]
    };
    assert!(matches!(plan(0, &read_10(2047, 1)).0, Plan::Read { .. }));
    assert!(
        matches!(plan(0, &read_10(2048, 0)).0, Plan::Read { length_bytes: 0, .. }),
        "nothing, at the end"
    );
    assert_eq!(check(0, &read_10(2049, 0)), illegal(0x21));
    assert_eq!(check(0, &read_10(2047, 2)), illegal(0x21));
    assert_eq!(check(0, &read_10(u32::MAX, 1)), illegal(0x21));
    let wrap = [0x88, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 2];
    assert_eq!(check(0, &wrap), illegal(0x21));
}

#[test]
fn rejects_unsupported_fields_with_their_sense() {
    let illegal = |asc| (SenseKey::IllegalRequest, asc, 0);
    assert_eq!(check(0, &[0xff]), illegal(0x20));
    assert_eq!(check(0, &[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1]), illegal(0x24), "RDPROTECT");
    assert_eq!(check(0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0x04]), illegal(0x24), "NACA");
    assert_eq!(check(3, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1]), (SenseKey::DataProtect, 0x27, 0));
    assert_eq!(check(0, &[0x12, 0, 0x80, 0, 255]), illegal(0x24), "a page code without EVPD");
    assert_eq!(check(0, &[0x12, 1, 0xc9, 0, 255]), illegal(0x24), "no such page");
    assert_eq!(check(0, &[0x1a, 0, 0xff, 0, 255]), illegal(0x39), "saved pages");
    assert_eq!(check(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 15]), illegal(0x24), "REPORT LUNS needs 16 bytes");
    assert_eq!(check(0, &[0x1b, 0, 0, 0, 2]), illegal(0x24), "nothing to eject");
}

#[test]
fn an_absent_logical_unit_answers_the_mandatory_commands() {
    assert_eq!(check(9, &[0x00]), (SenseKey::IllegalRequest, 0x25, 0));
    let (plan_inquiry, data) = plan(9, &[0x12, 0, 0, 0, 255]);
    assert_eq!((plan_inquiry, data[0], data.len()), (Plan::Data, 0x7f, 36));
    assert_eq!(plan(9, &[0x03, 0, 0, 0, 18]).1[12], 0x25);
    let (_, list) = plan(9, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(list[..4], [0, 0, 0, 16]);
    assert_eq!(list[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn parameter_data_is_truncated_to_the_allocation_length() {
    for (cdb, length) in [
        (&[0x12, 0, 0, 0, 5][..], 5),
        (&[0x12, 1, 0x83, 0, 3], 3),
        (&[0x03, 0, 0, 0, 0], 0),
        (&[0x1a, 0, 0x3f, 0, 7], 7),
        (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12], 12),
        (&[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 9], 9),
        (&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 17], 17),
    ] {
        let (planned, data) = plan(0, cdb);
        assert_eq!((planned, data.len()), (Plan::Data, length), "{cdb:x?}");
    }
}

#[test]
fn golden_bytes_of_the_capacity_and_the_inquiry() {
    assert_eq!(plan(0, &[0x25]).1, [0, 0, 7, 255, 0, 0, 2, 0]);
    let (_, data) = plan(0, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32]);
    assert_eq!(data[..13], [0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 2, 0, 0]);
    let (_, data) = plan(0, &[0x12, 0, 0, 0, 36]);
    assert_eq!(&data[8..36], b"RNDTRIP disk            0.1 ");
    assert_eq!(data[..8], [0, 0, 6, 0x12, 69, 0x38, 0, 2]);
}

#[test]
fn mode_pages_state_write_protection_and_the_cache() {
    let (_, data) = plan(3, &[0x1a, 0, 0x3f, 0, 255]);
    assert_eq!(usize::from(data[0]), data.len() - 1);
    assert_eq!(data[2] & 0x80, 0x80);
    let (_, data) = plan(0, &[0x5a, 0x18, 0x08, 0, 0, 0, 0, 1, 0]);
    assert_eq!(data[..4], [0, 26, 0, 0x10]);
    assert_eq!(data[8..11], [0x08, 18, 0], "no volatile cache: WCE is 0");
}

#[test]
fn a_unit_attention_is_reported_once_but_not_to_inquiry() {
    let mut nexus = Nexus::default();
    nexus.raise(Lun(0), UnitAttention::Reset);
    let mut run = |cdb: &[u8]| {
        let mut all = [0; 16];
        all[..cdb.len()].copy_from_slice(cdb);
        luns().plan([0; 8], &all, &mut nexus, &mut Vec::new())
    };
    assert_eq!(run(&[0x12, 0, 0, 0, 36]), Plan::Data);
    assert_eq!(run(&[0x00]), Plan::Check(UnitAttention::Reset.sense()));
    assert_eq!(run(&[0x00]), Plan::Status(status::GOOD));
}

#[test]
fn request_sense_reports_a_unit_attention_and_clears_it() {
    for (format, length, asc_at) in [(0, 18, 12), (1, 8, 2)] {
        let mut nexus = Nexus::default();
        nexus.raise(Lun(0), UnitAttention::PowerOn);
        let mut run = |cdb: [u8; 6]| {
            let (mut all, mut out) = ([0; 16], Vec::new());
            all[..6].copy_from_slice(&cdb);
            (luns().plan([0; 8], &all, &mut nexus, &mut out), out)
        };
        let (planned, data) = run([0x03, format, 0, 0, 252, 0]);
        assert_eq!((planned, data.len(), data[asc_at]), (Plan::Data, length, 0x29));
        assert_eq!(run([0x03, format, 0, 0, 252, 0]).1[asc_at], 0x00);
        assert_eq!(run([0; 6]).0, Plan::Status(status::GOOD));
    }
}

#[test]
fn report_luns_clears_its_unit_attention() {
    for (length, first_test) in [
        (16, Plan::Status(status::GOOD)),
        // A rejected command reports nothing.
        (15, Plan::Check(UnitAttention::LunsChanged.sense())),
    ] {
        // Read at a number without a logical unit, as at any other.
        for lun in [0, 9] {
            let (mut nexus, mut out) = (Nexus::default(), Vec::new());
            nexus.raise(Lun(3), UnitAttention::LunsChanged);
            let mut cdb = [0; 16];
            (cdb[0], cdb[9]) = (0xa0, length);
            luns().plan([0, lun, 0, 0, 0, 0, 0, 0], &cdb, &mut nexus, &mut out);
            assert_eq!(luns().plan(Lun(3).encode(), &[0; 16], &mut nexus, &mut out), first_test);
        }
    }
}

#[test]
fn commands_without_data_check_their_range_and_their_fields() {
    let (good, met) = (Plan::Status(status::GOOD), Plan::Status(status::CONDITION_MET));
    let flush = Plan::Flush { lun: Lun(0) };
    for (ten, sixteen, done) in [(0x2f, 0x8f, good.clone()), (0x34, 0x90, met), (0x35, 0x91, flush.clone())] {
        let out_of_range = Plan::Check(Sense::lba_out_of_range(2048));
        assert_eq!(plan(0, &[ten, 0, 0, 0, 7, 255, 0, 0, 1]).0, done);
        assert_eq!(plan(0, &[ten, 0, 0, 0, 8, 0, 0, 0, 0]).0, done, "nothing, at the end");
        assert_eq!(plan(0, &[ten, 0, 0, 0, 7, 255, 0, 0, 2]).0, out_of_range);
        assert_eq!(plan(0, &[sixteen, 0, 0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 0, 1]).0, done);
        assert_eq!(plan(0, &[sixteen, 0, 0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 0, 2]).0, out_of_range);
    }
    assert_eq!(plan(0, &[0xaf, 0, 0, 0, 7, 255, 0, 0, 0, 1]).0, good);
    let take = |length_bytes| Plan::Take { lun: Lun(0), length_bytes };
    assert_eq!(plan(0, &[0x2f, 0x02, 0, 0, 0, 0, 0, 0, 2]).0, take(1024), "BYTCHK");
    assert_eq!(plan(0, &[0x2f, 0x06, 0, 0, 0, 0, 0, 0, 2]).0, take(512), "BYTCHK 11b");
    assert_eq!(
        plan(0, &[0x2f, 0x04, 0, 0, 0, 0, 0, 0, 1]).0,
        Plan::Check(Sense::invalid_bit(1, 2)),
        "BYTCHK 10b"
    );
    assert_eq!(
        plan(0, &[0x2f, 0x20, 0, 0, 0, 0, 0, 0, 1]).0,
        Plan::Check(Sense::invalid_bit(1, 7)),
        "VRPROTECT"
    );
    assert_eq!(plan(0, &[0x1b, 1, 0, 0, 1]).0, good, "IMMED, START");
    assert_eq!(plan(0, &[0x1b, 0, 0, 0, 0]).0, flush, "stop");
    assert_eq!(plan(0, &[0x1b, 0, 0, 0, 4]).0, good, "stop, NO_FLUSH");
    assert_eq!(plan(0, &[0x1b, 0, 0, 0, 0x22]).0, good, "a power condition ejects nothing");
    assert_eq!(plan(0, &[0x25, 0, 0, 0, 0, 1]).0, Plan::Check(Sense::invalid_field(2)), "an address, PMI 0");
    assert_eq!(plan(0, &[0x9e, 0x11]).0, Plan::Check(Sense::invalid_bit(1, 4)), "SERVICE ACTION");
    assert_eq!(
        plan(9, &[0x12, 1, 0x83, 0, 255]).0,
        Plan::Check(Sense::invalid_bit(1, 0)),
        "a page of no disk"
    );
}

#[test]
fn rejects_naca_with_the_position_of_the_control_byte() {
    for (opcode, at) in [(0x00, 5), (0x28, 9), (0x5a, 9), (0xa8, 11), (0x88, 15)] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[at]) = (opcode, 0x04);
        assert_eq!(plan(0, &cdb).0, Plan::Check(Sense::invalid_bit(at as u16, 2)), "{opcode:x}");
    }
}

#[test]
fn rejects_transfers_beyond_the_block_limits() {
    for block_bytes in [512, 4096] {
        let disk = Disk { block_bytes, blocks: 1 << 40, ..example() };
        let most = disk.transfer_blocks_max();
        let luns = Luns(BTreeMap::from([(Lun(0), disk)]));
        let run = |opcode: u8, blocks: u32| {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
            luns.plan([0; 8], &cdb, &mut Nexus::default(), &mut Vec::new())
        };
        assert!(matches!(run(0x88, most), Plan::Read { length_bytes: 0x400_0000, .. }));
        assert!(matches!(run(0x8a, most), Plan::Write { length_bytes: 0x400_0000, .. }));
        for opcode in [0x88, 0x8a, 0x8f] {
            assert_eq!(run(opcode, most + 1), Plan::Check(Sense::INVALID_FIELD));
        }
    }
}

#[test]
fn rejects_offsets_beyond_64_bits() {
    let disk = Disk { blocks: u64::MAX, block_bytes: 4096, ..example() };
    let luns = Luns(BTreeMap::from([(Lun(0), disk)]));
    let read_16 = |lba: u64, blocks: u32| {
        let mut cdb = [0; 16];
        cdb[0] = 0x88;
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        luns.plan([0; 8], &cdb, &mut Nexus::default(), &mut Vec::new())
    };
    let last = (1 << 52) - 1;
    let Plan::Read { offset_bytes, .. } = read_16(last - 1, 1) else { panic!("the last block that fits") };
    assert_eq!(offset_bytes, (last - 1) * 4096);
    for (lba, blocks) in [(last, 1), (last - 1, 2), (last + 1, 1), (u64::MAX - 1, 1)] {
        assert_eq!(read_16(lba, blocks), Plan::Check(Sense::lba_out_of_range(lba)), "{lba}");
    }
}

#[test]
fn ejects_and_loads_the_medium() {
    let luns = Luns(BTreeMap::from([(Lun(0), Disk { removable: true, ..example() })]));
    let mut nexus = Nexus::new("iqn.a,i,0x000000000001", 1, 1);
    let mut run = |bytes: &[u8]| luns.plan([0; 8], &cdb_of(bytes), &mut nexus, &mut Vec::new());
    let (read, good) = ([0x28, 0, 0, 0, 0, 0, 0, 0, 1], Plan::Status(status::GOOD));
    assert_eq!(run(&[0x1b, 0, 0, 0, 2]), Plan::Flush { lun: Lun(0) }, "what is cached goes with the medium");
    for missed in [&read[..], &[0x00], &[0x25], &[0x35], &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[0x1b, 0, 0, 0, 1]]
    {
        assert_eq!(run(missed), Plan::Check(Sense::NO_MEDIUM), "{missed:x?}");
    }
    assert_eq!(run(&[0x12, 0, 0, 0, 36]), Plan::Data);
    assert_eq!(run(&[0x1e, 0, 0, 0, 1]), good);
    assert_eq!(run(&[0x1b, 0, 0, 0, 3]), Plan::Check(Sense::REMOVAL_PREVENTED));
    assert_eq!(run(&[0x1e, 0, 0, 0, 0]), good);
    let loaded = Plan::Changed { lun: Lun(0), attention: UnitAttention::MediumChanged };
    assert_eq!(run(&[0x1b, 0, 0, 0, 3]), loaded);
    assert!(matches!(run(&read), Plan::Read { .. }));
    // What a session prevents ends with it.
    assert_eq!(run(&[0x1e, 0, 0, 0, 1]), good);
    luns.end(&Nexus::new("iqn.a,i,0x000000000001", 1, 1));
    assert_eq!(run(&[0x1b, 0, 0, 0, 2]), Plan::Flush { lun: Lun(0) });
    assert_eq!(plan(0, &[0x1b, 0, 0, 0, 2]).0, Plan::Check(Sense::invalid_bit(4, 1)), "a fixed disk");
}

#[test]
fn write_atomic_is_planned_or_rejected() {
    let atomic = |lba: u8, blocks: u16, boundary: u8| {
        let [high, low] = blocks.to_be_bytes();
        plan(0, &[0x9c, 0x08, 0, 0, 0, 0, 0, 0, 0, lba, 0, boundary, high, low]).0
    };
    assert_eq!(atomic(1, 2, 0), Plan::Take { lun: Lun(0), length_bytes: 1024 });
    assert_eq!(atomic(1, 0, 0), Plan::Status(status::GOOD));
    assert_eq!(atomic(1, 2, 8), Plan::Check(Sense::invalid_field(10)), "a boundary");
    assert_eq!(atomic(1, 2048, 0), Plan::Check(Sense::lba_out_of_range(2048)));
    let cdb = cdb_of(&[0x9c, 0x08, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    let data = vec![7; 1024];
    let action = Action::WriteAtomic { offset_bytes: 512, data: data.clone(), fua: true };
    let nexus = Nexus::default();
    assert_eq!(luns().finish(Lun(0), &cdb, &data, &nexus, &|_| Ok(())), Plan::Medium { lun: Lun(0), action });
    assert_eq!(
        luns().finish(Lun(0), &cdb, &data[1..], &nexus, &|_| Ok(())),
        Plan::Check(Sense::PARAMETER_LENGTH)
    );
}

#[test]
fn port_states_reject_commands_and_changes_raise_unit_attentions() {
    let mut luns = luns();
    luns.0.get_mut(&Lun(0)).unwrap().ports = std::sync::Arc::new(ports::Ports::new(&[1, 2]));
    let mut nexus = Nexus::new("iqn.a,i,0x000000000001", 2, 1);
    let set = cdb_of(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8]);
    let take = Plan::Take { lun: Lun(0), length_bytes: 8 };
    assert_eq!(luns.plan([0; 8], &set, &mut nexus, &mut Vec::new()), take);
    let changed = Plan::Changed { lun: Lun(0), attention: UnitAttention::AccessStateChanged };
    assert_eq!(luns.finish(Lun(0), &set, &[0, 0, 0, 0, 2, 0, 0, 2], &nexus, &|_| Ok(())), changed);
    let same = luns.finish(Lun(0), &set, &[0, 0, 0, 0, 2, 0, 0, 2], &nexus, &|_| Ok(()));
    assert_eq!(same, Plan::Status(status::GOOD), "what changes nothing is no news");
    let read = cdb_of(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1]);
    let standby = Sense::new(SenseKey::NotReady, 0x04, 0x0b);
    assert_eq!(luns.plan([0; 8], &read, &mut nexus, &mut Vec::new()), Plan::Check(standby));
    let mut other = Nexus::new("iqn.a,i,0x000000000001", 1, 2);
    assert!(matches!(luns.plan([0; 8], &read, &mut other, &mut Vec::new()), Plan::Read { .. }));
}

#[test]
fn d_sense_selects_the_sense_format() {
    let luns = luns();
    let list = [0, 0, 0, 0, 0x0a, 10, 0x04, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
    let select = cdb_of(&[0x15, 0x10, 0, 0, 16]);
    let attention = UnitAttention::ModeParametersChanged;
    for plan in [Plan::Changed { lun: Lun(0), attention }, Plan::Status(status::GOOD)] {
        let selected = luns.finish(Lun(0), &select, &list, &Nexus::default(), &|_| Ok(()));
        assert_eq!(selected, plan, "only a change is news");
    }
    assert_eq!(luns.encode([0; 8], &Sense::NO_MEDIUM)[0], 0x72);
    assert_eq!(luns.encode(Lun(3).encode(), &Sense::NO_MEDIUM)[0], 0x70, "another disk");
}

/// The most that a command may answer with: its ALLOCATION LENGTH, or a length of its own.
fn allocation(cdb: &Cdb) -> usize {
    match cdb[0] {
        0x03 | 0x1a => cdb[4].into(),
        0x12 => be16(cdb, 3).into(),
        0x37 | 0x4d | 0x5a | 0x5e => be16(cdb, 7).into(),
        0x25 => 8,
        0x84 | 0x9e => be32(cdb, 10) as usize,
        0xa0 | 0xa3 | 0xb7 => be32(cdb, 6) as usize,
        _ => 0,
    }
}

const KNOWN: [u8; 50] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34,
    0x35, 0x37, 0x41, 0x42, 0x48, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x7f, 0x83, 0x84, 0x88, 0x89, 0x8a,
    0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa4, 0xa8, 0xaa, 0xae, 0xaf, 0xb7,
];

fn range(offset_bytes: u64, length_bytes: u64) -> ByteRange {
    ByteRange { offset_bytes, length_bytes }
}

/// Asserts that an action stays on the medium.
fn stays_inside(plan: &Plan, size: u128) {
    let Plan::Medium { action, .. } = plan else { return };
    let ranges: Vec<ByteRange> = match action {
        Action::Fill { offset_bytes, length_bytes, .. }
        | Action::Compare { offset_bytes, length_bytes, .. } => {
            vec![range(*offset_bytes, *length_bytes)]
        }
        Action::Unmap { ranges } => ranges.clone(),
        Action::SelfTest { ranges } => ranges.to_vec(),
        Action::CompareAndWrite { offset_bytes, data, .. }
        | Action::WriteAtomic { offset_bytes, data, .. }
        | Action::Or { offset_bytes, data, .. } => {
            vec![range(*offset_bytes, data.len() as u64)]
        }
    };
    assert!(
        ranges.iter().all(|r| u128::from(r.offset_bytes) + u128::from(r.length_bytes) <= size),
        "{plan:?}"
    );
}

/// A thin disk of 1 MiB.
fn thin() -> Luns {
    let provisioning = Some(crate::Provisioning { granularity_bytes: 65_536 });
    Luns(BTreeMap::from([(Lun(0), Disk { provisioning, ..example() })]))
}

fn cdb_of(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

#[test]
fn plans_compare_fill_and_unmap() {
    let finish = |bytes: &[u8], data: &[u8]| match thin().finish(
        Lun(0),
        &cdb_of(bytes),
        data,
        &Nexus::default(),
        &|_| Ok(()),
    ) {
        Plan::Medium { action, .. } => Ok(action),
        Plan::Check(sense) => Err(sense),
        other => panic!("{other:?}"),
    };
    // WRITE SAME (10) of three blocks; with UNMAP, a block of zeros is unmapped and another is written.
    let same = |flags| [0x41, flags, 0, 0, 0, 2, 0, 0, 3];
    let block = vec![7; 512];
    let fill = Action::Fill { offset_bytes: 1024, length_bytes: 1536, block: block.clone() };
    assert_eq!(finish(&same(0), &block), Ok(fill.clone()));
    assert_eq!(finish(&same(8), &block), Ok(fill));
    assert_eq!(finish(&same(8), &[0; 512]), Ok(Action::Unmap { ranges: vec![range(1024, 1536)] }));
    assert_eq!(finish(&same(0), &[0; 100]), Err(Sense::PARAMETER_LENGTH));
    // COMPARE AND WRITE of one block.
    let compare = [0x89, 0x08, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let both = [vec![1; 512], vec![2; 512]].concat();
    let whole =
        Action::CompareAndWrite { offset_bytes: 512, expected: vec![1; 512], data: vec![2; 512], fua: true };
    assert_eq!(finish(&compare, &both), Ok(whole));
    assert_eq!(finish(&compare, &both[..1023]), Err(Sense::PARAMETER_LENGTH));
    // UNMAP of two ranges, and of one beyond the end.
    let list = |lba: u8, blocks: u16| {
        let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
        for (lba, blocks) in [(1_u64, 2_u32), (u64::from(lba), blocks.into())] {
            list.extend(lba.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([0; 4]);
        }
        list
    };
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 40];
    assert_eq!(
        finish(&unmap, &list(9, 1)),
        Ok(Action::Unmap { ranges: vec![range(512, 1024), range(9 * 512, 512)] })
    );
    assert_eq!(finish(&unmap, &list(9, 5000)), Err(Sense::lba_out_of_range(2048)));
}

#[test]
fn a_thick_disk_rejects_unmap() {
    let mut out = Vec::new();
    let mut nexus = Nexus::default();
    let unmap = cdb_of(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24]);
    assert_eq!(luns().plan([0; 8], &unmap, &mut nexus, &mut out), Plan::Check(Sense::INVALID_OPCODE));
    assert_eq!(
        thin().plan([0; 8], &unmap, &mut nexus, &mut out),
        Plan::Take { lun: Lun(0), length_bytes: 24 }
    );
    assert_eq!(check(0, &[0x41, 8, 0, 0, 0, 0, 0, 0, 1]).1, 0x24);
    assert_eq!(check(3, &[0x41, 0, 0, 0, 0, 0, 0, 0, 1]).0, SenseKey::DataProtect);
}

proptest! {
    #[test]
    fn no_command_panics_or_exceeds_the_disk_or_its_allocation(
        cdb in prop::array::uniform16(prop_oneof![Just(0), 0_u8..32, any::<u8>()]),
        known in 0..KNOWN.len(),
        lun in prop::array::uniform8(0_u8..4),
        raised in any::<bool>(),
        blocks in prop_oneof![0_u64..5000, any::<u64>()],
        block_bytes in prop_oneof![Just(512), Just(4096), any::<u32>()],
    ) {
        let provisioning = raised.then_some(crate::Provisioning { granularity_bytes: 65_536 });
        let disk = Disk { blocks, block_bytes, provisioning, ..example() };
        let size = u128::from(blocks) * u128::from(block_bytes);
        let luns = Luns(BTreeMap::from([(Lun(0), disk.clone()), (Lun(3), Disk { read_only: true, ..disk })]));
        for first in [cdb[0], KNOWN[known]] {
            let mut cdb = cdb;
            cdb[0] = first;
            for lun in [[0; 8], lun] {
                let mut nexus = Nexus::default();
                if raised {
                    nexus.raise(Lun(0), UnitAttention::CapacityChanged);
                }
                // Bytes before `from` belong to another response.
                let mut out = vec![0x55; 3];
                let planned = luns.plan(lun, &cdb, &mut nexus, &mut out);
                prop_assert_eq!(&out[..3], [0x55; 3]);
                let data_bytes = out.len() - 3;
                match planned {
                    Plan::Read { offset_bytes, length_bytes, .. } | Plan::Write { offset_bytes, length_bytes, .. } => {
                        prop_assert!(u128::from(offset_bytes) + u128::from(length_bytes) <= size);
                        prop_assert!(length_bytes <= Disk::TRANSFER_BYTES_MAX.into());
                        prop_assert_eq!(data_bytes, 0);
                    }
                    Plan::Data => prop_assert!(data_bytes <= allocation(&cdb)),
                    Plan::Log { request, .. } => {
                        prop_assert_eq!((data_bytes, request.allocation), (0, allocation(&cdb)));
                    }
                    Plan::Check(sense) => {
                        prop_assert!((8..=32).contains(&sense.encode().len()));
                        prop_assert_eq!(data_bytes, 0);
                    }
                    Plan::Take { lun, length_bytes } => {
                        prop_assert!(length_bytes <= crate::limits::TAKEN_BYTES_MAX.max(2 * 255 * u64::from(block_bytes)));
                        prop_assert_eq!(data_bytes, 0);
                        // Whatever the data, only what is on the disk is touched.
                        let data: Vec<u8> = cdb.iter().copied().cycle().take(length_bytes.min(100_000) as usize).collect();
                        stays_inside(&luns.finish(lun, &cdb, &data, &nexus, &|_| Ok(())), size);
                    }
                    planned @ Plan::Medium { .. } => stays_inside(&planned, size),
                    Plan::MappedStatus { offset_bytes, .. } => prop_assert!(u128::from(offset_bytes) < size.max(1)),
                    Plan::Status(_)
                    | Plan::Flush { .. }
                    | Plan::Changed { .. }
                    | Plan::Reserved { .. }
                    | Plan::Copy { .. } => {
                        prop_assert_eq!(data_bytes, 0);
                    }
                }
            }
        }
    }
}
