//! MODE SELECT (SPC-4 6.9, 6.10).

use crate::command::{Form, ModeSelect};
use crate::disk::{Disk, Durable};
use crate::mode_page::{CACHING, CONTROL, D_SENSE, PAGES, SWP, Values, WCE, changeable, page};
use crate::sense::Sense;

/// Returns how many bytes of parameters MODE SELECT brings.
///
/// # Errors
/// The sense of a form that is not supported.
pub(crate) fn begin(disk: &Disk, request: &ModeSelect) -> Result<u64, Sense> {
    if request.save_pages && !disk.is_durable {
        return Err(Sense::invalid_bit(1, 0));
    }
    if !request.page_format {
        return Err(Sense::invalid_bit(1, 4));
    }
    Ok(request.parameter_bytes.into())
}

/// Applies the parameter list of MODE SELECT: every value that is not changeable must equal the current one. `save`
/// persists durable state. Returns whether any value changed.
///
/// # Errors
/// The sense of an invalid list, or of `save`; nothing is changed then.
pub(crate) fn select(
    disk: &Disk,
    request: &ModeSelect,
    data: &[u8],
    save: &dyn Fn(&Durable) -> Result<(), Sense>,
) -> Result<bool, Sense> {
    let mode = &disk.shared.mode;
    let (mut at, mut selected) = (block_descriptor(disk, request.form, data)?, mode.values());
    while let Some(&[code, length]) = data.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        let place = u16::try_from(at).unwrap_or(u16::MAX);
        let body = data.get(at + 2..at + 2 + usize::from(length)).ok_or(Sense::PARAMETER_LENGTH)?;
        // The top bit is PS, which is reserved here. SPF announces a subpage, and there is none.
        let (has_subpage, code, mut current) = (code & 0x40 != 0, code & 0x3f, Vec::new());
        if has_subpage || !PAGES.contains(&code) {
            return Err(Sense::invalid_parameter(place));
        }
        page(disk, code, Values::Current, &mut current);
        let same = |(index, (new, now)): (usize, (&u8, &u8))| {
            let changeable = changeable(disk, code).get(index).copied().unwrap_or(0);
            (new ^ now) & !changeable == 0
        };
        if body.len() != current.len() - 2 || !body.iter().zip(&current[2..]).enumerate().all(same) {
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
    if !request.save_pages {
        return Ok(mode.set(selected));
    }
    let _saving = disk.shared.saving();
    save(&Durable { mode: Some(selected), reservations: disk.shared.reservations.durable() })?;
    mode.save(selected);
    Ok(mode.set(selected))
}

/// Checks the block descriptor behind the header; returns where the pages begin. It may be absent, and may not change the
/// length or the number of blocks: that would be a format (SBC-3 6.5.2).
fn block_descriptor(disk: &Disk, form: Form, data: &[u8]) -> Result<usize, Sense> {
    let byte = |at: usize| data.get(at).copied().ok_or(Sense::PARAMETER_LENGTH);
    let (begin, length, is_long_lba) = match form {
        Form::Long => (8, usize::from(u16::from_be_bytes([byte(6)?, byte(7)?])), byte(4)? & 1 != 0),
        Form::Short => (4, usize::from(byte(3)?), false),
    };
    // Blocks, then a length of three bytes behind a reserved one; with LONGLBA 8 bytes and, behind 4 reserved ones, 4.
    let (blocks_bytes, length_from, whole) = if is_long_lba { (8, 12, 16) } else { (4, 5, 8) };
    if length == 0 {
        return Ok(begin);
    }
    let field = |at: usize| Sense::invalid_parameter((begin + at) as u16);
    if length != whole {
        return Err(Sense::invalid_parameter(if form == Form::Long { 6 } else { 3 }));
    }
    let descriptor = data.get(begin..begin + whole).ok_or(Sense::PARAMETER_LENGTH)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
    let (blocks, most) = (number(&descriptor[..blocks_bytes]), u64::MAX >> (64 - 8 * blocks_bytes));
    // None: as it is; all ones: as large as possible.
    if blocks != 0 && blocks != most && blocks != disk.blocks.min(most) {
        return Err(field(0));
    }
    if number(&descriptor[length_from..]) != u64::from(disk.block_bytes) {
        return Err(field(length_from));
    }
    Ok(begin + whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ModeSense;
    use crate::disk::example;
    use crate::mode_sense::sense;

    /// SP of a MODE SELECT.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Pages {
        Saved,
        NotSaved,
    }

    fn request(pages: Pages) -> ModeSelect {
        let save_pages = pages == Pages::Saved;
        ModeSelect { form: Form::Short, page_format: true, save_pages, parameter_bytes: 16 }
    }

    fn select(disk: &Disk, pages: Pages, list: &[u8]) -> Result<(), Sense> {
        super::select(disk, &request(pages), list, &|_| Ok(())).map(|_| ())
    }

    /// MODE SENSE (6) without block descriptors.
    fn answer(disk: &Disk, bytes: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut out = Vec::new();
        let request = ModeSense {
            form: Form::Short,
            page_control: bytes[2] >> 6,
            page: bytes[2] & 0x3f,
            subpage: bytes[3],
            disable_block_descriptors: true,
            long_lba: false,
            allocation: 255,
        };
        sense(disk, &request, &mut out).map(|()| out)
    }

    /// The Control page with nothing selected.
    const CONTROL_PAGE: [u8; 12] = [0x0a, 10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn selecting_swp_protects_the_disk() {
        let disk = example();
        let list = |swp: u8, other: u8| {
            let mut list = vec![0, 0, 0, 0];
            list.extend_from_slice(&CONTROL_PAGE);
            (list[4 + 4], list[4 + 5]) = (swp, other);
            list
        };
        assert_eq!(select(&disk, Pages::NotSaved, &list(0x08, 0)), Ok(()));
        assert!(disk.is_read_only());
        assert_eq!(
            answer(&disk, &[0x1a, 0x08, 0x0a, 0, 255]).unwrap()[2..9],
            [0x90, 0, 0x0a, 10, 0, 0x10, 0x08]
        );
        assert_eq!(answer(&disk, &[0x1a, 0x08, 0x4a, 0, 255]).unwrap()[4..9], [0x0a, 10, 4, 0, 0x08]);
        assert_eq!(select(&disk, Pages::NotSaved, &list(0, 1)), Err(Sense::invalid_parameter(4)));
        assert!(disk.is_read_only(), "nothing is changed by a wrong list");
        assert_eq!(select(&disk, Pages::NotSaved, &list(0, 0)[..9]), Err(Sense::PARAMETER_LENGTH));
        assert_eq!(select(&disk, Pages::NotSaved, &list(0, 0)), Ok(()));
        assert!(!disk.is_read_only());
        assert_eq!(begin(&disk, &request(Pages::Saved)), Err(Sense::invalid_bit(1, 0)), "SP");
    }

    #[test]
    fn a_cache_can_be_switched_off_where_there_is_one() {
        let list = |wce: u8| [&[0, 0, 0, 0, 0x08, 18, wce][..], &[0; 17]].concat();
        let disk = Disk { write_cache: true, ..example() };
        assert_eq!(select(&disk, Pages::NotSaved, &list(0)), Ok(()));
        assert!(disk.shared.mode.values().write_through);
        assert_eq!(answer(&disk, &[0x1a, 0x08, 0x08, 0, 255]).unwrap()[4..7], [0x08, 18, 0]);
        assert_eq!(select(&disk, Pages::NotSaved, &list(WCE)), Ok(()));
        assert!(!disk.shared.mode.values().write_through);
        assert_eq!(select(&example(), Pages::NotSaved, &list(WCE)), Err(Sense::invalid_parameter(4)));
    }

    #[test]
    fn saved_mode_values_survive_a_restart() {
        let disk = Disk { is_durable: true, ..example() };
        let list = |d_sense: u8| [&[0, 0, 0, 0, 0x0a, 10, d_sense, 0x10][..], &[0; 8]].concat();
        assert_eq!(select(&disk, Pages::Saved, &list(D_SENSE)), Ok(()));
        assert_eq!(select(&disk, Pages::NotSaved, &list(0)), Ok(()));
        let control = |pc: u8| answer(&disk, &[0x1a, 0x08, pc | 0x0a, 0, 255]).unwrap()[4..8].to_vec();
        assert_eq!(control(0x00), [0x8a, 10, 0, 0x10]);
        assert_eq!(control(0xc0), [0x8a, 10, 4, 0x10], "saved");
        let after = Disk { shared: std::sync::Arc::default(), ..disk.clone() };
        after.shared.restore(&Durable { mode: disk.shared.mode.saved(), reservations: None });
        assert!(after.shared.mode.values().descriptor_sense);
    }

    #[test]
    fn mode_parameters_that_cannot_be_saved_are_not_applied() {
        let disk = Disk { is_durable: true, ..example() };
        let list = [&[0, 0, 0, 0, 0x0a, 10, D_SENSE, 0x10][..], &[0; 8]].concat();
        let failed = super::select(&disk, &request(Pages::Saved), &list, &|kept| {
            assert!(kept.mode.is_some_and(|mode| mode.descriptor_sense), "what would be in force is saved");
            Err(Sense::INTERNAL_FAILURE)
        });
        assert_eq!(failed, Err(Sense::INTERNAL_FAILURE));
        assert!(!disk.shared.mode.values().descriptor_sense && disk.shared.mode.saved().is_none());
    }

    #[test]
    fn a_block_descriptor_may_not_change_the_blocks() {
        let disk = example();
        let (blocks, length) = ((disk.blocks as u32).to_be_bytes(), disk.block_bytes.to_be_bytes());
        let list =
            |blocks: [u8; 4], length: [u8; 4]| [&[0, 0, 0, 8][..], &blocks, &length, &CONTROL_PAGE].concat();
        for blocks in [[0; 4], [255; 4], blocks] {
            assert_eq!(select(&disk, Pages::NotSaved, &list(blocks, length)), Ok(()), "{blocks:?}");
        }
        let other = 8192_u32.to_be_bytes();
        assert_eq!(select(&disk, Pages::NotSaved, &list(blocks, other)), Err(Sense::invalid_parameter(9)));
        let other = [0, 0, 0, 9];
        assert_eq!(select(&disk, Pages::NotSaved, &list(other, length)), Err(Sense::invalid_parameter(4)));
        let odd = [&[0, 0, 0, 7][..], &[0; 7], &CONTROL_PAGE].concat();
        assert_eq!(select(&disk, Pages::NotSaved, &odd), Err(Sense::invalid_parameter(3)));
        assert_eq!(select(&disk, Pages::NotSaved, &[0, 0, 0, 8, 0]), Err(Sense::PARAMETER_LENGTH));
        // LONGLBA, which only the long form has.
        let long = |length: u8| {
            let mut list = vec![0, 0, 0, 0, 1, 0, 0, 16];
            list.extend_from_slice(&[0; 12]);
            list.extend_from_slice(&[0, 0, length, 0]);
            [&list[..], &CONTROL_PAGE].concat()
        };
        let request = ModeSelect { form: Form::Long, ..request(Pages::NotSaved) };
        let select = |list: &[u8]| super::select(&disk, &request, list, &|_| Ok(())).map(|_| ());
        assert_eq!(select(&long((disk.block_bytes >> 8) as u8)), Ok(()));
        assert_eq!(select(&long(0x77)), Err(Sense::invalid_parameter(20)));
    }

    #[test]
    fn rejects_a_page_in_the_format_of_a_subpage() {
        let disk = example();
        let mut list = [&[0, 0, 0, 0][..], &CONTROL_PAGE].concat();
        list[4] |= 0x40;
        assert_eq!(select(&disk, Pages::NotSaved, &list), Err(Sense::invalid_parameter(4)));
    }
}
