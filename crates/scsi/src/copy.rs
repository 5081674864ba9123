//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS (SPC-4 6.4, 6.24): data goes from disk to disk without
//! travelling to the initiator.
//!
//! A copy names its disks by their designators, and they are looked for among the logical units that the
//! initiator sees and nowhere else: what is hidden from it cannot be read or written by a copy either
//! (CVE-2020-28374).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::cdb::{Cdb, Extent, be32, opcode};
use crate::disk::Disk;
use crate::lun::Lun;
use crate::luns::{Luns, Plan, range};
use crate::nexus::Nexus;
use crate::sense::{Sense, SenseKey};
use crate::vpd;

/// Most CSCD descriptors (copy sources and copy destinations).
pub(crate) const CSCDS_MAX: u16 = 16;
/// Most segment descriptors.
pub(crate) const SEGMENTS_MAX: u16 = 32;
/// Most bytes of all descriptors.
pub(crate) const DESCRIPTORS_BYTES_MAX: u32 = 2048;
/// Most bytes that one command copies: what is done in a fraction of a second.
pub(crate) const COPY_BYTES_MAX: u32 = 256 << 20;
/// Copies that can run at a time: more than sessions need.
pub(crate) const CONCURRENT_MAX: u8 = 255;
/// The descriptor types: block to block, block to block with offsets, identification.
pub(crate) const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_OFFSETS, IDENTIFICATION];

const HEADER_BYTES: usize = 16;
const CSCD_BYTES: usize = 32;
const BLOCK_TO_BLOCK: u8 = 0x02;
const BLOCK_TO_BLOCK_OFFSETS: u8 = 0x0a;
const IDENTIFICATION: u8 = 0xe4;

/// A range to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// From which logical unit, and its first byte.
    pub from: (Lun, u64),
    /// To which logical unit, and its first byte.
    pub to: (Lun, u64),
    /// How many.
    pub length_bytes: u64,
}

/// How the copies of a disk ended, for RECEIVE COPY RESULTS.
#[derive(Debug, Default)]
pub struct Copies(Mutex<VecDeque<Ended>>);

#[derive(Debug)]
struct Ended {
    nexus: String,
    list_identifier: u8,
    segments: u16,
    bytes: u64,
    is_whole: bool,
}

/// Results that are kept at most; the oldest go first.
const ENDED_MAX: usize = 256;

impl Copies {
    /// Notes the end of a copy.
    pub fn ended(&self, nexus: &Nexus, list_identifier: u8, copied: &[Segment], is_whole: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| e.nexus != nexus.name() || e.list_identifier != list_identifier);
        if all.len() == ENDED_MAX {
            all.pop_front();
        }
        all.push_back(Ended {
            nexus: nexus.name().to_owned(),
            list_identifier,
            segments: copied.len() as u16,
            bytes: copied.iter().map(|segment| segment.length_bytes).sum(),
            is_whole,
        });
    }

    /// COPY STATUS: told once.
    fn status(&self, nexus: &Nexus, list_identifier: u8, out: &mut Vec<u8>) -> Result<(), Sense> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|e| e.nexus == nexus.name() && e.list_identifier == list_identifier);
        let ended = found.and_then(|place| all.remove(place)).ok_or(Sense::invalid_field(2))?;
        let [high, low] = ended.segments.to_be_bytes();
        // In bytes, or in KiB where those do not fit.
        let (unit, count) = match u32::try_from(ended.bytes) {
            Ok(bytes) => (0, bytes),
            Err(_) => (1, u32::try_from(ended.bytes >> 10).unwrap_or(u32::MAX)),
        };
        out.extend_from_slice(&[0, 0, 0, 8, if ended.is_whole { 1 } else { 2 }, high, low, unit]);
        out.extend_from_slice(&count.to_be_bytes());
        Ok(())
    }
}

/// RECEIVE COPY RESULTS: COPY STATUS (LID1) and OPERATING PARAMETERS.
///
/// # Errors
/// The sense of a service action that does not exist, or a copy that nobody made.
pub(crate) fn results(disk: &Disk, cdb: &Cdb, nexus: &Nexus, out: &mut Vec<u8>) -> Result<(), Sense> {
    match cdb[1] & 0x1f {
        0 => disk.shared.copies.status(nexus, cdb[2], out),
        3 => {
            let mut data = [0_u8; 44];
            data[3] = (44 + DESCRIPTOR_TYPES.len() - 4) as u8;
            // SNLID: no list identifier need be given.
            data[4] = 1;
            data[8..10].copy_from_slice(&CSCDS_MAX.to_be_bytes());
            data[10..12].copy_from_slice(&SEGMENTS_MAX.to_be_bytes());
            data[12..16].copy_from_slice(&DESCRIPTORS_BYTES_MAX.to_be_bytes());
            data[16..20].copy_from_slice(&COPY_BYTES_MAX.to_be_bytes());
            data[34..36].copy_from_slice(&u16::from(CONCURRENT_MAX).to_be_bytes());
            data[36] = CONCURRENT_MAX;
            data[37] = disk.block_bytes.max(1).ilog2() as u8;
            data[43] = DESCRIPTOR_TYPES.len() as u8;
            out.extend_from_slice(&data);
            out.extend_from_slice(&DESCRIPTOR_TYPES);
            Ok(())
        }
        _ => Err(Sense::invalid_bit(1, 4)),
    }
}

/// How much data an EXTENDED COPY brings.
///
/// # Errors
/// The sense of a form that is not offered.
pub(crate) fn begin(lun: Lun, cdb: &Cdb) -> Result<Plan, Sense> {
    // LID4, tokens and all else of third-party copies are not offered.
    if cdb[1] & 0x1f != 0 {
        return Err(Sense::invalid_bit(1, 4));
    }
    match be32(cdb, 10) {
        0 => Ok(Plan::Status(crate::status::GOOD)),
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

/// What to copy, from the parameter list.
///
/// # Errors
/// The sense of what is wrong with it; nothing was copied then.
pub(crate) fn finish(luns: &Luns, lun: Lun, data: &[u8], nexus: &Nexus) -> Result<Plan, Sense> {
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
        if let Some(segment) = segment(luns, cscds, this, nexus)? {
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

/// One segment, checked on both sides; nothing when it copies nothing.
fn segment(
    luns: &Luns,
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
    let disk = |at: usize, code: u8| {
        let cscd = cscds.get(usize::from(word(descriptor, at))).ok_or(NO_SUCH_CSCD)?;
        let (lun, disk) = find(luns, cscd).ok_or(NOT_REACHABLE)?;
        let mut cdb = [0; 16];
        cdb[0] = code;
        let is_free = !disk.shared.reservations.conflicts(&cdb, nexus.name())
            && !disk.shared.loading.is_ejected()
            && disk.ports.admit(nexus.portal_group(), &cdb).is_ok();
        if is_free { Ok((lun, disk)) } else { Err(NOT_REACHABLE) }
    };
    let (from_lun, from) = disk(4, opcode::READ_10)?;
    let (to_lun, to) = disk(6, opcode::WRITE_10)?;
    if to.is_read_only() {
        return Err(Sense { key: SenseKey::CopyAborted, ..Sense::WRITE_PROTECTED });
    }
    let (from_lba, to_lba) = (number(descriptor, 12, 8), number(descriptor, 20, 8));
    let length_bytes = if code == BLOCK_TO_BLOCK_OFFSETS {
        number(descriptor, 8, 4)
    } else {
        // DC says whose blocks are counted.
        let counted = if descriptor[1] & 0x02 != 0 { to } else { from };
        number(descriptor, 10, 2) * u64::from(counted.block_bytes)
    };
    let place = |disk: &Disk, lba: u64, within: usize| {
        let within = if code == BLOCK_TO_BLOCK_OFFSETS { u64::from(word(descriptor, within)) } else { 0 };
        let block = u64::from(disk.block_bytes.max(1));
        let blocks =
            u32::try_from((within + length_bytes).div_ceil(block)).map_err(|_| Sense::COPY_ABORTED)?;
        let (offset, _) = range(disk, Extent { lba, blocks })
            .map_err(|sense| Sense { information: sense.information, ..Sense::COPY_ABORTED })?;
        Ok::<u64, Sense>(offset + within)
    };
    let (from_place, to_place) = (place(from, from_lba, 28)?, place(to, to_lba, 30)?);
    let segment = Segment { from: (from_lun, from_place), to: (to_lun, to_place), length_bytes };
    Ok((length_bytes > 0).then_some(segment))
}

/// The logical unit that an identification descriptor names, among those that the initiator sees.
fn find<'a>(luns: &'a Luns, cscd: &[u8; CSCD_BYTES]) -> Option<(Lun, &'a Disk)> {
    let (code_set, designator_type) = (cscd[4] & 0x0f, cscd[5] & 0x0f);
    let designator = cscd.get(8..8 + usize::from(cscd[7]).min(20))?;
    let named = luns.0.iter().find(|(_, disk)| {
        vpd::names(disk)
            .iter()
            .any(|name| name.0 == code_set && name.1 == designator_type && name.2 == designator)
    });
    named.map(|(lun, disk)| (*lun, disk))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::disk::example;

    /// A disk of its own name.
    fn disk(serial: &str) -> Disk {
        let mut disk =
            Disk { ports: std::sync::Arc::default(), shared: std::sync::Arc::default(), ..example() };
        serial.clone_into(&mut disk.identity.serial);
        disk
    }

    fn cscd(disk: &Disk) -> Vec<u8> {
        let (code_set, designator_type, name) = vpd::names(disk).remove(0);
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
    fn a_copy_between_two_disks_and_what_became_of_it() {
        let (a, b) = (disk("a"), disk("b"));
        let luns = Luns(BTreeMap::from([(Lun(0), a.clone()), (Lun(4), b.clone())]));
        let nexus = Nexus::new("iqn.a", 1, 1);
        let data = list(&[cscd(&a), cscd(&b)], &[block_to_block(1, 3)]);
        let segment = Segment { from: (Lun(0), 512), to: (Lun(4), 9 * 512), length_bytes: 1536 };
        let plan = finish(&luns, Lun(0), &data, &nexus);
        assert_eq!(plan, Ok(Plan::Copy { lun: Lun(0), segments: vec![segment], list_identifier: Some(7) }));
        a.shared.copies.ended(&nexus, 7, &[segment], true);
        let (mut cdb, mut out) = ([0; 16], Vec::new());
        cdb[2] = 7;
        assert_eq!(results(&a, &cdb, &Nexus::new("iqn.b", 1, 2), &mut out), Err(Sense::invalid_field(2)));
        assert_eq!(results(&a, &cdb, &nexus, &mut out), Ok(()));
        assert_eq!(out, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 6, 0]);
        assert_eq!(results(&a, &cdb, &nexus, &mut out), Err(Sense::invalid_field(2)), "told once");
    }

    #[test]
    fn a_disk_that_the_initiator_does_not_see_is_not_reachable() {
        let (mine, hidden) = (disk("mine"), disk("hidden"));
        let data = list(&[cscd(&hidden), cscd(&mine)], &[block_to_block(1, 3)]);
        let nexus = Nexus::new("iqn.a", 1, 1);
        let all = Luns(BTreeMap::from([(Lun(0), mine.clone()), (Lun(1), hidden)]));
        assert!(finish(&all, Lun(0), &data, &nexus).is_ok());
        let view = Luns(BTreeMap::from([(Lun(0), mine)]));
        assert_eq!(finish(&view, Lun(0), &data, &nexus), Err(NOT_REACHABLE));
    }

    #[test]
    fn lists_that_are_wrong_copy_nothing() {
        let a = disk("a");
        let luns = Luns(BTreeMap::from([(Lun(0), a.clone())]));
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
        // Reserved by somebody else.
        assert_eq!(a.shared.reservations.reserve(&Nexus::new("iqn.b", 1, 2)), crate::status::GOOD);
        assert_eq!(run(&good), NOT_REACHABLE);
    }
}
