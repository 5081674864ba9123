//! REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS (SPC-4 6.35, 6.36).

use crate::command::ReportSupportedOperationCodes;
use crate::disk::Disk;
use crate::sense::Sense;

/// A supported command: its operation code, its service action if it has one, and the CDB usage data.
struct Supported {
    code: u8,
    action: Option<u16>,
    usage: &'static [u8],
}

const fn plain(code: u8, usage: &'static [u8]) -> Supported {
    Supported { code, action: None, usage }
}

const fn service(code: u8, action: u16, usage: &'static [u8]) -> Supported {
    Supported { code, action: Some(action), usage }
}

const fn usage_10(first: u8) -> [u8; 10] {
    [0, first, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]
}

const fn usage_12(first: u8) -> [u8; 12] {
    [0, first, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]
}

const fn usage_16(first: u8) -> [u8; 16] {
    [0, first, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]
}

/// Every command, by operation code and service action. The first byte of each usage map is its code.
const COMMANDS: &[Supported] = &[
    plain(0x00, &[0; 6]),
    plain(0x03, &[0, 0x01, 0, 0, 0xff, 0]),
    plain(0x08, &[0, 0x1f, 0xff, 0xff, 0xff, 0]),
    plain(0x0a, &[0, 0x1f, 0xff, 0xff, 0xff, 0]),
    plain(0x12, &[0, 0x01, 0xff, 0xff, 0xff, 0]),
    plain(0x15, &[0, 0x11, 0, 0, 0xff, 0]),
    plain(0x16, &[0; 6]),
    plain(0x17, &[0; 6]),
    plain(0x1a, &[0, 0x08, 0xff, 0xff, 0xff, 0]),
    plain(0x1b, &[0, 0x01, 0, 0x0f, 0xf7, 0]),
    plain(0x1d, &[0, 0x14, 0, 0, 0, 0]),
    plain(0x1e, &[0, 0, 0, 0, 0x03, 0]),
    plain(0x25, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0]),
    plain(0x28, &usage_10(0xfa)),
    plain(0x2a, &usage_10(0xfa)),
    plain(0x2e, &usage_10(0xf2)),
    plain(0x2f, &usage_10(0xf6)),
    plain(0x34, &usage_10(0x02)),
    plain(0x35, &usage_10(0x06)),
    plain(0x37, &[0, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0]),
    plain(0x41, &usage_10(0xf8)),
    plain(0x42, &[0, 0x01, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0]),
    service(0x48, 0x02, &[0, 0xbf, 0, 0, 0, 0, 0, 0, 0, 0]),
    service(0x48, 0x1f, &[0, 0x9f, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(0x4d, &[0, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    plain(0x55, &[0, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    plain(0x56, &[0; 10]),
    plain(0x57, &[0; 10]),
    plain(0x5a, &[0, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 0, &[0, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 1, &[0, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 2, &[0, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 3, &[0, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5f, 0, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 1, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 2, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 3, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 4, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 5, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 6, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 7, &[0, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x83, 0, &[0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0x84, 0, &[0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0x84, 3, &[0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    plain(0x88, &usage_16(0xfa)),
    plain(0x89, &[0, 0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x1f, 0]),
    plain(0x8a, &usage_16(0xfa)),
    plain(0x8b, &usage_16(0xfa)),
    plain(0x8e, &usage_16(0xf2)),
    plain(0x8f, &usage_16(0xf6)),
    plain(0x90, &usage_16(0x02)),
    plain(0x91, &usage_16(0x06)),
    plain(0x93, &usage_16(0xf9)),
    plain(0x9c, &[0, 0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
    service(
        0x9e,
        0x10,
        &[0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0],
    ),
    service(
        0x9e,
        0x12,
        &[0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    plain(0xa0, &[0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0xa3, 0x0a, &[0, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0xa3, 0x0c, &[0, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0xa3, 0x0d, &[0, 0x1f, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0xa4, 0x0a, &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    plain(0xa8, &usage_12(0xfa)),
    plain(0xaa, &usage_12(0xfa)),
    plain(0xae, &usage_12(0xf2)),
    plain(0xaf, &usage_12(0xf6)),
    plain(0xb7, &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
];

/// Whether a disk supports a command.
fn has(disk: &Disk, command: &Supported) -> bool {
    match (command.code, command.action) {
        // Without thin provisioning there is nothing to unmap, and no status of blocks.
        (0x42, _) | (0x9e, Some(0x12)) => disk.provisioning.is_some(),
        (0x89, _) => disk.compare_blocks_max() > 0,
        (0x8b | 0x9c, _) => disk.atomic_blocks_max() > 0,
        _ => true,
    }
}

/// The command timeouts descriptor, without any timeout.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Appends the answer to REPORT SUPPORTED OPERATION CODES.
///
/// # Errors
/// The sense of an invalid REPORTING OPTIONS field.
pub(crate) fn operation_codes(
    disk: &Disk,
    request: &ReportSupportedOperationCodes,
    out: &mut Vec<u8>,
) -> Result<(), Sense> {
    let ReportSupportedOperationCodes { timeouts, options, code, action, .. } = *request;
    let all = || COMMANDS.iter().filter(|command| has(disk, command));
    if options == 0 {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for command in all() {
            let flags = u8::from(command.action.is_some()) | if timeouts { 0x02 } else { 0 };
            out.extend_from_slice(&[command.code, 0]);
            out.extend_from_slice(&command.action.unwrap_or(0).to_be_bytes());
            out.extend_from_slice(&[0, flags]);
            out.extend_from_slice(&(command.usage.len() as u16).to_be_bytes());
            if timeouts {
                out.extend_from_slice(&TIMEOUTS);
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        return Ok(());
    }
    let mut of_code = all().filter(|command| command.code == code).peekable();
    let has_actions = of_code.peek().is_some_and(|command| command.action.is_some());
    let found = match options {
        // A code with service actions must be requested with one, and a code without them without.
        1 if has_actions => return Err(Sense::invalid_bit(2, 2)),
        2 if of_code.peek().is_some() && !has_actions => return Err(Sense::invalid_bit(2, 2)),
        1 => of_code.next(),
        2 => of_code.find(|command| command.action == Some(action)),
        3 => of_code.find(|command| command.action.unwrap_or(0) == action),
        _ => return Err(Sense::invalid_bit(2, 2)),
    };
    let flag = if timeouts && found.is_some() { 0x80 } else { 0 };
    match found {
        None => out.extend_from_slice(&[0, 0x01 | flag, 0, 0]),
        Some(command) => {
            out.extend_from_slice(&[0, 0x03 | flag]);
            out.extend_from_slice(&(command.usage.len() as u16).to_be_bytes());
            let start = out.len();
            out.extend_from_slice(command.usage);
            out[start] = command.code;
            if let Some(action) = command.action {
                // The service action's bits are the action itself.
                out[start + 1] = (out[start + 1] & 0xe0) | action as u8;
            }
            if timeouts {
                out.extend_from_slice(&TIMEOUTS);
            }
        }
    }
    Ok(())
}

/// Appends the answer to REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: abort task, abort task set, clear task
/// set, logical unit reset; with REPD the extended form, without timeouts.
pub(crate) fn task_management(extended: bool, allocation: usize, out: &mut Vec<u8>) -> Result<(), Sense> {
    if allocation < 4 {
        return Err(Sense::invalid_field(6));
    }
    // ADDITIONAL DATA LENGTH is the last byte.
    let additional = if extended { 0x0c } else { 0 };
    out.extend_from_slice(&[0x80 | 0x40 | 0x10 | 0x08, 0, 0, additional]);
    out.extend_from_slice(&[0; 12][..usize::from(additional)]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::disk::example;

    fn ask(bytes: &[u8]) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        let mut out = Vec::new();
        let Command::ReportSupportedOperationCodes(request) = Command::decode(&cdb) else {
            panic!("{cdb:?}")
        };
        operation_codes(&example(), &request, &mut out).map(|()| out)
    }

    #[test]
    fn every_command_is_listed_once_in_order() {
        let all = ask(&[0xa3, 0x0c, 0]).unwrap();
        let codes: Vec<(u8, u16)> =
            all[4..].chunks_exact(8).map(|d| (d[0], u16::from_be_bytes([d[2], d[3]]))).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:x?}");
        assert_eq!(u32::from_be_bytes([all[0], all[1], all[2], all[3]]) as usize, all.len() - 4);
        for (code, action) in codes {
            let [high, low] = action.to_be_bytes();
            let one = ask(&[0xa3, 0x0c, 3, code, high, low]).unwrap();
            assert_eq!((one[1], one[4]), (3, code));
            assert_eq!(one.len(), 4 + usize::from(one[3]));
        }
        assert!(!all[4..].chunks_exact(8).any(|d| d[0] == 0x42), "a thick disk cannot unmap");
    }

    #[test]
    fn reports_unsupported_commands_and_rejects_invalid_options() {
        assert_eq!(ask(&[0xa3, 0x0c, 1, 0xff]), Ok(vec![0, 1, 0, 0]));
        assert_eq!(ask(&[0xa3, 0x0c, 1, 0x9e]), Err(Sense::invalid_bit(2, 2)));
        assert_eq!(ask(&[0xa3, 0x0c, 2, 0x28]), Err(Sense::invalid_bit(2, 2)));
        assert_eq!(ask(&[0xa3, 0x0c, 4, 0x28]), Err(Sense::invalid_bit(2, 2)));
        let with_timeouts = ask(&[0xa3, 0x0c, 0x81, 0x28]).unwrap();
        assert_eq!((with_timeouts[1], with_timeouts.len()), (0x83, 4 + 10 + 12));
    }

    #[test]
    fn task_management_functions_are_appended() {
        let mut out = vec![1, 2, 3, 4, 5];
        task_management(true, 16, &mut out).unwrap();
        assert_eq!(out[..5], [1, 2, 3, 4, 5]);
        assert_eq!((out.len(), &out[5..9]), (21, &[0xd8, 0, 0, 0x0c][..]));
    }
}
