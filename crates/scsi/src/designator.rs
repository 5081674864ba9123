//! Designators of a logical unit (SPC-4 7.8.6): the Device Identification page lists them, and EXTENDED COPY names
//! its disks by them.

use crate::disk::Disk;
use crate::inquiry::ascii;

/// A designator of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Designator {
    /// CODE SET: 1 binary, 2 ASCII.
    pub(crate) code_set: u8,
    /// DESIGNATOR TYPE: 1 T10 vendor identification, 3 NAA.
    pub(crate) kind: u8,
    /// The designator itself.
    pub(crate) value: Vec<u8>,
}

/// The designators of a disk.
pub(crate) fn designators(disk: &Disk) -> [Designator; 2] {
    // NAA 3h: locally assigned.
    let local = || 0x3000_0000_0000_0000 | (disk.designator() & 0x0fff_ffff_ffff_ffff);
    let naa = disk.identity.naa.clone().unwrap_or_else(|| local().to_be_bytes().to_vec());
    let mut vendor = vec![b' '; 8];
    ascii(&mut vendor, &disk.identity.vendor);
    let own = disk.identity.t10.as_ref().unwrap_or(&disk.identity.serial);
    vendor.extend(own.bytes().filter(|b| (0x20..0x7f).contains(b)).take(128));
    [
        Designator { code_set: 0x01, kind: 0x03, value: naa },
        Designator { code_set: 0x02, kind: 0x01, value: vendor },
    ]
}
