//! Which server and client a connection belongs to.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Most servers that are told apart; connections of further ones are counted together.
pub(crate) const SERVERS_MAX: usize = 256;
/// Most connections that are known at once.
const CONNECTIONS_MAX: usize = 65_536;
/// Connections that are remembered after their end: exchanges may be delivered late, and another point may still see them.
const ENDED_MAX: usize = 8192;
/// The server of connections beyond the limits.
pub(crate) const OTHERS: u32 = u32::MAX;

/// The ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The server's number, or [`OTHERS`].
    pub(crate) server: u32,
    /// The client's address.
    pub(crate) client: Option<IpAddr>,
}

/// The servers, and the connections of each.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    connections: HashMap<u32, Ends, foldhash::fast::RandomState>,
    ended: VecDeque<u32>,
    places: HashMap<SocketAddr, u32>,
    servers: Vec<SocketAddr>,
    recent: Option<(u32, Ends)>,
}

impl Directory {
    /// Adds a connection before its first operation.
    pub(crate) fn opened(&mut self, connection: u32, client: SocketAddr, server: SocketAddr) {
        let place = match self.places.get(&server) {
            Some(&place) => place,
            None if self.servers.len() < SERVERS_MAX => {
                let place = self.servers.len() as u32;
                self.servers.push(server);
                self.places.insert(server, place);
                place
            }
            None => OTHERS,
        };
        self.recent = None;
        if self.connections.len() < CONNECTIONS_MAX {
            self.connections.insert(connection, Ends { server: place, client: Some(client.ip()) });
        }
    }

    /// Notes that a connection has ended; it is forgotten some connections later.
    pub(crate) fn ended(&mut self, connection: u32) {
        self.ended.push_back(connection);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.connections.remove(&oldest);
            self.recent = None;
        }
    }

    /// The ends of a connection.
    #[inline]
    pub(crate) fn ends(&mut self, connection: u32) -> Ends {
        match self.recent {
            Some((recent, ends)) if recent == connection => ends,
            _ => {
                let unknown = Ends { server: OTHERS, client: None };
                let ends = self.connections.get(&connection).copied().unwrap_or(unknown);
                self.recent = Some((connection, ends));
                ends
            }
        }
    }

    /// The client of a connection that is not forgotten.
    pub(crate) fn client(&self, connection: u32) -> Option<IpAddr> {
        self.connections.get(&connection).and_then(|ends| ends.client)
    }

    /// Whether no connection was ever added.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// A server's address and port.
    pub(crate) fn server(&self, place: u32) -> Option<SocketAddr> {
        self.servers.get(place as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_connections_without_end_keep_their_servers() {
        let mut directory = Directory::default();
        let server = |i: u32| SocketAddr::from(([10, 0, 0, (i % 3) as u8], 80));
        let client = SocketAddr::from(([10, 0, 1, 1], 4000));
        directory.opened(u32::MAX - 1, client, server(0));
        for i in 0..200_000 {
            directory.opened(i, client, server(i));
            assert_eq!(directory.ends(i).server, i % 3);
            directory.ended(i);
        }
        assert!(directory.connections.len() <= ENDED_MAX + 1);
        assert_eq!(directory.ends(u32::MAX - 1).server, 0, "a long connection is not forgotten");
        assert_eq!(directory.ends(5).server, OTHERS);
    }
}
