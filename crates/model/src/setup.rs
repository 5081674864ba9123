//! A ring with the wire and the messages that its times follow from, so that settings can be changed and outcomes compared.

use serde::Serialize;

use super::exact::Exact;
use super::extras::{Collecting, Extras};
use super::nagle::{self, NagleDelay, backlog_cpu_bound};
use super::{Band, Edge, ModelError, QUEUE_DEPTH_MAX, Ring, Role, Stage, Utilisation, check_queue_depth};
use crate::known::Known;
use crate::terms::TermTime;
use record::wire::{Link, Messages};

/// Nagle's algorithm on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Nagle {
    /// Sends per message: 2 for a header and its data apart, without MSG_MORE.
    pub sends: u32,
    /// The peer's delayed ACK, microseconds.
    pub ack_delay_us: f64,
    /// Data that is held back leaves when the thread goes idle.
    pub flushes_when_idle: bool,
}

impl Default for Nagle {
    fn default() -> Self {
        Self { sends: 1, ack_delay_us: 40_000.0, flushes_when_idle: false }
    }
}

/// A ring, its wire and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The stages.
    pub ring: Ring,
    /// The wire.
    pub link: Link,
    /// The request and the response of an operation.
    pub messages: Messages,
    /// The terms as measured; `None` where the ring's own are all that is known.
    pub terms: Option<Vec<TermTime>>,
    /// Nagle's algorithm on the server's socket; `None` with TCP_NODELAY.
    pub nagle: Option<Nagle>,
    /// The same on the client's.
    pub client_nagle: Option<Nagle>,
    /// Queue depth that predictions are made for, of each session.
    pub queue_depth: u32,
    /// Sessions that share every resource.
    pub sessions: u32,
    /// Think time, coalescing, slow operations.
    pub extras: Extras,
}

/// Throughput and round trip of a setup at a queue depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Operations per second, all sessions together, with the uncertainty of the calibration.
    pub iops: Known,
    /// Mean round trip, microseconds.
    pub rtt_us: Known,
    /// Least and greatest throughput, over start phases and, with Nagle, over what SN may be.
    pub iops_low: f64,
    /// See `iops_low`.
    pub iops_high: f64,
    /// The stages of the bottleneck.
    pub bottleneck: String,
    /// Share of the time for which the busiest resource works, 0 to 1.
    pub busiest: f64,
    /// The details of a single session; `None` for several sessions, which are computed by mean value analysis.
    pub exact: Option<Exact>,
}

/// Deepest queue at which a knee is looked for.
pub const KNEE_MAX: u32 = 1024;
/// Rounds of the search for a knee.
pub const KNEE_ROUNDS: usize = 8;
/// Share of the greatest throughput that counts as the limit.
pub const AT_LIMIT: f64 = 0.99;

/// What Nagle's algorithm needs to stay CPU bound (the paper, [3]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NagleNeeds {
    /// Both limits on SN.
    pub delay: NagleDelay,
    /// The backlog from which the server stays CPU bound.
    pub backlog: f64,
    /// Operations more than NODELAY needs: SN / SP.
    pub more_operations: f64,
    /// Responses that fill a packet.
    pub responses_per_packet: f64,
}

impl Setup {
    /// A ring on a wire, one session with NODELAY at queue depth 1.
    #[must_use]
    pub fn new(ring: Ring, link: Link, messages: Messages) -> Self {
        Self {
            ring,
            link,
            messages,
            terms: None,
            nagle: None,
            client_nagle: None,
            queue_depth: 1,
            sessions: 1,
            extras: Extras::default(),
        }
    }

    /// The times under the paper's names.
    #[must_use]
    pub fn terms(&self) -> Vec<TermTime> {
        self.terms.clone().unwrap_or_else(|| self.ring.terms())
    }

    /// Number of responses that fill a packet.
    #[must_use]
    pub fn responses_per_packet(&self) -> f64 {
        self.link.wire().messages_per_packet(self.messages.response_bytes())
    }

    /// Sets another wire or another size: W1 and W2 follow by arithmetic. CPU work stays as it was: its part that grows
    /// with the size is not known from one run.
    ///
    /// # Errors
    /// When the wire is impossible.
    pub fn rewire(&mut self, link: Link, messages: Messages) -> Result<(), ModelError> {
        let wire = link.wire();
        if link.mtu_bytes > 65_535 || link.mtu_bytes <= wire.tcpip_bytes {
            return Err(ModelError::new(
                "mtu",
                link.mtu_bytes,
                "more than the headers and at most 65535 bytes is possible",
            ));
        }
        if messages.block_bytes == 0 || messages.block_bytes > 1 << 30 {
            return Err(ModelError::new("block-size", messages.block_bytes, "1 byte to 1G is possible"));
        }
        let timed = |s: &Stage| match s.name.as_str() {
            "W1" => Stage { service_us: wire.own_packets_us(messages.request_bytes()), ..s.clone() },
            "W2" => Stage { service_us: wire.own_packets_us(messages.response_bytes()), ..s.clone() },
            _ => s.clone(),
        };
        self.ring = Ring::new(self.ring.stages().iter().map(timed).collect())?;
        (self.link, self.messages) = (link, messages);
        Ok(())
    }

    /// What Nagle's algorithm needs with the server's busiest CPU as the bottleneck; `None` for a ring without server stages.
    #[must_use]
    pub fn nagle_needs(&self) -> Option<NagleNeeds> {
        // The paper's SP is all that the server's CPU does for an operation; with several CPUs, what the busiest does.
        let server = self.ring.loads().into_iter().filter(|load| load.role() == Role::Server);
        let busiest = server.max_by(|a, b| a.service_us.total_cmp(&b.service_us))?;
        let sp = busiest.service_us;
        if sp <= 0.0 {
            return None;
        }
        // The paper's CL. Its four-stage wire contains the interrupt latencies; here they are start latencies too.
        let others = self.ring.stages().iter().filter(|s| s.resource != busiest.resource);
        let cl = others.map(|s| s.start_latency_us).sum();
        let (rtt_min, full) = (self.ring.rtt_min_us(), self.responses_per_packet());
        let delay = NagleDelay::limits(sp, cl, rtt_min, full);
        let sn = delay.sn_max_us();
        Some(NagleNeeds {
            delay,
            backlog: backlog_cpu_bound(cl, rtt_min, sn, sp),
            more_operations: sn / sp,
            responses_per_packet: full,
        })
    }

    /// The ring with the times of a setup's packets: a stage that waits for delayed ACKs, or the transmit work of a
    /// packet apart from that of its messages.
    fn packets(&self, ring: &Ring, queue_depth: u32) -> Result<(Ring, Extras), ModelError> {
        let mut extras = self.extras;
        let mut stages = self.with_headers(ring).stages;
        let sides = [
            (self.nagle, "W2", nagle::SERVER_TRANSMIT, Role::Server, self.messages.response_bytes()),
            (self.client_nagle, "W1", nagle::CLIENT_TRANSMIT, Role::Client, self.messages.request_bytes()),
        ];
        for (on, wire, transmit, role, message_bytes) in sides {
            let Some(nagle) = on else { continue };
            let Some(at) = stages.iter().position(|stage| stage.name == wire) else { continue };
            if self.waits_for_delayed_acks(nagle, message_bytes, queue_depth) {
                stages.insert(at, Stage::own(nagle::STAGE, 0.0, nagle.ack_delay_us));
                continue;
            }
            // A single operation's message never waits: every ACK came with the message before it.
            if u64::from(queue_depth) * u64::from(self.sessions) == 1 {
                continue;
            }
            let thread = (at + stages.len() - 1) % stages.len();
            let sent = stages[thread].per_sent_us;
            if stages[thread].role() == role && sent > 0.0 {
                let whole = stages[thread].clone();
                let packet =
                    Stage { interrupt: true, ..Stage::own(transmit, sent, 0.0).per_packet(sent, 0.0) };
                stages.insert(thread + 1, packet.on(&whole.resource));
                stages[thread] = Stage {
                    service_us: (whole.service_us - sent).max(whole.per_received_us),
                    per_sent_us: 0.0,
                    ..whole
                };
            }
            let collecting = Collecting {
                message_bytes,
                payload_bytes: self.link.wire().payload_bytes().into(),
                flushes_when_idle: nagle.flushes_when_idle,
                ack_delay_us: nagle.ack_delay_us,
            };
            match role {
                Role::Server => extras.server_collects = Some(collecting),
                _ => extras.client_collects = Some(collecting),
            }
        }
        Ok((Ring::new(stages)?, extras))
    }

    /// The ring with the headers of a packet on the wire as what a packet costs.
    fn with_headers(&self, ring: &Ring) -> Ring {
        let (mut ring, wire) = (ring.clone(), self.link.wire());
        for stage in &mut ring.stages {
            let message_bytes = match stage.name.as_str() {
                "W1" => self.messages.request_bytes(),
                "W2" => self.messages.response_bytes(),
                _ => continue,
            };
            if wire.own_packets(message_bytes) == 1 {
                let headers_us = wire.own_packets_us(message_bytes) - wire.in_packets_us(message_bytes, 0.0);
                stage.per_received_us = headers_us.min(stage.service_us);
            }
        }
        ring
    }

    /// Whether only delayed ACKs release the second send of each message: less than a packet of messages is in flight.
    fn waits_for_delayed_acks(&self, nagle: Nagle, message_bytes: u64, queue_depth: u32) -> bool {
        let full = self.link.wire().messages_per_packet(message_bytes);
        nagle.sends > 1 && f64::from(queue_depth) < full
    }

    /// Operations in flight at a queue depth, all sessions together.
    fn in_flight(&self, queue_depth: u32) -> f64 {
        f64::from(queue_depth) * f64::from(self.sessions)
    }

    /// The ring where `together` messages of a connection share a packet, or as many as fill one.
    fn packed(&self, ring: &Ring, together: f64) -> Ring {
        let shared = |on: Option<Nagle>, message_bytes: u64| match on {
            Some(_) => self.link.wire().messages_per_packet(message_bytes).min(together).max(1.0),
            None => 1.0,
        };
        let responses = shared(self.nagle, self.messages.response_bytes());
        let requests = shared(self.client_nagle, self.messages.request_bytes());
        let mut packed = self.with_headers(ring);
        for stage in &mut packed.stages {
            let (received, sent) = match stage.name.as_str() {
                "W1" | nagle::CLIENT_TRANSMIT => (requests, 1.0),
                "W2" | nagle::SERVER_TRANSMIT => (responses, 1.0),
                _ if stage.role() == Role::Server => (requests, responses),
                _ => (responses, requests),
            };
            stage.service_us = stage.packed_us(received, sent);
        }
        packed
    }

    /// The guaranteed band of throughput at a queue depth, with every property of the setup.
    ///
    /// The upper end is min(N / (sum P + D), 1 / max P) with N operations in flight, D their mean time outside the stages and P
    /// the work in packets that are as full as possible. The lower end is that of the ring ([`Ring::band`]) where operations
    /// keep their order and have no such time. With it, an operation in a ring of first-come queues waits for at most all
    /// others at each stage: N / (sum L + N sum P + D). Where stages preempt each other or messages wait for each other,
    /// some operation always makes progress: 1 / (sum (P + L) + D).
    ///
    /// # Errors
    /// When the queue depth is not possible.
    pub fn band(&self, queue_depth: u32) -> Result<Band, ModelError> {
        check_queue_depth(queue_depth)?;
        let (ring, extras) = self.packets(&self.ring, queue_depth)?;
        let in_flight = self.in_flight(queue_depth);
        let packed = self.packed(&self.ring, queue_depth.into());
        let least_delay_us = extras.think_us + extras.slow.mean_us();
        let mut high = (in_flight * 1e6 / (packed.rtt_min_us() + least_delay_us)).min(packed.iops_max());
        // A delayed ACK releases at most all operations at once.
        for stage in ring.stages().iter().filter(|stage| stage.name == nagle::STAGE) {
            high = high.min(in_flight * 1e6 / stage.start_latency_us);
        }
        let collects = extras.server_collects.is_some() || extras.client_collects.is_some();
        if !extras.need_events() && extras.think_us == 0.0 && self.sessions == 1 {
            let low = ring.band(queue_depth)?.low;
            return Ok(Band { low: low.min(high), high });
        }
        let spacing: f64 = ring.stages().iter().filter(|s| s.paced).map(|s| s.service_us).sum();
        // With both senders collecting, each may hold what the other waits for until a delayed ACK.
        let both: f64 = match (extras.server_collects, extras.client_collects) {
            (Some(server), Some(client)) => server.ack_delay_us + client.ack_delay_us,
            _ => 0.0,
        };
        // With two sends a full packet may still leave the rest of a message behind until a delayed ACK.
        let two_sends: f64 = [self.nagle, self.client_nagle]
            .into_iter()
            .flatten()
            .filter(|nagle| nagle.sends > 1)
            .map(|nagle| nagle.ack_delay_us)
            .sum();
        let delay_us = extras.delay_us() + both + two_sends;
        let orderly = ring.is_orderly() && !extras.coalescing.is_on() && !collects;
        let low = if orderly {
            let work = ring.rtt_min_us() + spacing;
            in_flight * 1e6 / (ring.latencies_us() + in_flight * work + delay_us)
        } else {
            1e6 / (ring.rtt_alone_us() + spacing + delay_us)
        };
        Ok(Band { low: low.min(high), high })
    }

    /// The queue depth from which a deeper queue gains nothing; `None` where no depth below [`KNEE_MAX`] is one.
    ///
    /// That of the formula ([`Ring::knee`]) where the ring is all there is. Otherwise the least depth from which on every start
    /// phase has [`AT_LIMIT`] of the throughput at [`KNEE_MAX`], by bisection and a look at depths behind it. The search has
    /// [`KNEE_ROUNDS`] rounds, each of which at most needs the throughput of some thirty depths.
    ///
    /// # Errors
    /// None for a valid setup.
    pub fn knee(&self) -> Result<Option<f64>, ModelError> {
        let is_plain = !self.extras.need_events()
            && self.extras.think_us == 0.0
            && self.sessions == 1
            && self.nagle.is_none()
            && self.client_nagle.is_none()
            && self.ring.is_orderly();
        if is_plain {
            return Ok(Some(self.ring.knee()));
        }
        let limit = self.throughput(&self.ring, KNEE_MAX)?.iops;
        let at_limit = |depth: u32| -> Result<bool, ModelError> {
            Ok(depth >= KNEE_MAX || self.throughput(&self.ring, depth)?.low >= AT_LIMIT * limit)
        };
        // No knee is there or below.
        let mut below = 0_u32;
        for _ in 0..KNEE_ROUNDS {
            let mut above = (below + 1).next_power_of_two();
            while !at_limit(above)? {
                (below, above) = (above, above * 2);
            }
            while above - below > 1 {
                let middle = u32::midpoint(below, above);
                if at_limit(middle)? { above = middle } else { below = middle }
            }
            if above >= KNEE_MAX {
                return Ok(None);
            }
            // Below some depth the cycles of a ring take turns: one depth reaches the limit and the next does not.
            let mut short = None;
            for depth in [above + 1, above + 2, above + 3, above * 5 / 4, above * 3 / 2, above * 2, above * 3]
            {
                if !at_limit(depth)? {
                    short = Some(depth);
                }
            }
            match short {
                None => return Ok(Some(above.into())),
                Some(depth) => below = depth,
            }
        }
        Ok(None)
    }

    /// How busy each resource is at the greatest throughput, 0 to 1.
    #[must_use]
    pub fn utilisation_at_limit(&self) -> Vec<Utilisation> {
        let packed = self.packed(&self.ring, QUEUE_DEPTH_MAX.into());
        packed.utilisation(packed.iops_max())
    }

    /// Greatest throughput at any queue depth, operations per second: with full packets under Nagle's algorithm.
    #[must_use]
    pub fn iops_max(&self) -> f64 {
        self.packed(&self.ring, QUEUE_DEPTH_MAX.into()).iops_max()
    }

    /// Throughput and round trip at a queue depth.
    ///
    /// # Errors
    /// When the queue depth or the number of sessions is not possible.
    pub fn outcome(&self, queue_depth: u32) -> Result<Outcome, ModelError> {
        let found = self.throughput(&self.ring, queue_depth)?;
        let (mut iops_within, mut rtt_within) = (0.0, 0.0);
        if self.ring.is_uncertain() {
            let [slow, fast] =
                [Edge::Slow, Edge::Fast].map(|edge| self.throughput(&self.ring.at_edge(edge), queue_depth));
            let (slow, fast) = (slow?, fast?);
            iops_within = (fast.iops - slow.iops) / 2.0;
            rtt_within = (slow.rtt_us - fast.rtt_us) / 2.0;
        }
        let (ring, _) = self.packets(&self.ring, queue_depth)?;
        // What is left of the ends of a finite run: less than half a per cent (a test compares the run itself).
        let band = self.band(queue_depth)?;
        let possible = |iops: f64| iops.clamp(band.low, band.high);
        Ok(Outcome {
            iops: Known::within(possible(found.iops), iops_within),
            rtt_us: Known::within(found.rtt_us, rtt_within),
            iops_low: possible(found.low),
            iops_high: possible(found.high),
            bottleneck: without_parts(&ring.bottleneck().stages),
            busiest: match &found.exact {
                Some(exact) => exact.busiest,
                // Only a finite run knows who shares a packet.
                None => {
                    let packed = self.packed(&self.ring, f64::from(queue_depth) / 2.0);
                    let all = packed.utilisation(found.iops).into_iter().map(|u| u.share);
                    all.fold(0.0, f64::max).min(1.0)
                }
            },
            exact: found.exact,
        })
    }

    fn throughput(&self, ring: &Ring, queue_depth: u32) -> Result<Found, ModelError> {
        let (ring, extras) = self.packets(ring, queue_depth)?;
        if self.sessions != 1 {
            // Half of a connection's operations are on their way while the others wait to leave together.
            let packed = self.packed(&ring, f64::from(queue_depth) / 2.0);
            let found = packed.shared_with_delay(self.sessions, queue_depth, extras.delay_us())?;
            let rtt_us = found.rtt_us - extras.think_us;
            return Ok(Found { iops: found.iops, rtt_us, low: found.iops, high: found.iops, exact: None });
        }
        let exact = ring.exact(queue_depth, &extras)?;
        let Exact { iops, rtt_us, iops_low: low, iops_high: high, .. } = exact;
        Ok(Found { iops, rtt_us, low, high, exact: Some(exact) })
    }
}

/// The names of a resource's stages without the transmit work of packets, which is a part of them.
fn without_parts(stages: &str) -> String {
    let is_part = |name: &&str| [nagle::SERVER_TRANSMIT, nagle::CLIENT_TRANSMIT].contains(name);
    stages.split('+').filter(|name| !is_part(name)).collect::<Vec<_>>().join("+")
}

/// Throughput and round trip of a ring with given times.
struct Found {
    iops: f64,
    rtt_us: f64,
    low: f64,
    high: f64,
    exact: Option<Exact>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn published() -> Setup {
        Preset::named("seed-512").unwrap().setup().unwrap()
    }

    #[test]
    fn two_sends_under_nagle_wait_for_the_delayed_ack() {
        // "at most 25 * QD" below one packet of responses; above it the packet fills.
        let two = Setup { nagle: Some(Nagle { sends: 2, ..Nagle::default() }), ..published() };
        for depth in [1, 4, 15] {
            let iops = two.outcome(depth).unwrap().iops.value;
            assert!(iops <= 25.0 * f64::from(depth) && iops > 24.0 * f64::from(depth), "{depth}: {iops}");
        }
        assert!(two.outcome(16).unwrap().iops.value > 30_000.0, "as with one send");
    }

    #[test]
    fn nagle_costs_in_the_middle_and_nothing_at_the_ends() {
        let nagle = Setup { nagle: Some(Nagle::default()), ..published() };
        let (with, without) = (|d| nagle.outcome(d).unwrap(), |d| published().outcome(d).unwrap());
        assert_eq!(with(1).iops, without(1).iops, "SN = 0 at queue depth 1");
        assert!(with(8).iops_low < without(8).iops_low);
        let needs = nagle.nagle_needs().unwrap();
        assert!((needs.responses_per_packet - 15.98).abs() < 0.005);
        assert!(needs.more_operations <= needs.responses_per_packet);
        assert!(with(64).iops_high >= 0.999 * without(64).iops_high);
    }

    #[test]
    fn nagle_costs_half_crosses_over_and_peaks_higher_as_published() {
        // "reduce IOPS by nearly half ... until Queue Depth becomes high enough to make TCP_NODELAY CPU bound ... reaching the
        // crossover point ... continuing on to a peak IOPS significantly higher than the TCP_NODELAY peak".
        let nagle = Preset::named("seed-512-nagle").unwrap().setup().unwrap();
        let ratio =
            |depth| nagle.outcome(depth).unwrap().iops.value / published().outcome(depth).unwrap().iops.value;
        for depth in [2, 3, 4, 5, 8, 12, 16] {
            assert!((0.5..0.6).contains(&ratio(depth)), "{depth}: {}", ratio(depth));
        }
        let crossover = (17..64).find(|&depth| ratio(depth) > 1.0).unwrap();
        // The packet-level simulation of the same costs crosses at 34, with 1.39 times the peak.
        assert_eq!(crossover, 27);
        assert!((1.35..1.55).contains(&ratio(128)), "{}", ratio(128));
        assert!(nagle.iops_max() > 1.35 * published().iops_max());
        // Without what a packet costs there is nothing to gain.
        let mut level = nagle.clone();
        let stages = nagle.ring.stages().iter().map(|s| s.clone().per_packet(0.0, 0.0));
        level.ring = Ring::new(stages.collect()).unwrap();
        assert!((level.outcome(128).unwrap().iops.value / 62_893.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn nagle_needs_what_nodelay_needs_and_the_transmit_delay_more() {
        // The three parts of the server's 15.9 us on one CPU, with the transmit work apart, and each alone.
        let part = |name: &str, us, cpu: &str| Stage::own(name, us, 4.0).on(cpu);
        for cpus in [["a", "a", "a"], ["a", "a", "b"], ["a", "b", "c"]] {
            let mut stages = vec![Stage::own("W1", 1.1, 100.0)];
            let times = [("SI", 3.2), ("SP", 9.5), ("SK", 3.2)];
            stages.extend(times.iter().zip(cpus).map(|((name, us), cpu)| part(name, *us, cpu)));
            stages.extend([Stage::own("W2", 5.2, 104.5), Stage::own("CI+CP+CK", 8.6, 23.7)]);
            let setup = Setup { ring: Ring::new(stages).unwrap(), ..published() };
            let needs = setup.nagle_needs().unwrap();
            let nodelay = needs.backlog - needs.more_operations + 1.0;
            assert!((nodelay - setup.ring.knee()).abs() < 1e-9, "{cpus:?}: {nodelay} {}", setup.ring.knee());
        }
        // "SN <= SP * (responses per packet - 1)", where the ACK comes no sooner.
        let mut thread = published();
        thread.ring = Ring::new(vec![Stage::own("SP", 9.52, 16.7), Stage::own("W2", 5.2, 267.0)]).unwrap();
        let needs = thread.nagle_needs().unwrap();
        assert!((needs.delay.sn_max_us() - 9.52 * 14.98).abs() < 0.1, "{needs:?}");
    }

    #[test]
    fn the_busiest_resource_is_as_busy_as_its_cycles_say() {
        for (preset, depths) in [("seed-512", [1, 4, 16, 128]), ("seed-512-nagle", [2, 16, 24, 128])] {
            let setup = Preset::named(preset).unwrap().setup().unwrap();
            for depth in depths {
                let outcome = setup.outcome(depth).unwrap();
                let exact = outcome.exact.unwrap();
                let server =
                    exact.cycles.iter().find(|cycle| Role::of(&cycle.stage) == Role::Server).unwrap();
                // Between two sleeps: n operations, the idle time and the start latency.
                let asleep = server
                    .operations
                    .map_or(0.0, |n| (server.idle_us + 16.7) / (n * 1e6 / outcome.iops.value));
                let (busy, expected) = (outcome.busiest, 1.0 - asleep);
                assert!((busy - expected).abs() < 0.08, "{preset} {depth}: {busy}, by its cycles {expected}");
            }
        }
        // Shared packets cost their work once.
        let nagle = Preset::named("seed-512-nagle").unwrap().setup().unwrap();
        let outcome = nagle.outcome(24).unwrap();
        assert_eq!(
            outcome.bottleneck,
            published().outcome(24).unwrap().bottleneck,
            "a part of a stage is no stage"
        );
        assert!(outcome.busiest < 0.8 * outcome.iops.value * 15.9 / 1e6, "{}", outcome.busiest);
    }

    #[test]
    fn rare_slow_operations_have_their_share_of_the_mean() {
        for (every, extra_us) in [(1000, 10_000.0), (10_000, 100_000.0), (100_000, 1e6)] {
            let mut setup = published();
            setup.extras.slow = crate::extras::Slow { every, extra_us };
            let rtt = setup.outcome(1).unwrap().rtt_us.value;
            assert!((rtt - 285.7).abs() < 0.2, "1 in {every}: {rtt}");
        }
    }

    #[test]
    fn with_nagle_on_both_sides_data_carries_the_acknowledgements() {
        let nagle = Preset::named("seed-512-nagle").unwrap().setup().unwrap();
        let both = Setup { client_nagle: Some(Nagle::default()), ..nagle };
        // The packet-by-packet simulation of the same costs, without jitter and disturbances.
        for (depth, simulated) in [(2, 4032.0), (4, 5928.0), (8, 11_524.0), (16, 21_824.0), (128, 115_565.0)]
        {
            let iops = both.outcome(depth).unwrap().iops.value;
            assert!((iops / simulated - 1.0).abs() < 0.15, "{depth}: {iops}, simulated {simulated}");
        }
    }

    #[test]
    fn a_thread_that_flushes_when_it_goes_idle_holds_nothing_back_at_low_depth() {
        let flushed = Nagle { flushes_when_idle: true, ..Nagle::default() };
        let flushed = Setup { nagle: Some(flushed), ..published() };
        let iops = |setup: &Setup, depth| setup.outcome(depth).unwrap().iops.value;
        assert!(iops(&flushed, 2) > 0.95 * iops(&published(), 2), "the thread sleeps after each");
        assert!(iops(&flushed, 128) > 1.3 * iops(&published(), 128), "and never at depth");
    }

    #[test]
    fn uncertain_times_give_uncertain_outcomes() {
        let mut setup = published();
        let stages = setup.ring.stages().iter().cloned().map(|s| s.known_within(0.3, 1.0));
        setup.ring = Ring::new(stages.collect()).unwrap();
        let outcome = setup.outcome(128).unwrap();
        // 15.9 +- 0.3 us: two per cent.
        assert!((outcome.iops.relative() - 0.3 / 15.9).abs() < 1e-3, "{:?}", outcome.iops);
        assert_eq!(published().outcome(128).unwrap().iops.plus_minus, 0.0);
    }

    #[test]
    fn several_sessions_share_the_limit() {
        let setup = Setup { sessions: 4, ..published() };
        let outcome = setup.outcome(32).unwrap();
        assert!((outcome.iops.value / published().ring.iops_max() - 1.0).abs() < 0.05, "{outcome:?}");
        assert!(Setup { sessions: 0, ..published() }.outcome(1).is_err());
    }
}
