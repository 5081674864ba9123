//! An event loop: one thread that serves many connections, a turn each.
//!
//! Sockets are watched for edges: a connection reads until there is nothing, and writes until there is no room, before it waits.
//! Each turn has a budget (budget.rs), and a connection with more to do goes behind the others that are ready, so that none
//! keeps the thread to itself. Mail of other threads comes by the [`Doorbell`].
//!
//! A loop that has no time left hands connections to one that has (placement.rs). Which of them take how much is measured only
//! then, so that a turn costs nothing more as a rule.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::connection::{Common, Connection, Turn};
use crate::core::Accepted;
use crate::doorbell::{Doorbell, Rung};
use crate::mailbox::Mailbox;
use crate::placement::{self, Place};
use crate::shared::Shared;
use crate::transport::Woken;

/// The number of the doorbell among those of connections, which begin at 1.
const BELL: u64 = 0;
/// Events taken at once.
const EVENTS: usize = 256;
/// Waits of this length and more are ended by a look at all connections, once in such a time.
const COARSE: Duration = Duration::from_millis(250);

/// A connection for an event loop.
pub(crate) enum Newcomer {
    /// It was accepted.
    Accepted { accepted: Accepted, mailbox: Arc<Mailbox>, socket: TcpStream },
    /// Another loop has served it, and this has ended its wait there.
    Moved(Box<Connection>, Woken),
}

impl std::fmt::Debug for Newcomer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted { accepted, .. } => write!(f, "Accepted({})", accepted.id),
            Self::Moved(connection, _) => write!(f, "Moved({})", connection.name().0),
        }
    }
}

/// An event loop, for the other threads.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) bell: Arc<Doorbell<Newcomer>>,
    /// Connections that it serves or will serve.
    pub(crate) load: AtomicUsize,
    /// The part of its time that it worked, when it last looked: an `f32`.
    busy: AtomicU32,
    /// The CPU that its thread is pinned to.
    cpu: Option<usize>,
}

impl Handle {
    pub(crate) fn new(cpu: Option<usize>) -> std::io::Result<Self> {
        let bell = Arc::new(Doorbell::new()?);
        Ok(Self { bell, load: AtomicUsize::new(0), busy: AtomicU32::new(0), cpu })
    }

    fn busy(&self) -> f32 {
        f32::from_bits(self.busy.load(Ordering::Relaxed))
    }

    /// Replaces what the others take it for; false when another loop has done so since it was `before`.
    fn set_busy(&self, before: f32, after: f32) -> bool {
        let (before, after) = (before.to_bits(), after.to_bits());
        self.busy.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn place(&self) -> Place {
        Place { cpu: self.cpu, load: self.load.load(Ordering::Relaxed) }
    }
}

/// A connection of the loop.
struct Slot {
    connection: Connection,
    /// What ended its wait, while it is in the queue.
    woken: Option<Woken>,
    /// When its wait ends.
    until: Instant,
    /// When it is looked at as one of the short waits.
    soon: Option<Instant>,
    /// Time of its turns, while they are measured.
    busy: Duration,
}

impl Slot {
    fn new(connection: Connection, woken: Woken, now: Instant) -> Self {
        Self { connection, woken: Some(woken), until: now, soon: None, busy: Duration::ZERO }
    }
}

/// The thread's state.
pub(crate) struct EventLoop {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
    /// The other loops.
    others: Vec<Arc<Handle>>,
    cpu: Option<usize>,
    epoll: Epoll,
    slots: HashMap<u64, Slot>,
    /// Connections that have a turn to come.
    ready: VecDeque<u64>,
    /// Short waits: when to look at a connection. Its wait may have been prolonged since.
    soon: Vec<(Instant, u64)>,
    /// When all waits are looked at, and when the load is.
    looks_at: Instant,
    load_at: Instant,
    /// When the last wait for events ended.
    now: Instant,
    /// Since when the time is measured, how long the loop has waited since, and whether the turns of connections are measured.
    measured_since: Instant,
    waited: Duration,
    measures_turns: bool,
    /// How busy the other loops take it for, unless one of them has handed something over since.
    published: f32,
    common: Common,
}

impl EventLoop {
    /// The loop of the handle with this number.
    pub(crate) fn new(shared: Arc<Shared>, handles: &[Arc<Handle>], number: usize) -> std::io::Result<Self> {
        let handle = Arc::clone(&handles[number]);
        let others = handles.iter().filter(|other| !Arc::ptr_eq(other, &handle)).cloned().collect();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*handle.bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self {
            shared,
            cpu: handle.cpu,
            handle,
            others,
            epoll,
            slots: HashMap::new(),
            ready: VecDeque::new(),
            soon: Vec::new(),
            looks_at: Instant::now(),
            load_at: Instant::now(),
            published: 0.0,
            now: Instant::now(),
            measured_since: Instant::now(),
            waited: Duration::ZERO,
            measures_turns: false,
            common: Common::new(),
        })
    }

    /// Serves connections until the target has stopped and none is left.
    #[inline(never)] // scripts/bench-instructions.sh counts what is inside, and finds it by name.
    pub(crate) fn run(mut self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = socket::cpu::pin(cpu)
        {
            tracing::warn!("cannot pin the thread to CPU {cpu}: {error}");
            self.cpu = None;
        }
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let count = match self.wait(&mut events) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => {
                    tracing::error!("cannot wait for events: {error}");
                    std::thread::sleep(Duration::from_millis(10));
                    0
                }
            };
            for event in events.iter().take(count).filter(|event| event.data() != BELL) {
                self.wake(event.data(), Woken::Ready);
            }
            let Rung { mail, new, is_stopping, .. } = self.handle.bell.take();
            mail.into_iter().for_each(|id| self.wake(id, Woken::Ready));
            new.into_iter().for_each(|newcomer| self.welcome(newcomer));
            self.end_waits();
            self.common.begin_round(self.ready.len(), self.now);
            for _ in 0..self.ready.len() {
                let Some(id) = self.ready.pop_front() else { break };
                self.give_turn(id);
            }
            if is_stopping && self.slots.is_empty() {
                return;
            }
        }
    }

    /// Waits for events, if no connection is ready.
    fn wait(&mut self, events: &mut [EpollEvent]) -> nix::Result<usize> {
        if !self.ready.is_empty() {
            let count = self.epoll.wait(events, EpollTimeout::ZERO);
            self.now = Instant::now();
            return count;
        }
        self.common.idle();
        let begun = Instant::now();
        let count = self.wait_idly(events, begun);
        self.now = Instant::now();
        self.waited += self.now - begun;
        count
    }

    /// Waits for events from `begun` on.
    fn wait_idly(&self, events: &mut [EpollEvent], begun: Instant) -> nix::Result<usize> {
        let budget = self.shared.config.busy_poll;
        if !budget.is_zero() && !self.slots.is_empty() {
            while begun.elapsed() < budget {
                for _ in 0..8 {
                    let count = self.epoll.wait(events, EpollTimeout::ZERO)?;
                    if count > 0 || self.handle.bell.has_rung() {
                        return Ok(count);
                    }
                }
            }
        }
        let timeout = if self.handle.bell.may_sleep() { self.timeout(begun) } else { EpollTimeout::ZERO };
        let count = self.epoll.wait(events, timeout);
        let woken = events.iter().take(count.unwrap_or(0));
        self.handle.bell.woke(woken.into_iter().any(|event| event.data() == BELL));
        count
    }

    /// The time from now until the next wait ends.
    fn timeout(&self, now: Instant) -> EpollTimeout {
        if self.slots.is_empty() {
            return EpollTimeout::NONE;
        }
        let soon = self.soon.iter().map(|&(until, _)| until).min();
        let until = soon.map_or(self.looks_at, |soon| soon.min(self.looks_at));
        // Rounded up: a wait that ends too early would spin until the time is due.
        let left = until.saturating_duration_since(now) + Duration::from_micros(999);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    /// A connection has a turn.
    fn wake(&mut self, id: u64, woken: Woken) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        match &mut slot.woken {
            Some(before) => {
                if woken == Woken::Ready {
                    *before = woken;
                }
            }
            none => {
                *none = Some(woken);
                self.ready.push_back(id);
            }
        }
    }

    /// Begins to serve a connection.
    fn welcome(&mut self, newcomer: Newcomer) {
        let (mut connection, woken) = match newcomer {
            Newcomer::Accepted { accepted, mailbox, socket } => {
                let shared = Arc::clone(&self.shared);
                (Connection::new(accepted, shared, mailbox, socket, self.cpu, false), Woken::Ready)
            }
            Newcomer::Moved(mut connection, woken) => {
                connection.arrive(self.cpu);
                // What it will take is with the handle, until it has been measured: another loop would see the time before.
                self.published = self.handle.busy();
                (self.measured_since, self.waited, self.measures_turns) = (self.now, Duration::ZERO, false);
                self.load_at = self.now + COARSE;
                (*connection, woken)
            }
        };
        let id = connection.name().0;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        // Data that came before is an edge, too; a connection that has moved may have mail.
        if let Err(error) = self.epoll.add(connection.socket(), EpollEvent::new(flags, id)) {
            // Its socket gives no events: it ends in its next turns, which the limits of its waits bring.
            connection.fail(std::io::Error::from(error).into());
        }
        self.slots.insert(id, Slot::new(connection, woken, self.now));
        self.ready.push_back(id);
    }

    /// Wakes the connections whose waits have lasted long enough.
    fn end_waits(&mut self) {
        let now = self.now;
        if !self.soon.is_empty() {
            let mut due = Vec::new();
            self.soon.retain(|&(until, id)| {
                if until <= now {
                    due.push((until, id));
                }
                until > now
            });
            for (at, id) in due {
                let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.soon == Some(at)) else {
                    continue;
                };
                slot.soon = Some(slot.until).filter(|&until| until > now && until - now < COARSE);
                if let Some(until) = slot.soon {
                    self.soon.push((until, id));
                } else if slot.until <= now {
                    self.wake(id, Woken::TimedOut);
                }
            }
        }
        if now >= self.looks_at {
            self.looks_at = now + COARSE;
            let is_due = |slot: &Slot| slot.woken.is_none() && slot.until <= now;
            let due: Vec<u64> =
                self.slots.iter().filter(|(_, slot)| is_due(slot)).map(|(&id, _)| id).collect();
            due.into_iter().for_each(|id| self.wake(id, Woken::TimedOut));
        }
        if now >= self.load_at {
            self.load_at = now + COARSE;
            self.look_at_load();
        }
    }

    /// Publishes how busy the loop is. One that has no time left measures the turns of its connections until the next look, and
    /// hands some of them over then.
    fn look_at_load(&mut self) {
        let measured = (self.now - self.measured_since).as_secs_f32();
        let part = |time: Duration| (time.as_secs_f32() / measured).min(1.0);
        let own = 1.0 - part(self.waited);
        let parts: Vec<f32> = self.others.iter().map(|other| other.busy()).collect();
        let relief = placement::relief(own, parts.iter().copied()).filter(|_| !self.shared.is_stopping());
        let mut moved = 0.0;
        if let Some((index, excess)) = relief.filter(|_| self.measures_turns) {
            let movable = self.slots.iter().filter(|(_, slot)| slot.connection.can_move());
            let shares = movable.map(|(&id, slot)| (id, part(slot.busy))).collect();
            let surplus = placement::surplus(shares, excess);
            let sum: f32 = surplus.iter().map(|(_, share)| share).sum();
            let other = Arc::clone(&self.others[index]);
            if !surplus.is_empty() && other.set_busy(parts[index], parts[index] + sum) {
                surplus.into_iter().for_each(|(id, _)| self.hand_over(id, &other));
                moved = sum;
            }
        }
        self.publish(placement::rest(own, moved, self.slots.is_empty()));
        self.measures_turns = relief.is_some() && !self.measures_turns;
        if self.measures_turns {
            self.slots.values_mut().for_each(|slot| slot.busy = Duration::ZERO);
        }
        (self.measured_since, self.waited) = (self.now, Duration::ZERO);
    }

    /// Tells the other loops how busy it is, unless one has handed something over that has not come yet.
    fn publish(&mut self, part: f32) {
        if self.handle.set_busy(self.published, part) {
            self.published = part;
        }
    }

    /// Another loop serves the connection from its next turn on.
    fn hand_over(&mut self, id: u64, other: &Handle) {
        let Some(slot) = self.slots.remove(&id) else { return };
        if let Err(error) = self.epoll.delete(slot.connection.socket()) {
            tracing::warn!(connection = id, "cannot stop to watch its socket: {error}");
        }
        tracing::debug!(connection = id, peer = %slot.connection.name().1, "moved to another event loop");
        self.handle.load.fetch_sub(1, Ordering::Relaxed);
        other.load.fetch_add(1, Ordering::Relaxed);
        slot.connection.leave_for(&other.bell);
        other.bell.welcome(Newcomer::Moved(Box::new(slot.connection), slot.woken.unwrap_or(Woken::Ready)));
    }

    fn give_turn(&mut self, id: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let woken = slot.woken.take().unwrap_or(Woken::Ready);
        let begun = self.measures_turns.then(Instant::now);
        let common = &mut self.common;
        let turn = || {
            slot.connection.borrow(common);
            let turn = slot.connection.turn(woken, common);
            slot.connection.give_back(common);
            turn
        };
        // As with a thread of its own, a connection that panics ends alone.
        let turn = catch_unwind(AssertUnwindSafe(turn));
        slot.busy += begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        match turn {
            Ok(Turn::Again) => {
                slot.woken = Some(Woken::Ready);
                self.ready.push_back(id);
            }
            // Whatever it waits for, another event does no harm.
            Ok(Turn::Wait(_, limit)) => {
                slot.until = self.now + limit;
                if limit < COARSE && slot.soon.is_none_or(|at| slot.until < at) {
                    slot.soon = Some(slot.until);
                    self.soon.push((slot.until, id));
                }
            }
            Ok(Turn::Over) => self.remove(id),
            Err(_) => {
                self.shared.sockets.end(id);
                self.shared.sessions.leave(id);
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(slot) = self.slots.remove(&id) {
            let _ = self.epoll.delete(slot.connection.socket());
            self.handle.load.fetch_sub(1, Ordering::Relaxed);
            if self.slots.is_empty() {
                // It sleeps without a limit now, and looks at nothing.
                self.publish(0.0);
            }
        }
    }
}
