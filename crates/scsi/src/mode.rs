//! MODE SENSE (SPC-4 6.11, 6.12; pages: SPC-4 7.5, SBC-3 6.5).

use crate::cdb::{Cdb, be16};
use crate::disk::Disk;
use crate::sense::Sense;

/// Which values are asked for (PC).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
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
        _ => return Err(Sense::NO_SAVING),
    };
    let (code, subpage) = (cdb[2] & 0x3f, cdb[3]);
    let wanted: &[u8] = match (code, subpage) {
        (0x3f, 0x00 | 0xff) => &PAGES,
        (0x3f, _) => return Err(Sense::invalid_field(3)),
        (code, 0x00 | 0xff) => match PAGES.iter().position(|&p| p == code) {
            Some(index) => &PAGES[index..=index],
            None => return Err(Sense::invalid_bit(2, 5)),
        },
        _ => return Err(Sense::invalid_field(3)),
    };
    // LLBAA only exists in the long form.
    let long_lba = long && cdb[1] & 0x10 != 0;
    let descriptor = if cdb[1] & 0x08 != 0 { Vec::new() } else { block_descriptor(disk, long_lba) };
    let mut pages = Vec::new();
    for &code in wanted {
        page(disk, code, values, &mut pages);
    }
    // WP and DPOFUA.
    let specific = if disk.read_only { 0x80 } else { 0 } | 0x10;
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

/// One page. Nothing is changeable: the changeable values are all zero.
fn page(disk: &Disk, code: u8, values: Values, out: &mut Vec<u8>) {
    let mut body: Vec<u8> = match code {
        // Caching: WCE is the truth about the store.
        0x08 => {
            let mut body = vec![0; 18];
            body[0] = if disk.write_cache { 0x04 } else { 0 };
            body
        }
        // Control: commands may be reordered, as one connection's are not.
        0x0a => {
            let mut body = vec![0; 10];
            body[1] = 0x10;
            body
        }
        // Read-Write Error Recovery, and Informational Exceptions Control: nothing is switched on.
        _ => vec![0; 10],
    };
    if values == Values::Changeable {
        body.fill(0);
    }
    out.push(code);
    out.push(body.len() as u8);
    out.append(&mut body);
}
