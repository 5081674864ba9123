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
    let descriptors = match request.form {
        Form::Long => {
            8 + usize::from(u16::from_be_bytes(
                data.get(6..8).and_then(|b| b.first_chunk().copied()).ok_or(Sense::PARAMETER_LENGTH)?,
            ))
        }
        Form::Short => 4 + usize::from(*data.get(3).ok_or(Sense::PARAMETER_LENGTH)?),
    };
    let mode = &disk.shared.mode;
    let (mut at, mut selected) = (descriptors, mode.values());
    while let Some(&[code, length]) = data.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        let place = u16::try_from(at).unwrap_or(u16::MAX);
        let body = data.get(at + 2..at + 2 + usize::from(length)).ok_or(Sense::PARAMETER_LENGTH)?;
        let (code, mut current) = (code & 0x3f, Vec::new());
        if !PAGES.contains(&code) {
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
}
