//! Protocols that are recognised by their first bytes and not decoded: they have several requests in flight or in one message, so their
//! turns are no requests.

use record::Side;

use super::Start;

/// Offset of the operation code in MongoDB's header, and the code of OP_MSG.
const MONGO_OPCODE: (usize, [u8; 4]) = (12, 2013_u32.to_le_bytes());
/// Longest message of MongoDB, bytes.
const MONGO_MAX: u32 = 48_000_000;

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
    if is_mongo(bytes) {
        return Some("MongoDB");
    }
    let netbios = bytes.first() == Some(&0);
    if netbios && matches!(bytes.get(4..8), Some([0xff, b'S', b'M', b'B'])) {
        return Some("SMB");
    }
    None
}

fn is_mongo(bytes: &[u8]) -> bool {
    let (at, code) = MONGO_OPCODE;
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length));
    bytes.get(at..at + 4) == Some(&code) && length.is_some_and(|length| (26..MONGO_MAX).contains(&length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<&'static str> {
        name(&Start { side: Side::Client, bytes, port: 4000, is_first: true })
    }

    #[test]
    fn first_bytes_tell_the_protocol() {
        assert_eq!(of(b"AMQP\x03\x01\0\0"), Some("AMQP"));
        assert_eq!(of(b"AMQP is a protocol\n"), None);
        assert_eq!(of(b"SSH-2.0-OpenSSH_9.2\r\n"), Some("SSH"));
        let mongo = [&40_u32.to_le_bytes()[..], &[0; 8], &2013_u32.to_le_bytes(), &[0; 24]].concat();
        assert_eq!(of(&mongo), Some("MongoDB"));
        assert_eq!(of(&[0; 60]), None);
        assert_eq!(of(b"\0\0\0\x80\xffSMBr\0"), Some("SMB"));
        assert_eq!(of(b"\0\0\0\x80\xfdSMB@\0"), Some("encrypted SMB"));
        for bytes in [&b""[..], b"\x10", b"\0", b"\0\0\0\0", b"hello"] {
            assert_eq!(of(bytes), None);
        }
    }
}
