//! Disks and initiators to ask them.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;

use scsi::cdb::Cdb;
use scsi::{Disk, Durable, Identity, Lun, Luns, Nexus, Plan, Provisioning, Sense};

/// A disk of 2048 blocks of 512 bytes.
pub(crate) fn disk(serial: &str) -> Disk {
    Disk {
        identity: Identity {
            vendor: "RNDTRIP".into(),
            product: "disk".into(),
            revision: "0.1".into(),
            serial: serial.into(),
            target_name: "iqn.2026-11.example:t".into(),
            naa: None,
            t10: None,
        },
        block_bytes: 512,
        blocks: 2048,
        read_only: false,
        is_restricted: false,
        removable: false,
        is_rotational: false,
        is_durable: false,
        write_cache: false,
        provisioning: None,
        step_bytes: None,
        best_bytes: None,
        physical_exponent: 0,
        ports: Default::default(),
        shared: Default::default(),
    }
}

/// One that gives its blocks memory when they are written.
pub(crate) fn thin() -> Disk {
    Disk { provisioning: Some(Provisioning { granularity_bytes: 4096 }), ..disk("thin") }
}

/// These disks as logical units 0, 1, ...
pub(crate) fn luns(disks: &[Disk]) -> Luns {
    Luns((0..).map(Lun).zip(disks.iter().cloned()).collect::<BTreeMap<_, _>>())
}

/// An initiator by a letter, through portal group 1.
pub(crate) fn nexus(letter: char) -> Nexus {
    Nexus::new(&format!("iqn.{letter},i,0x00000000000{}", letter as u32 % 10), 1, letter.into())
}

pub(crate) fn cdb(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// A command of this nexus to logical unit 0, and the data of its answer.
pub(crate) fn ask(luns: &Luns, nexus: &mut Nexus, bytes: &[u8]) -> (Plan, Vec<u8>) {
    let mut out = Vec::new();
    let plan = luns.plan([0; 8], &cdb(bytes), nexus, &mut out);
    (plan, out)
}

/// A command of nobody in particular to this disk.
pub(crate) fn plan(disk: &Disk, bytes: &[u8]) -> Plan {
    ask(&luns(std::slice::from_ref(disk)), &mut nexus('a'), bytes).0
}

/// What becomes of a command once its data is there.
pub(crate) fn finish(disk: &Disk, bytes: &[u8], data: &[u8]) -> Plan {
    luns(std::slice::from_ref(disk)).finish(Lun(0), &cdb(bytes), data, &nexus('a'), &nothing_to_save)
}

pub(crate) fn nothing_to_save(_: &Durable) -> Result<(), Sense> {
    Ok(())
}
