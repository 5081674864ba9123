//! The header in which a proxy says whom it speaks for, before the client's first message (HAProxy's PROXY protocol, versions 1 and 2).

/// What version 2 begins with.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before its addresses.
const FIXED_BYTES: usize = 16;
/// Longest line of version 1.
const LINE_MAX: usize = 107;

/// Bytes of the header that a connection begins with; 0 if there is none, or not all of it is there.
pub(super) fn header_bytes(first: &[u8]) -> usize {
    let whole = if first.starts_with(SIGNATURE) { version_two(first) } else { version_one(first) };
    whole.filter(|&bytes| bytes <= first.len()).unwrap_or(0)
}

fn version_two(first: &[u8]) -> Option<usize> {
    let [version, _, high, low] = *first.get(SIGNATURE.len()..)?.first_chunk()?;
    (version >> 4 == 2).then(|| FIXED_BYTES + usize::from(u16::from_be_bytes([high, low])))
}

fn version_one(first: &[u8]) -> Option<usize> {
    let line = first.get(..first.len().min(LINE_MAX))?;
    let is_known =
        [&b"PROXY TCP4 "[..], b"PROXY TCP6 ", b"PROXY UNKNOWN"].iter().any(|b| line.starts_with(b));
    let end = line.windows(2).position(|pair| pair == b"\r\n").filter(|_| is_known)?;
    Some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_both_versions_are_measured() {
        let two = |version: u8, length: u16, there: usize| {
            let [high, low] = length.to_be_bytes();
            [SIGNATURE, &[version, 0x11, high, low], &vec![7; there]].concat()
        };
        let one = |line: &str| header_bytes(line.as_bytes());
        assert_eq!([header_bytes(&two(0x21, 12, 12)), header_bytes(&two(0x20, 0, 9))], [28, 16]);
        assert_eq!([header_bytes(&two(0x21, 12, 11)), header_bytes(&two(0x11, 12, 12))], [0, 0]);
        assert_eq!(one("PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET /"), 34);
        assert_eq!(one("PROXY UNKNOWN\r\n"), 15);
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(100));
        assert_eq!([one("PROXY TCP4 10.0.0.1"), one("PROXY me\r\n"), one(""), one(&long)], [0; 4]);
    }
}
