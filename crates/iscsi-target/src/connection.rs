//! A connection: drives a [`Core`] with a socket, a turn of work at a time. Its thread waits between the turns: one of its own
//! ([`Connection::run`]), or an event loop with many connections (event_loop.rs).

use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi::Spares;
use iscsi::login::target::LoggedIn;
use policy::{ThreadControl, Turn as Share};
use socket::options;

use crate::budget::Budget;
use crate::core::{Accepted, Core, Taken};
use crate::doorbell::Doorbell;
use crate::error::ConnectionEnd;
use crate::event_loop::Newcomer;
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::session::Session;
use crate::shared::Shared;
use crate::transport::{Flushed, Received, Transport, Wait, Woken};

/// Shortest interval between publications of a connection's statistics.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Longest time to send the last bytes of a connection.
const LINGER: Duration = Duration::from_secs(2);

/// The same where the target stops: an initiator that does not read must not delay a restart, which all others wait for.
const LINGER_STOPPING: Duration = Duration::from_millis(100);

/// Longest time that a login waits for connections that are closed: their last writes may take a disk long.
const SETTLE_PATIENCE: Duration = Duration::from_secs(1);

/// Poll interval of such a login.
const SETTLING_EVERY: Duration = Duration::from_millis(1);

/// Poll interval while a lost connection waits for writes in flight.
const ENDING_EVERY: Duration = Duration::from_millis(10);

/// Receptions in one turn of a login, after which other connections of the thread have theirs.
const RECEIVES: u32 = 8;

/// Buffers of each kind that a thread keeps for its next connections: those with received bytes that are not handled yet keep theirs.
const SPARES: usize = 8;

/// Turns of a connection that shares its thread with none: they end so that the send policy learns.
const ALONE: Share = Share { time: Duration::from_millis(1), ..Share::LONG };

/// What a connection asks for at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has more to do now.
    Again,
    /// It waits for one of the events, at most for this time.
    Wait(Wait, Duration),
    /// It has ended.
    Over,
}

/// What the connections of a thread have in common.
#[derive(Debug)]
pub(crate) struct Common {
    /// Memory that they have in turn: an idle one has none.
    incoming: Spares,
    outgoing: Spares,
    /// How `auto` sends, and how long turns are.
    control: ThreadControl,
    /// The closed connections that this round's logins wait for, once one has asked.
    closed: Option<Arc<[u64]>>,
    /// Zero of the clock that the control is told.
    since: Instant,
    /// When the round began.
    round: Instant,
}

impl Common {
    pub(crate) fn new() -> Self {
        let (incoming, outgoing) = (Spares::new(SPARES), Spares::new(SPARES));
        Self {
            incoming,
            outgoing,
            control: ThreadControl::default(),
            closed: None,
            since: Instant::now(),
            round: Instant::now(),
        }
    }

    /// A round begins, in which each connection has one turn at most, and so many have one.
    #[inline]
    pub(crate) fn begin_round(&mut self, ready: usize, now: Instant) {
        self.control.begin_round(ready, (now - self.since).as_nanos() as u64);
        self.closed = None;
        self.round = now;
    }

    /// No connection is ready.
    #[inline]
    pub(crate) fn idle(&mut self) {
        self.control.idle();
    }
}

/// A wait in the full feature phase.
#[derive(Clone, Copy, Debug)]
struct Waited {
    /// Bytes that were not sent when it began.
    unsent: usize,
    /// Whether it was for received bytes, too.
    is_for_input: bool,
    /// Whether the core asked for the time limit.
    is_asked: bool,
}

/// Where in its life a connection is.
enum Phase {
    LoggingIn,
    /// The login has succeeded; its answer waits for the end of these connections, until a time.
    Settling(Option<Arc<[u64]>>, Instant),
    Serving {
        waited: Option<Waited>,
        /// The initiator was asked for a sign of life.
        pinged: bool,
    },
    /// It has ended, and its tasks pass to its session.
    Ending(ConnectionEnd),
    /// Its last bytes are sent, until a time.
    Lingering(ConnectionEnd, Instant),
    Over,
}

/// A connection with its socket, which does a turn of work at a time, and never blocks.
pub(crate) struct Connection {
    core: Core,
    transport: Transport,
    phase: Phase,
    /// Whether it has a thread of its own, which may poll the socket.
    is_alone: bool,
    /// Whether Nagle's algorithm is on at the socket.
    has_nagle: bool,
    /// What is left of its turn.
    budget: Budget,
    /// The turn was over before everything was sent that was to be sent.
    is_cut: bool,
    /// When it last received something.
    received: Option<Instant>,
    published: Instant,
    /// Since when the initiator has received none of the pending bytes.
    stalled: Option<Instant>,
}

impl Connection {
    /// A connection of the calling thread.
    pub(crate) fn new(
        accepted: Accepted,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        socket: std::net::TcpStream,
        cpu: Option<usize>,
        is_alone: bool,
    ) -> Self {
        let quick_ack = shared.config.tcp.quick_ack;
        let core = Core::new(&accepted, shared, mailbox, cpu);
        let (transport, now) = (Transport::new(Arc::new(socket), quick_ack), Instant::now());
        Self {
            core,
            transport,
            phase: Phase::LoggingIn,
            is_alone,
            has_nagle: false,
            budget: Budget::unlimited(),
            is_cut: false,
            received: None,
            published: now,
            stalled: None,
        }
    }

    /// A connection of the calling thread that goes on with a session of the process before.
    ///
    /// # Errors
    /// When there is no memory for the received bytes.
    pub(crate) fn going_on(
        accepted: Accepted,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        socket: std::net::TcpStream,
        is_alone: bool,
        (login, session, received): (&LoggedIn, Arc<Session>, &[u8]),
    ) -> Result<Self, &'static str> {
        let mut connection = Self::new(accepted, shared, mailbox, socket, None, is_alone);
        connection.core.go_on(login, session, received)?;
        connection.core.shared.sockets.begin(accepted.id, &connection.transport.socket);
        // Nagle's algorithm is as the send policy of the process before has left it.
        connection.has_nagle = !connection.transport.socket.nodelay().unwrap_or(false);
        connection.phase = Phase::Serving { waited: None, pinged: false };
        Ok(connection)
    }

    pub(crate) fn socket(&self) -> &std::net::TcpStream {
        &self.transport.socket
    }

    /// Whether another event loop may serve it from its next turn on.
    pub(crate) fn can_move(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. })
    }

    /// It leaves its event loop for the one with this doorbell.
    pub(crate) fn leave_for(&self, bell: &Arc<Doorbell<Newcomer>>) {
        self.core.mailbox.move_to(bell);
    }

    /// The calling thread, pinned to `cpu`, serves it from now on.
    pub(crate) fn arrive(&mut self, cpu: Option<usize>) {
        self.core.statistics.thread = socket::cpu::thread_id();
        self.core.statistics.cpu = cpu;
        self.core.control.moved();
        self.publish();
    }

    /// Its number, and the address of its initiator.
    pub(crate) fn name(&self) -> (u64, std::net::SocketAddr) {
        (self.core.id, self.core.statistics.peer)
    }

    /// Serves the connection on a thread of its own until it ends.
    pub(crate) fn run(mut self) {
        let (mut woken, mut common) = (Woken::Ready, Common::new());
        loop {
            common.begin_round(1, Instant::now());
            woken = match self.turn(woken, &mut common) {
                Turn::Again => Woken::Ready,
                Turn::Wait(what, limit) => {
                    common.idle();
                    let Some(wake) = self.core.mailbox.descriptor() else { return };
                    match self.transport.wait(wake, what, limit, &self.core.outgoing) {
                        Ok(woken) => woken,
                        Err(error) => {
                            self.fail(error.into());
                            Woken::Ready
                        }
                    }
                }
                Turn::Over => return,
            };
        }
    }

    /// Takes memory for a turn.
    #[inline]
    pub(crate) fn borrow(&mut self, common: &mut Common) {
        self.core.incoming.borrow(&mut common.incoming);
        self.core.outgoing.borrow(&mut common.outgoing);
    }

    /// Gives back the memory that it does not need until the next one.
    #[inline]
    pub(crate) fn give_back(&mut self, common: &mut Common) {
        self.core.incoming.give_back(&mut common.incoming);
        self.core.outgoing.give_back(&mut common.outgoing);
    }

    /// Does the work that there is, up to a limit. `woken` tells how the last wait ended.
    #[inline]
    pub(crate) fn turn(&mut self, woken: Woken, common: &mut Common) -> Turn {
        self.core.control.begin_turn(&common.control);
        self.core.sampler.begin_turn(common.round);
        self.budget = Budget::new(if self.is_alone { ALONE } else { common.control.turn() });
        let turn = match &self.phase {
            Phase::Serving { .. } => self.serve(woken),
            Phase::LoggingIn => self.log_in(),
            Phase::Settling(..) => self.settle(common),
            Phase::Ending(_) | Phase::Lingering(..) | Phase::Over => Ok(self.close()),
        };
        let turn = turn.unwrap_or_else(|end| {
            self.fail(end);
            Turn::Again
        });
        self.core.control.end_turn(&mut common.control);
        turn
    }

    /// Begins to end the connection.
    #[cold]
    pub(crate) fn fail(&mut self, end: ConnectionEnd) {
        match &mut self.phase {
            Phase::Ending(_) | Phase::Over => {}
            Phase::Lingering(_, until) => *until = Instant::now(),
            phase => {
                let end = match end {
                    ConnectionEnd::Suspended => match self.transport.socket.try_clone() {
                        Ok(socket) => {
                            let quiet = self.core.take_kept(socket);
                            lock(&self.core.shared.quiet).extend(quiet);
                            ConnectionEnd::Suspended
                        }
                        // No descriptor is left: the initiator logs in again.
                        Err(error) => error.into(),
                    },
                    end => end,
                };
                self.core.end(&end);
                *phase = Phase::Ending(end);
            }
        }
    }

    /// Passes the tasks to the session, sends the last bytes, and tells why the connection ended.
    #[cold]
    fn close(&mut self) -> Turn {
        match &mut self.phase {
            Phase::Ending(end) => {
                if !self.core.is_ended() {
                    return Turn::Wait(Wait::Mailbox, ENDING_EVERY);
                }
                self.core.shared.sockets.end(self.core.id);
                // The last response (a Reject, a login refusal, a Logout Response) should still reach the initiator.
                let end = std::mem::replace(end, ConnectionEnd::Closed);
                let patience = if matches!(end, ConnectionEnd::Stopping) { LINGER_STOPPING } else { LINGER };
                self.phase = Phase::Lingering(end, Instant::now() + patience);
                Turn::Again
            }
            Phase::Lingering(_, until) => {
                let left = until.saturating_duration_since(Instant::now());
                let is_sent =
                    self.transport.flush(&mut self.core.outgoing, &mut Budget::unlimited()).is_err()
                        || self.core.outgoing.is_empty()
                        || left.is_zero();
                if !is_sent {
                    return Turn::Wait(Wait::Socket, left);
                }
                self.finish();
                Turn::Over
            }
            _ => Turn::Over,
        }
    }

    fn finish(&mut self) {
        // The timestamps of the last bytes arrive after the device has taken them.
        let _ = self.transport.read_stamps(self.core.tape.as_mut());
        let is_kept = matches!(self.phase, Phase::Lingering(ConnectionEnd::Suspended, _));
        if !is_kept {
            let _ = self.transport.socket.shutdown(std::net::Shutdown::Both);
        }
        let peer = self.core.statistics.peer;
        if let Phase::Lingering(end, _) = std::mem::replace(&mut self.phase, Phase::Over) {
            match &end {
                ConnectionEnd::LoggedOut
                | ConnectionEnd::Closed
                | ConnectionEnd::Recovered
                // The login has been told of.
                | ConnectionEnd::Refused(_)
                | ConnectionEnd::Suspended
                | ConnectionEnd::Stopping => {
                    tracing::debug!(%peer, "connection ended: {end}");
                }
                _ => tracing::warn!(%peer, "connection ended: {end}"),
            }
        }
        if let Some(tape) = self.core.tape.take() {
            self.core.shared.keep_ops(tape.ops(peer.port().into()));
        }
        self.core.statistics.open = false;
        let (initiator, target_name) = (&self.core.statistics.initiator_name, &self.core.statistics.target);
        if is_kept {
            tracing::info!(target: "audit", %peer, initiator, target_name, "session kept for the next process");
        } else if !initiator.is_empty() {
            tracing::info!(target: "audit", %peer, initiator, target_name, "connection ended");
        }
        // The end of the connection ends its last busy cycle.
        self.core.statistics.busy_count.idle();
        self.publish();
        self.core.shared.sessions.leave(self.core.id);
    }

    /// A part of the login phase.
    fn log_in(&mut self) -> Result<Turn, ConnectionEnd> {
        // A login alternates single PDUs: Nagle's algorithm would delay each behind a delayed acknowledgement.
        if self.transport.receives == 0 {
            options::set_nodelay(&self.transport.socket, true)?;
        }
        self.core.resume()?;
        for _ in 0..RECEIVES {
            let Some(deadline) = self.core.login_deadline() else { break };
            let taken = self.core.next_frame();
            if self.core.login_deadline().is_none() {
                self.phase = Phase::Settling(None, Instant::now() + SETTLE_PATIENCE);
                break;
            }
            self.flush()?;
            let needed = match taken? {
                Taken::Needs(needed) => needed,
                Taken::Frame | Taken::Blocked => continue,
            };
            match self.transport.receive(needed, &mut self.core.incoming, self.core.tape.as_mut())? {
                Received::Bytes => continue,
                Received::End => return Err(ConnectionEnd::Closed),
                Received::Nothing => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            return Ok(Turn::Wait(Wait::All, left));
        }
        Ok(Turn::Again)
    }

    /// Answers a login when every connection that its peer had closed before has ended.
    #[cold]
    fn settle(&mut self, common: &mut Common) -> Result<Turn, ConnectionEnd> {
        let sockets = &self.core.shared.sockets;
        if let Phase::Settling(closed, until) = &mut self.phase {
            // Its login came in an earlier turn, before this round. So all logins of a round can have one answer, which takes as long as
            // there are connections: ten thousand logins at once would take seconds.
            let closed = closed
                .get_or_insert_with(|| common.closed.get_or_insert_with(|| sockets.closed().into()).clone());
            if sockets.are_served(closed) {
                if Instant::now() < *until {
                    return Ok(Turn::Wait(Wait::Nothing, SETTLING_EVERY));
                }
                tracing::warn!(
                    "a closed connection has not ended within {SETTLE_PATIENCE:?}; a login goes on"
                );
            }
        }
        sockets.begin(self.core.id, &self.transport.socket);
        self.phase = Phase::Serving { waited: None, pinged: false };
        self.flush()?;
        if let Some(operations) = self.core.shared.config.stamp_operations {
            let position = self.core.outgoing.position();
            self.core.tape = Some(self.transport.stamp(operations, position)?);
        }
        self.take_send_mode()?;
        self.publish();
        Ok(Turn::Again)
    }

    /// A part of the full feature phase.
    fn serve(&mut self, woken: Woken) -> Result<Turn, ConnectionEnd> {
        let Phase::Serving { waited, mut pinged } = self.phase else { return Ok(Turn::Over) };
        let (ping_after, ping_answer) =
            (self.core.shared.config.limits.ping_after, self.core.shared.config.limits.ping_answer);
        if let Some(waited) = waited {
            self.flush()?;
            self.check_progress(waited.unsent, ping_after + ping_answer)?;
            if woken == Woken::TimedOut
                && !waited.is_asked
                && waited.is_for_input
                && !self.core.is_asked_to_log_out()
            {
                if pinged {
                    return Err(ConnectionEnd::Silent(ping_answer));
                }
                pinged = true;
                self.core.ping();
            }
            self.phase = Phase::Serving { waited: None, pinged };
            self.core.resume()?;
            self.flush_due()?;
            self.core.sampler.stepped();
        } else if self.is_cut {
            self.flush()?;
        }
        let mut moved = self.core.moved_bytes();
        loop {
            let needed = loop {
                let made = self.core.outgoing.position();
                match self.core.next_frame()? {
                    Taken::Frame => {
                        let end = self.core.outgoing.position();
                        if let Some(time) = self.core.sampler.handled((end != made).then_some(end)) {
                            self.core.took(time);
                        }
                        if self.core.is_due {
                            self.flush_due()?;
                        }
                        let before = std::mem::replace(&mut moved, self.core.moved_bytes());
                        self.budget.step(moved - before);
                        if self.budget.is_over() {
                            return self.end_turn(pinged);
                        }
                    }
                    Taken::Needs(needed) => break Some(needed),
                    Taken::Blocked => {
                        self.flush()?;
                        self.core.resume()?;
                        self.core.sampler.stepped();
                        if !self.core.has_room() || self.core.sleep_limit().is_some() {
                            break None;
                        }
                    }
                }
            };
            if self.core.control.chunk_ended() {
                self.flush()?;
            }
            if let Some(needed) = needed {
                if self.budget.is_over() {
                    return self.end_turn(pinged);
                }
                match self.receive(needed)? {
                    Received::Bytes => {
                        pinged = false;
                        self.received = self.budget.received();
                        // A busy connection must handle notices too, not only an idle one.
                        if self.core.mailbox.has_mail() || self.core.sleep_limit().is_some() {
                            self.core.resume()?;
                            self.flush_due()?;
                        }
                        continue;
                    }
                    Received::End => return Err(ConnectionEnd::Closed),
                    Received::Nothing => {}
                }
            }
            if needed.is_none() {
                // An event loop watches for edges: there is one only behind a send that would have blocked.
                self.flush()?;
            }
            if (self.core.has_more() || self.core.has_deferred()) && self.core.has_room() {
                // Partial read responses continue as the socket takes bytes.
                let before = self.core.outgoing.position();
                self.core.resume()?;
                let has_made_more = self.core.outgoing.position() != before;
                self.flush()?;
                self.budget.look();
                if has_made_more && !self.budget.is_over() {
                    continue;
                }
                if has_made_more {
                    return self.end_turn(pinged);
                }
            }
            if self.is_cut {
                return self.end_turn(pinged);
            }
            if needed.is_none() && self.core.has_room() && self.core.sleep_limit().is_none() {
                // The condition that blocked further frames has cleared.
                continue;
            }
            if !self.is_alone && self.core.mailbox.has_mail() {
                // An event loop is rung for once: mail that came since the last look, such as during the login, would wait for
                // another event.
                self.core.resume()?;
                self.flush_due()?;
                continue;
            }
            self.idle()?;
            let limit = if pinged { ping_answer } else { ping_after };
            let asked = self.core.sleep_limit();
            let waited = Waited {
                unsent: self.core.outgoing.waiting_bytes(),
                is_for_input: needed.is_some(),
                is_asked: asked.is_some(),
            };
            if needed.is_none() && !self.core.incoming.unread().is_empty() {
                self.core.sampler.cut(self.received);
            }
            self.phase = Phase::Serving { waited: Some(waited), pinged };
            let what = if needed.is_some() { Wait::All } else { Wait::Room };
            return Ok(Turn::Wait(what, asked.unwrap_or(limit).min(limit)));
        }
    }

    /// Ends a turn whose time is over. What is complete goes out now: the initiator would wait for the turns of all others, and the
    /// processor's caches would not have it any more.
    #[inline]
    fn end_turn(&mut self, pinged: bool) -> Result<Turn, ConnectionEnd> {
        self.phase = Phase::Serving { waited: None, pinged };
        self.flush()?;
        if !self.core.incoming.unread().is_empty() {
            self.core.sampler.cut(self.received);
        }
        // One that is never idle has figures, too.
        if self.budget.looked().is_some_and(|now| now.duration_since(self.published) >= PUBLISH_EVERY) {
            self.publish();
        }
        Ok(Turn::Again)
    }

    /// Ends the connection when the initiator has received no pending byte for `patience`.
    fn check_progress(&mut self, before: usize, patience: Duration) -> Result<(), ConnectionEnd> {
        let waiting = self.core.outgoing.waiting_bytes();
        if waiting == 0 || waiting < before {
            self.stalled = None;
            return Ok(());
        }
        let since = *self.stalled.get_or_insert_with(Instant::now);
        if since.elapsed() >= patience { Err(ConnectionEnd::Silent(patience)) } else { Ok(()) }
    }

    /// Applies the send policy's current mode to the socket.
    #[inline]
    fn take_send_mode(&mut self) -> Result<(), ConnectionEnd> {
        let wanted = self.core.control.mode().nagle;
        if wanted != self.has_nagle {
            // Setting TCP_NODELAY also sends what Nagle's algorithm holds.
            options::set_nodelay(&self.transport.socket, !wanted)?;
            self.has_nagle = wanted;
        }
        Ok(())
    }

    /// Receives available bytes. When there are none, sends pending responses and polls for the configured `busy_poll`
    /// time.
    #[inline]
    fn receive(&mut self, needed: usize) -> Result<Received, ConnectionEnd> {
        let received = self.transport.receive(needed, &mut self.core.incoming, self.core.tape.as_mut())?;
        self.core.sampler.received(received == Received::Bytes);
        if received != Received::Nothing {
            return Ok(received);
        }
        self.flush()?;
        let budget = self.core.shared.config.busy_poll;
        if budget.is_zero() || !self.is_alone {
            return Ok(received);
        }
        let begun = Instant::now();
        while begun.elapsed() < budget && !self.core.mailbox.has_mail() {
            // Several polls for each read of the clock, which costs as much as a poll.
            for _ in 0..8 {
                let received =
                    self.transport.receive(needed, &mut self.core.incoming, self.core.tape.as_mut())?;
                if received != Received::Nothing {
                    return Ok(received);
                }
            }
        }
        Ok(Received::Nothing)
    }

    /// Sends pending bytes, after recording them for retransmission.
    #[inline]
    fn flush(&mut self) -> Result<(), ConnectionEnd> {
        self.core.is_due = false;
        if self.is_cut && self.budget.is_over() {
            // What is left goes out in the next turn.
            return Ok(());
        }
        self.is_cut = false;
        if self.core.outgoing.is_empty() {
            return Ok(());
        }
        self.core.record_pending();
        self.is_cut = self.transport.flush(&mut self.core.outgoing, &mut self.budget)? == Flushed::Cut;
        if !self.is_cut {
            self.core.control.sent();
        }
        let Core { sampler, outgoing, .. } = &mut self.core;
        sampler.sent(outgoing.position() - outgoing.waiting_bytes() as u64);
        Ok(())
    }

    /// Sends pending bytes if the send policy wants them sent now.
    #[inline]
    fn flush_due(&mut self) -> Result<(), ConnectionEnd> {
        self.take_send_mode()?;
        if self.core.is_due { self.flush() } else { Ok(()) }
    }

    /// Ends a busy cycle: no request is left.
    fn idle(&mut self) -> Result<(), ConnectionEnd> {
        let has_answered = std::mem::take(&mut self.core.has_answered);
        let busy_count = &mut self.core.statistics.busy_count;
        let served = has_answered || busy_count.busy > 0;
        busy_count.idle();
        let control = &mut self.core.control;
        if served && control.idle() && self.has_nagle && control.mode().nagle {
            options::flush_nagle(&self.transport.socket)?;
        }
        self.take_send_mode()?;
        let is_asked = std::mem::take(&mut self.core.is_asked_to_publish);
        if is_asked || self.published.elapsed() >= PUBLISH_EVERY {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.core.publish_counts();
        let Core { statistics: s, outgoing, incoming, control, shared, id, sampler, .. } = &mut self.core;
        s.sent_bytes = outgoing.position() - outgoing.waiting_bytes() as u64;
        s.received_bytes = incoming.position() + incoming.unread().len() as u64;
        s.sends = self.transport.sends;
        s.receives = self.transport.receives;
        s.send = control.policy();
        s.modes = control.shares();
        s.stages = sampler.stages;
        shared.board.publish(*id, s);
        self.published = Instant::now();
    }
}
