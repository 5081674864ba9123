//! The simulation: both hosts, the wire between them, and the loop that handles planned events in order of time.

mod cpu;
mod events;
mod flow;
mod tally;
mod thread;
mod wire;

use policy::{SendControl, ThreadControl};
use record::{Op, Side};

use self::cpu::Cpu;
use self::events::{Event, Events};
use self::flow::Flow;
use self::tally::{SessionCounts, Tally};
use self::thread::Thread;
use self::wire::{Direction, Outgoing, Packets};
use crate::Ns;
use crate::op::SimOp;
use crate::result::{Ending, RunResult};
use crate::setup::{Host, Setup};
use crate::tcp::{Endpoint, Segment};

/// A segment at a capture point.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Time, ns since the simulation began. Frames of one point are reported nearly in order.
    pub at: Ns,
    /// The capture point.
    pub point: Side,
    /// Number of the connection.
    pub session: u32,
    /// The side that sent it.
    pub sender: Side,
    /// The segment.
    pub segment: Segment,
    /// Packets that its sender had sent on this connection before: their identification counts them (Linux `inet_id`).
    pub number: u64,
}

/// A request or a response.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Number of the connection.
    pub session: u32,
    /// The side that sends it.
    pub sender: Side,
    /// Offset after its last byte in the sender's stream.
    pub end: u64,
    /// Tag of its operation.
    pub tag: u32,
    /// For a request: responses that the client has taken so far. For a response: responses made so far, itself included.
    pub count: u64,
}

/// Receives the events of a simulation, in the order in which they are computed. All methods do nothing by default;
/// `()` is an observer that ignores everything.
pub trait Observer {
    /// Whether [`frame`](Self::frame) and [`message`](Self::message) are called.
    const FRAMES: bool = false;

    /// An operation completed, also during the warm-up.
    fn op(&mut self, op: &SimOp) {
        let _ = op;
    }

    /// A message was made. Called before any of its frames.
    fn message(&mut self, message: &Message) {
        let _ = message;
    }

    /// A segment passed a capture point.
    fn frame(&mut self, frame: &Frame) {
        let _ = frame;
    }

    /// Simulated time, ns since the simulation began; no earlier frame will be reported. Called every 1024 events and, with
    /// `Ns::MAX`, at the end. Return false to end the run.
    fn tick(&mut self, now: Ns) -> bool {
        let _ = now;
        true
    }
}

impl Observer for () {}

/// One end of a session.
struct End {
    tcp: Endpoint,
    thread: Thread,
    /// When its timer event is planned.
    timer_at: Ns,
    /// When its last segment was handed to the device.
    handed: Ns,
    /// Packets that it has sent.
    packets: u64,
    /// The messages that it sends.
    flow: Flow,
}

struct Session {
    ends: [End; 2],
    control: SendControl,
    busy: policy::BusyCount,
    next_tag: u32,
    /// Responses made, and taken.
    answered: u64,
    taken: u64,
}

/// A running simulation.
///
/// [`simulate`] is the only caller: `new`, `begin` once, then `handle` for each event in the order of the queue, with `now`
/// set to the event's time before. Within one event:
///
/// - A handler that calls an [`Endpoint`] passes `out`, puts it back, and then calls `transmit` for that end, which empties
///   `out`, hands each segment to the wire and plans the endpoint's next timer.
/// - `transmit` adds its CPU work to `transmit_work`; the handler's CPU is charged with it by `charge_transmit` before it
///   begins other work.
/// - The random generator is used only by `vary`, `disturbance` and the wire, in the order of the calls: a run is
///   reproducible as long as handlers keep theirs.
struct World<'a, O> {
    setup: &'a Setup,
    observer: &'a mut O,
    now: Ns,
    events: Events,
    cpus: [Vec<Cpu>; 2],
    /// The controls of the server's threads: one for each CPU with event loops, else one for each session.
    controls: Vec<ThreadControl>,
    transmit_free: [Ns; 2],
    directions: [Direction; 2],
    packets: Packets,
    sessions: Vec<Session>,
    /// Segments that an endpoint sends: one buffer, reused.
    out: Vec<Segment>,
    /// Transmit work of the present effect, to be charged to its CPU.
    transmit_work: Ns,
    random: fastrand::Rng,
    tally: Tally,
}

/// Simulates a setup until its operations are done, its time limit is reached, or the observer ends it.
///
/// The setup must have passed [`Setup::check`], as those of [`Setup::read`] have. The same setup gives the same result.
///
/// ```
/// use tcpsim::{Setup, simulate};
///
/// let setup = Setup { queue_depth: 4, operations: 1000, ..Setup::default() };
/// let result = simulate(&setup, &mut ());
/// assert!(result.is_complete);
/// assert_eq!(result.operations, 1000);
/// ```
pub fn simulate<O: Observer>(setup: &Setup, observer: &mut O) -> RunResult {
    let mut world = World::new(setup, observer);
    world.begin();
    let ended_by = world.until_end(setup.time_limit);
    world.observer.tick(Ns::MAX);
    let World { now, sessions, tally, .. } = world;
    let sessions: Vec<_> = sessions
        .into_iter()
        .map(|session| SessionCounts { busy: session.busy, shares: session.control.shares() })
        .collect();
    tally.result(setup, now, ended_by, &sessions)
}

impl<'a, O: Observer> World<'a, O> {
    /// Handles one event after the other until the run ends.
    fn until_end(&mut self, time_limit: Ns) -> Ending {
        let mut handled = 0_u32;
        while !self.tally.is_over {
            let Some((at, event)) = self.events.next() else { return Ending::Standstill };
            self.now = at;
            if at > time_limit {
                return Ending::TimeLimit;
            }
            self.handle(event);
            handled = handled.wrapping_add(1);
            if handled.is_multiple_of(1024) && !self.observer.tick(at) {
                return Ending::Observer;
            }
        }
        Ending::Operations
    }

    fn new(setup: &'a Setup, observer: &'a mut O) -> Self {
        let mss = setup.mss_bytes();
        let cpus = |host: &Host| (0..host.cpus()).map(|_| Cpu::default()).collect();
        let end = |host: &Host, peer: &Host, number: u32, nodelay: bool| {
            let mut tcp = Endpoint::new(host.profile_towards(peer), setup.options(host));
            tcp.set_peer_buffer(peer.receive_buffer);
            tcp.set_nodelay(0, nodelay, &mut Vec::new());
            let cpu = host.thread_cpu + number as usize % host.thread_cpus;
            End {
                tcp,
                thread: Thread::new(cpu as u16),
                timer_at: Ns::MAX,
                handed: 0,
                packets: 0,
                flow: Flow::default(),
            }
        };
        let session = |number| {
            let control = SendControl::new(setup.policy);
            let server_nodelay = !control.mode().nagle;
            Session {
                ends: [
                    end(&setup.client, &setup.server, number, !setup.load.nagle),
                    end(&setup.server, &setup.client, number, server_nodelay),
                ],
                control,
                busy: policy::BusyCount::default(),
                next_tag: 0,
                answered: 0,
                taken: 0,
            }
        };
        Self {
            setup,
            observer,
            now: 0,
            events: Events::default(),
            cpus: [cpus(&setup.client), cpus(&setup.server)],
            controls: vec![ThreadControl::default(); (setup.sessions as usize).max(setup.server.cpus())],
            transmit_free: [0; 2],
            directions: [Direction::new(setup.wire, mss); 2],
            packets: Packets::default(),
            sessions: (0..setup.sessions).map(session).collect(),
            out: Vec::new(),
            transmit_work: 0,
            random: fastrand::Rng::with_seed(setup.seed),
            tally: Tally::new(setup),
        }
    }

    #[inline]
    fn host(&self, side: Side) -> &'a Host {
        match side {
            Side::Client => &self.setup.client,
            Side::Server => &self.setup.server,
        }
    }

    #[inline]
    fn end(&mut self, side: Side, session: u32) -> &mut End {
        &mut self.sessions[session as usize].ends[side as usize]
    }

    /// A service time or a latency with this time's jitter.
    #[inline]
    fn vary(&mut self, time: Ns) -> Ns {
        if self.setup.jitter == 0.0 || time == 0 {
            return time;
        }
        let share = 1.0 + self.setup.jitter * (2.0 * self.random.f64() - 1.0);
        (time as f64 * share).round() as Ns
    }

    /// Time that other work delays a thread by, mostly 0.
    #[inline]
    fn disturbance(&mut self) -> Ns {
        if self.setup.disturbed == 0.0 || self.random.f64() >= self.setup.disturbed {
            return 0;
        }
        (self.setup.disturbance as f64 * self.random.f64()) as Ns
    }

    /// The sessions issue their first operations, a microsecond apart.
    fn begin(&mut self) {
        let depth = self.setup.queue_depth;
        for session in 0..self.setup.sessions {
            let thread = &mut self.end(Side::Client, session).thread;
            thread.to_issue = depth;
            thread.is_asleep = false;
            self.events.plan(u64::from(session) * 1000, Event::Wake { side: Side::Client, session });
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(number) => self.arrive(number),
            Event::Interrupt { side, cpu, number } => self.interrupt(side, cpu, number),
            Event::End { side, cpu, number } => self.end_of_work(side, cpu, number),
            Event::Wake { side, session } => self.ready(side, session),
            Event::Timer { side, session } => self.timer(side, session),
        }
    }

    /// A timer event of a connection. Void when the timer was planned anew since.
    fn timer(&mut self, side: Side, session: u32) {
        let now = self.now;
        let mut out = std::mem::take(&mut self.out);
        let end = self.end(side, session);
        if end.timer_at > now {
            return self.out = out;
        }
        end.timer_at = Ns::MAX;
        if end.tcp.due() <= now {
            end.tcp.fire(now, &mut out);
        }
        self.out = out;
        self.transmit(side, session);
        // A timer runs beside the threads: its transmit work occupies no CPU.
        self.transmit_work = 0;
    }

    /// Hands what an endpoint sends to the device, and plans the endpoint's timer. Follows every call of an endpoint.
    #[inline]
    fn transmit(&mut self, side: Side, session: u32) {
        let (host, now) = (self.host(side), self.now);
        let mut out = std::mem::take(&mut self.out);
        for segment in out.drain(..) {
            let work = self.vary(host.transmit);
            let handed = if host.transmits_apart {
                let free = &mut self.transmit_free[side as usize];
                *free = (*free).max(now) + work;
                *free
            } else {
                self.transmit_work += work;
                now + self.transmit_work
            };
            // A connection's segments keep their order, whichever CPU sends them.
            let last = &mut self.sessions[session as usize].ends[side as usize].handed;
            *last = handed.max(*last);
            let handed = *last;
            self.tally.transmitted(side, &segment, work);
            let random = &mut self.random;
            let direction = &mut self.directions[side as usize];
            let receiver = side.peer();
            let end = &mut self.sessions[session as usize].ends[side as usize];
            let number = end.packets;
            end.packets += u64::from(segment.bytes.div_ceil(self.setup.mss_bytes()).max(1));
            let outgoing = Outgoing { segment, session, receiver, number, handed, start: host.wire_start };
            let sent = direction.send(&outgoing, || random.f64());
            end.tcp.handed_to_device(sent.done, segment.bytes);
            if segment.bytes > 0 && !segment.retransmitted {
                end.flow.is_sent(segment.end(), end.tcp.held(now), handed);
            }
            if O::FRAMES {
                self.observer.frame(&Frame {
                    at: handed,
                    point: side,
                    session,
                    sender: side,
                    segment,
                    number,
                });
            }
            if let Some(packet) = sent.packet {
                let number = self.packets.keep(packet);
                self.events.plan(packet.arrived, Event::Arrive(number));
            }
        }
        self.out = out;
        let end = &mut self.sessions[session as usize].ends[side as usize];
        let due = end.tcp.due();
        if due < end.timer_at {
            end.timer_at = due;
            self.events.plan(due.max(now), Event::Timer { side, session });
        }
    }

    /// A packet's softirq work is done: TCP receives it and wakes a waiting thread.
    #[inline]
    fn deliver(&mut self, side: Side, number: u32) {
        let (now, packet) = (self.now, self.packets.take(number));
        let session = packet.session;
        let mut out = std::mem::take(&mut self.out);
        let [client, server] = &mut self.sessions[session as usize].ends;
        let (own, peer) = if side == Side::Client { (client, server) } else { (server, client) };
        own.tcp.receive(now, &packet.segment, &mut out);
        if packet.segment.bytes > 0 {
            peer.flow.is_delivered(now, own.tcp.received().in_order, &packet);
        }
        let wakes = (own.thread.is_asleep && own.tcp.readable() > 0)
            || (own.thread.waits_for_room && own.tcp.is_writable());
        if wakes {
            (own.thread.is_asleep, own.thread.waits_for_room) = (false, false);
        }
        self.out = out;
        self.transmit(side, session);
        if wakes {
            self.wake(side, session);
        }
    }

    /// The next operation of a session, as far as its start determines it.
    fn new_op(&mut self, session: u32) -> Op {
        let (setup, now) = (self.setup, self.now);
        let tag = self.sessions[session as usize].next_tag;
        // iSCSI reserves the last tag.
        self.sessions[session as usize].next_tag = if tag >= u32::MAX - 1 { 0 } else { tag + 1 };
        Op {
            connection: session,
            tag,
            verb: setup.verb(),
            kind: setup.kind(),
            queue_depth: setup.queue_depth,
            data_bytes: setup.data_of(session) as u32,
            request_bytes: setup.request.bytes() as u32,
            response_bytes: setup.response_of(session).bytes() as u32,
            start: flow::stamp(now),
            ..Op::default()
        }
    }
}
