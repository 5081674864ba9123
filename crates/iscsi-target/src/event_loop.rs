//! An event loop: one thread that serves many connections, a turn each.
//!
//! Sockets are watched for edges: a connection reads until there is nothing, and writes until there is no room, before it waits.
//! Each turn has a budget (budget.rs), and a connection with more to do goes behind the others that are ready, so that none
//! keeps the thread to itself. Mail of other threads comes by the [`Doorbell`].

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::connection::{Common, Connection, Turn};
use crate::core::Accepted;
use crate::doorbell::{Doorbell, Rung};
use crate::mailbox::Mailbox;
use crate::placement::Place;
use crate::shared::Shared;
use crate::transport::Woken;

/// The number of the doorbell among those of connections, which begin at 1.
const BELL: u64 = 0;
/// Events taken at once.
const EVENTS: usize = 256;
/// Waits of this length and more are ended by a look at all connections, once in such a time.
const COARSE: Duration = Duration::from_millis(250);

/// A connection that was accepted for an event loop.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) accepted: Accepted,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) socket: TcpStream,
}

/// An event loop, for the other threads.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) bell: Arc<Doorbell<Newcomer>>,
    /// Connections that it serves or will serve.
    pub(crate) load: AtomicUsize,
    /// The CPU that its thread is pinned to.
    cpu: Option<usize>,
}

impl Handle {
    pub(crate) fn new(cpu: Option<usize>) -> std::io::Result<Self> {
        Ok(Self { bell: Arc::new(Doorbell::new()?), load: AtomicUsize::new(0), cpu })
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
}

/// The thread's state.
pub(crate) struct EventLoop {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
    cpu: Option<usize>,
    epoll: Epoll,
    slots: HashMap<u64, Slot>,
    /// Connections that have a turn to come.
    ready: VecDeque<u64>,
    /// Short waits: when to look at a connection. Its wait may have been prolonged since.
    soon: Vec<(Instant, u64)>,
    /// When all waits are looked at.
    looks_at: Instant,
    /// When the last wait for events ended.
    now: Instant,
    common: Common,
}

impl EventLoop {
    pub(crate) fn new(shared: Arc<Shared>, handle: Arc<Handle>) -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*handle.bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self {
            shared,
            cpu: handle.cpu,
            handle,
            epoll,
            slots: HashMap::new(),
            ready: VecDeque::new(),
            soon: Vec::new(),
            looks_at: Instant::now(),
            now: Instant::now(),
            common: Common::new(),
        })
    }

    /// Serves connections until the target has stopped and none is left.
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
            self.now = Instant::now();
            for event in events.iter().take(count).filter(|event| event.data() != BELL) {
                self.wake(event.data(), Woken::Ready);
            }
            let Rung { mail, new, is_stopping, .. } = self.handle.bell.take();
            mail.into_iter().for_each(|id| self.wake(id, Woken::Ready));
            new.into_iter().for_each(|newcomer| self.welcome(newcomer));
            self.end_waits();
            self.common.begin_round(self.ready.len());
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
            return self.epoll.wait(events, EpollTimeout::ZERO);
        }
        let budget = self.shared.config.busy_poll;
        if !budget.is_zero() && !self.slots.is_empty() {
            let begun = Instant::now();
            while begun.elapsed() < budget {
                for _ in 0..8 {
                    let count = self.epoll.wait(events, EpollTimeout::ZERO)?;
                    if count > 0 || self.handle.bell.has_rung() {
                        return Ok(count);
                    }
                }
            }
        }
        let timeout = if self.handle.bell.may_sleep() { self.timeout() } else { EpollTimeout::ZERO };
        let count = self.epoll.wait(events, timeout);
        let woken = events.iter().take(count.unwrap_or(0));
        self.handle.bell.woke(woken.into_iter().any(|event| event.data() == BELL));
        count
    }

    /// The time until the next wait ends.
    fn timeout(&self) -> EpollTimeout {
        if self.slots.is_empty() {
            return EpollTimeout::NONE;
        }
        let soon = self.soon.iter().map(|&(until, _)| until).min();
        let until = soon.map_or(self.looks_at, |soon| soon.min(self.looks_at));
        // Rounded up: a wait that ends too early would spin until the time is due.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
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
        let Newcomer { accepted, mailbox, socket } = newcomer;
        let id = accepted.id;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        if let Err(error) = self.epoll.add(&socket, EpollEvent::new(flags, id)) {
            tracing::warn!(peer = %accepted.peer, "connection refused: cannot watch its socket: {error}");
            self.shared.sessions.leave(id);
            self.handle.load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let connection =
            Connection::new(accepted, Arc::clone(&self.shared), mailbox, socket, self.cpu, false);
        let slot = Slot { connection, woken: Some(Woken::Ready), until: self.now, soon: None };
        self.slots.insert(id, slot);
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
    }

    fn give_turn(&mut self, id: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let woken = slot.woken.take().unwrap_or(Woken::Ready);
        let common = &mut self.common;
        let turn = || {
            slot.connection.borrow(common);
            let turn = slot.connection.turn(woken, common);
            slot.connection.give_back(common);
            turn
        };
        // As with a thread of its own, a connection that panics ends alone.
        match catch_unwind(AssertUnwindSafe(turn)) {
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
        }
    }
}
