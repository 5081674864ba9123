//! How connections were set up and how they failed, summed for each service: evidence of bounded size.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use record::stall::shortest;
use record::{ConnectionFacts, Greeting, Refusal, Setup, Side};

/// Most services at all capture points; further ones are not judged.
const SERVICES_MAX: usize = 4096;
/// Most frames, waits and attempts of one service that are kept.
const KEPT_MAX: usize = 1000;
/// Most clients of one service that are remembered.
const CLIENTS_MAX: usize = 4096;
/// Accepted connections are remembered with this resolution, nanoseconds, and so many of them: two hours.
const ACCEPT_NS: u64 = 100_000_000;
const ACCEPTS_MAX: usize = 65_536;
/// A service that accepts a connection so many times [`ACCEPT_NS`] before or after is alive: a fifth of the time after which a
/// SYN is repeated.
const ALIVE: u64 = 2;
/// A connection that was requested so long ago without an answer counts as not answered, nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// A capture point is at the server if the round trip to the clients is so many times that to the server, at least.
const NEARER: u64 = 8;
/// Connections with one SYN are counted by this time, nanoseconds, and so many of these times are kept: an hour.
const TENTH_NS: u64 = 100_000_000;
const TENTHS_MAX: usize = 36_000;

/// A connection whose SYN had to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    /// When its first SYN passed, nanoseconds since the epoch.
    from_ns: u64,
    pub(super) frames: [u64; 3],
}

/// The connections of one service, as one capture point saw them.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// The capture of the point that saw them.
    capture: u32,
    /// Connections whose first SYN was seen, and those of them that were established.
    pub(super) attempts: u64,
    pub(super) established: u64,
    /// Connections that were refused by a reset: of the SYN, and right after the handshake.
    pub(super) refused: u64,
    pub(super) aborted: u64,
    /// Connections whose SYN was sent several times and never answered.
    unanswered: u64,
    /// Connections with one SYN that was not answered, by the tenth of a second in which it passed.
    singles: BTreeMap<u64, u64>,
    /// Time until failed connections were given up or refused, nanoseconds, and their frames.
    pub(super) failed_ns: u128,
    pub(super) failed_frames: Vec<[u64; 3]>,
    /// Established connections whose SYN was sent again, and the time that this took, nanoseconds.
    pub(super) repeated: u64,
    pub(super) waited_ns: u128,
    pub(super) waits: Vec<Repeated>,
    /// Connections whose handshake's last ACK the server dropped.
    pub(super) dropped: u64,
    pub(super) dropped_frames: Vec<[u64; 3]>,
    accepts: BTreeSet<u64>,
    /// Connections that carried requests behind their greeting, those with one, and all of these requests.
    pub(super) used: u64,
    pub(super) used_once: u64,
    pub(super) requests: u64,
    /// The set-up of the used connections, from SYN to the first request: the handshakes without repeated SYNs, and the
    /// greetings; and the time of their requests as their users see it. Nanoseconds.
    pub(super) handshakes_ns: u128,
    pub(super) greetings_ns: u128,
    /// The exchanges of the greetings at the capture point: operations like any.
    pub(super) greeting_exchanges_ns: u128,
    pub(super) requests_ns: u128,
    pub(super) greeted: u64,
    /// Clients of the used connections, and how many of these were a client's first.
    clients: BTreeSet<IpAddr>,
    pub(super) first_used: u64,
    /// Frames of the first SYNs and their answers.
    pub(super) frames: Vec<[u64; 3]>,
    /// From the first to the last packet, nanoseconds since the epoch.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// Segments with data, and those sent again, of both sides.
    pub(super) segments: u64,
    pub(super) sent_again: u64,
    /// Requests whose connection the server reset, those whose connection it closed, these connections' frames, and all exchanges.
    pub(super) requests_reset: u64,
    pub(super) requests_closed: u64,
    pub(super) reset_frames: Vec<[u64; 3]>,
    pub(super) exchanges: u64,
    /// The shortest round trips from the capture point to the server and to a client, nanoseconds; 0: unknown.
    server_ns: u64,
    client_ns: u64,
}

/// All services.
#[derive(Debug, Default)]
pub(super) struct Setups {
    services: BTreeMap<(SocketAddr, u32), Service>,
    /// When the last packet of each capture passed, nanoseconds since the epoch.
    newest_ns: BTreeMap<u32, u64>,
}

impl Setups {
    /// Adds a connection that has ended, as capture point `vantage` of a capture saw it.
    pub(super) fn add(&mut self, vantage: u32, capture: u32, facts: &ConnectionFacts) {
        let newest_ns = self.newest_ns.entry(capture).or_default();
        *newest_ns = facts.ended_ns.max(*newest_ns);
        let key = (facts.server, vantage);
        if self.services.len() < SERVICES_MAX || self.services.contains_key(&key) {
            let service = self.services.entry(key).or_default();
            service.capture = capture;
            service.add(facts);
        }
    }

    /// When the last packet of a capture passed, nanoseconds since the epoch: what waited then was cut off.
    pub(super) fn newest_ns(&self, capture: u32) -> u64 {
        self.newest_ns.get(&capture).copied().unwrap_or(0)
    }

    /// Each service as the capture point saw it that saw most of its attempts, and that point: what is lost on the path
    /// passes no other.
    pub(super) fn services(&self) -> Vec<(SocketAddr, u32, &Service)> {
        let mut best: BTreeMap<SocketAddr, (u32, &Service)> = BTreeMap::new();
        for (&(server, vantage), service) in &self.services {
            let entry = best.entry(server).or_insert((vantage, service));
            if service.weight() > entry.1.weight() {
                *entry = (vantage, service);
            }
        }
        best.into_iter().map(|(server, (vantage, service))| (server, vantage, service)).collect()
    }

    /// Connections of a service that got no answer.
    pub(super) fn unanswered(&self, service: &Service) -> u64 {
        // The last of a tenth has waited since its end.
        let newest_ns = self.newest_ns(service.capture);
        let is_late = |tenth: u64| newest_ns.saturating_sub((tenth + 1) * TENTH_NS) >= PATIENCE_NS;
        let late = service.singles.iter().filter(|(tenth, _)| is_late(**tenth));
        service.unanswered + late.map(|(_, count)| count).sum::<u64>()
    }
}

impl Service {
    fn weight(&self) -> (u64, u64, u64) {
        (self.attempts, self.repeated + self.unanswered, self.exchanges)
    }

    /// Requests whose connection ended instead of an answer.
    pub(super) fn requests_broken(&self) -> u64 {
        self.requests_reset + self.requests_closed
    }

    fn add(&mut self, facts: &ConnectionFacts) {
        let setup = &facts.setup;
        self.began_ns = if self.began_ns == 0 { facts.began_ns } else { self.began_ns.min(facts.began_ns) };
        self.ended_ns = self.ended_ns.max(facts.ended_ns);
        self.exchanges += facts.exchanges;
        self.server_ns = shortest([self.server_ns, facts.path_ns(Side::Server), 0]);
        self.client_ns = shortest([self.client_ns, facts.path_ns(Side::Client), 0]);
        for conduct in [&facts.client_conduct, &facts.server_conduct] {
            self.segments += conduct.segments;
            self.sent_again += conduct.retransmitted;
        }
        if !setup.was_dropped_after_handshake() {
            // A full queue drops the first data too.
            self.sent_again = self.sent_again.saturating_sub(setup.first_data_again.into());
        }
        if setup.requests_reset > 0 || setup.requests_closed > 0 {
            self.requests_reset += u64::from(setup.requests_reset);
            self.requests_closed += u64::from(setup.requests_closed);
            keep(&mut self.reset_frames, [0, 0, setup.frames[2]]);
        }
        let Some(syn_ns) = setup.syn.ns() else { return };
        self.attempts += 1;
        if setup.was_dropped_after_handshake() {
            self.dropped += 1;
            keep(&mut self.dropped_frames, setup.frames);
        }
        if setup.refusal.is_some() || !setup.established.is_known() {
            self.add_failed(syn_ns, setup, facts);
            return;
        }
        self.established += 1;
        if let Some(ns) = setup.syn_ack.ns()
            && self.accepts.len() < ACCEPTS_MAX
        {
            self.accepts.insert(ns / ACCEPT_NS);
        }
        if setup.waited_ns > 0 {
            self.repeated += 1;
            self.waited_ns += u128::from(setup.waited_ns);
            keep(&mut self.waits, Repeated { from_ns: syn_ns, frames: setup.frames });
        }
        self.add_used(setup, facts);
    }

    fn add_failed(&mut self, syn_ns: u64, setup: &Setup, facts: &ConnectionFacts) {
        match setup.refusal {
            Some(Refusal::AtSyn) => self.refused += 1,
            Some(Refusal::AfterHandshake) => self.aborted += 1,
            // The client did not go on, for example because it only asked whether somebody listens.
            None if setup.syn_ack.is_known() || facts.both_directions => return,
            None if setup.syns >= 2 => self.unanswered += 1,
            None => {
                let tenth = syn_ns / TENTH_NS;
                if self.singles.len() < TENTHS_MAX || self.singles.contains_key(&tenth) {
                    *self.singles.entry(tenth).or_default() += 1;
                }
                return;
            }
        }
        self.failed_ns += u128::from(facts.ended_ns.saturating_sub(syn_ns));
        keep(&mut self.failed_frames, setup.frames);
    }

    fn add_used(&mut self, setup: &Setup, facts: &ConnectionFacts) {
        let requests = facts.exchanges.saturating_sub(setup.greeting_exchanges);
        let Some(lasted_ns) = setup.lasted_ns().filter(|_| requests > 0) else { return };
        let handshake_ns = facts.handshake_ns.map_or(0, |(there, here)| there.saturating_add(here));
        let mut beyond_ns =
            setup.ready.since(setup.established).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
        if matches!(setup.greeting, Greeting::PostgreSql | Greeting::ServerFirst) {
            // It ends with an answer, which has a way to go before the client can send its request.
            beyond_ns = beyond_ns.saturating_add(facts.handshake_ns.map_or(0, |(_, here)| here));
        }
        self.used += 1;
        // A client that is not remembered may be a new one each time.
        let client = facts.client.ip();
        self.first_used += u64::from(if self.clients.len() < CLIENTS_MAX {
            self.clients.insert(client)
        } else {
            !self.clients.contains(&client)
        });
        // A connection that broke after its first request was not closed by choice.
        let is_broken = setup.requests_reset > 0 || setup.requests_closed > 0;
        self.used_once += u64::from(requests == 1 && !is_broken);
        self.requests += requests;
        self.handshakes_ns += u128::from(handshake_ns.min(lasted_ns));
        self.greetings_ns += u128::from(beyond_ns);
        self.greeting_exchanges_ns += u128::from(setup.greeting_in_flight_ns);
        self.greeted += u64::from(setup.greeting != Greeting::None);
        // The way to the client and back is part of each request's time.
        let way_ns = facts.handshake_ns.map_or(0, |(_, here)| u128::from(here) * u128::from(requests));
        let in_flight_ns = facts.in_flight_ns.saturating_sub(setup.greeting_in_flight_ns.into());
        self.requests_ns += in_flight_ns + way_ns;
        keep(&mut self.frames, [setup.frames[0], 0, setup.frames[2]]);
    }

    /// Whether the capture point is at the server: a SYN that passed it was not lost on the path.
    pub(super) fn is_at_server(&self) -> bool {
        self.server_ns > 0 && self.client_ns >= self.server_ns.saturating_mul(NEARER)
    }

    /// The repeated SYNs that were dropped while the service accepted other connections: within [`ALIVE`] of the first one. In
    /// an outage nobody is accepted around that time; how it ended says nothing.
    pub(super) fn contested(&self) -> impl Iterator<Item = &Repeated> {
        self.waits.iter().filter(|wait| {
            let at = wait.from_ns / ACCEPT_NS;
            self.accepts.range(at.saturating_sub(ALIVE)..=at + ALIVE).next().is_some()
        })
    }
}

/// Keeps a limited number.
fn keep<T>(all: &mut Vec<T>, one: T) {
    if all.len() < KEPT_MAX {
        all.push(one);
    }
}
