//! Any commands with any data, one after the other, of two initiators on two disks through two ports: what is
//! planned stays on the disks.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use scsi::{Action, Disk, Durable, Identity, Lun, Luns, Nexus, Plan, Provisioning, Sense};

fn disk(serial: &str) -> Disk {
    Disk {
        identity: Identity {
            vendor: "v".into(),
            product: "p".into(),
            revision: "1".into(),
            serial: serial.into(),
            target_name: "iqn.t".into(),
            naa: None,
            t10: None,
        },
        block_bytes: 512,
        blocks: 2048,
        read_only: false,
        is_restricted: false,
        removable: true,
        is_rotational: false,
        is_durable: true,
        write_cache: false,
        provisioning: Some(Provisioning { granularity_bytes: 65_536 }),
        step_bytes: None,
        best_bytes: None,
        physical_exponent: 3,
        ports: std::sync::Arc::new(scsi::ports::Ports::new(&[1, 2])),
        shared: std::sync::Arc::default(),
    }
}

fn is_inside(plan: &Plan) -> bool {
    let size = 2048 * 512;
    let fits = |at: u64, length: u64| at.checked_add(length).is_some_and(|end| end <= size);
    match plan {
        Plan::Read { offset_bytes, length_bytes, .. } | Plan::Write { offset_bytes, length_bytes, .. } => {
            fits(*offset_bytes, *length_bytes)
        }
        Plan::Medium { action, .. } => match action {
            Action::Fill { offset_bytes, length_bytes, .. }
            | Action::Compare { offset_bytes, length_bytes, .. } => fits(*offset_bytes, *length_bytes),
            Action::SelfTest { ranges } => {
                ranges.iter().all(|range| fits(range.offset_bytes, range.length_bytes))
            }
            Action::Unmap { ranges } => {
                ranges.iter().all(|range| fits(range.offset_bytes, range.length_bytes))
            }
            Action::CompareAndWrite { offset_bytes, data, .. }
            | Action::WriteAtomic { offset_bytes, data, .. }
            | Action::Or { offset_bytes, data, .. } => fits(*offset_bytes, data.len() as u64),
        },
        Plan::MappedStatus { offset_bytes, .. } => *offset_bytes < size,
        Plan::Copy { segments, .. } => segments
            .iter()
            .all(|s| fits(s.from.offset_bytes, s.length_bytes) && fits(s.to.offset_bytes, s.length_bytes)),
        _ => true,
    }
}

fuzz_target!(|data: &[u8]| {
    let luns = Luns(BTreeMap::from([(Lun(0), disk("a")), (Lun(1), disk("b"))]));
    let ports = [("iqn.a,i,0x000000000001", 1), ("iqn.b,i,0x000000000002", 2)];
    let mut nexuses = ports.map(|(port, group)| Nexus::new(port, group, group.into()));
    let (mut rest, mut out) = (data, Vec::new());
    // What a disk asks to be kept, which now and then cannot be.
    let kept = std::cell::RefCell::new((0_u8, Vec::new()));
    let save = |durable: &Durable| {
        let mut kept = kept.borrow_mut();
        kept.0 = kept.0.wrapping_add(1);
        if kept.0 % 4 == 3 {
            return Err(Sense::INTERNAL_FAILURE);
        }
        kept.1 = vec![durable.clone()];
        Ok(())
    };
    while let Some((header, behind)) = rest.split_first_chunk::<18>() {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&header[2..]);
        let nexus = &mut nexuses[usize::from(header[0] & 1)];
        out.clear();
        let lun = [0, header[0] >> 1 & 1, 0, 0, 0, 0, 0, 0];
        let plan = luns.plan(lun, &cdb, nexus, &mut out);
        assert!(is_inside(&plan), "{plan:?}");
        if let Plan::Check(sense) = &plan {
            assert!((8..=32).contains(&luns.encode(lun, sense).len()));
        }
        rest = behind;
        if let Plan::Take { lun, length_bytes } = plan {
            let count = (length_bytes as usize).min(behind.len()).min(usize::from(header[1]) * 16);
            let plan = luns.finish(lun, &cdb, &behind[..count], nexus, &save);
            assert!(is_inside(&plan), "{plan:?}");
            rest = &behind[count..];
        }
    }
    // What is kept can be read back.
    for durable in &kept.borrow().1 {
        luns.0.values().for_each(|disk| disk.shared.restore(durable));
    }
});
