//! A service and its clients: everything that a simulated run depends on, and the run's length.

use tcpsim::{Ns, Profile};

use crate::frames::CLIENTS;

/// A microsecond, nanoseconds.
pub const US: Ns = 1_000;
/// A millisecond, nanoseconds.
pub const MS: Ns = 1_000_000;
/// A second, nanoseconds.
pub const SECOND: Ns = 1_000_000_000;
/// What counts as unlimited: bytes of a buffer.
pub const BUFFER_LARGE: u64 = 64 << 20;

/// The application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with Content-Length, one request at a time on a connection.
    Http,
    /// Messages of an unknown protocol, one at a time on a connection.
    Turns,
    /// iSCSI reads, several at a time on a connection.
    Iscsi,
}

/// What makes a request leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// The response before it, and this much thinking.
    Closed {
        /// Mean time from a response to its successor's request, ns.
        think_ns: Ns,
    },
    /// Chance: exponential gaps.
    Poisson {
        /// Mean time between the requests of a connection, ns.
        gap_ns: Ns,
    },
    /// A timer of the client.
    Periodic {
        /// Time between the requests of a connection, ns.
        gap_ns: Ns,
    },
}

/// How a program passes a message to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// In one call.
    Whole,
    /// The header, and a moment later the body.
    HeaderThenBody,
    /// In calls of so many bytes, at once one after the other.
    Pieces {
        /// Bytes of each call.
        bytes: u64,
    },
    /// In parts that become ready over time: a stream of tokens or events.
    Stream {
        /// Parts.
        chunks: u32,
        /// Time between them, ns.
        gap_ns: Ns,
    },
    /// In one call with MSG_MORE, and nothing after it.
    Corked,
}

/// Sizes of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Bytes before the body.
    pub header: u64,
    /// Mean bytes of the body.
    pub body: u64,
    /// Standard deviation of the body's logarithm; 0: always the same.
    pub spread: f64,
}

/// The distribution of a time around its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Within a tenth.
    Narrow,
    /// Exponential.
    Exponential,
}

/// One side's host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// The rules of its TCP.
    pub tcp: Profile,
    /// First time to live of its packets.
    pub ttl: u8,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// How its program writes messages.
    pub writes: Writes,
    /// SO_SNDBUF, bytes.
    pub send_buffer: u64,
    /// SO_RCVBUF, bytes.
    pub receive_buffer: u64,
    /// First congestion window, segments.
    pub initial_window: u32,
    /// The congestion window begins anew after idle time.
    pub slow_start_after_idle: bool,
    /// Segments that leave as one packet of the device (TSO).
    pub offload_segments: u32,
    /// Work for each packet, ns.
    pub packet_ns: Ns,
}

/// Other traffic's queue in front of the path's bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bloat {
    /// A download begins each so often, ns.
    pub period_ns: Ns,
    /// And lasts so long, ns.
    pub length_ns: Ns,
    /// The queue that it fills, ns of the link's rate.
    pub queue_ns: Ns,
}

/// The network between the hosts. Both directions have the same rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Round trip of an empty network without transmission times, ns.
    pub rtt_ns: Ns,
    /// Part of it from client to server.
    pub forward: f64,
    /// Bits per second.
    pub bits_per_second: u64,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// The queue before the link drops what is above this, bytes.
    pub queue_bytes: u64,
    /// Share of the packets that are lost.
    pub loss: f64,
    /// Share of the packets that are overtaken by those behind them.
    pub reorder: f64,
    /// Packets with a larger payload vanish, bytes.
    pub black_hole: Option<u32>,
    /// Share of the packets lost while the other direction is sending.
    pub collisions: f64,
    /// Other traffic.
    pub bloat: Option<Bloat>,
}

/// The clients' demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Connections that are used at the same time.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// What makes a request leave.
    pub arrivals: Arrivals,
    /// Operations of the whole run.
    pub operations: u32,
    /// Each request has a connection of its own.
    pub connection_per_request: bool,
    /// The client gives up a request and its connection after this, ns.
    pub patience_ns: Ns,
    /// Mean time that the one thread of a client's host works on each response, one after another over its connections, before
    /// the request that replaces it leaves, ns. In closed loops only.
    pub work_ns: Ns,
}

/// Times in which the whole server does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// One begins each so often, ns.
    pub period_ns: Ns,
    /// And lasts so long, ns.
    pub length_ns: Ns,
}

/// Requests that take much longer than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rare {
    /// Share of the requests.
    pub share: f64,
    /// What they take in addition, ns.
    pub more_ns: Ns,
}

/// The server's program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Mean time of a request, ns.
    pub time_ns: Ns,
    /// Its distribution.
    pub spread: Spread,
    /// Requests that are served at the same time, over all connections; 0: any number.
    pub workers: u32,
    /// Times in which it does nothing.
    pub pauses: Option<Pauses>,
    /// Slow requests.
    pub rare: Option<Rare>,
    /// Responses leave at multiples of this, ns; 0: when they are ready.
    pub tick_ns: Ns,
    /// Share of the requests that are answered with an error.
    pub errors: f64,
    /// Share of the requests that are answered with a reset.
    pub resets: f64,
    /// Share of the requests that are never answered.
    pub silent: f64,
    /// Share of the connection requests that are refused.
    pub refused: f64,
    /// Share of the connection requests that a full accept queue drops.
    pub dropped_syns: f64,
}

/// Where the capture is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the client's host.
    Client,
    /// On the server's host.
    Server,
    /// On both, with one clock.
    Both,
    /// On both, in two files whose clocks differ.
    Apart,
    /// Between them.
    Middle,
}

/// The capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// Where.
    pub place: Place,
    /// `analyze` is told the side.
    pub is_told: bool,
    /// `analyze` is told the link's rate.
    pub knows_rate: bool,
    /// Bytes kept of each packet; 0: all.
    pub snap: u32,
    /// Share of the run that the capture misses, in a few stretches.
    pub holes: f64,
    /// Every packet is in the capture twice (a mirror port that copies both directions).
    pub doubled: bool,
    /// In the middle of the run the clock is set by this, ns.
    pub step_ns: i64,
    /// The run's begin is not in the capture.
    pub late: bool,
}

/// Everything that a run depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// The seed of its chances.
    pub seed: u64,
    /// Its protocol.
    pub protocol: Protocol,
    /// The network.
    pub path: Path,
    /// The client's and the server's host.
    pub hosts: [Host; 2],
    /// The demand.
    pub load: Load,
    /// A request's and a response's size.
    pub sizes: [Size; 2],
    /// The server.
    pub service: Service,
    /// The capture.
    pub tap: Tap,
}

impl Setup {
    /// Time that a response of the mean size takes on the link, ns.
    #[must_use]
    pub fn transfer_ns(&self) -> Ns {
        let bytes = self.sizes[0].header + self.sizes[0].body + self.sizes[1].header + self.sizes[1].body;
        bytes * 8 * SECOND / self.path.bits_per_second
    }

    /// About the time of an operation that nothing delays, ns.
    #[must_use]
    pub fn operation_ns(&self) -> Ns {
        self.path.rtt_ns + self.service.time_ns + self.transfer_ns() + 20 * US
    }

    /// About the time between two requests of a place in the load, ns.
    #[must_use]
    pub fn cycle_ns(&self) -> Ns {
        match self.load.arrivals {
            Arrivals::Closed { think_ns } => {
                let places = u64::from(self.load.connections * self.load.depth);
                (self.operation_ns() + think_ns).max(self.load.work_ns * places.div_ceil(CLIENTS as u64))
            }
            Arrivals::Poisson { gap_ns } | Arrivals::Periodic { gap_ns } => gap_ns.max(self.operation_ns()),
        }
    }

    /// Whether the next request is ready as soon as a response has come: the client has hardly anything to do between them, or
    /// requests come faster than they are answered.
    #[must_use]
    pub fn is_eager(&self) -> bool {
        match self.load.arrivals {
            Arrivals::Closed { think_ns } => {
                think_ns < self.operation_ns() / 4 && self.load.work_ns < self.operation_ns() / 4
            }
            Arrivals::Poisson { gap_ns } | Arrivals::Periodic { gap_ns } => {
                gap_ns < self.operation_ns() + self.service.tick_ns
            }
        }
    }

    /// About the number of operations that the server's pauses and slow requests are met by.
    #[must_use]
    pub fn stalls(&self) -> f64 {
        let paused = self.service.pauses.map_or(0.0, |pauses| self.run_ns() as f64 / pauses.period_ns as f64);
        let rare = self.service.rare.map_or(0.0, |rare| rare.share * f64::from(self.load.operations));
        paused + rare
    }

    /// About the length of the run, ns.
    #[must_use]
    pub fn run_ns(&self) -> Ns {
        let places = u64::from(self.load.connections * self.load.depth);
        self.cycle_ns() * u64::from(self.load.operations) / places.max(1)
    }

    /// A line for people: what matters of the setup.
    #[must_use]
    pub fn line(&self) -> String {
        let us = |ns: Ns| match ns {
            0..MS => format!("{}us", ns / US),
            MS..SECOND => format!("{:.1}ms", ns as f64 / MS as f64),
            _ => format!("{:.1}s", ns as f64 / SECOND as f64),
        };
        let arrivals = match self.load.arrivals {
            Arrivals::Closed { think_ns: 0 } => "closed".to_owned(),
            Arrivals::Closed { think_ns } => format!("closed think {}", us(think_ns)),
            Arrivals::Poisson { gap_ns } => format!("poisson {}", us(gap_ns)),
            Arrivals::Periodic { gap_ns } => format!("every {}", us(gap_ns)),
        };
        let [client, server] = &self.hosts;
        let nagle = |host: &Host| if host.nodelay { "" } else { "+nagle" };
        let mut line = format!(
            "{:?} {:?}{}{} rtt {} {}Mb/s mtu {} {}x{} {arrivals} {} ops, {}+{} -> {}+{} B, service {} {:?} workers {}, {}{} -> {}{}",
            self.protocol,
            self.tap.place,
            if self.tap.is_told { " told" } else { "" },
            if self.tap.knows_rate { " rate" } else { "" },
            us(self.path.rtt_ns),
            self.path.bits_per_second / 1_000_000,
            self.path.mtu,
            self.load.connections,
            self.load.depth,
            self.load.operations,
            self.sizes[0].header,
            self.sizes[0].body,
            self.sizes[1].header,
            self.sizes[1].body,
            us(self.service.time_ns),
            self.service.spread,
            self.service.workers,
            client.tcp.name,
            nagle(client),
            server.tcp.name,
            nagle(server),
        );
        let mut add = |condition: bool, text: String| {
            if condition {
                line.push_str(", ");
                line.push_str(&text);
            }
        };
        for (name, host) in [("client", client), ("server", server)] {
            add(host.writes != Writes::Whole, format!("{name} writes {:?}", host.writes));
            add(host.send_buffer < BUFFER_LARGE, format!("{name} sndbuf {}", host.send_buffer));
            add(host.receive_buffer < BUFFER_LARGE, format!("{name} rcvbuf {}", host.receive_buffer));
            add(host.slow_start_after_idle, format!("{name} ssai"));
            add(host.offload_segments > 1, format!("{name} tso"));
        }
        let (p, s, t) = (&self.path, &self.service, &self.tap);
        add(p.loss > 0.0, format!("loss {:.5}", p.loss));
        add(p.reorder > 0.0, format!("reorder {:.4}", p.reorder));
        add(p.collisions > 0.0, format!("collisions {:.3}", p.collisions));
        add(p.black_hole.is_some(), format!("black hole {:?}", p.black_hole));
        add(p.bloat.is_some(), format!("{:?}", p.bloat));
        add(self.load.work_ns > 0, format!("client works {}", us(self.load.work_ns)));
        add(self.load.connection_per_request, "connection per request".into());
        add(s.pauses.is_some(), format!("{:?}", s.pauses));
        add(s.rare.is_some(), format!("{:?}", s.rare));
        add(s.tick_ns > 0, format!("tick {}", us(s.tick_ns)));
        for (name, share) in [
            ("errors", s.errors),
            ("resets", s.resets),
            ("silent", s.silent),
            ("refused", s.refused),
            ("dropped SYNs", s.dropped_syns),
            ("holes", t.holes),
        ] {
            add(share > 0.0, format!("{name} {share:.3}"));
        }
        add(t.snap > 0, format!("snap {}", t.snap));
        add(t.doubled, "doubled".into());
        add(t.late, "late".into());
        add(t.step_ns != 0, format!("clock step {} us", t.step_ns / 1000));
        line
    }
}
