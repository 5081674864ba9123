//! A connection's thread: drives a [`Core`] with a socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use socket::options;

use crate::core::{Accepted, Core, Taken};
use crate::error::ConnectionEnd;
use crate::mailbox::Mailbox;
use crate::shared::Shared;
use crate::transport::{Received, Transport, Wait, Woken};

/// Shortest interval between publications of a connection's statistics.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Longest time to send the last bytes of a connection.
const LINGER: Duration = Duration::from_secs(2);

/// Poll interval while a lost connection waits for writes in flight.
const ENDING_EVERY: Duration = Duration::from_millis(10);

/// The state of a connection's thread.
pub(crate) struct Connection {
    core: Core,
    transport: Transport,
    /// Whether Nagle's algorithm is on at the socket.
    has_nagle: bool,
    begun: Instant,
    published: Instant,
    /// Since when the initiator has received none of the pending bytes.
    stalled: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(
        accepted: Accepted,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        socket: std::net::TcpStream,
    ) -> Self {
        let cpus = &shared.config.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[accepted.id as usize % cpus.len()]);
        let cpu = cpu.filter(|&cpu| {
            socket::cpu::pin(cpu)
                .inspect_err(|error| tracing::warn!("cannot pin the connection thread to CPU {cpu}: {error}"))
                .is_ok()
        });
        let quick_ack = shared.config.tcp.quick_ack;
        let core = Core::new(&accepted, shared, mailbox, cpu);
        let (transport, now) = (Transport::new(Arc::new(socket), quick_ack), Instant::now());
        Self { core, transport, has_nagle: false, begun: now, published: now, stalled: None }
    }

    /// Serves the connection until it ends, and logs why.
    #[inline(never)] // scripts/bench-instructions.sh counts what is inside, and finds it by name.
    pub(crate) fn run(mut self) {
        let end = self.log_in().and_then(|()| self.serve()).unwrap_or_else(|end| end);
        self.core.end(&end);
        while !self.core.is_ended() {
            let _ = self.transport.wait(
                &self.core.mailbox.wake,
                Wait::Mailbox,
                ENDING_EVERY,
                &self.core.outgoing,
            );
        }
        self.core.shared.sockets.end(self.core.id);
        // The last response (a Reject, a login refusal, a Logout Response) should still reach the initiator.
        self.linger();
        let peer = self.core.statistics.peer;
        match &end {
            ConnectionEnd::LoggedOut
            | ConnectionEnd::Closed
            | ConnectionEnd::Recovered
            | ConnectionEnd::Stopping => {
                tracing::debug!(%peer, "connection ended: {end}");
            }
            _ => tracing::warn!(%peer, "connection ended: {end}"),
        }
        if let Some(tape) = self.core.tape.take() {
            self.core.shared.keep_ops(tape.ops(peer.port().into()));
        }
        self.core.statistics.open = false;
        // The end of the connection ends its last busy cycle.
        self.core.statistics.busy_count.idle();
        self.publish();
        self.core.shared.sessions.leave(self.core.id);
    }

    /// Runs the login phase.
    fn log_in(&mut self) -> Result<(), ConnectionEnd> {
        // A login alternates single PDUs: Nagle's algorithm would delay each behind a delayed acknowledgement.
        options::set_nodelay(&self.transport.socket, true)?;
        while let Some(deadline) = self.core.login_deadline() {
            let taken = self.core.next_frame();
            if self.core.login_deadline().is_none() {
                let sockets = &self.core.shared.sockets;
                sockets.settle();
                sockets.begin(self.core.id, &self.transport.socket);
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
            self.transport.wait(&self.core.mailbox.wake, Wait::All, left, &self.core.outgoing)?;
            self.core.resume()?;
        }
        if let Some(operations) = self.core.shared.config.stamp_operations {
            let position = self.core.outgoing.position();
            self.core.tape = Some(self.transport.stamp(operations, position)?);
        }
        self.take_send_mode()?;
        self.publish();
        Ok(())
    }

    /// Runs the full feature phase.
    fn serve(&mut self) -> Result<ConnectionEnd, ConnectionEnd> {
        let limits = self.core.shared.config.limits.clone();
        let mut pinged = false;
        loop {
            let needed = loop {
                match self.core.next_frame()? {
                    Taken::Frame => {
                        if self.core.is_due {
                            self.flush_due()?;
                        }
                    }
                    Taken::Needs(needed) => break Some(needed),
                    Taken::Blocked => {
                        self.flush()?;
                        self.core.resume()?;
                        if !self.core.has_room() || self.core.sleep_limit().is_some() {
                            break None;
                        }
                    }
                }
            };
            if self.core.control.chunk_ended() {
                self.flush()?;
            }
            if self.core.control.wants_time() {
                self.core.control.clock(self.begun.elapsed().as_nanos() as u64);
                self.take_send_mode()?;
            }
            if let Some(needed) = needed {
                match self.receive(needed)? {
                    Received::Bytes => {
                        pinged = false;
                        // A busy connection must handle notices too, not only an idle one.
                        if self.core.mailbox.has_mail() || self.core.sleep_limit().is_some() {
                            self.core.resume()?;
                            self.flush_due()?;
                        }
                        continue;
                    }
                    Received::End => return Ok(ConnectionEnd::Closed),
                    Received::Nothing => {}
                }
            }
            if (self.core.has_more() || self.core.has_deferred()) && self.core.has_room() {
                // Partial read responses continue as the socket takes bytes.
                let before = self.core.outgoing.position();
                self.core.resume()?;
                let has_made_more = self.core.outgoing.position() != before;
                self.flush()?;
                if has_made_more {
                    continue;
                }
            }
            if needed.is_none() && self.core.has_room() && self.core.sleep_limit().is_none() {
                // The condition that blocked further frames has cleared.
                continue;
            }
            self.idle()?;
            let limit = if pinged { limits.ping_answer } else { limits.ping_after };
            let asked = self.core.sleep_limit();
            let what = if needed.is_some() { Wait::All } else { Wait::Room };
            let before = self.core.outgoing.waiting_bytes();
            let woken = self.transport.wait(
                &self.core.mailbox.wake,
                what,
                asked.unwrap_or(limit).min(limit),
                &self.core.outgoing,
            )?;
            self.flush()?;
            self.check_progress(before, limits.ping_after + limits.ping_answer)?;
            if woken == Woken::TimedOut
                && asked.is_none()
                && needed.is_some()
                && !self.core.is_asked_to_log_out()
            {
                if pinged {
                    return Ok(ConnectionEnd::Silent(limits.ping_answer));
                }
                pinged = true;
                self.core.ping();
            }
            self.core.resume()?;
            self.flush_due()?;
        }
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
        if received != Received::Nothing {
            return Ok(received);
        }
        self.flush()?;
        let budget = self.core.shared.config.busy_poll;
        if budget.is_zero() {
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
        if self.core.outgoing.is_empty() {
            return Ok(());
        }
        self.core.record_pending();
        self.transport.flush(&mut self.core.outgoing)?;
        self.core.control.sent();
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
        if self.published.elapsed() >= PUBLISH_EVERY {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let Core { statistics: s, outgoing, incoming, control, shared, id, .. } = &mut self.core;
        s.sent_bytes = outgoing.position() - outgoing.waiting_bytes() as u64;
        s.received_bytes = incoming.position() + incoming.unread().len() as u64;
        s.sends = self.transport.sends;
        s.receives = self.transport.receives;
        s.send = control.policy();
        s.modes = control.shares();
        shared.board.publish(*id, s);
        self.published = Instant::now();
    }

    /// Sends the last bytes, for at most [`LINGER`].
    fn linger(&mut self) {
        let deadline = Instant::now() + LINGER;
        while self.transport.flush(&mut self.core.outgoing).is_ok() && !self.core.outgoing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let wake = &self.core.mailbox.wake;
            if left.is_zero() || self.transport.wait(wake, Wait::Socket, left, &self.core.outgoing).is_err() {
                break;
            }
        }
        // The timestamps of the last bytes arrive after the device has taken them.
        let _ = self.transport.read_stamps(self.core.tape.as_mut());
        let _ = self.transport.socket.shutdown(std::net::Shutdown::Both);
    }
}
