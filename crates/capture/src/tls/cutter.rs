//! Cuts one side's stream into records (RFC 8446 5.1).

/// Bytes of a record's header.
pub(super) const HEADER: usize = 5;
/// Longest record: that of TLS 1.2 (RFC 5246 6.2.3), which is longer than that of TLS 1.3.
const RECORD_MAX: u16 = (1 << 14) + 2048;

/// Content types.
pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    /// Bytes behind it.
    pub(super) length: u16,
}

impl Header {
    /// Reads a header; none if no record begins so.
    pub(super) fn of(bytes: [u8; HEADER]) -> Option<Self> {
        let [kind, major, minor, high, low] = bytes;
        let length = u16::from_be_bytes([high, low]);
        let is_valid = matches!(kind, CHANGE_CIPHER_SPEC..=HEARTBEAT)
            && major == 3
            && minor <= 4
            && (1..=RECORD_MAX).contains(&length);
        is_valid.then_some(Self { kind, length })
    }
}

/// What comes next of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A record begins.
    Header(Header),
    /// Bytes of the record, and whether it ends with them.
    Body { bytes: &'a [u8], is_end: bool },
    /// The header of the next record is not complete.
    More,
    /// No record begins so.
    Invalid,
}

/// The place in a stream.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    head: [u8; HEADER],
    headed: usize,
    /// Bytes of the record that are still to come.
    left: usize,
}

impl Cutter {
    /// Takes the next part off the front of `rest`.
    pub(super) fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Part<'a> {
        if self.left > 0 {
            let (bytes, behind) = rest.split_at(self.left.min(rest.len()));
            *rest = behind;
            self.left -= bytes.len();
            return Part::Body { bytes, is_end: self.left == 0 };
        }
        while let (true, Some((&byte, behind))) = (self.headed < HEADER, rest.split_first()) {
            self.head[self.headed] = byte;
            self.headed += 1;
            *rest = behind;
        }
        if self.headed < HEADER {
            return Part::More;
        }
        self.headed = 0;
        match Header::of(self.head) {
            Some(header) => {
                self.left = usize::from(header.length);
                Part::Header(header)
            }
            None => Part::Invalid,
        }
    }

    /// Passes over bytes that are not in the capture: how many of them belong to the record at hand, and whether it ends with them.
    /// The others have taken the boundary with them.
    pub(super) fn miss(&mut self, count: u64) -> (u64, bool) {
        let inside = count.min(self.left as u64);
        self.left -= inside as usize;
        (inside, inside > 0 && self.left == 0)
    }

    /// Whether the stream is between two records.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0 && self.headed == 0
    }
}

/// Whether a segment of application data begins with a record, as far as it can be seen: where a capture begins in the middle, and its
/// records fit each other.
pub(crate) fn is_application_data(segment: &[u8]) -> bool {
    let mut rest = segment;
    let mut records = 0;
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER>() {
        let is_common = head.get(..3) == Some(&[APPLICATION_DATA, 3, 3]);
        let Some(header) = Header::of(*head).filter(|header| is_common && header.length >= 17) else {
            return false;
        };
        records += 1;
        rest = behind.get(usize::from(header.length)..).unwrap_or_default();
    }
    records > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u16).to_be_bytes();
        [&[kind, 3, 3, length[0], length[1]], content].concat()
    }

    #[test]
    fn records_are_cut_wherever_segments_end() {
        let stream = [record(22, b"abc"), record(23, b"de"), record(20, b"f")].concat();
        for size in 1..=stream.len() {
            let (mut cutter, mut seen) = (Cutter::default(), Vec::new());
            for mut segment in stream.chunks(size) {
                while !segment.is_empty() {
                    match cutter.next(&mut segment) {
                        Part::Header(header) => seen.push((header.kind, Vec::new(), false)),
                        Part::Body { bytes, is_end } => {
                            let last = seen.last_mut().unwrap();
                            last.1.extend_from_slice(bytes);
                            last.2 = is_end;
                        }
                        Part::More => assert!(segment.is_empty()),
                        Part::Invalid => panic!("{seen:?}"),
                    }
                }
            }
            let all = [(22, b"abc".to_vec(), true), (23, b"de".to_vec(), true), (20, b"f".to_vec(), true)];
            assert_eq!(seen, all, "{size}");
            assert!(cutter.is_between());
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let of = |length: u16| {
            let [high, low] = length.to_be_bytes();
            Header::of([23, 3, 3, high, low])
        };
        assert!(of(RECORD_MAX).is_some() && of(1).is_some());
        assert!(of(RECORD_MAX + 1).is_none() && of(0).is_none() && of(u16::MAX).is_none());
        for head in [[19, 3, 3, 0, 9], [25, 3, 3, 0, 9], [23, 2, 0, 0, 9], [23, 3, 5, 0, 9], *b"GET /"] {
            assert_eq!(Header::of(head), None, "{head:?}");
        }
    }

    #[test]
    fn a_hole_ends_a_record_or_takes_the_next_boundary_with_it() {
        for (count, told) in [(4, (4, false)), (8, (8, true)), (20, (8, true))] {
            let stream = record(23, &[7; 10]);
            let (mut cutter, mut start) = (Cutter::default(), &stream[..7]);
            while !start.is_empty() {
                cutter.next(&mut start);
            }
            assert_eq!(cutter.miss(count), told);
        }
    }

    #[test]
    fn a_middle_is_recognised_by_its_records() {
        let two = [record(23, &[1; 40]), record(23, &[2; 30])].concat();
        assert!(is_application_data(&two) && is_application_data(&two[..20]));
        let wrong = [record(23, &[1; 40]), record(9, &[2; 30])].concat();
        assert!(!is_application_data(&wrong) && !is_application_data(&record(23, &[1; 4])));
        assert!(!is_application_data(b"\x17\x03") && !is_application_data(&record(22, &[1; 40])));
    }
}
