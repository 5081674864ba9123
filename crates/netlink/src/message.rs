//! Netlink messages within a datagram. Pure: bytes in, slices out.

use netlink_packet_core::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR};

use crate::attributes::Attributes;

/// Bytes of the header: length, kind, flags, sequence number, port.
pub const HEADER: usize = 16;

const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Type of the attribute with the text of an extended acknowledgement (NLMSGERR_ATTR_MSG).
const EXTENDED_TEXT: u16 = 1;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type, whose meaning depends on the protocol.
    pub kind: u16,
    flags: u16,
    /// The sequence number of the request that it answers.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// What a message means to the request that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A part of the answer.
    Part,
    /// Nothing.
    Nothing,
    /// The end of the answer: success, or an error number (positive) with the kernel's text.
    End(Result<(), Refusal>),
}

/// The kernel's refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The text of the extended acknowledgement.
    pub said: Option<String>,
}

/// Cuts the first message off a datagram: the message and what follows it. `None` when what is left is no whole message.
#[must_use]
pub fn split_first(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(..length)?;
    let message = Message {
        kind: u16_at(body, 4)?,
        flags: u16_at(body, 6)?,
        sequence: u32_at(body, 8)?,
        payload: body.get(HEADER..)?,
    };
    // The padding after the last message may be missing.
    let next = length.checked_next_multiple_of(4)?.min(bytes.len());
    Some((message, &bytes[next..]))
}

impl Message<'_> {
    /// What it means to its request.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        match self.kind {
            NOOP => Meaning::Nothing,
            ERROR => Meaning::End(self.outcome(self.echo())),
            DONE => Meaning::End(self.outcome(4)),
            _ => Meaning::Part,
        }
    }

    /// Whether the table changed while it was read, so that the answer is inconsistent.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.flags & NLM_F_DUMP_INTR != 0
    }

    /// Where the attributes of an acknowledgement begin: after the error number and the request that it echoes.
    fn echo(&self) -> usize {
        let echoed =
            u32_at(self.payload, 4).and_then(|length| usize::try_from(length).ok()).unwrap_or(HEADER);
        let echoed = if self.flags & NLM_F_CAPPED != 0 { HEADER } else { echoed };
        4 + echoed.checked_next_multiple_of(4).unwrap_or(HEADER)
    }

    fn outcome(&self, attributes: usize) -> Result<(), Refusal> {
        // Kernels may end a dump without a number: success.
        let number = u32_at(self.payload, 0).map_or(0, u32::cast_signed);
        if number == 0 {
            return Ok(());
        }
        let said = (self.flags & NLM_F_ACK_TLVS != 0)
            .then(|| self.payload.get(attributes..))
            .flatten()
            .and_then(|bytes| Attributes::new(bytes).text(EXTENDED_TEXT));
        Err(Refusal { errno: number.checked_neg().unwrap_or(i32::MAX), said })
    }
}

/// A request: header and payload.
#[must_use]
pub fn request(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An acknowledgement with an extended text, as the kernel sends it with NETLINK_CAP_ACK.
    fn refusal(errno: i32, said: &str) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend(request(20, 5, 7, &[]));
        let mut text = said.as_bytes().to_vec();
        text.push(0);
        payload.extend(u16::try_from(4 + text.len()).unwrap().to_ne_bytes());
        payload.extend(EXTENDED_TEXT.to_ne_bytes());
        payload.extend(text);
        request(ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, 7, &payload)
    }

    #[test]
    fn a_refusal_carries_the_kernels_text() {
        let bytes = refusal(22, "device index does not match name");
        let (message, rest) = split_first(&bytes).unwrap();
        assert!(rest.is_empty());
        let expected = Refusal { errno: 22, said: Some("device index does not match name".to_owned()) };
        assert_eq!(message.meaning(), Meaning::End(Err(expected)));
    }

    #[test]
    fn an_echoed_request_is_skipped_before_the_text() {
        let mut payload = (-95i32).to_ne_bytes().to_vec();
        payload.extend(request(20, 5, 7, &[1, 2, 3, 4, 5, 6, 7, 8]));
        payload.extend([7, 0, 1, 0, b'n', b'o', 0]);
        let bytes = request(ERROR, NLM_F_ACK_TLVS, 7, &payload);
        let (message, _) = split_first(&bytes).unwrap();
        assert_eq!(message.meaning(), Meaning::End(Err(Refusal { errno: 95, said: Some("no".to_owned()) })));
    }

    #[test]
    fn two_messages_of_a_datagram_are_apart_and_an_incomplete_one_is_none() {
        let mut bytes = request(16, 2, 3, &[1, 2, 3, 4, 5]);
        bytes.extend([0, 0, 0]);
        bytes.extend(request(DONE, 2, 3, &0u32.to_ne_bytes()));
        let (first, rest) = split_first(&bytes).unwrap();
        assert_eq!((first.meaning(), first.payload), (Meaning::Part, &[1, 2, 3, 4, 5][..]));
        let (second, rest) = split_first(rest).unwrap();
        assert_eq!(second.meaning(), Meaning::End(Ok(())));
        assert!(rest.is_empty());
        assert_eq!(split_first(&bytes[..18]), None);
        assert_eq!(split_first(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
