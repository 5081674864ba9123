//! One run of a setup: clients, a server and the network between them, event by event. TCP is `tcpsim`'s.

mod client;
mod connection;
mod network;
mod server;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use fastrand::Rng;
use record::Side;
use tcpsim::Ns;
use tcpsim::tcp::{Endpoint, Segment};

use crate::frames::{CLIENTS, Recorder};
use crate::setup::{MS, SECOND, Setup};
use connection::{Connection, Flight};
use network::Network;

/// An operation of a run.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// When the client began: with its request, or with the connection that it had to open.
    pub start: Ns,
    /// When it had the response, or gave up.
    pub finish: Option<Ns>,
    /// What came of it.
    pub outcome: Outcome,
    /// Bytes of the request and of the response, header and body.
    sizes: [(u64, u64); 2],
    lane: usize,
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response.
    Answered,
    /// An error as a response.
    Error,
    /// The server reset the connection.
    Reset,
    /// The connection was refused.
    Refused,
    /// The client gave up.
    GivenUp,
}

/// What happened in a run.
#[derive(Debug)]
pub struct Run {
    /// Its operations, in the order of their begins.
    pub ops: Vec<Op>,
    /// Its end, ns.
    pub end: Ns,
    /// Segments that were sent.
    pub segments: u64,
    /// Longest time that a packet waited behind others of this service, ns.
    pub queue_ns: Ns,
    /// Share of the time in which the busier direction of the link was sending.
    pub link_busy: f64,
}

impl Run {
    /// The time of all operations as their users see it, ns.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        self.ops.iter().map(|op| (op.finish.unwrap_or(self.end).max(op.start) - op.start) as f64).sum()
    }

    /// Operations per second while all places of the load are in use. When the last operations end, some places have none left:
    /// the longest wait of a short run would decide its rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let mut lanes: BTreeMap<usize, (Ns, Ns)> = BTreeMap::new();
        for op in &self.ops {
            let finish = op.finish.unwrap_or(self.end).max(op.start);
            let (_, last) = lanes.entry(op.lane).or_insert((op.start, finish));
            *last = finish.max(*last);
        }
        let ended = self.ops.iter().filter(|op| op.finish.is_some()).count();
        let used_ns: Ns = lanes.values().map(|(first, last)| last - first).sum();
        (ended * lanes.len()) as f64 / (used_ns.max(1) as f64 / SECOND as f64)
    }

    /// The share of the operations that ended so.
    #[must_use]
    pub fn share(&self, outcome: Outcome) -> f64 {
        let so = self.ops.iter().filter(|op| op.outcome == outcome).count();
        so as f64 / self.ops.len().max(1) as f64
    }
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Flight),
    Timer { connection: usize, side: Side },
    Pump { connection: usize, side: Side },
    Start { lane: usize },
    Served { connection: usize, op: usize },
    Syn { connection: usize, attempt: u32 },
    GiveUp { op: usize, connection: usize },
}

#[derive(Debug)]
struct Entry {
    at: Ns,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A place of the load: one connection at a time, or one after the other.
#[derive(Debug, Default)]
struct Lane {
    connection: Option<usize>,
    outstanding: u32,
    /// Requests whose time has come, and that wait for their predecessors.
    backlog: u32,
    opened: u64,
}

/// The server's threads.
#[derive(Debug, Default)]
struct Workers {
    busy: u32,
    waiting: VecDeque<(usize, usize)>,
}

/// A run.
#[derive(Debug)]
struct World<'a> {
    setup: &'a Setup,
    now: Ns,
    order: u64,
    events: BinaryHeap<Reverse<Entry>>,
    /// Packets on their way to each side. None overtakes another, so they need no heap.
    flights: [VecDeque<Entry>; 2],
    connections: Vec<Connection>,
    lanes: Vec<Lane>,
    ops: Vec<Op>,
    ended: usize,
    workers: Workers,
    /// The thread of each client host has worked on its responses until then.
    busy_until: [Ns; CLIENTS],
    network: Network,
    gaps: Rng,
    out: Vec<Segment>,
    segments: u64,
    recorder: Option<&'a mut Recorder>,
}

/// A run is cut off here.
const LONGEST: Ns = 600 * SECOND;
const SEGMENTS_MAX: u64 = 400_000;
/// The capture continues so long after the last response.
const AFTERWARDS: Ns = 300 * MS;

/// Runs a setup; its packets go to `recorder`.
pub fn run(setup: &Setup, recorder: Option<&mut Recorder>) -> Run {
    let lanes = (0..setup.load.connections).map(|_| Lane::default()).collect();
    let mut world = World {
        setup,
        now: 0,
        order: 0,
        events: BinaryHeap::new(),
        flights: Default::default(),
        connections: Vec::new(),
        lanes,
        ops: Vec::new(),
        ended: 0,
        workers: Workers::default(),
        busy_until: [0; CLIENTS],
        network: Network::new(setup),
        gaps: Rng::with_seed(setup.seed ^ 0x6a70),
        out: Vec::new(),
        segments: 0,
        recorder,
    };
    world.begin();
    let mut until = LONGEST;
    while let Some(Entry { at, event, .. }) = world.next()
        && at <= until
        && world.segments < SEGMENTS_MAX
    {
        world.now = at;
        world.happen(event);
        if until == LONGEST && world.ended >= setup.load.operations as usize {
            until = world.now + AFTERWARDS;
        }
    }
    let last = world.ops.iter().filter_map(|op| op.finish).max().unwrap_or(world.now);
    let first = world.ops.first().map_or(0, |op| op.start);
    let link_busy = world.network.busiest_ns() as f64 / (last - first.min(last)).max(1) as f64;
    let queue_ns = world.network.queue_ns;
    Run { ops: world.ops, end: world.now, segments: world.segments, queue_ns, link_busy }
}

impl World<'_> {
    fn at(&mut self, at: Ns, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Entry { at, order: self.order, event }));
    }

    /// A packet arrives behind those that are on their way to the same side.
    fn arrives(&mut self, at: Ns, flight: Flight) {
        self.order += 1;
        self.flights[flight.to as usize].push_back(Entry {
            at,
            order: self.order,
            event: Event::Arrive(flight),
        });
    }

    /// The next event.
    fn next(&mut self) -> Option<Entry> {
        let key = |entry: &Entry| (entry.at, entry.order);
        let [first, second] = [0, 1].map(|side: usize| self.flights[side].front().map_or((Ns::MAX, 0), key));
        let side = usize::from(second < first);
        match self.events.peek() {
            Some(Reverse(other)) if key(other) < first.min(second) => {
                self.events.pop().map(|Reverse(entry)| entry)
            }
            _ => self.flights[side].pop_front(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(flight) => self.arrive(flight),
            Event::Timer { connection, side } => self.timer(connection, side),
            Event::Pump { connection, side } => self.pump(connection, side),
            Event::Start { lane } => self.start(lane),
            Event::Served { connection, op } => self.served(connection, op),
            Event::Syn { connection, attempt } => self.syn(connection, attempt),
            Event::GiveUp { op, connection } => self.give_up(op, connection),
        }
    }

    /// Calls an end of a connection, sends its segments and sets its timer.
    fn act<R>(
        &mut self,
        connection: usize,
        side: Side,
        call: impl FnOnce(&mut Endpoint, Ns, &mut Vec<Segment>) -> R,
    ) -> R {
        let mut out = std::mem::take(&mut self.out);
        let result = call(&mut self.connections[connection].ends[side as usize], self.now, &mut out);
        for segment in out.drain(..) {
            let left = self.send_segment(connection, side, segment);
            self.connections[connection].ends[side as usize].handed_to_device(left, segment.bytes);
        }
        self.out = out;
        self.arm(connection, side);
        result
    }

    /// Sets the timer of an end.
    fn arm(&mut self, connection: usize, side: Side) {
        let this = &mut self.connections[connection];
        let due = this.ends[side as usize].due();
        if !this.is_dead && due < this.timer_at[side as usize] {
            this.timer_at[side as usize] = due;
            self.at(due.max(self.now), Event::Timer { connection, side });
        }
    }

    fn timer(&mut self, connection: usize, side: Side) {
        let this = &mut self.connections[connection];
        if this.timer_at[side as usize] > self.now || this.is_dead {
            return;
        }
        this.timer_at[side as usize] = Ns::MAX;
        self.act(connection, side, tcpsim::tcp::Endpoint::fire);
        self.pump(connection, side);
    }
}
