//! Services: the operations of one kind at one server, over all connections.
//!
//! A verdict on a server needs all of its requests: twenty connections with one request each are a queue of twenty. So each
//! operation counts in the row of its service, whatever its connection, and in the server's [timeline](timeline).
//!
//! Memory is bounded: rows, details, servers and waiting operations each have a limit.

mod batches;
pub(crate) mod directory;
mod figures;
pub(crate) mod keys;
pub(crate) mod link_use;
pub(crate) mod longest;
mod order;
pub(crate) mod queue;
mod row;
mod sample;
mod slowest;
pub(crate) mod ticks;
pub(crate) mod timeline;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use record::stall::shortest;
use record::{ConnectionFacts, Key, Observed, OpKind, Opened, Side, Verb};

use directory::{Directory, OTHERS, SERVERS_MAX};
use figures::Sums;
pub use figures::{Figures, LargestPart};
use keys::OnlyKeys;
use link_use::LinkUse;
use longest::{Long, Longest};
use order::Seen;
use queue::Saturation;
pub use row::{DetailRow, KindRow, ServiceRow};
use slowest::Slowest;
pub use slowest::{SLOWEST, SlowRow};
use ticks::Timer;
use timeline::{Passed, Timeline};

/// Most rows; the operations of further services are counted together.
const ROWS_MAX: usize = 128;
/// Most rows of details by client, by size and by key, over all services; the operations of further ones of a service are counted
/// together.
const DETAILS_MAX: usize = 256;
/// Most names of keys.
const NAMES_MAX: usize = 4096;
/// Operations of all timelines that wait to be put in order.
const PENDING_MAX: usize = 32_768;
/// Most clients whose pauses have a timeline, and the operations of each.
const CLIENTS_MAX: usize = 64;
const CLIENT_OPERATIONS_MAX: u64 = 32_768;

/// Places of the details.
const CLIENTS: usize = 0;
const SIZES: usize = 1;
const KEYS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    server: u32,
    verb: Option<Verb>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Detail {
    Client(Option<IpAddr>),
    /// Rounded down to a power of two.
    Size(u32),
    Key(Key),
    /// All others of these details.
    Others(u8),
}

#[derive(Debug)]
struct Row {
    key: RowKey,
    kind: OpKind,
    sums: Sums,
    first_ns: u64,
    last_ns: u64,
}

/// One server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    timeline: Timeline,
    first_ns: u64,
    last_ns: u64,
    /// Shortest round trip of its network, over all connections; 0: unknown.
    network_ns: u64,
    /// And between it and its clients.
    round_trip_ns: u64,
    /// The server's own capture point saw its operations.
    has_server: bool,
    transfer_ns: u128,
    time_ns: u128,
    longest: Longest,
    /// The protocol of the connection that ended last.
    protocol: Option<&'static str>,
    /// That of the last one that ended as it: others have gone on in TLS.
    decoded: Option<&'static str>,
}

/// All services of a capture.
#[derive(Debug, Default)]
pub struct Services {
    directory: Directory,
    places: HashMap<RowKey, u16, foldhash::fast::RandomState>,
    rows: Vec<Row>,
    /// By client, by size, and by key.
    details: [Vec<(u16, Detail, Sums)>; 3],
    detail_places: HashMap<(u16, Detail), usize, foldhash::fast::RandomState>,
    /// The last operation's row and details.
    recent: Option<(RowKey, u16)>,
    recent_details: [Option<(u16, Detail, usize)>; 3],
    names: HashMap<Key, Box<str>, foldhash::fast::RandomState>,
    only_keys: OnlyKeys,
    servers: Vec<Server>,
    clients: Vec<(IpAddr, u64, Timeline)>,
    pending: usize,
    link: LinkUse,
    slowest: Slowest,
}

impl Services {
    /// Services whose `most` slowest operations are kept.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        Self { slowest: Slowest::new(most), ..Self::default() }
    }

    /// Adds a connection before its first operation.
    pub fn opened(&mut self, connection: u32, opened: &Opened) {
        self.directory.opened(connection, opened.client, opened.server);
    }

    /// Adds a connection's end, and returns the number of its server.
    pub fn ended(&mut self, connection: u32, facts: &ConnectionFacts) -> u32 {
        let place = self.directory.ends(connection).server;
        // It may end before its operations are told: the other capture point shows them.
        if place != OTHERS {
            self.has_server(place as usize);
        }
        if let Some(server) = self.servers.get_mut((place as usize).min(SERVERS_MAX)) {
            server.network_ns = shortest([facts.path_ns(Side::Server), server.network_ns, 0]);
            server.round_trip_ns = shortest([facts.round_trip_ns(), server.round_trip_ns, 0]);
            server.protocol = facts.undecoded.or(Some(facts.protocol));
            if facts.undecoded.is_none() && facts.protocol != "turns" {
                server.decoded = Some(facts.protocol);
            }
        }
        self.directory.ended(connection);
        place
    }

    fn has_server(&mut self, place: usize) {
        if self.servers.len() <= place {
            self.servers.resize_with(place + 1, Server::default);
        }
    }

    /// Adds the name of a key.
    pub fn named(&mut self, key: Key, name: &str) {
        if self.names.len() < NAMES_MAX && !self.names.contains_key(&key) {
            self.names.insert(key, name.into());
        }
    }

    /// The name of a key; empty if it has none.
    #[must_use]
    pub fn name_of(&self, key: Key) -> &str {
        self.names.get(&key).map_or("", Box::as_ref)
    }

    /// The slowest operations, the slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowRow> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let row = |slow: slowest::Slow| SlowRow {
            service: self.directory.server(slow.server).map(|server| server.to_string()),
            operation: slow.verb.name(),
            key: self.name_of(slow.key).to_owned(),
            status: slow.status.text(),
            connection: slow.connection,
            stream: Some(slow.stream).filter(|stream| *stream > 0),
            began_ns: slow.began_ns.0,
            whole_us: us(slow.whole_ns),
            first_byte_us: slow.first_byte_ns.and_then(|ns| u64::try_from(ns).ok()).map(us),
            frames: slow.frames,
        };
        self.slowest.all().into_iter().map(row).collect()
    }

    /// The server of a connection, for findings that belong to a service.
    #[must_use]
    pub fn server(&mut self, connection: u32) -> Option<SocketAddr> {
        let place = self.directory.ends(connection).server;
        self.directory.server(place)
    }

    /// Operations of a server.
    #[must_use]
    pub fn operations_of(&self, server: SocketAddr) -> u64 {
        let own = self.rows.iter().filter(|row| self.directory.server(row.key.server) == Some(server));
        own.map(|row| row.sums.operations).sum()
    }

    /// The longest time that an operation took at a server, nanoseconds; 0: there is none.
    pub(crate) fn longest_of(&self, server: SocketAddr) -> u64 {
        let mut all = self.servers.iter().zip(0..);
        let own = all.find(|(_, place)| self.directory.server(*place) == Some(server));
        own.map_or(0, |(own, _)| own.longest.most_ns())
    }

    /// Adds an operation, and returns the number of its server; [`u32::MAX`] for servers that are not told apart.
    #[inline]
    pub fn add(&mut self, observed: &Observed) -> u32 {
        let op = &observed.op;
        let ends = self.directory.ends(op.connection);
        let key = RowKey { server: ends.server, verb: Some(op.verb) };
        let row = match self.recent {
            Some((recent, row)) if recent == key => row,
            _ => self.row(key, op.kind),
        };
        self.recent = Some((key, row));
        let seen = &observed.detail;
        let (began_ns, ended_ns) = (seen.request.began.ns(), seen.response.ended.ns());
        let own = &mut self.rows[usize::from(row)];
        own.sums.add(observed);
        own.first_ns = own.first_ns.min(began_ns.unwrap_or(u64::MAX));
        own.last_ns = own.last_ns.max(ended_ns.unwrap_or(0));
        let size = op.data_bytes.checked_ilog2().map_or(0, |log| 1 << log);
        self.detail(CLIENTS, row, Detail::Client(ends.client), observed);
        self.detail(SIZES, row, Detail::Size(size), observed);
        if seen.key != Key::NONE {
            self.only_keys.add(op.connection, seen.key);
            self.detail(KEYS, row, Detail::Key(seen.key), observed);
        }
        self.link.add(Side::Client, op.request_bytes, &seen.request);
        self.link.add(Side::Server, op.response_bytes, &seen.response);
        if !observed.is_partial {
            self.slowest.add(observed, ends.server);
            self.pass(observed, (ends.server as usize).min(SERVERS_MAX), row);
            if let Some(client) = ends.client {
                self.thought(observed, client);
            }
        }
        ends.server
    }

    #[cold]
    fn row(&mut self, key: RowKey, kind: OpKind) -> u16 {
        if let Some(&row) = self.places.get(&key) {
            return row;
        }
        // The last row is that of all others.
        let is_full = self.rows.len() + 1 >= ROWS_MAX;
        let key = if is_full { RowKey { server: OTHERS, verb: None } } else { key };
        if let Some(&row) = self.places.get(&key) {
            return row;
        }
        let row = self.rows.len() as u16;
        self.rows.push(Row { key, kind, sums: Sums::default(), first_ns: u64::MAX, last_ns: 0 });
        self.places.insert(key, row);
        row
    }

    #[inline]
    fn detail(&mut self, which: usize, row: u16, detail: Detail, observed: &Observed) {
        let place = match self.recent_details[which] {
            Some((of, recent, place)) if (of, recent) == (row, detail) => place,
            _ => match self.detail_places.get(&(row, detail)) {
                Some(&place) => place,
                None if self.details[which].len() < DETAILS_MAX => self.new_detail(which, row, detail),
                None => {
                    let others = (row, Detail::Others(which as u8));
                    let place = self.detail_places.get(&others).copied();
                    let place = place.unwrap_or_else(|| self.new_detail(which, row, others.1));
                    self.recent_details[which] = None;
                    self.details[which][place].2.add(observed);
                    return;
                }
            },
        };
        self.recent_details[which] = Some((row, detail, place));
        self.details[which][place].2.add(observed);
    }

    #[cold]
    fn new_detail(&mut self, which: usize, row: u16, detail: Detail) -> usize {
        let place = self.details[which].len();
        self.details[which].push((row, detail, Sums::default()));
        self.detail_places.insert((row, detail), place);
        place
    }

    /// Adds an operation to its server's timeline.
    #[inline]
    fn pass(&mut self, observed: &Observed, place: usize, row: u16) {
        let seen = &observed.detail;
        let (Some(began_ns), Some(ended_ns)) = (seen.request.ended.ns(), seen.response.ended.ns()) else {
            return;
        };
        self.has_server(place);
        let server = &mut self.servers[place];
        server.first_ns = if server.first_ns == 0 { began_ns } else { server.first_ns.min(began_ns) };
        server.last_ns = server.last_ns.max(ended_ns);
        server.has_server |= observed.server_first_ns.is_some();
        if seen.awaits_event {
            self.wait_for_event(place, Passed::new(began_ns, ended_ns, row));
            return;
        }
        server.transfer_ns += u128::from(u64::try_from(seen.transfer_ns().unwrap_or(0)).unwrap_or(0));
        server.time_ns += u128::from(ended_ns.saturating_sub(began_ns));
        if seen.stalls.is_empty() {
            let own = observed.server_first_ns.or_else(|| seen.first_byte_ns()).unwrap_or(0);
            server.longest.add(Long {
                server_ns: u64::try_from(own).unwrap_or(0),
                began_ns,
                ended_ns,
                connection: observed.op.connection,
                key: seen.key,
                frames: [seen.request.first_frame, seen.response.last_frame],
            });
        }
        let mut passed = Passed::new(began_ns, ended_ns, row);
        passed.is_delayed = !seen.stalls.is_empty();
        passed.connection = observed.op.connection;
        self.line_up(place, passed);
    }

    /// An operation that waited for an event counts in flight, and says nothing on the server's work.
    #[cold]
    fn wait_for_event(&mut self, place: usize, mut passed: Passed) {
        passed.awaits_event = true;
        self.line_up(place, passed);
    }

    #[inline]
    fn line_up(&mut self, place: usize, passed: Passed) {
        let Some(server) = self.servers.get_mut(place) else { return };
        let before = server.timeline.pending();
        server.timeline.add(passed);
        self.pending = self.pending + server.timeline.pending() - before;
        if self.pending > PENDING_MAX {
            self.make_room();
        }
    }

    /// Orders the longest timeline.
    #[cold]
    fn make_room(&mut self) {
        let longest = self.servers.iter_mut().max_by_key(|server| server.timeline.pending());
        if let Some(longest) = longest {
            longest.timeline.order(false);
        }
        self.pending = self.servers.iter().map(|server| server.timeline.pending()).sum();
    }

    /// Adds a client's time between a response and the request that replaces it.
    #[inline]
    fn thought(&mut self, observed: &Observed, client: IpAddr) {
        let Some(thought_ns) = observed.detail.thought_ns else { return };
        let Some(sent_ns) = observed.detail.request.began.ns() else { return };
        let place = match self.clients.iter().position(|(known, _, _)| *known == client) {
            Some(place) => place,
            None if self.clients.len() < CLIENTS_MAX => {
                self.clients.push((client, 0, Timeline::default()));
                self.clients.len() - 1
            }
            None => return,
        };
        let own = &mut self.clients[place];
        own.1 += 1;
        if own.1 <= CLIENT_OPERATIONS_MAX {
            let mut passed = Passed::new(sent_ns.saturating_sub(thought_ns), sent_ns, 0);
            passed.connection = observed.op.connection;
            own.2.add(passed);
        }
    }

    /// The rows, the one with the most time first.
    #[must_use]
    pub fn rows(&self) -> Vec<ServiceRow> {
        let timelines: Vec<Timeline> = self.servers.iter().map(|server| ordered(&server.timeline)).collect();
        let all_ns: u128 = self.rows.iter().map(|row| row.sums.whole_ns()).sum();
        let row = |(row, place): (&Row, u16)| {
            let server = (row.key.server as usize).min(SERVERS_MAX);
            let (timeline, of) = (timelines.get(server), self.servers.get(server));
            let seconds = row.last_ns.saturating_sub(row.first_ns) as f64 / 1e9;
            let span_ns = of.map_or(0, |of| of.last_ns.saturating_sub(of.first_ns));
            ServiceRow {
                service: self.directory.server(row.key.server).map(|server| server.to_string()),
                operation: row.key.verb.map_or("others".to_owned(), Verb::name),
                protocol: of.and_then(|of| protocol(row.key.verb, of)),
                overlapping: row.sums.overlapping,
                several: row.sums.several,
                unread: row.sums.unread,
                kind: row.kind,
                figures: row.sums.figures(seconds, all_ns),
                in_flight_max: timeline.map_or(0, |timeline| timeline.most(place)),
                busy_share: timeline.map_or(0.0, |t| t.busy_ns() as f64 / span_ns.max(1) as f64),
                largest_part: row.sums.largest_part(of.map_or(0, |of| of.network_ns)),
                clients: self.details(CLIENTS, place, seconds, all_ns),
                sizes: self.details(SIZES, place, seconds, all_ns),
                keys: self.details(KEYS, place, seconds, all_ns),
            }
        };
        let mut rows: Vec<ServiceRow> = self.rows.iter().zip(0_u16..).map(row).collect();
        rows.sort_by(|a, b| b.figures.time_share.total_cmp(&a.figures.time_share));
        rows
    }

    fn details(&self, which: usize, row: u16, seconds: f64, all_ns: u128) -> Vec<DetailRow> {
        let own = self.details[which].iter().filter(|(of, _, _)| *of == row);
        let mut rows: Vec<DetailRow> = own
            .map(|(_, detail, sums)| DetailRow {
                name: match detail {
                    Detail::Client(client) => {
                        client.map_or("unknown".to_owned(), |client| client.to_string())
                    }
                    Detail::Size(bytes) => bytes.to_string(),
                    Detail::Key(key) => self.names.get(key).map_or("unknown", Box::as_ref).to_owned(),
                    Detail::Others(_) => "others".to_owned(),
                },
                figures: sums.figures(seconds, all_ns),
            })
            .collect();
        rows.sort_by(|a, b| b.figures.time_share.total_cmp(&a.figures.time_share));
        rows
    }

    /// The number of the last operation's kind: its service and its size. `None` for kinds beyond the limit.
    #[must_use]
    pub fn recent_kind(&self) -> Option<usize> {
        self.recent_details[SIZES].map(|(_, _, place)| place)
    }

    /// The operations of a kind.
    #[must_use]
    pub fn kind(&self, place: usize) -> Option<KindRow> {
        let (row, _, sums) = self.details[SIZES].get(place)?;
        let row = self.rows.get(usize::from(*row))?;
        let figures = sums.figures(0.0, 0);
        Some(KindRow {
            service: self.directory.server(row.key.server).map(|server| server.to_string()),
            operation: row.key.verb.map_or("others".to_owned(), Verb::name),
            direction: row.kind,
            connection: sums.only_connection(),
            operations: sums.operations,
            block_size_bytes: figures.block_size_bytes,
        })
    }

    /// Bytes of all messages over time.
    pub(crate) fn link(&self) -> &LinkUse {
        &self.link
    }

    /// The servers whose requests wait for each other.
    pub(crate) fn saturated(&self) -> Vec<Saturated> {
        let one = |(server, place): (&Server, u32)| {
            // Responses that take long to carry are spaced by what carries them.
            if server.transfer_ns * TRANSFER_SHARE > server.time_ns {
                return None;
            }
            let timeline = ordered(&server.timeline);
            let (network_ns, seen) =
                if server.has_server { (0, Seen::AtSource) } else { (server.network_ns, Seen::BehindPath) };
            let saturation = timeline.queue().saturation(network_ns as f64, seen)?;
            if saturation.is_paced_by(server.round_trip_ns) {
                return None;
            }
            let span_ns = server.last_ns.saturating_sub(server.first_ns);
            let place = if place == SERVERS_MAX as u32 { OTHERS } else { place };
            Some(Saturated {
                server: place,
                name: self.directory.server(place),
                busy_share: timeline.busy_ns() as f64 / span_ns.max(1) as f64,
                is_of_events: timeline.queue().has_pace_of_events(),
                saturation,
            })
        };
        // Connections of servers that are not told apart have no queue in common.
        let known = self.servers.iter().zip(0..).filter(|(_, place)| self.is_one_server(*place));
        known.filter_map(one).collect()
    }

    /// Connections whose ends are not known are of one observer, and of one server.
    fn is_one_server(&self, place: u32) -> bool {
        self.directory.server(place).is_some() || self.directory.is_empty()
    }

    /// The mean number of a server's operations in flight.
    pub(crate) fn in_flight(&self, server: u32) -> f64 {
        let Some(server) = self.servers.get((server as usize).min(SERVERS_MAX)) else { return 0.0 };
        server.time_ns as f64 / server.last_ns.saturating_sub(server.first_ns).max(1) as f64
    }

    /// The same as a share of the most.
    pub(crate) fn occupancy(&self, server: u32) -> f64 {
        let Some(own) = self.servers.get((server as usize).min(SERVERS_MAX)) else { return 0.0 };
        self.in_flight(server) / f64::from(ordered(&own.timeline).most_of_all().max(1))
    }

    /// Whether a server hands out events that come by chance to those who wait for them in a row.
    pub(crate) fn hands_out_events(&self, server: u32) -> bool {
        let server = self.servers.get((server as usize).min(SERVERS_MAX));
        server.is_some_and(|server| ordered(&server.timeline).queue().hands_out_events())
    }

    /// Whether a clock gives a server its requests, and it keeps up with them.
    pub(crate) fn is_paced_by_requests(&self, server: u32) -> bool {
        let server = self.servers.get((server as usize).min(SERVERS_MAX));
        server.is_some_and(|server| ordered(&server.timeline).queue().is_paced_by_requests())
    }

    /// Whether what a server's responses wait for may be other responses on the link: several are in flight, and their transfers take a
    /// good part of the time.
    pub(crate) fn is_behind_transfers(&self, server: u32) -> bool {
        let Some(server) = self.servers.get((server as usize).min(SERVERS_MAX)) else { return false };
        let is_much = server.transfer_ns * BEHIND_TRANSFERS > server.time_ns;
        is_much && ordered(&server.timeline).most_of_all() > 1
    }

    /// The longest operations of a server, and when its first request passed, nanoseconds since the epoch.
    pub(crate) fn longest(&self, server: u32) -> Option<(&Longest, u64)> {
        let server = self.servers.get((server as usize).min(SERVERS_MAX))?;
        Some((&server.longest, server.first_ns))
    }

    /// Whether a good part of a server's turns are such that a side did not wait for the other: what it sends at intervals of its own,
    /// a state or a tick, answers nobody.
    fn overlaps(&self, server: u32) -> bool {
        let own =
            || self.rows.iter().filter(|row| (row.key.server as usize).min(SERVERS_MAX) == server as usize);
        let (overlapping, all) =
            own().fold((0, 0), |sum, row| (sum.0 + row.sums.overlapping, sum.1 + row.sums.operations));
        overlapping * OVERLAPPING >= all
    }

    /// The servers whose responses leave at the ticks of a timer.
    pub(crate) fn timers(&self) -> Vec<(u32, Option<SocketAddr>, Timer)> {
        let known = self.servers.iter().zip(0..).filter(|(_, place)| self.is_one_server(*place));
        let found = known.filter_map(|(server, place)| {
            let timer = ordered(&server.timeline).timer().filter(|_| !self.overlaps(place))?;
            let of = if place == SERVERS_MAX as u32 { OTHERS } else { place };
            Some((of, self.directory.server(place), timer))
        });
        found.collect()
    }

    /// The client of a connection, unless it ended long ago.
    #[must_use]
    pub fn client(&self, connection: u32) -> Option<IpAddr> {
        self.directory.client(connection)
    }

    /// Clients that take their responses one at a time: their address, and what shows it.
    pub(crate) fn busy_clients(&self) -> Vec<(IpAddr, Saturation)> {
        let busy = |(client, _, timeline): &(IpAddr, u64, Timeline)| {
            let timeline = ordered(timeline);
            let queue = timeline.queue();
            let saturation = queue.saturation(0.0, Seen::BehindPath)?;
            let is_own = queue.is_own_pace() && queue.is_pace_of_one(&saturation) && !queue.comes_by_chance();
            is_own.then_some((*client, saturation))
        };
        self.clients.iter().filter_map(busy).collect()
    }
}

/// One turn of so many that overlaps is a good part.
const OVERLAPPING: u64 = 10;

/// Transfers of more than a fifth of the time space the responses, not the server.
const TRANSFER_SHARE: u128 = 5;

/// Transfers of a third of the time and more may delay the first bytes of others.
const BEHIND_TRANSFERS: u128 = 3;

/// The protocol of an operation at a server.
fn protocol(verb: Option<Verb>, server: &Server) -> Option<String> {
    let name = match verb? {
        Verb::Scsi(_) | Verb::TaskManagement(_) | Verb::Nop => "iscsi",
        Verb::Http(_) => "http",
        Verb::Command(_) => server.decoded.or(server.protocol)?,
        Verb::Turn => server.protocol?,
    };
    Some(name.to_owned())
}

fn ordered(timeline: &Timeline) -> Timeline {
    let mut timeline = timeline.clone();
    timeline.order(true);
    timeline
}

/// A server whose requests wait for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saturated {
    pub(crate) server: u32,
    pub(crate) name: Option<SocketAddr>,
    /// Share of the time with at least one request.
    pub(crate) busy_share: f64,
    /// Its responses leave when events come, as far as their distances show.
    pub(crate) is_of_events: bool,
    pub(crate) saturation: Saturation,
}
