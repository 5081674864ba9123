//! A page of the kernel's ring buffer, as `trace_pipe_raw` returns it (kernel: include/linux/ring_buffer.h).
//!
//! A page begins with the time of its first event and the number of its bytes. Each event has a 32-bit head: 5 bits of
//! type and length, 27 bits of nanoseconds since the event before.

/// The place of a page's parts: tracefs's `events/header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Place of the number of bytes.
    pub commit_offset: usize,
    /// Its size, bytes.
    pub commit_size: usize,
    /// Where the events begin.
    pub data_offset: usize,
    /// Most bytes of events.
    pub data_bytes: usize,
}

/// A page that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of the trace buffer is malformed at byte {at}")]
pub struct PageError {
    /// Where.
    pub at: usize,
}

/// A flag of the number of bytes: events were lost before this page.
const MISSED: u64 = 1 << 31;
/// Bits that hold the number of bytes.
const COMMIT_MASK: u64 = (1 << 20) - 1;

/// Types of an event's head; up to 28 the type is the length of its data in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time in the head; the others of a long time follow it.
const TIME_BITS: u32 = 27;
/// An absolute time keeps these bits of the time before.
const TIME_STAMP_KEPT: u64 = 0xf8 << 56;

impl Page {
    /// Reads `events/header_page`; `None` if a part is missing.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let of = |name: &str| {
            text.lines().filter_map(crate::format::field).find(|(own, _)| own == name).map(|(_, field)| field)
        };
        let (commit, data) = (of("commit")?, of("data")?);
        Some(Self {
            commit_offset: commit.offset,
            commit_size: commit.size,
            data_offset: data.offset,
            data_bytes: data.size,
        })
    }

    /// Bytes of a page.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data_offset + self.data_bytes
    }

    /// Calls `take` with the time (ns on the instance's clock) and the bytes of each event. Returns whether the kernel lost events before
    /// this page.
    ///
    /// # Errors
    /// When the page contradicts itself; events before that place have been taken.
    pub fn events(&self, page: &[u8], take: &mut dyn FnMut(u64, &[u8])) -> Result<bool, PageError> {
        let word = |at: usize| -> Result<u32, PageError> {
            let bytes = at.checked_add(4).and_then(|end| page.get(at..end)).ok_or(PageError { at })?;
            Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let long = |at: usize| -> Result<u64, PageError> {
            let bytes = at.checked_add(8).and_then(|end| page.get(at..end)).ok_or(PageError { at })?;
            Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| PageError { at })?))
        };
        let mut time = long(0)?;
        let commit = match self.commit_size {
            8 => long(self.commit_offset)?,
            4 => word(self.commit_offset)?.into(),
            _ => return Err(PageError { at: self.commit_offset }),
        };
        let end = self.data_offset + (commit & COMMIT_MASK) as usize;
        if end > page.len() {
            return Err(PageError { at: self.commit_offset });
        }
        let mut at = self.data_offset;
        while at + 4 <= end {
            let head = word(at)?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let data = match kind {
                // The rest of the page is unused.
                PADDING if delta == 0 => break,
                PADDING => {
                    time = time.wrapping_add(delta);
                    at += 4 + word(at + 4)? as usize;
                    continue;
                }
                TIME_EXTEND => {
                    time = time.wrapping_add(delta | u64::from(word(at + 4)?) << TIME_BITS);
                    at += 8;
                    continue;
                }
                TIME_STAMP => {
                    time = (time & TIME_STAMP_KEPT) | delta | u64::from(word(at + 4)?) << TIME_BITS;
                    at += 8;
                    continue;
                }
                // A long event: the next word is its length, that word included.
                0 => {
                    let bytes = word(at + 4)? as usize;
                    let data = at + 8..at.saturating_add(4).saturating_add(bytes);
                    at = data.end;
                    data
                }
                words => {
                    let data = at + 4..at + 4 + 4 * words as usize;
                    at = data.end;
                    data
                }
            };
            time = time.wrapping_add(delta);
            if data.end > end || data.start > data.end {
                return Err(PageError { at: data.start });
            }
            take(time, &page[data]);
        }
        Ok(commit & MISSED != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    fn page(time: u64, words: &[u32], flags: u64) -> Vec<u8> {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        [&time.to_ne_bytes()[..], &(data.len() as u64 | flags).to_ne_bytes(), &data].concat()
    }

    /// Times and bytes of events.
    type Events = Vec<(u64, Vec<u8>)>;

    fn read(bytes: &[u8]) -> (Result<bool, PageError>, Events) {
        let mut all = Vec::new();
        let layout = Page::read(HEADER).unwrap();
        let outcome = layout.events(bytes, &mut |time, event| all.push((time, event.to_vec())));
        (outcome, all)
    }

    #[test]
    fn the_layout_is_read_from_its_description() {
        let layout = Page { commit_offset: 8, commit_size: 8, data_offset: 16, data_bytes: 4080 };
        assert_eq!(Page::read(HEADER), Some(layout));
        assert_eq!(layout.bytes(), 4096);
        assert_eq!(Page::read("field: u64 timestamp; offset:0; size:8;"), None);
    }

    #[test]
    fn times_add_up_over_every_kind_of_event() {
        let words = [
            2 | 7 << 5,
            0xaaaa,
            0xbbbb, // two words, 7 ns later
            TIME_EXTEND | 1 << 5,
            2, // 1 + 2 * 2^27 ns
            5 << 5,
            12,
            1,
            2, // a long event of 8 bytes, 5 ns later
            TIME_STAMP | 3 << 5,
            4, // at 3 + 4 * 2^27 ns
            1,
            0xcccc,
            PADDING | 9 << 5,
            8,
            0, // unused, 9 ns
            1 | 1 << 5,
            0xdddd,
            PADDING,
            99,
        ];
        let (outcome, events) = read(&page(1000, &words, 0));
        assert_eq!(outcome, Ok(false));
        let extended = 1007 + 1 + (2 << 27);
        let stamp = 3 + (4 << 27);
        let times: Vec<u64> = events.iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [1007, extended + 5, stamp, stamp + 10]);
        assert_eq!(events[1].1, [1_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat());
        assert_eq!(events[3].1, 0xdddd_u32.to_ne_bytes());
    }

    #[test]
    fn lost_events_and_malformed_pages_are_reported() {
        assert_eq!(read(&page(1, &[1, 7], MISSED)).0, Ok(true));
        let beyond = [9, 7];
        assert!(read(&page(1, &beyond, 0)).0.is_err());
        let shorter_than_its_length = [0, 2, 0, 0];
        assert!(read(&page(1, &shorter_than_its_length, 0)).0.is_err());
        let mut more_than_there_is = page(1, &[1, 7], 0);
        more_than_there_is[8] = 200;
        assert!(read(&more_than_there_is).0.is_err());
        assert!(read(&[0; 7]).0.is_err());
    }

    proptest! {
        #[test]
        fn no_page_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), commit in 0_u64..220) {
            let mut bytes = bytes;
            if bytes.len() >= 16 {
                bytes[8..16].copy_from_slice(&commit.to_ne_bytes());
            }
            let _ = read(&bytes);
        }
    }
}
