//! Puts handshake messages together, which records cut as they like (RFC 8446 5.1).

/// Longest message that is kept as a whole; a certificate is passed over.
const KEPT_MAX: usize = 16 << 10;
/// Bytes of a message's head.
pub(super) const HEAD: usize = 4;

/// Messages.
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const SERVER_HELLO: u8 = 2;
pub(super) const NEW_SESSION_TICKET: u8 = 4;
pub(super) const ENCRYPTED_EXTENSIONS: u8 = 8;
pub(super) const FINISHED: u8 = 20;
pub(super) const KEY_UPDATE: u8 = 24;

/// A handshake message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    /// What it says, if it was kept.
    pub(super) body: Vec<u8>,
    /// Bytes of its body.
    pub(super) length: usize,
}

/// The messages of one side.
#[derive(Debug, Default)]
pub(super) struct Messages {
    kept: Vec<u8>,
    /// Bytes of the message at hand so far.
    passed: usize,
    /// What went before is not in the capture: only a record that is a whole message says something.
    is_lost: bool,
}

impl Messages {
    /// Something of the stream is missing.
    pub(super) fn lose(&mut self) {
        *self = Self { is_lost: true, ..Self::default() };
    }

    /// Takes the content of a record: the messages that end in it.
    pub(super) fn add(&mut self, mut content: &[u8]) -> Vec<Message> {
        let mut ended = Vec::new();
        if self.is_lost {
            let whole = length(content).filter(|length| HEAD + length == content.len());
            let Some(length) = whole else { return ended };
            self.is_lost = false;
            ended.push(message(content, length));
            return ended;
        }
        while !content.is_empty() {
            let wanted = length(&self.kept).map_or(HEAD, |length| HEAD + length);
            let count = wanted.saturating_sub(self.passed).min(content.len());
            let (taken, rest) = content.split_at(count);
            let room = KEPT_MAX.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(taken.get(..room).unwrap_or(taken));
            self.passed += count;
            content = rest;
            if let Some(length) = length(&self.kept).filter(|length| HEAD + length == self.passed) {
                ended.push(message(&self.kept, length));
                self.kept.clear();
                self.passed = 0;
            }
        }
        ended
    }
}

fn length(start: &[u8]) -> Option<usize> {
    let &[_, a, b, c] = start.first_chunk::<HEAD>()?;
    Some(u32::from_be_bytes([0, a, b, c]) as usize)
}

fn message(kept: &[u8], length: usize) -> Message {
    let kind = kept.first().copied().unwrap_or_default();
    let body = kept.get(HEAD..).filter(|body| body.len() == length).unwrap_or_default();
    Message { kind, body: body.to_vec(), length }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u8, body: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (body.len() as u32).to_be_bytes();
        [&[kind, a, b, c], body].concat()
    }

    #[test]
    fn messages_are_whole_however_records_cut_them() {
        let stream =
            [raw(1, b"hello"), raw(14, b""), raw(11, &[9; KEPT_MAX + 5]), raw(20, &[3; 32])].concat();
        for size in [1, 3, 50, 1000, stream.len()] {
            let mut messages = Messages::default();
            let all: Vec<Message> = stream.chunks(size).flat_map(|part| messages.add(part)).collect();
            let kinds: Vec<(u8, usize, usize)> =
                all.iter().map(|m| (m.kind, m.length, m.body.len())).collect();
            assert_eq!(kinds, [(1, 5, 5), (14, 0, 0), (11, KEPT_MAX + 5, 0), (20, 32, 32)], "{size}");
            assert!(messages.kept.capacity() <= 2 * KEPT_MAX);
        }
    }

    #[test]
    fn behind_a_hole_only_a_record_that_is_a_message_counts() {
        let mut messages = Messages::default();
        messages.add(&raw(11, &[9; 100])[..50]);
        messages.lose();
        assert!(messages.add(&[20, 0, 0, 32, 1]).is_empty(), "the middle of another");
        assert_eq!(messages.add(&raw(24, &[0]))[0].kind, KEY_UPDATE);
        assert_eq!(messages.add(&raw(20, &[0; 32])).len(), 1);
    }
}
