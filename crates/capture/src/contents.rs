//! What a capture holds besides the selected connections: for the message that nothing was selected.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::encapsulation::{Unread, may_hide_tcp};

/// Most TCP ports that are counted one by one.
const PORTS_MAX: usize = 1024;

/// Frames that belong to no followed connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contents {
    /// TCP packets by the probable port of their server, the lower one.
    pub tcp_packets: BTreeMap<u16, u64>,
    /// TCP packets of further ports.
    pub tcp_other: u64,
    /// Frames of other protocols.
    pub other_frames: BTreeMap<String, u64>,
}

impl Contents {
    /// Counts a TCP packet.
    pub fn tcp(&mut self, ports: (u16, u16)) {
        let port = ports.0.min(ports.1);
        if self.tcp_packets.len() < PORTS_MAX || self.tcp_packets.contains_key(&port) {
            *self.tcp_packets.entry(port).or_default() += 1;
        } else {
            self.tcp_other += 1;
        }
    }

    /// Counts a frame of another protocol. `protocol` is one of few.
    pub fn other(&mut self, protocol: &str) {
        match self.other_frames.get_mut(protocol) {
            Some(count) => *count += 1,
            None => {
                self.other_frames.insert(protocol.to_owned(), 1);
            }
        }
    }

    /// Counts a frame whose segment cannot be read.
    pub(crate) fn unread(&mut self, unread: Unread) {
        self.other(Name::of(unread).text());
    }

    /// The frames that may hold TCP segments that were not read, by what they are.
    pub fn not_read(&self) -> impl Iterator<Item = (&str, u64)> {
        self.other_frames
            .iter()
            .filter(|(name, _)| may_hide_tcp(name))
            .map(|(name, &count)| (name.as_str(), count))
    }

    /// Adds those of another capture point.
    pub fn add(&mut self, more: &Self) {
        for (&port, count) in &more.tcp_packets {
            *self.tcp_packets.entry(port).or_default() += count;
        }
        self.tcp_other += more.tcp_other;
        for (protocol, count) in &more.other_frames {
            *self.other_frames.entry(protocol.clone()).or_default() += count;
        }
    }
}

/// A name that is composed without memory of its own; longer ones are cut off.
struct Name {
    bytes: [u8; 96],
    length: usize,
}

impl Name {
    fn of(unread: Unread) -> Self {
        let mut name = Self { bytes: [0; 96], length: 0 };
        // A name that is too long is cut off.
        let _ = write!(name, "{unread}");
        name
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encapsulation::UNKNOWN;
    use crate::packet::NotTcp;

    #[test]
    fn ports_are_counted_up_to_a_limit() {
        let mut contents = Contents::default();
        for port in 0..5000 {
            contents.tcp((port, 40_000));
        }
        contents.tcp((60_000, 80));
        let counted: u64 = contents.tcp_packets.values().sum();
        assert_eq!((counted + contents.tcp_other, contents.tcp_packets.len()), (5001, PORTS_MAX));
        assert_eq!(contents.tcp_packets[&80], 2);
        let mut both = contents.clone();
        both.add(&contents);
        assert_eq!((both.tcp_packets[&80], both.tcp_other), (4, 2 * contents.tcp_other));
    }

    #[test]
    fn frames_are_counted_by_what_they_hold_and_in_which_tunnel() {
        let mut contents = Contents::default();
        let unread = |what, tunnel| Unread { reason: NotTcp::Other, what, tunnel };
        for _ in 0..2 {
            contents.unread(unread("ARP", None));
            contents.unread(unread("ESP (encrypted)", None));
            contents.unread(unread("ARP", Some("VXLAN")));
            contents.unread(unread(UNKNOWN, Some("VXLAN")));
        }
        let counted: Vec<(&str, u64)> = contents.other_frames.iter().map(|(n, &c)| (n.as_str(), c)).collect();
        let unknown = "VXLAN with an unknown inner type";
        assert_eq!(counted, [("ARP", 2), ("ARP in VXLAN", 2), ("ESP (encrypted)", 2), (unknown, 2)]);
        let hidden: Vec<&str> = contents.not_read().map(|(name, _)| name).collect();
        assert_eq!(hidden, ["ESP (encrypted)", unknown]);
    }
}
