//! Sending of PDU headers and data in separate calls, as simple initiators do.

use iscsi::Digests;

/// Bytes of a basic header segment (RFC 7143 11.2.1).
const BHS_BYTES: usize = 48;

/// Tracks the part boundaries in a stream of PDUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// Unsent bytes of the current part.
    left: usize,
    /// Bytes of the data segment that follows.
    data: usize,
}

/// A part to send in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its length, bytes.
    pub(crate) bytes: usize,
    /// Whether it is a header followed by data.
    pub(crate) is_header: bool,
}

impl Parts {
    /// Returns the part at the beginning of `pending`: the rest of the current one, or the next.
    pub(crate) fn next(&mut self, pending: &[u8], digests: Digests) -> Part {
        if self.left == 0 && self.data > 0 {
            (self.left, self.data) = (self.data, 0);
        } else if self.left == 0 {
            (self.left, self.data) = match pending.first_chunk::<BHS_BYTES>() {
                None => (pending.len(), 0),
                Some(header) => {
                    let digest = |is_on: bool| if is_on { 4 } else { 0 };
                    let data = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
                    let padded = data.next_multiple_of(4);
                    let head = BHS_BYTES + usize::from(header[4]) * 4 + digest(digests.header);
                    (head, if data == 0 { 0 } else { padded + digest(digests.data) })
                }
            };
        }
        Part { bytes: self.left.min(pending.len()), is_header: self.data > 0 }
    }

    /// Records `count` sent bytes of the part.
    pub(crate) fn sent(&mut self, count: usize) {
        self.left -= count.min(self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_at_header_and_data_boundaries_despite_short_sends() {
        let pdu = |data: u8, ahs: u8| {
            let mut bytes = vec![0; BHS_BYTES];
            (bytes[4], bytes[7]) = (ahs, data);
            bytes.resize(BHS_BYTES + usize::from(ahs) * 4 + usize::from(data).next_multiple_of(4), 7);
            bytes
        };
        let stream = [pdu(0, 0), pdu(5, 2), pdu(0, 0), pdu(200, 0)].concat();
        let (mut parts, mut rest, mut seen) = (Parts::default(), &stream[..], Vec::new());
        let mut take = 0;
        while !rest.is_empty() {
            let part = parts.next(rest, Digests::default());
            // Sockets may take any number of bytes.
            take = take % 50 + 13;
            let count = take.min(part.bytes);
            parts.sent(count);
            rest = &rest[count..];
            match seen.last_mut() {
                Some((bytes, is_header, left)) if *left > 0 => {
                    let _: &mut bool = is_header;
                    (*bytes, *left) = (*bytes + count, *left - count);
                }
                _ => seen.push((count, part.is_header, part.bytes - count)),
            }
        }
        let whole: Vec<(usize, bool)> = seen.into_iter().map(|(bytes, header, _)| (bytes, header)).collect();
        assert_eq!(whole, [(48, false), (56, true), (8, false), (48, false), (48, true), (200, false)]);
    }
}
