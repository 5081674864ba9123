//! The digests negotiated in a target's login responses, which following the connection requires.

use iscsi::Digests;

/// The text of login responses, gathered until the login is over.
#[derive(Debug, Default)]
pub(crate) struct LoginText {
    text: Vec<u8>,
    digests: Digests,
    /// The negotiated digests, when the login has just ended.
    pub(crate) agreed: Option<Digests>,
}

/// Most bytes of one response's text that are parsed: the default MaxRecvDataSegmentLength, which a login
/// may not exceed (RFC 7143 13.12).
const TEXT_MAX: usize = 8192;

impl LoginText {
    /// Bytes of a login response's data segment.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let room = TEXT_MAX.saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// A login response has ended; the last one takes the connection to the full feature phase.
    pub(crate) fn pdu_ended(&mut self, is_last: bool) {
        for pair in self.text.split(|&b| b == 0) {
            match pair {
                b"HeaderDigest=CRC32C" => self.digests.header = true,
                b"DataDigest=CRC32C" => self.digests.data = true,
                b"HeaderDigest=None" => self.digests.header = false,
                b"DataDigest=None" => self.digests.data = false,
                _ => {}
            }
        }
        self.text = Vec::new();
        if is_last {
            self.agreed = Some(self.digests);
        }
    }
}
