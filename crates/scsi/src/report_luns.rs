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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_select_report_code_lists_its_logical_units() {
        let luns = [Lun(0), Lun(300)];
        let list = |select| {
            let mut out = vec![0xee];
            report(select, luns.into_iter(), &mut out).map(|()| out.split_off(1))
        };
        let all = [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x2c, 0, 0, 0, 0, 0, 0];
        assert_eq!(list(0).unwrap(), all);
        assert_eq!(list(1).unwrap(), [0; 8], "there are no well known logical units");
        assert_eq!(list(2).unwrap(), all);
        assert_eq!(list(3), Err(Sense::invalid_field(2)));
    }
}
