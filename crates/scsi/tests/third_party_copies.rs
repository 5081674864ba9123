//! EXTENDED COPY (SPC-4 6.4): the limits are those that RECEIVE COPY RESULTS and the Third-party Copy page state,
//! and what is wrong is said.

mod common;

use common::{ask, cdb, disk, luns, nexus, nothing_to_save, plan};
use scsi::Segment;
use scsi::ports::AccessState;
use scsi::{Disk, Lun, Luns, Plan, Sense, SenseKey, status};

fn at(lun: Lun, offset_bytes: u64) -> scsi::Place {
    scsi::Place { lun, offset_bytes }
}

const EXTENDED_COPY: u8 = 0x83;
const RECEIVE_COPY_RESULTS: u8 = 0x84;

/// An identification descriptor that names a disk by its NAA designator.
fn cscd(disk: &Disk) -> Vec<u8> {
    let naa = 0x3000_0000_0000_0000 | disk.designator();
    [&[0xe4, 0, 0, 0, 0x01, 0x03, 0, 8][..], &naa.to_be_bytes(), &[0; 16]].concat()
}

/// Blocks of the first disk from block 1 on, to block 9 of the disk `to`.
fn blocks(flags: u8, to: u8, count: u16) -> Vec<u8> {
    let places = [1_u64.to_be_bytes(), 9_u64.to_be_bytes()].concat();
    [&[0x02, flags, 0, 24, 0, 0, 0, to, 0, 0][..], &count.to_be_bytes(), &places].concat()
}

/// Bytes of the first disk from byte 3 of block 1 on, to byte 5 of block 9 of the disk `to`.
fn bytes(to: u8, count: u32) -> Vec<u8> {
    let places = [1_u64.to_be_bytes(), 9_u64.to_be_bytes()].concat();
    [&[0x0a, 0, 0, 28, 0, 0, 0, to][..], &count.to_be_bytes(), &places, &[0, 3, 0, 5]].concat()
}

fn list(usage: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let cscd_bytes = (cscds.len() as u16).to_be_bytes();
    let segment_bytes = (segments.len() as u32).to_be_bytes();
    [&[7, usage][..], &cscd_bytes, &[0; 4], &segment_bytes, &[0; 4], &cscds, &segments].concat()
}

fn copy(luns: &Luns, data: &[u8]) -> Plan {
    luns.finish(Lun(0), &cdb(&[EXTENDED_COPY]), data, &nexus('a'), &nothing_to_save)
}

fn sense(plan: Plan) -> (SenseKey, u8, u8) {
    match plan {
        Plan::Check(sense) => (sense.key, sense.asc, sense.ascq),
        other => panic!("{other:?}"),
    }
}

const LENGTH: (SenseKey, u8, u8) = (SenseKey::IllegalRequest, 0x1a, 0x00);
const NOT_REACHABLE: (SenseKey, u8, u8) = (SenseKey::CopyAborted, 0x0d, 0x02);

#[test]
fn only_the_form_that_is_offered_is_taken() {
    let take = Plan::Take { lun: Lun(0), length_bytes: 300 };
    assert_eq!(plan(&disk("a"), &[EXTENDED_COPY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 44]), take);
    // LID4 (service action 01h) is not offered.
    let lid4 = plan(&disk("a"), &[EXTENDED_COPY, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 44]);
    assert_eq!(lid4, Plan::Check(Sense::invalid_bit(1, 4)));
    // No list is no error (SPC-4 6.4.1).
    assert_eq!(plan(&disk("a"), &[EXTENDED_COPY]), Plan::Status(status::GOOD));
    // The header, and descriptors of twice the most: lists that are too long are judged by their own lengths.
    let of = |length: u16| {
        let [high, low] = length.to_be_bytes();
        plan(&disk("a"), &[EXTENDED_COPY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
    };
    assert!(matches!(of(16 + 4096), Plan::Take { .. }));
    assert_eq!(sense(of(16 + 4097)), LENGTH);
}

#[test]
fn as_many_descriptors_as_are_stated_and_no_more() {
    let a = disk("a");
    let luns = luns(std::slice::from_ref(&a));
    let run = |cscds: usize, segments: usize| {
        copy(&luns, &list(0, &vec![cscd(&a); cscds], &vec![blocks(0, 0, 1); segments]))
    };
    assert!(matches!(run(16, 32), Plan::Copy { segments, .. } if segments.len() == 32));
    assert_eq!(sense(run(17, 1)), (SenseKey::IllegalRequest, 0x26, 0x06), "TOO MANY TARGET DESCRIPTORS");
    assert_eq!(sense(run(1, 33)), (SenseKey::IllegalRequest, 0x26, 0x08), "TOO MANY SEGMENT DESCRIPTORS");
    // 2048 bytes of descriptors can be sent: here they hold too many segments. More cannot.
    let run = |segments: usize| copy(&luns, &list(0, &vec![cscd(&a); 16], &vec![bytes(0, 1); segments]));
    assert_eq!(sense(run(48)), (SenseKey::IllegalRequest, 0x26, 0x08));
    assert_eq!(sense(run(49)), LENGTH);
    // Part of a descriptor is none.
    let mut cut = list(0, &[cscd(&a)], &[]);
    cut[3] = 31;
    assert_eq!(sense(copy(&luns, &cut)), LENGTH);
}

#[test]
fn one_command_copies_as_much_as_is_stated_and_no_more() {
    let large = Disk { blocks: 1 << 30, ..disk("large") };
    let luns = luns(std::slice::from_ref(&large));
    let most = 256_u32 << 20;
    let run = |count| copy(&luns, &list(0, &[cscd(&large)], &[bytes(0, count)]));
    assert!(matches!(run(most), Plan::Copy { .. }));
    assert_eq!(sense(run(most + 1)), (SenseKey::IllegalRequest, 0x26, 0x00));
    // The sum counts, not each segment.
    let two = copy(&luns, &list(0, &[cscd(&large)], &[bytes(0, most), bytes(0, 1)]));
    assert_eq!(two, Plan::Check(Sense::invalid_parameter(16 + 32)), "it points at the segments");
}

#[test]
fn blocks_are_counted_in_those_of_the_disk_that_dc_names() {
    // SPC-4 6.4.6.2: with DC the count is of the destination's blocks.
    let (a, b) = (disk("a"), Disk { block_bytes: 4096, ..disk("b") });
    let luns = luns(&[a.clone(), b.clone()]);
    for (flags, length_bytes) in [(0, 8 * 512), (0x02, 8 * 4096), (0x01, 8 * 512)] {
        let data = list(0, &[cscd(&a), cscd(&b)], &[blocks(flags, 1, 8)]);
        let segment = Segment { from: at(Lun(0), 512), to: at(Lun(1), 9 * 4096), length_bytes };
        let plan = Plan::Copy { lun: Lun(0), segments: vec![segment], list_identifier: Some(7) };
        assert_eq!(copy(&luns, &data), plan, "{flags:#x}");
    }
}

#[test]
fn a_segment_with_offsets_begins_inside_its_blocks() {
    let (a, b) = (disk("a"), disk("b"));
    let luns = luns(&[a.clone(), b.clone()]);
    let cscds = [cscd(&a), cscd(&b)];
    let segment = Segment { from: at(Lun(0), 512 + 3), to: at(Lun(1), 9 * 512 + 5), length_bytes: 1000 };
    let plan = Plan::Copy { lun: Lun(0), segments: vec![segment], list_identifier: Some(7) };
    assert_eq!(copy(&luns, &list(0, &cscds, &[bytes(1, 1000)])), plan);
    // The destination ends 2039 blocks behind block 9: the offset counts against that.
    let rest = 2039 * 512;
    assert!(matches!(copy(&luns, &list(0, &cscds, &[bytes(1, rest - 5)])), Plan::Copy { .. }));
    assert_eq!(sense(copy(&luns, &list(0, &cscds, &[bytes(1, rest - 4)]))).0, SenseKey::CopyAborted);
    // Nothing to copy is no error, and leaves nothing to do.
    let nothing = Plan::Copy { lun: Lun(0), segments: vec![], list_identifier: Some(7) };
    assert_eq!(copy(&luns, &list(0, &cscds, &[bytes(1, 0)])), nothing);
}

#[test]
fn a_range_that_is_not_there_is_named() {
    let (a, b) = (disk("a"), Disk { blocks: 12, ..disk("b") });
    let luns = luns(&[a.clone(), b.clone()]);
    let run = |count| copy(&luns, &list(0, &[cscd(&a), cscd(&b)], &[blocks(0, 1, count)]));
    assert!(matches!(run(3), Plan::Copy { .. }));
    // COPY ABORTED, with the first address that is not on the disk.
    assert_eq!(run(4), Plan::Check(Sense { information: Some(12), ..Sense::COPY_ABORTED }));
}

#[test]
fn a_disk_that_cannot_be_read_or_written_now_is_not_reachable() {
    let (a, b) = (disk("a"), Disk { removable: true, ..disk("b") });
    let luns = luns(&[a.clone(), b.clone()]);
    let data = list(0, &[cscd(&a), cscd(&b)], &[blocks(0, 1, 1)]);
    assert!(matches!(copy(&luns, &data), Plan::Copy { .. }));
    assert_eq!(b.shared.loading.load(false), Ok(true));
    assert_eq!(sense(copy(&luns, &data)), NOT_REACHABLE, "ejected");
    assert_eq!(b.shared.loading.load(true), Ok(true));
    assert!(b.ports.set(1, AccessState::Standby));
    assert_eq!(sense(copy(&luns, &data)), NOT_REACHABLE, "in standby");
    assert!(b.ports.set(1, AccessState::Optimized));
    assert_eq!(b.shared.reservations.reserve(&nexus('b')), status::GOOD);
    assert_eq!(sense(copy(&luns, &data)), NOT_REACHABLE, "reserved by another");
    b.shared.reservations.forget(|_, _| false);
    assert!(matches!(copy(&luns, &data), Plan::Copy { .. }));
}

#[test]
fn nothing_is_copied_to_a_disk_that_is_write_protected() {
    let (a, b) = (disk("a"), Disk { read_only: true, ..disk("b") });
    let luns = luns(&[a.clone(), b.clone()]);
    let to = copy(&luns, &list(0, &[cscd(&a), cscd(&b)], &[blocks(0, 1, 1)]));
    assert_eq!(sense(to), (SenseKey::CopyAborted, 0x27, 0x00));
    let from = copy(&luns, &list(0, &[cscd(&b), cscd(&a)], &[blocks(0, 1, 1)]));
    assert!(matches!(from, Plan::Copy { .. }), "it can be read");
}

#[test]
fn a_disk_is_found_by_each_of_its_names_and_by_no_other() {
    let (a, b) = (disk("a"), disk("b"));
    let luns = luns(&[a.clone(), b.clone()]);
    let run = |cscd: Vec<u8>| copy(&luns, &list(0, &[cscd], &[blocks(0, 0, 1)]));
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut cscd = cscd(&b);
        change(&mut cscd);
        run(cscd)
    };
    let is_b = |plan: Plan| matches!(plan, Plan::Copy { segments, .. } if segments[0].from.lun == Lun(1));
    assert!(is_b(run(cscd(&b))));
    // T10 vendor identification: vendor in eight characters, then the serial number; ASCII.
    let vendor = [&[0xe4, 0, 0, 0, 0x02, 0x01, 0, 9][..], b"RNDTRIP b", &[0; 15]].concat();
    assert!(is_b(run(vendor)));
    // The upper halves of these bytes are PROTOCOL IDENTIFIER, PIV and ASSOCIATION.
    assert!(is_b(with(&|cscd| (cscd[4], cscd[5]) = (0x51, 0xf3))));
    assert_eq!(sense(with(&|cscd| cscd[4] = 0x02)), NOT_REACHABLE, "another code set");
    assert_eq!(sense(with(&|cscd| cscd[5] = 0x01)), NOT_REACHABLE, "another type");
    assert_eq!(sense(with(&|cscd| cscd[7] = 7)), NOT_REACHABLE, "a part of the name");
    assert_eq!(sense(with(&|cscd| cscd[15] ^= 1)), NOT_REACHABLE, "another name");
}

#[test]
fn copy_results_are_kept_for_their_nexus_until_reported() {
    let a = disk("a");
    let luns = luns(std::slice::from_ref(&a));
    let status = |who: char, list_identifier: u8| {
        let bytes = [RECEIVE_COPY_RESULTS, 0, list_identifier, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];
        ask(&luns, &mut nexus(who), &bytes)
    };
    let segment = |length_bytes| Segment { from: at(Lun(0), 0), to: at(Lun(0), 0), length_bytes };
    let copies = &a.shared.copies;
    copies.ended(&nexus('a'), 1, &[segment(512)], true);
    copies.ended(&nexus('a'), 2, &[segment(512), segment(1024)], false);
    copies.ended(&nexus('b'), 1, &[segment(2048)], true);
    // The same identifier again: the later copy is the one that is told of (SPC-4 6.24.2).
    copies.ended(&nexus('a'), 1, &[segment(4096)], true);
    assert_eq!(status('a', 1), (Plan::Data, vec![0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 0x10, 0]));
    assert_eq!(status('a', 1).0, Plan::Check(Sense::invalid_field(2)), "told once");
    assert_eq!(status('a', 2), (Plan::Data, vec![0, 0, 0, 8, 2, 0, 2, 0, 0, 0, 6, 0]), "it failed");
    assert_eq!(status('b', 1), (Plan::Data, vec![0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 8, 0]));
}

#[test]
fn a_large_count_is_reported_in_kibibytes() {
    let a = disk("a");
    let luns = luns(std::slice::from_ref(&a));
    let told = |length_bytes| {
        a.shared.copies.ended(
            &nexus('a'),
            1,
            &[Segment { from: at(Lun(0), 0), to: at(Lun(0), 0), length_bytes }],
            true,
        );
        let bytes = [RECEIVE_COPY_RESULTS, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];
        ask(&luns, &mut nexus('a'), &bytes).1[7..].to_vec()
    };
    assert_eq!(told(0xffff_ffff), [0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(told(5 << 30), [1, 0, 0x50, 0, 0], "TRANSFER COUNT UNITS 01h");
}

#[test]
fn the_oldest_result_goes_when_there_are_too_many() {
    let a = disk("a");
    let luns = luns(std::slice::from_ref(&a));
    for list_identifier in 0..=255 {
        a.shared.copies.ended(&nexus('a'), list_identifier, &[], true);
    }
    a.shared.copies.ended(&nexus('b'), 9, &[], true);
    let exists = |who: char, list_identifier: u8| {
        let bytes = [RECEIVE_COPY_RESULTS, 0, list_identifier, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];
        ask(&luns, &mut nexus(who), &bytes).0 == Plan::Data
    };
    assert!(!exists('a', 0) && exists('a', 1) && exists('a', 255) && exists('b', 9));
}

#[test]
fn operating_parameters_state_the_limits() {
    let a = Disk { block_bytes: 4096, ..disk("a") };
    let luns = luns(std::slice::from_ref(&a));
    let bytes = [RECEIVE_COPY_RESULTS, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let (plan, data) = ask(&luns, &mut nexus('a'), &bytes);
    assert_eq!(plan, Plan::Data);
    // SPC-4 table 203: AVAILABLE DATA counts what follows it.
    assert_eq!((data.len(), &data[..5]), (47, &[0, 0, 0, 43, 1][..]));
    assert_eq!(data[8..20], [0, 16, 0, 32, 0, 0, 8, 0, 0x10, 0, 0, 0]);
    assert_eq!(data[34..], [0, 255, 255, 12, 0, 0, 0, 0, 0, 3, 0x02, 0x0a, 0xe4]);
    let (plan, _) = ask(&luns, &mut nexus('a'), &[RECEIVE_COPY_RESULTS, 4]);
    assert_eq!(plan, Plan::Check(Sense::invalid_bit(1, 4)));
}

#[test]
fn list_id_usage_says_whether_a_result_is_kept() {
    let a = disk("a");
    let luns = luns(std::slice::from_ref(&a));
    // SPC-4 table 108: 00b keeps it; 11b gives no identifier.
    for (usage, kept) in [(0x00, Some(7)), (0x18, None), (0x10, None), (0x20, Some(7))] {
        let plan = copy(&luns, &list(usage, &[cscd(&a)], &[blocks(0, 0, 1)]));
        assert!(matches!(plan, Plan::Copy { list_identifier, .. } if list_identifier == kept), "{usage:#x}");
    }
}
