//! Commands as initiators send them, and as none should.

use proptest::prelude::*;

use super::*;
use crate::disk::example;
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
fn reads_and_writes_of_every_length_name_their_bytes() {
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
fn what_is_not_offered_is_refused_by_name() {
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
fn a_missing_logical_unit_answers_what_every_address_must() {
    assert_eq!(check(9, &[0x00]), (SenseKey::IllegalRequest, 0x25, 0));
    let (plan_inquiry, data) = plan(9, &[0x12, 0, 0, 0, 255]);
    assert_eq!((plan_inquiry, data[0], data.len()), (Plan::Data, 0x7f, 36));
    assert_eq!(plan(9, &[0x03, 0, 0, 0, 18]).1[12], 0x25);
    let (_, list) = plan(9, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(list[..4], [0, 0, 0, 16]);
    assert_eq!(list[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn answers_are_cut_to_their_allocation_length() {
    for (cdb, length) in [
        (&[0x12, 0, 0, 0, 5][..], 5),
        (&[0x12, 1, 0x83, 0, 3], 3),
        (&[0x03, 0, 0, 0, 0], 0),
        (&[0x1a, 0, 0x3f, 0, 7], 7),
        (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12], 12),
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
    assert_eq!(data[..8], [0, 0, 6, 0x12, 69, 0, 0, 2]);
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
fn a_unit_attention_is_told_once_but_not_to_inquiry() {
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

proptest! {
    #[test]
    fn no_command_can_panic_or_answer_outside_the_disk(cdb in prop::array::uniform16(any::<u8>()), known in 0_usize..24, lun in prop::array::uniform8(0_u8..4)) {
        const KNOWN: [u8; 24] = [0, 3, 8, 0x0a, 0x12, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2f, 0x34, 0x35, 0x5a, 0x88, 0x8a, 0x8f, 0x90, 0x91, 0x9e, 0xa0, 0xa8, 0xaa, 0xaf];
        for first in [cdb[0], KNOWN[known]] {
            let mut cdb = cdb;
            cdb[0] = first;
            for lun in [[0; 8], lun] {
                let mut out = Vec::new();
                match luns().plan(lun, &cdb, &mut Nexus::default(), &mut out) {
                    Plan::Read { offset_bytes, length_bytes, .. } | Plan::Write { offset_bytes, length_bytes, .. } => {
                        prop_assert!(offset_bytes + length_bytes <= 2048 * 512);
                        prop_assert!(out.is_empty());
                    }
                    Plan::Data => prop_assert!(out.len() <= 1024),
                    Plan::Check(sense) => { prop_assert!(sense.encode().len() >= 8); prop_assert!(out.is_empty()); }
                    Plan::Status(_) | Plan::Flush { .. } => prop_assert!(out.is_empty()),
                }
            }
        }
    }
}
