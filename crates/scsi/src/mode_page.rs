//! Mode pages (SPC-4 7.5, SBC-3 6.5).

use crate::disk::Disk;
use crate::mode::ModeValues;

/// Which values of a page are returned (PC).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Current,
    Changeable,
    Default,
    Saved,
}

/// The Caching page.
pub(crate) const CACHING: u8 = 0x08;
/// The Control page.
pub(crate) const CONTROL: u8 = 0x0a;
/// The supported pages, ascending; the others are Read-Write Error Recovery and Informational Exceptions Control.
pub(crate) const PAGES: [u8; 4] = [0x01, CACHING, CONTROL, 0x1c];

/// WCE, in the first byte behind the header of the Caching page.
pub(crate) const WCE: u8 = 0x04;
/// D_SENSE, in the first byte behind the header of the Control page.
pub(crate) const D_SENSE: u8 = 0x04;
/// SWP, in the third byte behind the header of the Control page.
pub(crate) const SWP: u8 = 0x08;

/// The changeable bits of a page, by byte behind its header.
pub(crate) fn changeable(disk: &Disk, code: u8) -> &'static [u8] {
    match code {
        CACHING if disk.write_cache => &[WCE],
        CONTROL => &[D_SENSE, 0, SWP],
        _ => &[],
    }
}

/// Appends a page. Changeable values have ones where a bit can be changed, and zeros elsewhere.
pub(crate) fn page(disk: &Disk, code: u8, values: Values, out: &mut Vec<u8>) {
    let mode = &disk.shared.mode;
    let shown = match values {
        Values::Current => mode.values(),
        Values::Saved => mode.saved().unwrap_or_default(),
        Values::Default | Values::Changeable => ModeValues::default(),
    };
    let mut body: Vec<u8> = match code {
        CACHING => {
            let mut body = vec![0; 18];
            // Writes are cached only if the store has a cache and no initiator has switched it off.
            body[0] = if disk.write_cache && !shown.write_through { WCE } else { 0 };
            body
        }
        CONTROL => {
            let mut body = vec![0; 10];
            // QUEUE ALGORITHM MODIFIER 1: commands of several connections run in any order.
            body[1] = 0x10;
            body[0] = if shown.descriptor_sense { D_SENSE } else { 0 };
            body[2] = if shown.write_protected { SWP } else { 0 };
            body
        }
        // Read-Write Error Recovery, and Informational Exceptions Control: every feature is off.
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
