//! A connection: its two ends, what its programs write and expect, and its handshake and end.

use std::collections::VecDeque;

use record::Side;
use tcpsim::Ns;
use tcpsim::tcp::{Endpoint, More, Options, Segment};

use super::{Event, Op, World};
use crate::frames::Packet;
use crate::setup::SECOND;

/// Bytes that a program writes in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// It is made this long after the one before it, or after the message was ready, ns.
    pub(super) gap_ns: Ns,
    pub(super) bytes: u64,
    pub(super) more: More,
    /// When it was or will be tried; none while others are before it.
    pub(super) ready_at: Option<Ns>,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) connection: usize,
    pub(super) to: Side,
    pub(super) packet: Packet,
    /// Its sender's timestamp.
    pub(super) clock: u32,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [Endpoint; 2],
    pub(super) timer_at: [Ns; 2],
    pub(super) writes: [VecDeque<Write>; 2],
    /// Bytes of all messages so far, also of those that are not written yet.
    pub(super) promised: [u64; 2],
    /// Ends of the messages that each side's program has yet to read, by receiver.
    pub(super) expected: [VecDeque<(u64, usize)>; 2],
    /// Requests that wait for the one before them.
    pub(super) queue: VecDeque<usize>,
    pub(super) is_busy: bool,
    /// The response to the present request is being written.
    pub(super) has_answered: bool,
    /// Requests that are being served.
    pub(super) serving: Vec<usize>,
    /// Operations that wait until the connection is open.
    pub(super) waiting: Vec<usize>,
    pub(super) is_open: bool,
    pub(super) is_dead: bool,
    /// When the last SYN and the last SYN+ACK were sent.
    pub(super) shaken_at: [Ns; 2],
    /// Packets of each side so far.
    pub(super) packets: [u16; 2],
    /// Timestamps that each side saw last.
    pub(super) echo: [u32; 2],
    /// Chances of its connection requests.
    pub(super) chances: fastrand::Rng,
}

/// When a SYN is repeated, after the one before it (Linux `TCP_TIMEOUT_INIT`, RFC 6298 5.7).
fn repeated_after(attempt: u32) -> Ns {
    SECOND << attempt.min(6)
}

impl World<'_> {
    /// Opens a connection of a lane.
    pub(super) fn connect(&mut self, lane: usize) -> usize {
        let setup = self.setup;
        let number = self.lanes[lane].opened;
        self.lanes[lane].opened += 1;
        let mut ends = [0, 1].map(|side: usize| {
            let (host, peer) = (&setup.hosts[side], &setup.hosts[1 - side]);
            let mut end = Endpoint::new(
                host.tcp,
                Options {
                    mss_bytes: setup.path.mtu - 52,
                    offload_segments: host.offload_segments,
                    send_buffer_bytes: host.send_buffer,
                    receive_buffer_bytes: host.receive_buffer,
                    initial_window: host.initial_window,
                    slow_start_after_idle: host.slow_start_after_idle,
                    ..Options::default()
                },
            );
            end.set_peer_buffer(peer.receive_buffer);
            end
        });
        // Both ends measure the round trip at the handshake.
        ends.iter_mut().for_each(|end| end.set_handshake(setup.path.rtt_ns));
        for (side, host) in setup.hosts.iter().enumerate() {
            if host.nodelay {
                ends[side].set_nodelay(self.now, true, &mut Vec::new());
            }
        }
        let connection = self.connections.len();
        self.connections.push(Connection {
            ends,
            timer_at: [Ns::MAX; 2],
            writes: Default::default(),
            promised: [0; 2],
            expected: Default::default(),
            queue: VecDeque::new(),
            is_busy: false,
            has_answered: false,
            serving: Vec::new(),
            waiting: Vec::new(),
            is_open: false,
            is_dead: false,
            shaken_at: [0; 2],
            packets: [1; 2],
            echo: [0; 2],
            chances: fastrand::Rng::with_seed(
                setup.seed ^ ((lane as u64) << 32) ^ number.wrapping_mul(0x9e37_79b9),
            ),
        });
        if let Some(recorder) = &mut self.recorder {
            recorder.connection(setup, lane);
        }
        self.syn(connection, 0);
        connection
    }

    /// Sends a connection request, if none was answered yet.
    pub(super) fn syn(&mut self, connection: usize, attempt: u32) {
        let this = &mut self.connections[connection];
        if this.is_open || this.is_dead {
            return;
        }
        this.shaken_at[0] = self.now;
        self.send(connection, Side::Client, Packet::Syn);
        self.at(self.now + repeated_after(attempt), Event::Syn { connection, attempt: attempt + 1 });
    }

    pub(super) fn arrive(&mut self, Flight { connection, to, packet, clock }: Flight) {
        let service = &self.setup.service;
        let this = &mut self.connections[connection];
        if this.is_dead {
            return;
        }
        this.echo[to as usize] = clock;
        match packet {
            Packet::Syn => {
                if this.chances.f64() < service.dropped_syns {
                    return;
                }
                let is_refused = this.chances.f64() < service.refused;
                this.shaken_at[1] = self.now;
                self.send(
                    connection,
                    Side::Server,
                    if is_refused { Packet::Refusal } else { Packet::SynAck },
                );
            }
            Packet::SynAck => {
                if !std::mem::replace(&mut this.is_open, true) {
                    self.send(connection, Side::Client, Packet::Acknowledged { ack: 0 });
                    self.opened(connection);
                }
            }
            Packet::Refusal | Packet::Reset { .. } => self.broken(connection, to, packet),
            Packet::Fin { .. } => {
                let (seq, ack) = self.offsets(connection, to);
                if to == Side::Server {
                    self.send(connection, to, Packet::Fin { seq, ack });
                } else {
                    self.send(connection, to, Packet::Last { seq: seq + 1, ack: ack + 1 });
                    self.connections[connection].is_dead = true;
                }
            }
            Packet::Acknowledged { .. } | Packet::Last { .. } => {}
            Packet::Data(segment) => self.receive(connection, to, segment),
        }
    }

    /// Next offset of a side's stream, and the one that it expects.
    pub(super) fn offsets(&self, connection: usize, side: Side) -> (u64, u64) {
        let end = &self.connections[connection].ends[side as usize];
        (end.sent().sent, end.received().in_order)
    }

    fn receive(&mut self, connection: usize, to: Side, segment: Segment) {
        self.act(connection, to, |end, now, out| {
            end.receive(now, &segment, out);
            end.read(u64::MAX, out);
        });
        self.read(connection, to);
        self.pump(connection, to);
    }

    /// Passes the messages that are complete to the side's program.
    fn read(&mut self, connection: usize, to: Side) {
        loop {
            let this = &mut self.connections[connection];
            let read = this.ends[to as usize].received().read;
            let Some(&(end, op)) = this.expected[to as usize].front() else { return };
            if end > read {
                return;
            }
            this.expected[to as usize].pop_front();
            match to {
                Side::Server => self.admit(connection, op),
                Side::Client => self.answered(connection, op),
            }
        }
    }

    /// A program has a message to write, in these calls.
    pub(super) fn write(&mut self, connection: usize, side: Side, op: usize, writes: &[Write]) {
        let this = &mut self.connections[connection];
        let bytes: u64 = writes.iter().map(|write| write.bytes).sum();
        this.promised[side as usize] += bytes;
        let end = this.promised[side as usize];
        this.expected[side.peer() as usize].push_back((end, op));
        this.writes[side as usize].extend(writes);
        if let Some(recorder) = &mut self.recorder {
            let Op { outcome, sizes, .. } = self.ops[op];
            recorder.message(
                connection,
                side,
                end - bytes,
                end,
                op,
                (outcome, sizes[side as usize].1),
                self.setup,
            );
        }
        self.pump(connection, side);
    }

    /// Makes the calls whose time has come, as far as the buffer has room.
    pub(super) fn pump(&mut self, connection: usize, side: Side) {
        loop {
            let now = self.now;
            let this = &mut self.connections[connection];
            if this.is_dead {
                return;
            }
            let Some(first) = this.writes[side as usize].front_mut() else { break };
            let ready_at = *first.ready_at.get_or_insert(now + first.gap_ns);
            if ready_at > now {
                return self.at(ready_at, Event::Pump { connection, side });
            }
            let Write { bytes, more, .. } = *first;
            if !this.ends[side as usize].is_writable() {
                return;
            }
            let taken = self.act(connection, side, |end, now, out| end.write(now, bytes, more, out));
            let Some(first) = self.connections[connection].writes[side as usize].front_mut() else { return };
            first.bytes -= taken;
            if first.bytes == 0 {
                self.connections[connection].writes[side as usize].pop_front();
            } else if taken == 0 {
                return;
            }
        }
        if side == Side::Server
            && self.connections[connection].is_busy
            && self.connections[connection].has_answered
        {
            self.free(connection);
        }
    }
}
