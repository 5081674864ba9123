//! MODE SENSE (SPC-4 6.11, 6.12).

use crate::command::{Form, ModeSense};
use crate::disk::Disk;
use crate::mode_page::{PAGES, Values, page};
use crate::sense::Sense;

/// Appends the parameter data of MODE SENSE.
///
/// # Errors
/// The sense of a page or a form that is not supported.
pub(crate) fn sense(disk: &Disk, request: &ModeSense, out: &mut Vec<u8>) -> Result<(), Sense> {
    let values = match request.page_control {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ if disk.is_durable => Values::Saved,
        _ => return Err(Sense::NO_SAVING),
    };
    let wanted: &[u8] = match (request.page, request.subpage) {
        (0x3f, 0x00 | 0xff) => &PAGES,
        (0x3f, _) => return Err(Sense::invalid_field(3)),
        (code, subpage) => {
            // The page is checked before its subpage: the field pointer names the first invalid field.
            let page = PAGES.iter().find(|&&page| page == code).ok_or(Sense::invalid_bit(2, 5))?;
            if !matches!(subpage, 0x00 | 0xff) {
                return Err(Sense::invalid_field(3));
            }
            std::slice::from_ref(page)
        }
    };
    let long_lba = request.long_lba;
    let descriptor =
        if request.disable_block_descriptors { Vec::new() } else { block_descriptor(disk, long_lba) };
    let mut pages = Vec::new();
    for &code in wanted {
        page(disk, code, values, &mut pages);
    }
    // WP and DPOFUA.
    let specific = if disk.is_read_only() { 0x80 } else { 0 } | 0x10;
    match request.form {
        Form::Long => {
            let length = (6 + descriptor.len() + pages.len()) as u16;
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[0, specific, u8::from(long_lba), 0]);
            out.extend_from_slice(&(descriptor.len() as u16).to_be_bytes());
        }
        Form::Short => out.extend_from_slice(&[
            (3 + descriptor.len() + pages.len()) as u8,
            0,
            specific,
            descriptor.len() as u8,
        ]),
    }
    out.extend_from_slice(&descriptor);
    out.extend_from_slice(&pages);
    Ok(())
}

/// Block count and length, in the short or the long form (SBC-3 6.5.2).
fn block_descriptor(disk: &Disk, long_lba: bool) -> Vec<u8> {
    let mut data = Vec::with_capacity(16);
    if long_lba {
        data.extend_from_slice(&disk.blocks.to_be_bytes());
        data.extend_from_slice(&[0; 4]);
    } else {
        data.extend_from_slice(&u32::try_from(disk.blocks).unwrap_or(u32::MAX).to_be_bytes());
    }
    data.extend_from_slice(&disk.block_bytes.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::disk::example;

    fn answer(disk: &Disk, bytes: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        let Command::ModeSense(request) = Command::decode(&cdb) else { panic!("{cdb:?}") };
        let mut out = Vec::new();
        sense(disk, &request, &mut out).map(|()| out)
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
    fn reports_changeable_and_default_values() {
        let disk = Disk { write_cache: true, ..example() };
        let page = |control: u8| answer(&disk, &[0x1a, 0x08, control | 0x08, 0, 255]).unwrap()[4..].to_vec();
        assert_eq!(page(0x00), CACHING);
        assert_eq!(page(0x40), [&[0x08, 18, 0x04][..], &[0; 17]].concat(), "the cache can be switched off");
        assert_eq!(page(0x80), CACHING);
    }

    #[test]
    fn field_pointers_name_the_first_invalid_field() {
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
