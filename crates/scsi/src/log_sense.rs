//! LOG SENSE (SPC-4 6.8, 7.3): what a disk has done and what failed, for the programs that watch disks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::command::LogSense;
use crate::sense::{Sense, SenseKey};

/// Supported Log Pages.
const SUPPORTED: u8 = 0x00;
/// Write Error Counter.
const WRITE_ERRORS: u8 = 0x02;
/// Read Error Counter.
const READ_ERRORS: u8 = 0x03;
/// Non-Medium Error.
const OTHER_ERRORS: u8 = 0x06;
/// Temperature.
const TEMPERATURE: u8 = 0x0d;
/// Start-Stop Cycle Counter.
const START_STOP: u8 = 0x0e;
/// Informational Exceptions.
const EXCEPTIONS: u8 = 0x2f;
/// The supported pages, ascending. Self-Test Results is none of them: its entries are of tests in the background.
const PAGES: [u8; 7] =
    [SUPPORTED, WRITE_ERRORS, READ_ERRORS, OTHER_ERRORS, TEMPERATURE, START_STOP, EXCEPTIONS];
/// The subpage that lists pages with their subpages.
const SUPPORTED_SUBPAGES: u8 = 0xff;

/// PC: cumulative values. There are no thresholds, and no values that could be reset.
const CUMULATIVE: u8 = 1;
/// TSD: the parameter is not saved. FORMAT AND LINKING: a counter.
const COUNTER: u8 = 0x20;
/// The same for a parameter that is a binary list.
const LIST: u8 = 0x23;
/// TEMPERATURE of a device that cannot tell it.
const NO_TEMPERATURE: u8 = 0xff;

/// What the logical unit itself counts; one for all that see the disk.
#[derive(Debug, Default)]
pub struct LogCounters {
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    other_errors: AtomicU64,
    stops: AtomicU64,
}

impl LogCounters {
    /// A command ends with this sense.
    pub(crate) fn failed(&self, sense: &Sense) {
        let counter = match sense.key {
            SenseKey::MediumError if sense.asc == Sense::READ_ERROR.asc => &self.read_errors,
            SenseKey::MediumError => &self.write_errors,
            SenseKey::HardwareError => &self.other_errors,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// START STOP UNIT stops the disk.
    pub(crate) fn stopped(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the disk has moved since it is served, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processed {
    /// By commands that read.
    pub read_bytes: u64,
    /// By commands that write.
    pub written_bytes: u64,
}

/// Checks a request before what it asks for is collected.
///
/// # Errors
/// The sense of a page that is not supported, or of an invalid field.
pub(crate) fn check(request: &LogSense) -> Result<(), Sense> {
    // SP: nothing is saved.
    if request.save {
        return Err(Sense::invalid_bit(1, 0));
    }
    if request.page_control != CUMULATIVE {
        return Err(Sense::invalid_bit(2, 7));
    }
    if !PAGES.contains(&request.page) {
        return Err(Sense::invalid_bit(2, 5));
    }
    match request.subpage {
        0 => {}
        SUPPORTED_SUBPAGES if request.page == SUPPORTED => {}
        _ => return Err(Sense::invalid_field(3)),
    }
    // A pointer behind the last parameter (SPC-4 6.8). The lists of pages have none.
    let last =
        parameters(request.page, &LogCounters::default(), Processed::default()).last().map(|last| last.0);
    match last {
        Some(last) if request.pointer > last => Err(Sense::invalid_field(5)),
        None if request.pointer > 0 => Err(Sense::invalid_field(5)),
        _ => Ok(()),
    }
}

/// Appends a page that [`check`] accepts.
pub fn page(request: &LogSense, counters: &LogCounters, processed: Processed, out: &mut Vec<u8>) {
    let start = out.len();
    // DS: nothing here is saved. SPF: the page is a subpage.
    let is_subpage = request.subpage != 0;
    out.extend_from_slice(&[0x80 | u8::from(is_subpage) << 6 | request.page, request.subpage, 0, 0]);
    match (request.page, is_subpage) {
        (SUPPORTED, false) => out.extend_from_slice(&PAGES),
        (SUPPORTED, true) => {
            out.extend_from_slice(&[SUPPORTED, 0, SUPPORTED, SUPPORTED_SUBPAGES]);
            out.extend(PAGES[1..].iter().flat_map(|&page| [page, 0]));
        }
        (code, _) => {
            for (number, control, value) in parameters(code, counters, processed) {
                if number >= request.pointer {
                    out.extend_from_slice(&number.to_be_bytes());
                    out.extend_from_slice(&[control, value.len() as u8]);
                    out.extend_from_slice(&value);
                }
            }
        }
    }
    let length = (out.len() - start - 4) as u16;
    out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The parameters of a page in ascending order: PARAMETER CODE, the parameter control byte, and the value.
fn parameters(code: u8, counters: &LogCounters, processed: Processed) -> Vec<(u16, u8, Vec<u8>)> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_be_bytes().to_vec();
    // Total errors corrected (a store that corrects does not tell), total bytes processed, total uncorrected errors.
    let errors = |bytes: u64, uncorrected: &AtomicU64| {
        vec![
            (0x0003, COUNTER, vec![0; 8]),
            (0x0005, COUNTER, bytes.to_be_bytes().to_vec()),
            (0x0006, COUNTER, count(uncorrected)),
        ]
    };
    match code {
        WRITE_ERRORS => errors(processed.written_bytes, &counters.write_errors),
        READ_ERRORS => errors(processed.read_bytes, &counters.read_errors),
        OTHER_ERRORS => vec![(0x0000, COUNTER, count(&counters.other_errors))],
        TEMPERATURE => vec![(0x0000, LIST, vec![0, NO_TEMPERATURE])],
        START_STOP => {
            let stops = u32::try_from(counters.stops.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            vec![(0x0004, LIST, stops.to_be_bytes().to_vec())]
        }
        // No exception condition, and no temperature.
        EXCEPTIONS => vec![(0x0000, LIST, vec![0, 0, NO_TEMPERATURE, 0])],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn ask(bytes: &[u8], counters: &LogCounters) -> Result<Vec<u8>, Sense> {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        let Command::LogSense(request) = Command::decode(&cdb) else { panic!("{cdb:?}") };
        check(&request)?;
        let mut out = vec![7];
        page(&request, counters, Processed { read_bytes: 0x1234, written_bytes: 5 }, &mut out);
        assert_eq!(out.remove(0), 7, "appended");
        Ok(out)
    }

    #[test]
    fn golden_bytes_of_the_log_pages() {
        let counters = LogCounters::default();
        counters.failed(&Sense::READ_ERROR);
        counters.failed(&Sense::READ_ERROR);
        counters.failed(&Sense::WRITE_ERROR);
        counters.failed(&Sense::INTERNAL_FAILURE);
        counters.failed(&Sense::INVALID_FIELD);
        counters.failed(&Sense::miscompare(1));
        counters.stopped();
        let page = |code: u8| ask(&[0x4d, 0, 0x40 | code, 0, 0, 0, 0, 1, 0], &counters).unwrap();
        assert_eq!(page(0x00), [0x80, 0, 0, 7, 0x00, 0x02, 0x03, 0x06, 0x0d, 0x0e, 0x2f]);
        let count = |parameter: u8, value: u16| {
            let [high, low] = value.to_be_bytes();
            [0, parameter, 0x20, 8, 0, 0, 0, 0, 0, 0, high, low]
        };
        assert_eq!(page(0x02)[..4], [0x82, 0, 0, 36]);
        assert_eq!(page(0x02)[4..], [count(3, 0), count(5, 5), count(6, 1)].concat());
        assert_eq!(page(0x03)[4..], [count(3, 0), count(5, 0x1234), count(6, 2)].concat());
        assert_eq!(page(0x06)[4..], count(0, 1));
        assert_eq!(page(0x0d), [0x8d, 0, 0, 6, 0, 0, 0x23, 2, 0, 0xff]);
        assert_eq!(page(0x0e), [0x8e, 0, 0, 8, 0, 4, 0x23, 4, 0, 0, 0, 1]);
        assert_eq!(page(0x2f), [0xaf, 0, 0, 8, 0, 0, 0x23, 4, 0, 0, 0xff, 0]);
        let both = ask(&[0x4d, 0, 0x40, 0xff, 0, 0, 0, 1, 0], &counters).unwrap();
        assert_eq!(both[..8], [0xc0, 0xff, 0, 16, 0, 0, 0, 0xff]);
        assert_eq!(both[8..], [2, 0, 3, 0, 6, 0, 0x0d, 0, 0x0e, 0, 0x2f, 0]);
    }

    #[test]
    fn parameters_begin_at_the_pointer() {
        let counters = LogCounters::default();
        let from = |pointer: u8| ask(&[0x4d, 0, 0x43, 0, 0, 0, pointer, 1, 0], &counters);
        assert_eq!(from(4).unwrap()[2..6], [0, 24, 0, 5]);
        assert_eq!(from(6).unwrap().len(), 16);
        assert_eq!(from(7), Err(Sense::invalid_field(5)));
        assert_eq!(ask(&[0x4d, 0, 0x40, 0, 0, 0, 1, 1, 0], &counters), Err(Sense::invalid_field(5)));
    }

    #[test]
    fn what_is_not_supported_is_pointed_at() {
        let error = |bytes: &[u8]| ask(bytes, &LogCounters::default()).unwrap_err();
        assert_eq!(error(&[0x4d, 1, 0x40]), Sense::invalid_bit(1, 0), "SP");
        for control in [0x00, 0x80, 0xc0] {
            assert_eq!(error(&[0x4d, 0, control]), Sense::invalid_bit(2, 7), "PC");
        }
        assert_eq!(error(&[0x4d, 0, 0x50]), Sense::invalid_bit(2, 5), "page");
        assert_eq!(error(&[0x4d, 0, 0x42, 0xff]), Sense::invalid_field(3), "subpage");
        assert_eq!(error(&[0x4d, 0, 0x40, 1]), Sense::invalid_field(3), "subpage");
    }
}
