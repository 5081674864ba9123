//! Protocols that servers have spoken beyond doubt: other connections to them begin with less proof.

use std::collections::{HashMap, VecDeque};

use crate::decode::ProtocolEntry;
use crate::packet::Endpoint;

/// Most servers that are remembered; the oldest are forgotten.
const SERVERS_MAX: usize = 4096;

/// By server.
#[derive(Debug, Default)]
pub(crate) struct Proven {
    spoken: HashMap<Endpoint, &'static ProtocolEntry, foldhash::fast::RandomState>,
    order: VecDeque<Endpoint>,
}

impl Proven {
    /// What a server has spoken.
    pub(crate) fn by(&self, server: Endpoint) -> Option<&'static ProtocolEntry> {
        self.spoken.get(&server).copied()
    }

    /// A server has spoken a protocol. Whether that is new.
    pub(crate) fn add(&mut self, server: Endpoint, entry: &'static ProtocolEntry) -> bool {
        let before = self.spoken.insert(server, entry);
        if before.is_none() {
            self.order.push_back(server);
            if self.order.len() > SERVERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.spoken.remove(&oldest);
            }
        }
        before != Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::PROTOCOLS;

    #[test]
    fn the_oldest_servers_are_forgotten() {
        let mut proven = Proven::default();
        let server = |port| Endpoint { address: 1, port };
        let [one, other] = [&PROTOCOLS[0], &PROTOCOLS[1]];
        for port in 1..=5000 {
            assert!(proven.add(server(port), one) && !proven.add(server(port), one));
        }
        assert_eq!((proven.by(server(1)), proven.by(server(5000))), (None, Some(one)));
        assert!(proven.add(server(5000), other));
        assert_eq!(proven.by(server(5000)), Some(other));
        assert_eq!((proven.spoken.len(), proven.order.len()), (SERVERS_MAX, SERVERS_MAX));
    }
}
