//! REPORT LUNS (SPC-4 6.33).

use crate::lun::Lun;
use crate::sense::Sense;

/// Appends the list for a SELECT REPORT code.
///
/// # Errors
/// When the code has no meaning here.
pub fn report(select: u8, luns: impl Iterator<Item = Lun>, out: &mut Vec<u8>) -> Result<(), Sense> {
    if select > 0x02 {
        return Err(Sense::invalid_field(2));
    }
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    match select {
        // All logical units, with or without well known ones, of which there are none.
        0x00 | 0x02 => luns.for_each(|lun| out.extend_from_slice(&lun.encode())),
        // 01h: only well known logical units.
        _ => {}
    }
    let length = (out.len() - start - 8) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
