//! MODE SENSE and MODE SELECT (SPC-4 6.9 to 6.12; pages: SPC-4 7.5, SBC-3 6.5).

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

use crate::cdb::{Cdb, be16};
use crate::disk::{Disk, Durable};
use crate::sense::Sense;

/// What initiators can select: on the control page, and on the caching page of a disk with a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeValues {
    /// SWP: writes are refused.
    pub write_protected: bool,
    /// D_SENSE: sense data has the descriptor format.
    pub descriptor_sense: bool,
    /// WCE is 0 on a disk that has a volatile cache: a write is acknowledged when it is on stable storage.
    #[serde(default)]
    pub write_through: bool,
}

/// The mode parameters of a disk, one set for all initiators.
#[derive(Debug, Default)]
pub struct ModeParameters {
    current: AtomicU8,
    /// The saved values, once there are any.
    saved: AtomicU8,
}

impl ModeValues {
    const PROTECTED: u8 = 1;
    const DESCRIPTOR: u8 = 2;
    const PRESENT: u8 = 4;
    const THROUGH: u8 = 8;

    fn bits(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.write_protected, Self::PROTECTED)
            | bit(self.descriptor_sense, Self::DESCRIPTOR)
            | bit(self.write_through, Self::THROUGH)
    }

    fn of(bits: u8) -> Self {
        let has = |bit: u8| bits & bit != 0;
        Self {
            write_protected: has(Self::PROTECTED),
            descriptor_sense: has(Self::DESCRIPTOR),
            write_through: has(Self::THROUGH),
        }
    }
}

impl ModeParameters {
    /// What is in force.
    #[inline]
    #[must_use]
    pub fn values(&self) -> ModeValues {
        ModeValues::of(self.current.load(Ordering::Relaxed))
    }

    /// What was saved, if anything was.
    #[must_use]
    pub fn saved(&self) -> Option<ModeValues> {
        let bits = self.saved.load(Ordering::Relaxed);
        (bits & ModeValues::PRESENT != 0).then_some(ModeValues::of(bits))
    }

    /// Saved values come back.
    pub(crate) fn restore(&self, values: ModeValues) {
        self.save(values);
        self.current.store(values.bits(), Ordering::Relaxed);
    }

    fn save(&self, values: ModeValues) {
        self.saved.store(values.bits() | ModeValues::PRESENT, Ordering::Relaxed);
    }
}

/// Which values are asked for (PC).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
    Saved,
}

/// The pages there are, ascending.
const PAGES: [u8; 4] = [0x01, 0x08, 0x0a, 0x1c];

/// Appends the answer to MODE SENSE (6) or, with `long`, (10).
///
/// # Errors
/// The sense of a page or a form that does not exist.
pub fn sense(disk: &Disk, cdb: &Cdb, long: bool, out: &mut Vec<u8>) -> Result<(), Sense> {
    let values = match cdb[2] >> 6 {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ if disk.is_durable => Values::Saved,
        _ => return Err(Sense::NO_SAVING),
    };
    let (code, subpage) = (cdb[2] & 0x3f, cdb[3]);
    let wanted: &[u8] = match (code, subpage) {
        (0x3f, 0x00 | 0xff) => &PAGES,
        (0x3f, _) => return Err(Sense::invalid_field(3)),
        (code, subpage) => {
            // The page is judged before its subpage: the first wrong field is the one to point at.
            let page = PAGES.iter().find(|&&page| page == code).ok_or(Sense::invalid_bit(2, 5))?;
            if !matches!(subpage, 0x00 | 0xff) {
                return Err(Sense::invalid_field(3));
            }
            std::slice::from_ref(page)
        }
    };
    // LLBAA only exists in the long form.
    let long_lba = long && cdb[1] & 0x10 != 0;
    let descriptor = if cdb[1] & 0x08 != 0 { Vec::new() } else { block_descriptor(disk, long_lba) };
    let mut pages = Vec::new();
    for &code in wanted {
        page(disk, code, values, &mut pages);
    }
    // WP and DPOFUA.
    let specific = if disk.is_read_only() { 0x80 } else { 0 } | 0x10;
    if long {
        let length = (6 + descriptor.len() + pages.len()) as u16;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0, specific, u8::from(long_lba), 0]);
        out.extend_from_slice(&(descriptor.len() as u16).to_be_bytes());
    } else {
        out.extend_from_slice(&[
            (3 + descriptor.len() + pages.len()) as u8,
            0,
            specific,
            descriptor.len() as u8,
        ]);
    }
    out.extend_from_slice(&descriptor);
    out.extend_from_slice(&pages);
    Ok(())
}

/// ALLOCATION LENGTH of either form.
#[must_use]
pub fn allocation(cdb: &Cdb, long: bool) -> usize {
    if long { be16(cdb, 7).into() } else { cdb[4].into() }
}

/// Block count and length, in the short or the long form (SBC-3 6.5.2).
fn block_descriptor(disk: &Disk, long: bool) -> Vec<u8> {
    let mut data = Vec::with_capacity(16);
    if long {
        data.extend_from_slice(&disk.blocks.to_be_bytes());
        data.extend_from_slice(&[0; 4]);
    } else {
        data.extend_from_slice(&u32::try_from(disk.blocks).unwrap_or(u32::MAX).to_be_bytes());
    }
    data.extend_from_slice(&disk.block_bytes.to_be_bytes());
    data
}

/// How many bytes of parameters MODE SELECT brings.
///
/// # Errors
/// The sense of a form that is not offered.
pub(crate) fn select_bytes(disk: &Disk, cdb: &Cdb, long: bool) -> Result<u64, Sense> {
    // SP: where nothing is kept, nothing is saved. PF: pages have the format of the standard.
    if cdb[1] & 0x01 != 0 && !disk.is_durable {
        return Err(Sense::invalid_bit(1, 0));
    }
    if cdb[1] & 0x10 == 0 {
        return Err(Sense::invalid_bit(1, 4));
    }
    Ok(allocation(cdb, long) as u64)
}

/// Takes the parameters of MODE SELECT: every value must be as it is, but for those that can be
/// changed. `saves` is SP; `save` keeps what is to be kept. Whether any value is another than before.
///
/// # Errors
/// The sense of what is wrong with them, or of `save`; nothing is changed then.
pub(crate) fn select(
    disk: &Disk,
    long: bool,
    saves: bool,
    data: &[u8],
    save: &dyn Fn(&Durable) -> Result<(), Sense>,
) -> Result<bool, Sense> {
    let descriptors = if long {
        8 + usize::from(u16::from_be_bytes(
            data.get(6..8).and_then(|b| b.first_chunk().copied()).ok_or(Sense::PARAMETER_LENGTH)?,
        ))
    } else {
        4 + usize::from(*data.get(3).ok_or(Sense::PARAMETER_LENGTH)?)
    };
    let mode = &disk.shared.mode;
    let (mut at, mut selected) = (descriptors, mode.values());
    while let Some(&[code, length]) = data.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        let place = u16::try_from(at).unwrap_or(u16::MAX);
        let body = data.get(at + 2..at + 2 + usize::from(length)).ok_or(Sense::PARAMETER_LENGTH)?;
        let (code, mut there) = (code & 0x3f, Vec::new());
        if !PAGES.contains(&code) {
            return Err(Sense::invalid_parameter(place));
        }
        page(disk, code, Values::Current, &mut there);
        let same = |(index, (new, now)): (usize, (&u8, &u8))| {
            let changeable = changeable(disk, code).get(index).copied().unwrap_or(0);
            (new ^ now) & !changeable == 0
        };
        if body.len() != there.len() - 2 || !body.iter().zip(&there[2..]).enumerate().all(same) {
            return Err(Sense::invalid_parameter(place));
        }
        if code == CONTROL {
            selected.write_protected = body[2] & SWP != 0;
            selected.descriptor_sense = body[0] & D_SENSE != 0;
        }
        if code == CACHING {
            selected.write_through = disk.write_cache && body[0] & WCE == 0;
        }
        at += 2 + body.len();
    }
    if at != data.len() {
        return Err(Sense::PARAMETER_LENGTH);
    }
    let take = || mode.current.swap(selected.bits(), Ordering::Relaxed) != selected.bits();
    if !saves {
        return Ok(take());
    }
    let _saving = disk.shared.saving();
    save(&Durable { mode: Some(selected), reservations: disk.shared.reservations.durable() })?;
    mode.save(selected);
    Ok(take())
}

/// The caching and the control page, and their bits that can be changed.
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

/// Which bits of a page can be changed, by byte behind its header.
fn changeable(disk: &Disk, code: u8) -> &'static [u8] {
    match code {
        CACHING if disk.write_cache => &[WCE],
        CONTROL => &[D_SENSE, 0, SWP],
        _ => &[],
    }
}

/// One page. Changeable values are ones where something can be changed, and zeros elsewhere.
fn page(disk: &Disk, code: u8, values: Values, out: &mut Vec<u8>) {
    let mode = &disk.shared.mode;
    let shown = match values {
        Values::Current => mode.values(),
        Values::Saved => mode.saved().unwrap_or_default(),
        Values::Default | Values::Changeable => ModeValues::default(),
    };
    let mut body: Vec<u8> = match code {
        // Caching: WCE is the truth about the store, and about what is done with its cache.
        CACHING => {
            let mut body = vec![0; 18];
            body[0] = if disk.write_cache && !shown.write_through { WCE } else { 0 };
            body
        }
        // Control: QUEUE ALGORITHM MODIFIER 1, for commands of several connections run in any order.
        0x0a => {
            let mut body = vec![0; 10];
            body[1] = 0x10;
            body[0] = if shown.descriptor_sense { D_SENSE } else { 0 };
            body[2] = if shown.write_protected { SWP } else { 0 };
            body
        }
        // Read-Write Error Recovery, and Informational Exceptions Control: nothing is switched on.
        _ => vec![0; 10],
    };
    if values == Values::Changeable {
        body.fill(0);
        let bits = changeable(disk, code);
        body[..bits.len()].copy_from_slice(bits);
    }
    // PS: the page can be saved.
    out.push(if disk.is_durable { code | 0x80 } else { code });
    out.push(body.len() as u8);
    out.append(&mut body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::example;

    fn answer(disk: &Disk, bytes: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        let mut out = Vec::new();
        sense(disk, &cdb, bytes[0] == 0x5a, &mut out).map(|()| out)
    }

    fn select(disk: &Disk, long: bool, saves: bool, list: &[u8]) -> Result<(), Sense> {
        super::select(disk, long, saves, list, &|_| Ok(())).map(|_| ())
    }

    const RECOVERY: [u8; 12] = [0x01, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const CACHING: [u8; 20] = [0x08, 18, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const CONTROL: [u8; 12] = [0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
    const EXCEPTIONS: [u8; 12] = [0x1c, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn golden_bytes_of_all_pages_in_the_short_form() {
        let disk = Disk { write_cache: true, read_only: true, ..example() };
        let header = [67, 0, 0x90, 8, 0, 0, 8, 0, 0, 0, 2, 0];
        let all = [&header[..], &RECOVERY, &CACHING, &CONTROL, &EXCEPTIONS].concat();
        for subpage in [0x00, 0xff] {
            assert_eq!(answer(&disk, &[0x1a, 0, 0x3f, subpage, 255]), Ok(all.clone()));
        }
        let bare = [&[59, 0, 0x90, 0][..], &all[12..]].concat();
        assert_eq!(answer(&disk, &[0x1a, 0x08, 0x3f, 0, 255]), Ok(bare), "DBD leaves the descriptor out");
    }

    #[test]
    fn golden_bytes_of_one_page_with_the_long_descriptor() {
        let disk = Disk { blocks: 1 << 33, ..example() };
        let header = [0, 34, 0, 0x10, 1, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
        let page = [&header[..], &CONTROL].concat();
        assert_eq!(answer(&disk, &[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 1, 0]), Ok(page));
        // The short descriptor has no room for the count; LLBAA has no meaning in the short form.
        let short = answer(&disk, &[0x1a, 0x10, 0x0a, 0, 255]).unwrap();
        assert_eq!(short[..12], [23, 0, 0x10, 8, 255, 255, 255, 255, 0, 0, 2, 0]);
    }

    #[test]
    fn what_is_changeable_is_said_and_the_default_is_what_is() {
        let disk = Disk { write_cache: true, ..example() };
        let page = |control: u8| answer(&disk, &[0x1a, 0x08, control | 0x08, 0, 255]).unwrap()[4..].to_vec();
        assert_eq!(page(0x00), CACHING);
        assert_eq!(page(0x40), [&[0x08, 18, 0x04][..], &[0; 17]].concat(), "the cache can be switched off");
        assert_eq!(page(0x80), CACHING);
    }

    #[test]
    fn only_swp_can_be_selected_and_it_protects() {
        let disk = example();
        let list = |swp: u8, other: u8| {
            let mut list = vec![0, 0, 0, 0];
            list.extend_from_slice(&CONTROL);
            (list[4 + 4], list[4 + 5]) = (swp, other);
            list
        };
        let select = |disk, long, list: &[u8]| select(disk, long, false, list);
        assert_eq!(select(&disk, false, &list(0x08, 0)), Ok(()));
        assert!(disk.is_read_only());
        assert_eq!(
            answer(&disk, &[0x1a, 0x08, 0x0a, 0, 255]).unwrap()[2..9],
            [0x90, 0, 0x0a, 10, 0, 0x10, 0x08]
        );
        assert_eq!(answer(&disk, &[0x1a, 0x08, 0x4a, 0, 255]).unwrap()[4..9], [0x0a, 10, 4, 0, 0x08]);
        assert_eq!(select(&disk, false, &list(0, 1)), Err(Sense::invalid_parameter(4)));
        assert!(disk.is_read_only(), "nothing is changed by a wrong list");
        assert_eq!(select(&disk, false, &list(0, 0)[..9]), Err(Sense::PARAMETER_LENGTH));
        assert_eq!(select(&disk, false, &list(0, 0)), Ok(()));
        assert!(!disk.is_read_only());
        let mut cdb = [0; 16];
        (cdb[1], cdb[4]) = (0x11, 16);
        assert_eq!(select_bytes(&disk, &cdb, false), Err(Sense::invalid_bit(1, 0)), "SP");
    }

    #[test]
    fn a_cache_can_be_switched_off_where_there_is_one() {
        let list = |wce: u8| [&[0, 0, 0, 0, 0x08, 18, wce][..], &[0; 17]].concat();
        let disk = Disk { write_cache: true, ..example() };
        assert_eq!(select(&disk, false, false, &list(0)), Ok(()));
        assert!(disk.shared.mode.values().write_through);
        assert_eq!(answer(&disk, &[0x1a, 0x08, 0x08, 0, 255]).unwrap()[4..7], [0x08, 18, 0]);
        assert_eq!(select(&disk, false, false, &list(WCE)), Ok(()));
        assert!(!disk.shared.mode.values().write_through);
        assert_eq!(select(&example(), false, false, &list(WCE)), Err(Sense::invalid_parameter(4)));
    }

    #[test]
    fn what_is_saved_comes_back_and_what_is_not_does_not() {
        let disk = Disk { is_durable: true, ..example() };
        let list = |d_sense: u8| [&[0, 0, 0, 0, 0x0a, 10, d_sense, 0x10][..], &[0; 8]].concat();
        assert_eq!(select(&disk, false, true, &list(D_SENSE)), Ok(()));
        assert_eq!(select(&disk, false, false, &list(0)), Ok(()));
        let control = |pc: u8| answer(&disk, &[0x1a, 0x08, pc | 0x0a, 0, 255]).unwrap()[4..8].to_vec();
        assert_eq!(control(0x00), [0x8a, 10, 0, 0x10]);
        assert_eq!(control(0xc0), [0x8a, 10, 4, 0x10], "saved");
        let after = Disk { shared: std::sync::Arc::default(), ..disk.clone() };
        after.shared.restore(&Durable { mode: disk.shared.mode.saved(), reservations: None });
        assert!(after.shared.mode.values().descriptor_sense);
    }

    #[test]
    fn parameters_that_cannot_be_saved_are_not_in_force() {
        let disk = Disk { is_durable: true, ..example() };
        let list = [&[0, 0, 0, 0, 0x0a, 10, D_SENSE, 0x10][..], &[0; 8]].concat();
        let failed = super::select(&disk, false, true, &list, &|kept| {
            assert!(kept.mode.is_some_and(|mode| mode.descriptor_sense), "what would be in force is saved");
            Err(Sense::INTERNAL_FAILURE)
        });
        assert_eq!(failed, Err(Sense::INTERNAL_FAILURE));
        assert!(!disk.shared.mode.values().descriptor_sense && disk.shared.mode.saved().is_none());
    }

    #[test]
    fn the_wrong_field_is_pointed_at() {
        let disk = example();
        for (cdb, sense) in [
            ([0x1a, 0, 0xc8, 0, 255], Sense::NO_SAVING),
            ([0x1a, 0, 0x02, 0, 255], Sense::invalid_bit(2, 5)),
            ([0x1a, 0, 0x02, 7, 255], Sense::invalid_bit(2, 5)),
            ([0x1a, 0, 0x0a, 1, 255], Sense::invalid_field(3)),
            ([0x1a, 0, 0x3f, 1, 255], Sense::invalid_field(3)),
        ] {
            assert_eq!(answer(&disk, &cdb), Err(sense), "{cdb:x?}");
        }
    }
}
