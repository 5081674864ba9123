//! EXTENDED COPY (LID1) (SPC-4 6.4): copies data from disk to disk without moving it to the initiator.
//!
//! A copy names its disks by their designators. They are looked up only among the logical units that the initiator
//! sees, so a copy cannot read or write a disk that is hidden from it (CVE-2020-28374).

use std::collections::BTreeMap;

use crate::cdb::Extent;
use crate::command::{Command, Transfer};
use crate::copy_results::{BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSETS, IDENTIFICATION};
use crate::designator::designators;
use crate::disk::Disk;
use crate::limits::{COPY_BYTES_MAX, CSCDS_MAX, DESCRIPTORS_BYTES_MAX, SEGMENTS_MAX};
use crate::lun::Lun;
use crate::nexus::Nexus;
use crate::plan::{Place, Plan, Segment};
use crate::sense::{Sense, SenseKey};
use crate::status;

const HEADER_BYTES: usize = 16;
const CSCD_BYTES: usize = 32;

/// Returns how much data an EXTENDED COPY brings.
///
/// # Errors
/// The sense of a form that is not supported.
pub(crate) fn begin(lun: Lun, action: u8, parameter_bytes: u32) -> Result<Plan, Sense> {
    // LID4, tokens and the other third-party copies are not supported.
    if action != 0 {
        return Err(Sense::invalid_bit(1, 4));
    }
    match parameter_bytes {
        0 => Ok(Plan::Status(status::GOOD)),
        bytes if bytes as usize > HEADER_BYTES + 2 * DESCRIPTORS_BYTES_MAX as usize => {
            Err(Sense::PARAMETER_LENGTH)
        }
        bytes => Ok(Plan::Take { lun, length_bytes: bytes.into() }),
    }
}

fn word(data: &[u8], at: usize) -> u16 {
    data.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data.get(at..at + bytes).unwrap_or_default().iter().fold(0, |value, &b| value << 8 | u64::from(b))
}

/// UNREACHABLE COPY TARGET, and COPY TARGET DEVICE NOT REACHABLE.
const NO_SUCH_CSCD: Sense = Sense::new(SenseKey::CopyAborted, 0x08, 0x04);
const NOT_REACHABLE: Sense = Sense::new(SenseKey::CopyAborted, 0x0d, 0x02);

/// Plans a copy from its parameter list, received by `lun`, among the disks that the initiator sees.
///
/// # Errors
/// The sense of the first error in it; nothing is copied then.
pub(crate) fn finish(
    disks: &BTreeMap<Lun, Disk>,
    lun: Lun,
    data: &[u8],
    nexus: &Nexus,
) -> Result<Plan, Sense> {
    let length = Sense::PARAMETER_LENGTH;
    let header = data.first_chunk::<HEADER_BYTES>().ok_or(length)?;
    let (cscd_bytes, segment_bytes) = (usize::from(word(header, 2)), number(header, 8, 4) as usize);
    if cscd_bytes.saturating_add(segment_bytes) > DESCRIPTORS_BYTES_MAX as usize {
        return Err(length);
    }
    let cscds = data.get(HEADER_BYTES..HEADER_BYTES + cscd_bytes).ok_or(length)?;
    let behind = HEADER_BYTES + cscd_bytes;
    let segments = data.get(behind..behind + segment_bytes).ok_or(length)?;
    let (cscds, rest) = cscds.as_chunks::<CSCD_BYTES>();
    if !rest.is_empty() {
        return Err(length);
    }
    if cscds.len() > CSCDS_MAX.into() {
        // TOO MANY TARGET DESCRIPTORS.
        return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x06));
    }
    if cscds.iter().any(|cscd| cscd[0] != IDENTIFICATION) {
        // UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
        return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x07));
    }
    let mut planned = Vec::new();
    let (mut rest, mut count, mut total) = (segments, 0, 0_u64);
    while !rest.is_empty() {
        let (this, behind) = rest.split_at_checked(4 + usize::from(word(rest, 2))).ok_or(length)?;
        count += 1;
        if count > SEGMENTS_MAX {
            // TOO MANY SEGMENT DESCRIPTORS.
            return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x08));
        }
        if let Some(segment) = segment(disks, cscds, this, nexus)? {
            total = total.saturating_add(segment.length_bytes);
            planned.push(segment);
        }
        rest = behind;
    }
    if total > COPY_BYTES_MAX.into() {
        return Err(Sense::invalid_parameter(behind as u16));
    }
    // LIST ID USAGE 00b keeps the result.
    let list_identifier = (header[1] >> 3 & 3 == 0).then_some(header[0]);
    Ok(Plan::Copy { lun, segments: planned, list_identifier })
}

/// Decodes and checks one segment descriptor; `None` if it copies nothing.
fn segment(
    disks: &BTreeMap<Lun, Disk>,
    cscds: &[[u8; CSCD_BYTES]],
    descriptor: &[u8],
    nexus: &Nexus,
) -> Result<Option<Segment>, Sense> {
    let code = descriptor[0];
    let wanted = match code {
        BLOCK_TO_BLOCK => 28,
        BLOCK_TO_BLOCK_OFFSETS => 32,
        // UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
        _ => return Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x09)),
    };
    if descriptor.len() != wanted {
        return Err(Sense::PARAMETER_LENGTH);
    }
    // A copy may do to each disk what this nexus may do with a READ or a WRITE of its own.
    let disk = |at: usize, access: Command| {
        let cscd = cscds.get(usize::from(word(descriptor, at))).ok_or(NO_SUCH_CSCD)?;
        let (lun, disk) = find(disks, cscd).ok_or(NOT_REACHABLE)?;
        if disk.admits(&access, nexus) { Ok((lun, disk)) } else { Err(NOT_REACHABLE) }
    };
    let (from_lun, from) = disk(4, Command::Read(Transfer::default()))?;
    let (to_lun, to) = disk(6, Command::Write(Transfer::default()))?;
    if to.is_read_only() {
        return Err(Sense { key: SenseKey::CopyAborted, ..Sense::WRITE_PROTECTED });
    }
    let (from_lba, to_lba) = (number(descriptor, 12, 8), number(descriptor, 20, 8));
    let length_bytes = if code == BLOCK_TO_BLOCK_OFFSETS {
        number(descriptor, 8, 4)
    } else {
        // DC selects whose blocks are counted: the destination's or the source's.
        let counted = if descriptor[1] & 0x02 != 0 { to } else { from };
        number(descriptor, 10, 2) * u64::from(counted.block_bytes)
    };
    let place = |disk: &Disk, lba: u64, within: usize| {
        let within = if code == BLOCK_TO_BLOCK_OFFSETS { u64::from(word(descriptor, within)) } else { 0 };
        let block = u64::from(disk.block_bytes.max(1));
        let blocks =
            u32::try_from((within + length_bytes).div_ceil(block)).map_err(|_| Sense::COPY_ABORTED)?;
        let range = disk
            .range(Extent { lba, blocks })
            .map_err(|sense| Sense { information: sense.information, ..Sense::COPY_ABORTED })?;
        Ok::<u64, Sense>(range.offset_bytes + within)
    };
    let from = Place { lun: from_lun, offset_bytes: place(from, from_lba, 28)? };
    let to = Place { lun: to_lun, offset_bytes: place(to, to_lba, 30)? };
    let segment = Segment { from, to, length_bytes };
    Ok((length_bytes > 0).then_some(segment))
}

/// Finds the logical unit of an identification descriptor among those that the initiator sees.
fn find<'a>(disks: &'a BTreeMap<Lun, Disk>, cscd: &[u8; CSCD_BYTES]) -> Option<(Lun, &'a Disk)> {
    let (code_set, designator_type) = (cscd[4] & 0x0f, cscd[5] & 0x0f);
    let designator = cscd.get(8..8 + usize::from(cscd[7]).min(20))?;
    let named = disks.iter().find(|(_, disk)| {
        designators(disk)
            .iter()
            .any(|own| own.code_set == code_set && own.kind == designator_type && own.value == designator)
    });
    named.map(|(lun, disk)| (*lun, disk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designator::Designator;
    use crate::disk::example;

    /// A disk of its own name.
    fn disk(serial: &str) -> Disk {
        let mut disk =
            Disk { ports: std::sync::Arc::default(), shared: std::sync::Arc::default(), ..example() };
        serial.clone_into(&mut disk.identity.serial);
        disk
    }

    fn cscd(disk: &Disk) -> Vec<u8> {
        let [Designator { code_set, kind: designator_type, value: name }, _] = designators(disk);
        let mut data = vec![0; CSCD_BYTES];
        (data[0], data[4], data[5], data[7]) = (IDENTIFICATION, code_set, designator_type, name.len() as u8);
        data[8..8 + name.len()].copy_from_slice(&name);
        data
    }

    fn list(cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (cscds, segments) = (cscds.concat(), segments.concat());
        let mut data =
            vec![7, 0, 0, cscds.len() as u8, 0, 0, 0, 0, 0, 0, 0, segments.len() as u8, 0, 0, 0, 0];
        data.extend(cscds);
        data.extend(segments);
        data
    }

    /// `count` blocks of the first disk from block 1 on, to block 9 of the second.
    fn block_to_block(to: u8, count: u16) -> Vec<u8> {
        let mut data = vec![BLOCK_TO_BLOCK, 0, 0, 24, 0, 0, 0, to, 0, 0];
        data.extend(count.to_be_bytes());
        data.extend(1_u64.to_be_bytes());
        data.extend(9_u64.to_be_bytes());
        data
    }

    #[test]
    fn plans_a_copy_and_reports_its_result() {
        let (a, b) = (disk("a"), disk("b"));
        let luns = BTreeMap::from([(Lun(0), a.clone()), (Lun(4), b.clone())]);
        let nexus = Nexus::new("iqn.a", 1, 1);
        let data = list(&[cscd(&a), cscd(&b)], &[block_to_block(1, 3)]);
        let segment = Segment {
            from: Place { lun: Lun(0), offset_bytes: 512 },
            to: Place { lun: Lun(4), offset_bytes: 9 * 512 },
            length_bytes: 1536,
        };
        let plan = finish(&luns, Lun(0), &data, &nexus);
        assert_eq!(plan, Ok(Plan::Copy { lun: Lun(0), segments: vec![segment], list_identifier: Some(7) }));
        a.shared.copies.ended(&nexus, 7, &[segment], true);
        let mut out = Vec::new();
        let mut status = |nexus: &Nexus| a.shared.copies.report(0, 7, nexus, 512, &mut out);
        assert_eq!(status(&Nexus::new("iqn.b", 1, 2)), Err(Sense::invalid_field(2)));
        assert_eq!(status(&nexus), Ok(()));
        assert_eq!(status(&nexus), Err(Sense::invalid_field(2)), "reported once");
        assert_eq!(out, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 6, 0]);
    }

    #[test]
    fn a_hidden_disk_is_not_reachable_by_a_copy() {
        let (mine, hidden) = (disk("mine"), disk("hidden"));
        let data = list(&[cscd(&hidden), cscd(&mine)], &[block_to_block(1, 3)]);
        let nexus = Nexus::new("iqn.a", 1, 1);
        let all = BTreeMap::from([(Lun(0), mine.clone()), (Lun(1), hidden)]);
        assert!(finish(&all, Lun(0), &data, &nexus).is_ok());
        let view = BTreeMap::from([(Lun(0), mine)]);
        assert_eq!(finish(&view, Lun(0), &data, &nexus), Err(NOT_REACHABLE));
    }

    #[test]
    fn invalid_copy_lists_copy_nothing() {
        let a = disk("a");
        let luns = BTreeMap::from([(Lun(0), a.clone())]);
        let nexus = Nexus::new("iqn.a", 1, 1);
        let run = |data: &[u8]| finish(&luns, Lun(0), data, &nexus).map(|_| ()).unwrap_err();
        let good = list(&[cscd(&a)], &[block_to_block(0, 3)]);
        assert_eq!(run(&good[..good.len() - 1]), Sense::PARAMETER_LENGTH);
        assert_eq!(run(&list(&[cscd(&a)], &[block_to_block(1, 3)])), NO_SUCH_CSCD);
        assert_eq!(run(&list(&[cscd(&a)], &[block_to_block(0, 5000)])).key, SenseKey::CopyAborted);
        let mut other = good.clone();
        other[HEADER_BYTES] = 0xe0;
        assert_eq!((run(&other).asc, run(&other).ascq), (0x26, 0x07));
        let mut stream = good.clone();
        stream[HEADER_BYTES + CSCD_BYTES] = 0x03;
        assert_eq!((run(&stream).asc, run(&stream).ascq), (0x26, 0x09));
        // Reserved by another initiator.
        assert_eq!(a.shared.reservations.reserve(&Nexus::new("iqn.b", 1, 2)), crate::status::GOOD);
        assert_eq!(run(&good), NOT_REACHABLE);
    }
}
