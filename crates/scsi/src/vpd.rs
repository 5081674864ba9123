//! Vital product data pages (SPC-4 7.8, SBC-3 6.6).

use crate::copy_results::DESCRIPTOR_TYPES;
use crate::designator::designators;
use crate::disk::Disk;
use crate::limits;

/// The supported pages, ascending.
pub const PAGES: [u8; 11] = [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2, 0xb6];

/// Appends a page, as seen through a portal group. Returns false, and appends nothing, if there is no such page.
pub fn page(disk: &Disk, code: u8, portal_group: u16, out: &mut Vec<u8>) -> bool {
    // Peripheral type 00h, page code, and the length, which is set at the end.
    let start = out.len();
    out.extend_from_slice(&[0, code, 0, 0]);
    match code {
        0x00 => out.extend_from_slice(&PAGES),
        0x80 => serial(disk, out),
        0x83 => identification(disk, portal_group, out),
        0x86 => extended(out),
        // Mode Page Policy: every page is one for all (SPC-4 7.8.9).
        0x87 => out.extend_from_slice(&[0x3f, 0xff, 0, 0]),
        0x88 => scsi_ports(disk, out),
        0x8f => third_party_copy(disk, out),
        0xb0 => block_limits(disk, out),
        0xb1 => characteristics(disk, out),
        0xb2 => provisioning(disk, out),
        0xb6 => zones(out),
        _ => {
            out.truncate(start);
            return false;
        }
    }
    let length = (out.len() - start - 4) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    true
}

/// Unit Serial Number.
fn serial(disk: &Disk, out: &mut Vec<u8>) {
    out.extend(disk.identity.serial.bytes().filter(|b| (0x20..0x7f).contains(b)).take(64));
}

/// Device Identification: of the logical unit, the target port and the target device.
fn identification(disk: &Disk, portal_group: u16, out: &mut Vec<u8>) {
    for designator in designators(disk) {
        out.extend_from_slice(&[designator.code_set, designator.kind, 0, designator.value.len() as u8]);
        out.extend_from_slice(&designator.value);
    }
    // Relative target port, and target port group; association: target port; protocol iSCSI.
    let [high, low] = disk.ports.relative(portal_group).to_be_bytes();
    out.extend_from_slice(&[0x51, 0x94, 0, 4, 0, 0, high, low]);
    let [high, low] = portal_group.to_be_bytes();
    out.extend_from_slice(&[0x51, 0x95, 0, 4, 0, 0, high, low]);
    // SCSI name strings: of the target port, and of the target device.
    name_string(0x98, &port_name(disk, portal_group), out);
    name_string(0xa8, &disk.identity.target_name, out);
}

/// The name of a target port (RFC 7143 4.4.1).
fn port_name(disk: &Disk, portal_group: u16) -> String {
    format!("{},t,{portal_group:#06x}", disk.identity.target_name)
}

/// SCSI Ports (SPC-4 7.8.14): every target port with its name.
fn scsi_ports(disk: &Disk, out: &mut Vec<u8>) {
    for (tag, relative) in disk.ports.tags() {
        let [high, low] = relative.to_be_bytes();
        let mut name = Vec::new();
        name_string(0x98, &port_name(disk, tag), &mut name);
        // No initiator port TransportID.
        out.extend_from_slice(&[0, 0, high, low, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(&name);
    }
}

/// Third-party Copy (SPC-4 7.8.17): its descriptors, each a multiple of four bytes.
fn third_party_copy(disk: &Disk, out: &mut Vec<u8>) {
    let mut descriptor = |code: u16, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(&(padded as u16).to_be_bytes());
        out.extend_from_slice(body);
        out.resize(out.len() + padded - body.len(), 0);
    };
    // Supported Commands: EXTENDED COPY (LID1); RECEIVE COPY STATUS (LID1), OPERATING PARAMETERS.
    descriptor(0x0001, &[7, 0x83, 1, 0x00, 0x84, 2, 0x00, 0x03]);
    let mut parameters = [0; 28];
    parameters[4..6].copy_from_slice(&limits::CSCDS_MAX.to_be_bytes());
    parameters[6..8].copy_from_slice(&limits::SEGMENTS_MAX.to_be_bytes());
    parameters[8..12].copy_from_slice(&limits::DESCRIPTORS_BYTES_MAX.to_be_bytes());
    descriptor(0x0004, &parameters);
    let mut types = vec![DESCRIPTOR_TYPES.len() as u8];
    types.extend(DESCRIPTOR_TYPES);
    descriptor(0x0008, &types);
    // Supported CSCD IDs: none beyond those of the list.
    descriptor(0x000c, &[0, 0]);
    let mut general = [0; 32];
    general[3] = limits::CONCURRENT_COPIES_MAX;
    general[7] = limits::CONCURRENT_COPIES_MAX;
    general[8..12].copy_from_slice(&limits::COPY_BYTES_MAX.to_be_bytes());
    general[12] = disk.block_bytes.max(1).ilog2() as u8;
    descriptor(0x8001, &general);
}

/// Zoned Block Device Characteristics (ZBC 6.4.2): there are no zones, and so no limits.
fn zones(out: &mut Vec<u8>) {
    let mut data = [0_u8; 60];
    data[4..16].fill(0xff);
    out.extend_from_slice(&data);
}

/// A SCSI name string designator: UTF-8, ended by zero, padded to four bytes (SPC-4 7.8.6.11).
fn name_string(association: u8, name: &str, out: &mut Vec<u8>) {
    let mut bytes = name.as_bytes()[..name.len().min(251)].to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    out.extend_from_slice(&[0x53, association, 0, bytes.len() as u8]);
    out.extend_from_slice(&bytes);
}

/// Extended INQUIRY Data: nothing beyond simple tasks.
fn extended(out: &mut Vec<u8>) {
    let mut data = [0_u8; 60];
    // SIMPSUP.
    data[1] = 0x01;
    out.extend_from_slice(&data);
}

/// Block Limits.
fn block_limits(disk: &Disk, out: &mut Vec<u8>) {
    let mut data = [0_u8; 60];
    data[4..8].copy_from_slice(&disk.transfer_blocks_max().to_be_bytes());
    let block = disk.block_bytes.max(1);
    // OPTIMAL TRANSFER LENGTH: one burst of the default MaxBurstLength, or what the store says. Its GRANULARITY is no larger.
    let best = disk.best_bytes.unwrap_or(0);
    let granularity = u16::try_from(best / block).unwrap_or(0);
    data[2..4].copy_from_slice(&granularity.to_be_bytes());
    data[8..12].copy_from_slice(&((1_u32 << 20).max(best) / block).to_be_bytes());
    // WSNZ is 0: WRITE SAME of zero blocks extends to the end of the disk, within the transfer limit.
    data[1] = disk.compare_blocks_max();
    if let Some(thin) = disk.provisioning {
        data[16..20].copy_from_slice(&limits::UNMAP_BLOCKS_MAX.to_be_bytes());
        data[20..24].copy_from_slice(&limits::UNMAP_RANGES_MAX.to_be_bytes());
        data[24..28].copy_from_slice(&(thin.granularity_bytes / block).to_be_bytes());
        // UGAVALID, alignment 0.
        data[28] = 0x80;
    }
    data[32..40].copy_from_slice(&u64::from(disk.transfer_blocks_max()).to_be_bytes());
    // MAXIMUM ATOMIC TRANSFER LENGTH; any alignment, any granularity, no boundaries.
    data[40..44].copy_from_slice(&disk.atomic_blocks_max().to_be_bytes());
    out.extend_from_slice(&data);
}

/// Block Device Characteristics.
fn characteristics(disk: &Disk, out: &mut Vec<u8>) {
    let mut data = [0_u8; 60];
    // MEDIUM ROTATION RATE: 1 for a medium that does not rotate, 0 for an unknown rate.
    data[1] = u8::from(!disk.is_rotational);
    // WABEREQ 01b: after SANITIZE BLOCK ERASE blocks can be read before they are written.
    data[3] = 0x40;
    out.extend_from_slice(&data);
}

/// Logical Block Provisioning: full, or thin.
fn provisioning(disk: &Disk, out: &mut Vec<u8>) {
    match disk.provisioning {
        // LBPU, LBPWS, LBPWS10, LBPRZ; thin.
        Some(_) => out.extend_from_slice(&[0, 0x80 | 0x40 | 0x20 | 0x04, 0x02, 0]),
        None => out.extend_from_slice(&[0; 4]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::example;

    #[test]
    fn every_listed_page_exists_and_states_its_own_length() {
        for code in PAGES {
            let mut out = Vec::new();
            assert!(page(&example(), code, 1, &mut out));
            assert_eq!(out[1], code);
            assert_eq!(usize::from(u16::from_be_bytes([out[2], out[3]])), out.len() - 4);
        }
        let mut out = Vec::new();
        assert!(!page(&example(), 0x84, 1, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn designators_chain_to_the_end_of_the_page() {
        let mut out = Vec::new();
        page(&example(), 0x83, 1, &mut out);
        let (mut at, mut count) = (4, 0);
        while at < out.len() {
            at += 4 + usize::from(out[at + 3]);
            count += 1;
        }
        assert_eq!((at, count), (out.len(), 6));
    }

    #[test]
    fn golden_bytes_of_the_pages() {
        let data = |code| {
            let mut out = Vec::new();
            page(&example(), code, 1, &mut out);
            out
        };
        assert_eq!(
            data(0x00),
            [0, 0, 0, 11, 0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2, 0xb6]
        );
        assert_eq!(data(0x80), b"\0\x80\0\x06abc123");
        assert_eq!(data(0x86)[..6], [0, 0x86, 0, 60, 0, 0x01]);
        let limits = data(0xb0);
        assert_eq!(limits[..16], [0, 0xb0, 0, 60, 0, 255, 0, 0, 0, 2, 0, 0, 0, 0, 8, 0], "64 MiB and 1 MiB");
        assert_eq!(limits[16..36], [0; 20], "nothing to unmap");
        assert_eq!(limits[36..44], [0, 0, 0, 0, 0, 2, 0, 0], "WRITE SAME of 64 MiB");
        assert_eq!(limits[44..48], [0, 0, 8, 0], "atomic writes of 1 MiB");
        assert_eq!(limits[48..], [0; 16]);
        assert_eq!(data(0xb1)[..8], [0, 0xb1, 0, 60, 0, 1, 0, 0x40]);
        assert_eq!(data(0xb2), [0, 0xb2, 0, 4, 0, 0, 0, 0]);

        assert_eq!(data(0x87), [0, 0x87, 0, 4, 0x3f, 0xff, 0, 0]);
        let ports = data(0x88);
        assert_eq!(ports[..16], [0, 0x88, 0, 48, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 36]);
        let copies = data(0x8f);
        assert_eq!(copies[4..16], [0, 1, 0, 8, 7, 0x83, 1, 0, 0x84, 2, 0, 3]);
        assert_eq!(copies[16..20], [0, 4, 0, 28]);
        assert_eq!(copies[48..56], [0, 8, 0, 4, 3, 2, 10, 0xe4]);
        assert_eq!(copies[56..64], [0, 12, 0, 4, 0, 0, 0, 0]);
        assert_eq!((copies[64..68].to_vec(), copies.len()), (vec![0x80, 1, 0, 32], 100));

        let names = data(0x83);
        let naa = 0x3000_0000_0000_0000 | example().designator();
        let expected = [
            &[0, 0x83, 0, 128][..],
            &[0x01, 0x03, 0, 8],
            &naa.to_be_bytes(),
            b"\x02\x01\0\x0eRNDTRIP abc123",
            &[0x51, 0x94, 0, 4, 0, 0, 0, 1, 0x51, 0x95, 0, 4, 0, 0, 0, 1],
            b"\x53\x98\0\x20iqn.2026-11.example:t,t,0x0001\0\0",
            b"\x53\xa8\0\x18iqn.2026-11.example:t\0\0\0",
        ]
        .concat();
        assert_eq!(names[4..], expected[4..]);
        assert_eq!(usize::from(names[3]), names.len() - 4);
    }
}
