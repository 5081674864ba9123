//! Protocols that are recognised by their first bytes and not decoded: they have several requests in flight or in one message, so their
//! turns are no requests.

use record::Side;

use super::Start;

/// The name of the protocol that a client's first bytes show, or in the middle of a connection those of either side.
pub(crate) fn name(start: &Start<'_>) -> Option<&'static str> {
    let bytes = start.bytes;
    if matches!(bytes, [0, _, _, _, 0xfd, b'S', b'M', b'B', ..]) {
        return Some("encrypted SMB");
    }
    if start.side != Side::Client || !start.is_first {
        return None;
    }
    if bytes.starts_with(b"AMQP") && bytes.len() == 8 {
        return Some("AMQP");
    }
    if bytes.starts_with(b"SSH-2.0-") {
        return Some("SSH");
    }
    let netbios = bytes.first() == Some(&0);
    if netbios && matches!(bytes.get(4..8), Some([0xff, b'S', b'M', b'B'])) {
        return Some("SMB");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<&'static str> {
        name(&Start::new(Side::Client, bytes, 4000, true))
    }

    #[test]
    fn first_bytes_tell_the_protocol() {
        assert_eq!(of(b"AMQP\x03\x01\0\0"), Some("AMQP"));
        assert_eq!(of(b"AMQP is a protocol\n"), None);
        assert_eq!(of(b"SSH-2.0-OpenSSH_9.2\r\n"), Some("SSH"));
        assert_eq!(of(&[0; 60]), None);
        assert_eq!(of(b"\0\0\0\x80\xffSMBr\0"), Some("SMB"));
        assert_eq!(of(b"\0\0\0\x80\xfdSMB@\0"), Some("encrypted SMB"));
        for bytes in [&b""[..], b"\x10", b"\0", b"\0\0\0\0", b"hello"] {
            assert_eq!(of(bytes), None);
        }
    }
}
