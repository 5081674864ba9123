//! The world: what is planned happens, one thing after another, at its time.

mod cpu;
mod events;
mod flow;
mod tally;
mod thread;
mod wire;

use policy::SendControl;
use record::{Op, Side};

use self::cpu::Cpu;
use self::events::{Event, Events};
use self::flow::Flow;
use self::tally::Tally;
use self::thread::Thread;
use self::wire::{Direction, Packets};
use crate::Ns;
use crate::op::SimOp;
use crate::result::RunResult;
use crate::setup::{Host, Setup};
use crate::tcp::{Endpoint, Segment};

/// A segment passes a capture point.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// When, ns since the simulation began. Those of one point come nearly in order.
    pub at: Ns,
    /// Where.
    pub point: Side,
    /// Whose connection.
    pub session: u32,
    /// Who sent it.
    pub sender: Side,
    /// It.
    pub segment: Segment,
}

/// A message was made.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// On which connection.
    pub session: u32,
    /// By whom.
    pub sender: Side,
    /// Offset behind its last byte in the sender's stream.
    pub end: u64,
    /// Which operation's.
    pub tag: u32,
    /// Responses that its sender has taken so far, of a request; requests so far, of a response.
    pub count: u64,
}

/// Who wants to know what happens.
pub trait Observer {
    /// Whether frames and messages are wanted.
    const FRAMES: bool = false;

    /// An operation is over.
    fn op(&mut self, op: &SimOp) {
        let _ = op;
    }

    /// A message was made, before any of its frames.
    fn message(&mut self, message: &Message) {
        let _ = message;
    }

    /// A segment passes a capture point.
    fn frame(&mut self, frame: &Frame) {
        let _ = frame;
    }

    /// It is so late, ns since the simulation began: no earlier frame will come. False ends the run.
    fn tick(&mut self, now: Ns) -> bool {
        let _ = now;
        true
    }
}

/// Nobody.
impl Observer for () {}

/// One end of a session.
struct End {
    tcp: Endpoint,
    thread: Thread,
    /// When its timer event comes.
    timer_at: Ns,
    /// Its last segment was handed to the device.
    handed: Ns,
    /// The messages that it makes.
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

struct World<'a, O> {
    setup: &'a Setup,
    observer: &'a mut O,
    now: Ns,
    events: Events,
    cpus: [Vec<Cpu>; 2],
    transmit_free: [Ns; 2],
    directions: [Direction; 2],
    packets: Packets,
    sessions: Vec<Session>,
    /// What endpoints want to send: used again and again.
    out: Vec<Segment>,
    /// Work of the present effect that its CPU has still to do.
    debt: Ns,
    random: fastrand::Rng,
    tally: Tally,
}

/// Runs a setup to its end.
pub fn simulate<O: Observer>(setup: &Setup, observer: &mut O) -> RunResult {
    let mut world = World::new(setup, observer);
    world.begin();
    let mut steps = 0_u32;
    while !world.tally.is_over {
        let Some((at, event)) = world.events.next() else { break };
        world.now = at;
        if at > setup.time_limit {
            break;
        }
        world.happen(event);
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1024) && !world.observer.tick(at) {
            break;
        }
    }
    world.observer.tick(Ns::MAX);
    let World { now, sessions, tally, .. } = world;
    let sessions: Vec<_> = sessions.into_iter().map(|s| (s.busy, s.control.shares())).collect();
    tally.result(setup, now, &sessions)
}

impl<'a, O: Observer> World<'a, O> {
    fn new(setup: &'a Setup, observer: &'a mut O) -> Self {
        let mss = setup.mss_bytes();
        let cpus = |host: &Host| {
            let count = (host.thread_cpu + host.thread_cpus).max(host.softirq_cpu + 1);
            (0..count).map(|_| Cpu::default()).collect()
        };
        let end = |host: &Host, peer: &Host, number: u32, nodelay: bool| {
            let mut tcp = Endpoint::new(host.tcp, setup.options(host));
            tcp.set_peer_buffer(peer.receive_buffer);
            tcp.set_nodelay(0, nodelay, &mut Vec::new());
            let cpu = host.thread_cpu + number as usize % host.thread_cpus;
            End { tcp, thread: Thread::new(cpu as u16), timer_at: Ns::MAX, handed: 0, flow: Flow::default() }
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
            transmit_free: [0; 2],
            directions: [Direction::new(setup.wire, mss); 2],
            packets: Packets::default(),
            sessions: (0..setup.sessions).map(session).collect(),
            out: Vec::new(),
            debt: 0,
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

    /// A service time or a latency as it is this time.
    #[inline]
    fn vary(&mut self, time: Ns) -> Ns {
        if self.setup.jitter == 0.0 || time == 0 {
            return time;
        }
        let share = 1.0 + self.setup.jitter * (2.0 * self.random.f64() - 1.0);
        (time as f64 * share).round() as Ns
    }

    /// How long something else holds a thread up now.
    #[inline]
    fn disturbance(&mut self) -> Ns {
        if self.setup.disturbed == 0.0 || self.random.f64() >= self.setup.disturbed {
            return 0;
        }
        (self.setup.disturbance as f64 * self.random.f64()) as Ns
    }

    /// The clients issue their first operations, a microsecond after each other.
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
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(number) => self.arrive(number),
            Event::Interrupt { side, cpu, number } => self.interrupt(side, cpu, number),
            Event::End { side, cpu, number } => self.end_of_work(side, cpu, number),
            Event::Wake { side, session } => self.ready(side, session),
            Event::Timer { side, session } => self.timer(side, session),
        }
    }

    /// A timer of a connection: its segments leave beside what the CPUs do.
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
        self.debt = 0;
    }

    /// Hands on what an endpoint wants to send, and plans its timer.
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
                self.debt += work;
                now + self.debt
            };
            // A connection's segments leave one after another, whichever CPU sends them.
            let last = &mut self.sessions[session as usize].ends[side as usize].handed;
            *last = handed.max(*last);
            let handed = *last;
            self.tally.transmitted(side, &segment, work);
            let random = &mut self.random;
            let direction = &mut self.directions[side as usize];
            let sent =
                direction.send((side.peer(), session, segment), handed, host.wire_start, || random.f64());
            let end = &mut self.sessions[session as usize].ends[side as usize];
            end.tcp.handed_to_device(sent.done, segment.bytes);
            if segment.bytes > 0 && !segment.again {
                end.flow.is_sent(segment.end(), end.tcp.held(now), handed);
            }
            if O::FRAMES {
                self.observer.frame(&Frame { at: handed, point: side, session, sender: side, segment });
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

    /// A packet's softirq work is over: TCP has it, and wakes who waits.
    #[inline]
    fn deliver(&mut self, side: Side, number: u32) {
        let (now, packet) = (self.now, self.packets.take(number));
        let session = packet.session;
        let mut out = std::mem::take(&mut self.out);
        let [client, server] = &mut self.sessions[session as usize].ends;
        let (own, peer) = if side == Side::Client { (client, server) } else { (server, client) };
        own.tcp.receive(now, &packet.segment, &mut out);
        if packet.segment.bytes > 0 {
            peer.flow.is_delivered(now, own.tcp.received().1, &packet);
        }
        let wakes = (own.thread.is_asleep && own.tcp.readable() > 0)
            || (own.thread.waits_for_room && own.tcp.is_writable());
        if wakes {
            (own.thread.is_asleep, own.thread.waits_for_room) = (false, false);
        }
        self.out = out;
        self.transmit(side, session);
        if wakes {
            let start = self.vary(self.host(side).start);
            self.events.plan(now + start, Event::Wake { side, session });
        }
    }

    /// The next operation of a session, as far as its start tells.
    fn new_op(&mut self, session: u32) -> Op {
        let (setup, now) = (self.setup, self.now);
        let tag = self.sessions[session as usize].next_tag;
        // As with iSCSI: the last number says "none".
        self.sessions[session as usize].next_tag = if tag >= u32::MAX - 1 { 0 } else { tag + 1 };
        Op {
            connection: session,
            tag,
            verb: setup.verb(),
            kind: setup.kind(),
            queue_depth: setup.queue_depth,
            data_bytes: setup.request.data.max(setup.response.data) as u32,
            request_bytes: setup.request.bytes() as u32,
            response_bytes: setup.response.bytes() as u32,
            start: flow::stamp(now),
            ..Op::default()
        }
    }
}
