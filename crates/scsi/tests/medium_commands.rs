//! Commands about the medium (SBC-3 5): what each asks for, and which field of it is wrong.

mod common;

use common::{disk, finish, luns, plan, thin};
use scsi::{Action, ByteRange};
use scsi::{Disk, Lun, Plan, Sense, status};

const GOOD: Plan = Plan::Status(status::GOOD);

fn take(length_bytes: u64) -> Plan {
    Plan::Take { lun: Lun(0), length_bytes }
}

fn medium(action: Action) -> Plan {
    Plan::Medium { lun: Lun(0), action }
}

fn write(fua: bool) -> Plan {
    Plan::Write { lun: Lun(0), offset_bytes: 1024, length_bytes: 1536, fua }
}

/// Three blocks from block 2 on.
fn at_2(code: u8, flags: u8) -> Vec<u8> {
    match code >> 5 {
        1 | 2 => vec![code, flags, 0, 0, 0, 2, 0, 0, 3],
        4 => vec![code, flags, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3],
        _ => vec![code, flags, 0, 0, 0, 2, 0, 0, 0, 3],
    }
}

const WRITES: [u8; 3] = [0x2a, 0xaa, 0x8a];
const WRITES_AND_VERIFIES: [u8; 3] = [0x2e, 0xae, 0x8e];
const VERIFIES: [u8; 3] = [0x2f, 0xaf, 0x8f];

#[test]
fn a_write_is_forced_when_asked_or_when_the_cache_is_off() {
    let cached = Disk { write_cache: true, ..disk("a") };
    for code in WRITES {
        assert_eq!(plan(&cached, &at_2(code, 0)), write(false), "WCE is 1");
        assert_eq!(plan(&cached, &at_2(code, 0x08)), write(true), "FUA");
        assert_eq!(plan(&disk("a"), &at_2(code, 0x10)), write(false), "DPO is a hint");
    }
    // WCE is set to 0 by MODE SELECT: from then on no write waits in the cache (SBC-3 6.5.5).
    let caching = |wce| [&[0, 0, 0, 0, 0x08, 18, wce][..], &[0; 17]].concat();
    let changed = finish(&cached, &[0x15, 0x10, 0, 0, 24], &caching(0));
    assert!(matches!(changed, Plan::Changed { .. }));
    for code in WRITES {
        assert_eq!(plan(&cached, &at_2(code, 0)), write(true));
    }
    assert!(!Disk { write_cache: false, ..cached }.is_write_through(), "there is no cache to go through");
}

#[test]
fn write_and_verify_reaches_the_medium() {
    for code in WRITES_AND_VERIFIES {
        for flags in [0, 0x02, 0x06, 0x10] {
            assert_eq!(plan(&disk("a"), &at_2(code, flags)), write(true), "{code:#x} {flags:#x}");
        }
        // BYTCHK 10b is reserved; there is no protection information.
        assert_eq!(plan(&disk("a"), &at_2(code, 0x04)), Plan::Check(Sense::invalid_bit(1, 2)));
        assert_eq!(plan(&disk("a"), &at_2(code, 0x20)), Plan::Check(Sense::invalid_bit(1, 7)));
    }
}

#[test]
fn a_verification_takes_as_much_as_bytchk_says() {
    for code in VERIFIES {
        let on_disk = |flags| plan(&disk("a"), &at_2(code, flags));
        assert_eq!(on_disk(0), GOOD, "the medium alone");
        assert_eq!(on_disk(0x02), take(1536), "each block");
        assert_eq!(on_disk(0x06), take(512), "one block for all");
        assert_eq!(on_disk(0x04), Plan::Check(Sense::invalid_bit(1, 2)), "reserved");
        let mut nothing = at_2(code, 0x06);
        nothing.iter_mut().skip(6).for_each(|byte| *byte = 0);
        nothing[1] = 0x06;
        assert_eq!(plan(&disk("a"), &nothing), GOOD, "no blocks");
        let compare = |data: Vec<u8>| finish(&disk("a"), &at_2(code, 0x02), &data);
        let action = |expected: Vec<u8>| Action::Compare { offset_bytes: 1024, length_bytes: 1536, expected };
        assert_eq!(compare(vec![1; 1536]), medium(action(vec![1; 1536])));
        assert_eq!(compare(vec![1; 512]), medium(action(vec![1; 512])));
        assert_eq!(compare(vec![1; 1000]), Plan::Check(Sense::PARAMETER_LENGTH));
        assert_eq!(compare(vec![]), Plan::Check(Sense::PARAMETER_LENGTH));
    }
}

#[test]
fn gathered_data_of_a_command_is_bounded() {
    let large = Disk { blocks: 1 << 20, ..disk("large") };
    let verify = |blocks: u32, flags: u8| {
        let b = blocks.to_be_bytes();
        plan(&large, &[0x8f, flags, 0, 0, 0, 0, 0, 0, 0, 0, b[0], b[1], b[2], b[3]])
    };
    assert_eq!(verify(8192, 0x02), take(4 << 20));
    assert_eq!(verify(8193, 0x02), Plan::Check(Sense::INVALID_FIELD));
    assert_eq!(verify(8193, 0x06), take(512), "one block is not much");
    let or_write = |blocks: u32| {
        let b = blocks.to_be_bytes();
        plan(&large, &[0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, b[0], b[1], b[2], b[3]])
    };
    assert_eq!(or_write(8192), take(4 << 20));
    assert_eq!(or_write(8193), Plan::Check(Sense::INVALID_FIELD));
    assert_eq!(or_write(0), GOOD);
    let atomic = |blocks: u16| {
        let [high, low] = blocks.to_be_bytes();
        plan(&large, &[0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
    };
    assert_eq!(atomic(2048), take(1 << 20), "MAXIMUM ATOMIC TRANSFER LENGTH");
    assert_eq!(atomic(2049), Plan::Check(Sense::invalid_field(12)));
    assert_eq!(atomic(0), GOOD);
}

#[test]
fn data_that_is_written_as_one_step_is_forced_when_asked() {
    for (flags, fua) in [(0, false), (0x08, true), (0x10, false)] {
        let data = vec![5; 1536];
        let or = Action::Or { offset_bytes: 1024, data: data.clone(), fua };
        assert_eq!(finish(&disk("a"), &at_2(0x8b, flags), &data), medium(or));
        let atomic = Action::WriteAtomic { offset_bytes: 1024, data: data.clone(), fua };
        let command = [0x9c, flags, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3];
        assert_eq!(finish(&disk("a"), &command, &data), medium(atomic));
        let (expected, new) = (vec![5; 512], vec![6; 512]);
        let swap = Action::CompareAndWrite { offset_bytes: 1024, expected, data: new, fua };
        let command = [0x89, flags, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
        assert_eq!(plan(&disk("a"), &command), take(1024), "what is expected, and what takes its place");
        assert_eq!(finish(&disk("a"), &command, &[[5; 512], [6; 512]].concat()), medium(swap));
        for (code, short) in [(0x8b, 1535), (0x9c, 1535), (0x89, 1535)] {
            let short = finish(&disk("a"), &[code, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3], &vec![0; short]);
            let long = matches!(short, Plan::Medium { .. });
            // Of OR WRITE (16) the last four bytes are the count, of the others the last one or two.
            assert!(!long && short == Plan::Check(Sense::PARAMETER_LENGTH), "{code:#x}: {short:?}");
        }
    }
}

#[test]
fn write_same_fills_its_range_or_the_rest_of_the_disk() {
    let fill = |offset_bytes, length_bytes, block: Vec<u8>| {
        medium(Action::Fill { offset_bytes, length_bytes, block })
    };
    for code in [0x41, 0x93] {
        assert_eq!(plan(&disk("a"), &at_2(code, 0)), take(512), "one block");
        assert_eq!(finish(&disk("a"), &at_2(code, 0), &[7; 512]), fill(1024, 1536, vec![7; 512]));
        assert_eq!(finish(&disk("a"), &at_2(code, 0), &[7; 511]), Plan::Check(Sense::PARAMETER_LENGTH));
        // WSNZ is 0: no blocks means all from there on (SBC-3 5.43).
        let mut rest = at_2(code, 0);
        rest.iter_mut().skip(if code == 0x41 { 7 } else { 10 }).for_each(|byte| *byte = 0);
        assert_eq!(finish(&disk("a"), &rest, &[7; 512]), fill(1024, 2046 * 512, vec![7; 512]));
        assert_eq!(plan(&disk("a"), &at_2(code, 0x10)), Plan::Check(Sense::invalid_bit(1, 4)), "ANCHOR");
        assert_eq!(
            plan(&disk("a"), &at_2(code, 0x08)),
            Plan::Check(Sense::invalid_bit(1, 3)),
            "UNMAP, thick"
        );
        assert_eq!(plan(&disk("a"), &at_2(code, 0x20)), Plan::Check(Sense::invalid_bit(1, 7)), "WRPROTECT");
        let protected = Disk { read_only: true, ..disk("a") };
        assert_eq!(plan(&protected, &at_2(code, 0)), Plan::Check(Sense::WRITE_PROTECTED));
    }
    // NDOB: without data, zeros are written. The ten-byte form has no such bit.
    assert_eq!(plan(&disk("a"), &at_2(0x93, 0x01)), fill(1024, 1536, vec![0; 512]));
    assert_eq!(plan(&disk("a"), &at_2(0x41, 0x01)), take(512));
}

#[test]
fn only_zeros_are_unmapped_instead_of_written() {
    // Unmapped blocks read as zeros (LBPRZ): any other block has to be written (SBC-3 5.43).
    let unmap = medium(Action::Unmap { ranges: vec![ByteRange { offset_bytes: 1024, length_bytes: 1536 }] });
    for code in [0x41, 0x93] {
        assert_eq!(plan(&thin(), &at_2(code, 0x08)), take(512));
        assert_eq!(finish(&thin(), &at_2(code, 0x08), &[0; 512]), unmap);
        let mut block = vec![0; 512];
        block[511] = 1;
        let fill = Action::Fill { offset_bytes: 1024, length_bytes: 1536, block: block.clone() };
        assert_eq!(finish(&thin(), &at_2(code, 0x08), &block), medium(fill));
        let zeros = Action::Fill { offset_bytes: 1024, length_bytes: 1536, block: vec![0; 512] };
        assert_eq!(finish(&thin(), &at_2(code, 0), &[0; 512]), medium(zeros), "UNMAP is 0");
    }
    assert_eq!(plan(&thin(), &at_2(0x93, 0x09)), unmap, "NDOB");
}

#[test]
fn write_same_of_more_than_a_transfer_points_at_the_count() {
    let large = Disk { blocks: 1 << 20, ..disk("large") };
    let ten = |blocks: u16| {
        let [high, low] = blocks.to_be_bytes();
        plan(&large, &[0x41, 0, 0, 0, 0, 0, 0, high, low])
    };
    let sixteen = |blocks: u32| {
        let b = blocks.to_be_bytes();
        plan(&large, &[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, b[0], b[1], b[2], b[3]])
    };
    // MAXIMUM WRITE SAME LENGTH is 64 MiB.
    assert_eq!(sixteen(1 << 17), take(512));
    assert_eq!(sixteen((1 << 17) + 1), Plan::Check(Sense::invalid_field(10)));
    assert_eq!(ten(0xffff), take(512));
    assert_eq!(ten(0), Plan::Check(Sense::invalid_field(7)), "all that follow are too many");
}

#[test]
fn unmap_takes_its_list_and_keeps_to_the_limits() {
    let unmap = |length: u16, flags: u8| {
        let [high, low] = length.to_be_bytes();
        plan(&thin(), &[0x42, flags, 0, 0, 0, 0, 0, high, low])
    };
    assert_eq!((unmap(0, 0), unmap(8, 0), unmap(24, 0)), (GOOD, take(8), take(24)));
    assert_eq!(unmap(7, 0), Plan::Check(Sense::PARAMETER_LENGTH), "less than a header");
    assert_eq!(unmap(24, 1), Plan::Check(Sense::invalid_bit(1, 0)), "ANCHOR");
    let list = |ranges: &[(u64, u32)]| {
        let length = (16 * ranges.len() as u16).to_be_bytes();
        let mut data = [&[0, 0][..], &length, &[0; 4]].concat();
        for (lba, blocks) in ranges {
            data.extend([&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[0; 4]].concat());
        }
        data
    };
    let run = |disk: &Disk, ranges: &[(u64, u32)]| finish(disk, &[0x42], &list(ranges));
    let ranges = |ranges: Vec<(u64, u64)>| {
        let range = |(offset_bytes, length_bytes)| ByteRange { offset_bytes, length_bytes };
        medium(Action::Unmap { ranges: ranges.into_iter().map(range).collect() })
    };
    assert_eq!(run(&thin(), &[(2, 3), (9, 0), (2047, 1)]), ranges(vec![(1024, 1536), (2047 * 512, 512)]));
    assert_eq!(run(&thin(), &[(2047, 2)]), Plan::Check(Sense::lba_out_of_range(2048)));
    // MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    let many = |count: usize| run(&thin(), &vec![(0, 1); count]);
    assert_eq!(many(256), ranges(vec![(0, 512); 256]));
    assert_eq!(many(257), Plan::Check(Sense::invalid_parameter(8 + 16 * 256)));
    // MAXIMUM UNMAP LBA COUNT, of all ranges together.
    let large = Disk { blocks: 1 << 22, ..thin() };
    assert_eq!(run(&large, &[(0, 1 << 20)]), ranges(vec![(0, 512 << 20)]));
    assert_eq!(run(&large, &[(0, 1 << 20), (5, 1)]), Plan::Check(Sense::invalid_parameter(24)));
    // What follows UNMAP BLOCK DESCRIPTOR DATA LENGTH is not looked at.
    let mut shorter = list(&[(2, 3), (9, 1)]);
    shorter[3] = 16;
    assert_eq!(finish(&thin(), &[0x42], &shorter), ranges(vec![(1024, 1536)]));
}

#[test]
fn a_disk_is_erased_whole_or_not_at_all() {
    let erase = |bytes: &[u8]| plan(&thin(), bytes);
    let whole =
        medium(Action::Unmap { ranges: vec![ByteRange { offset_bytes: 0, length_bytes: 2048 * 512 }] });
    assert_eq!(erase(&[0x48, 0x02]), whole);
    assert_eq!(erase(&[0x48, 0x82]), whole, "IMMED: it is done by the time of the answer");
    assert_eq!(erase(&[0x48, 0x1f]), GOOD, "EXIT FAILURE MODE: there is none");
    assert_eq!(erase(&[0x48, 0x42]), Plan::Check(Sense::invalid_bit(1, 6)), "ZNR");
    assert_eq!(erase(&[0x48, 0x01]), Plan::Check(Sense::invalid_bit(1, 4)), "OVERWRITE is not offered");
    for code in [0x02, 0x1f] {
        assert_eq!(erase(&[0x48, code, 0, 0, 0, 0, 0, 0, 4]), Plan::Check(Sense::invalid_field(7)));
        assert_eq!(erase(&[0x48, code, 0, 0, 0, 0, 1]), Plan::Check(Sense::invalid_field(2)));
        let protected = Disk { read_only: true, ..thin() };
        assert_eq!(plan(&protected, &[0x48, code]), Plan::Check(Sense::WRITE_PROTECTED));
    }
}

#[test]
fn everything_that_writes_is_refused_under_write_protection() {
    let protected = Disk { read_only: true, ..thin() };
    let once = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
    let atomic = [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24];
    let mut all: Vec<Vec<u8>> = WRITES.iter().chain(&WRITES_AND_VERIFIES).map(|&c| at_2(c, 0)).collect();
    all.extend([vec![0x0a, 0, 0, 2, 1], at_2(0x8b, 0), once.to_vec(), atomic.to_vec(), unmap.to_vec()]);
    for command in all {
        assert_eq!(plan(&protected, &command), Plan::Check(Sense::WRITE_PROTECTED), "{command:x?}");
    }
    assert!(matches!(plan(&protected, &at_2(0x28, 0)), Plan::Read { .. }));
}

#[test]
fn only_thin_disks_report_mapped_blocks() {
    let status = |disk: &Disk, lba: u8| plan(disk, &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 1, 0]);
    let told = Plan::MappedStatus { lun: Lun(0), offset_bytes: 1024, block_bytes: 512, allocation: 256 };
    assert_eq!(status(&thin(), 2), told);
    assert_eq!(status(&disk("a"), 2), Plan::Check(Sense::invalid_bit(1, 4)));
    let small = Disk { blocks: 2, ..thin() };
    assert_eq!(status(&small, 2), Plan::Check(Sense::lba_out_of_range(2)), "one block must be there");
}

#[test]
fn a_medium_that_is_ejected_while_data_is_on_its_way_is_missed() {
    let gone = Disk { removable: true, ..disk("a") };
    assert_eq!(gone.shared.loading.load(false), Ok(true));
    let plan = finish(&gone, &at_2(0x8b, 0), &[0; 1536]);
    assert_eq!(plan, Plan::Check(Sense::NO_MEDIUM));
    let luns = luns(&[gone]);
    assert!(!luns.may_read(Lun(0), &common::nexus('a')));
}

#[test]
fn a_disk_that_others_use_is_changed_within_a_step_of_its_store() {
    let of = |step_bytes: u32, block_bytes: u32| {
        luns(&[scsi::Disk { step_bytes: Some(step_bytes), block_bytes, ..common::disk("shared") }])
    };
    let swap = |lba: u8, blocks: u8| [0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0];
    let of_16 = |code: u8, lba: u8, blocks: u8| [code, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0];
    let plan = |luns: &scsi::Luns, bytes: &[u8]| common::ask(luns, &mut common::nexus('a'), bytes).0;
    let sector = of(512, 512);
    assert!(matches!(plan(&sector, &swap(3, 1)), Plan::Take { length_bytes: 1024, .. }));
    assert_eq!(plan(&sector, &swap(3, 2)), Plan::Check(Sense::invalid_field(13)));
    assert!(matches!(plan(&sector, &of_16(0x8b, 3, 1)), Plan::Take { length_bytes: 512, .. }));
    assert_eq!(plan(&sector, &of_16(0x8b, 3, 2)), Plan::Check(Sense::INVALID_FIELD));
    // Two blocks of a step of four: not across its end.
    let four = of(2048, 512);
    assert!(matches!(plan(&four, &swap(2, 2)), Plan::Take { .. }));
    assert_eq!(plan(&four, &swap(3, 2)), Plan::Check(Sense::invalid_field(13)));
    // A step that is shorter than a block is none.
    let none = of(512, 4096);
    for command in [swap(0, 1), of_16(0x8b, 0, 1), [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]] {
        assert_eq!(plan(&none, &command), Plan::Check(Sense::INVALID_OPCODE), "{command:x?}");
    }
    let listed = common::ask(&none, &mut common::nexus('a'), &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0]).1;
    let codes: Vec<u8> = listed[4..].chunks_exact(8).map(|one| one[0]).collect();
    assert!(
        codes.contains(&0x8a) && ![0x89, 0x8b, 0x9c].iter().any(|code| codes.contains(code)),
        "{codes:x?}"
    );
    // What the page of limits says is what is accepted.
    let limits = common::ask(&four, &mut common::nexus('a'), &[0x12, 1, 0xb0, 0, 64, 0]).1;
    assert_eq!((limits[5], &limits[44..48]), (4, &[0, 0, 0, 4][..]));
    let limits = common::ask(&none, &mut common::nexus('a'), &[0x12, 1, 0xb0, 0, 64, 0]).1;
    assert_eq!((limits[5], &limits[44..48]), (0, &[0; 4][..]));
}
