//! INQUIRY, standard data (SPC-4 6.6).

use crate::disk::Disk;

/// The standard data of a disk.
pub fn standard(disk: &Disk, out: &mut Vec<u8>) {
    let mut data = [0_u8; 74];
    // Connected direct-access device; RMB; SPC-4.
    data[1] = if disk.removable { 0x80 } else { 0 };
    data[2] = 0x06;
    // Response data format 2; HISUP: addressing by the flat format is known.
    data[3] = 0x12;
    data[4] = 74 - 5;
    // TPGS: implicit and explicit asymmetric access; 3PC: third-party copies.
    data[5] = 0x38;
    // CMDQUE: many commands at a time.
    data[7] = 0x02;
    ascii(&mut data[8..16], &disk.identity.vendor);
    ascii(&mut data[16..32], &disk.identity.product);
    ascii(&mut data[32..36], &disk.identity.revision);
    // Version descriptors: SAM-5, SPC-4, SBC-3, iSCSI (SPC-4 table 142).
    for (index, version) in [0x00a0_u16, 0x0460, 0x04c0, 0x0960].into_iter().enumerate() {
        data[58 + 2 * index..60 + 2 * index].copy_from_slice(&version.to_be_bytes());
    }
    out.extend_from_slice(&data);
}

/// The standard data where there is no logical unit: qualifier 011b, type 1Fh.
pub fn absent(out: &mut Vec<u8>) {
    let mut data = [0_u8; 36];
    data[0] = 0x7f;
    data[2] = 0x06;
    data[3] = 0x12;
    data[4] = 36 - 5;
    data[8..32].fill(b' ');
    data[32..36].fill(b' ');
    out.extend_from_slice(&data);
}

/// An ASCII field: left-aligned, padded with spaces, nothing but graphic codes (SPC-4 4.4.1).
pub(crate) fn ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = if (0x20..0x7f).contains(&byte) { byte } else { b'?' };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::example;

    #[test]
    fn golden_bytes_with_the_version_descriptors() {
        let mut out = Vec::new();
        standard(&example(), &mut out);
        assert_eq!(out[..8], [0x00, 0x00, 0x06, 0x12, 69, 0x38, 0x00, 0x02]);
        assert_eq!(&out[8..36], b"RNDTRIP disk            0.1 ");
        assert_eq!(out[36..58], [0; 22]);
        assert_eq!(out[58..], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn names_are_truncated_and_graphic() {
        let mut field = [0; 4];
        ascii(&mut field, "abcdef");
        assert_eq!(&field, b"abcd");
        ascii(&mut field, "a\n");
        assert_eq!(&field, b"a?  ");
    }
}
