//! What a file that is no capture probably is, from its first bytes, for one line of an error.

/// Bytes that the guess looks at.
pub(super) const LOOKED_AT: usize = 512;

/// Signatures at the beginning of files.
const SIGNATURES: &[(&[u8], &str)] = &[
    (&[0xa1, 0xb2, 0xc3, 0xd4], "a pcap file that ends within its header"),
    (&[0xd4, 0xc3, 0xb2, 0xa1], "a pcap file that ends within its header"),
    (&[0xa1, 0xb2, 0x3c, 0x4d], "a pcap file that ends within its header"),
    (&[0x4d, 0x3c, 0xb2, 0xa1], "a pcap file that ends within its header"),
    (&[0x0a, 0x0d, 0x0d, 0x0a], "a pcapng file that ends within its header or is damaged there"),
    (b"\x7fELF", "an ELF program or library"),
    (b"PAR1", "a Parquet file, such as one from --ops"),
    (b"PK\x03\x04", "a zip archive: extract the capture first"),
    (b"BZh", "compressed with bzip2: decompress it first"),
    (b"\xfd7zXZ\0", "compressed with xz: decompress it first"),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4: decompress it first"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG image"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"snoop\0\0\0", "a snoop capture: convert it with editcap"),
    (b"GMBU", "a Network Monitor capture: convert it with editcap"),
];

/// The probable kind of a file that begins with `first`, of which `layers` of compression were removed.
pub(super) fn guess(first: &[u8], layers: &[&str]) -> String {
    let first = &first[..first.len().min(LOOKED_AT)];
    let inner = inner(first);
    match layers {
        [] => inner,
        layers => format!("{} data, and what is in it is {inner}", layers.join(" in ")),
    }
}

fn inner(first: &[u8]) -> String {
    if first.is_empty() {
        return "empty".to_owned();
    }
    if let Some((_, kind)) = SIGNATURES.iter().find(|(signature, _)| first.starts_with(signature)) {
        return (*kind).to_owned();
    }
    // A tar archive has its mark at byte 257.
    if first.get(257..262) == Some(b"ustar") {
        return "a tar archive: extract the capture first".to_owned();
    }
    // The last character may be cut off.
    let text = match std::str::from_utf8(first) {
        Ok(text) => Some(text),
        Err(error) if error.valid_up_to() + 4 > first.len() => {
            std::str::from_utf8(&first[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let is_plain = |text: &&str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    match text.filter(is_plain).map(str::trim_start) {
        Some(text) if text.starts_with(['{', '[']) => "JSON".to_owned(),
        Some(text) if text.starts_with('<') => "XML or HTML".to_owned(),
        Some(_) => "text".to_owned(),
        None => {
            let bytes: Vec<String> = first.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("of an unknown kind that begins with {}", bytes.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_guessed_from_the_first_bytes() {
        for (first, kind) in [
            (&b""[..], "empty"),
            (b"\x7fELF\x02\x01", "an ELF"),
            (b"PAR1\x15\x04", "a Parquet"),
            (b"  {\"a\": 1}", "JSON"),
            (b"<!doctype html>", "XML or HTML"),
            ("größe\n".as_bytes(), "text"),
            (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0], "a pcap file that ends"),
            (&[0x0a, 0x0d, 0x0d, 0x0a, 1], "a pcapng file that ends"),
            (&[0, 1, 2, 3, 255], "of an unknown kind that begins with 00 01 02 03 ff"),
            (b"text\x1b[2J", "of an unknown kind that begins with 74 65 78 74"),
        ] {
            assert!(guess(first, &[]).starts_with(kind), "{first:?}: {}", guess(first, &[]));
        }
        assert_eq!(guess(b"hello", &["gzip"]), "gzip data, and what is in it is text");
        assert!(guess(&[0x80; 1 << 20], &[]).len() < 80, "a line, whatever the length of the file");
        let cut = ["ä".repeat(600).as_bytes(), b""].concat();
        assert_eq!(guess(&cut[..LOOKED_AT - 1], &[]), "text");
    }
}
