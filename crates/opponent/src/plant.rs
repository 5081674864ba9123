//! How a cause is put into a healthy setup, in sizes that matter and in those that do not.

use fastrand::Rng;
use tcpsim::Profile;

use crate::cause::Cause;
use crate::draw::{between, chance, count, fit, time};
use crate::frames::CLIENTS;
use crate::setup::{
    Arrivals, Bloat, MS, Pauses, Place, Protocol, Rare, SECOND, Setup, Size, Spread, US, Writes,
};

/// Small messages, which a split or a hold delays.
fn small(rng: &mut Rng, setup: &mut Setup) {
    if setup.protocol == Protocol::Iscsi {
        setup.protocol = Protocol::Http;
        setup.load.depth = 1;
    }
    setup.sizes[1] = Size { header: 120, body: between(rng, 50.0, 4_000.0) as u64, spread: 0.3 };
    setup.sizes[0].body = 0;
    few(rng, setup);
}

/// Few connections, so that each has operations enough.
fn few(rng: &mut Rng, setup: &mut Setup) {
    setup.load.connections = count(rng, 1, 4);
}

/// Large responses on a path that is long enough for windows to matter.
fn large(rng: &mut Rng, setup: &mut Setup) {
    setup.protocol = if chance(rng, 0.7) { Protocol::Http } else { Protocol::Turns };
    setup.load.depth = 1;
    setup.path.rtt_ns = time(rng, 2 * MS, 100 * MS);
    setup.path.bits_per_second = [200, 1_000, 10_000][rng.usize(0..3)] * 1_000_000;
    setup.path.mtu = 1500;
    setup.sizes[1] = Size { header: 150, body: between(rng, 1e5, 1e6) as u64, spread: 0.0 };
    setup.sizes[0].body = 0;
    few(rng, setup);
}

/// The next request follows the response at once.
fn eager(setup: &mut Setup) {
    setup.load.arrivals = Arrivals::Closed { think_ns: 0 };
}

/// Puts a cause into a setup.
#[allow(clippy::too_many_lines, reason = "a paragraph for each cause")]
pub fn plant(rng: &mut Rng, setup: &mut Setup, cause: Cause) {
    let sender = if chance(rng, 0.8) { 1 } else { 0 };
    match cause {
        Cause::HeaderBodyApart | Cause::NagleDelayedAck => {
            small(rng, setup);
            if sender == 0 {
                setup.sizes[0].body = between(rng, 50.0, 3_000.0) as u64;
            }
            let bytes = (setup.sizes[sender].header + setup.sizes[sender].body) / rng.u64(2..5) + 1;
            let host = &mut setup.hosts[sender];
            host.nodelay = false;
            host.writes = if cause == Cause::HeaderBodyApart {
                Writes::HeaderThenBody
            } else {
                Writes::Pieces { bytes: bytes.min(1_000) }
            };
        }
        Cause::AckClocked => {
            setup.protocol = Protocol::Iscsi;
            setup.sizes =
                [Size { header: 48, body: 0, spread: 0.0 }, Size { header: 48, body: 512, spread: 0.0 }];
            setup.load.depth = count(rng, 2, 16);
            setup.load.connections = 1;
            setup.path.rtt_ns = time(rng, 500 * US, 20 * MS);
            setup.path.mtu = 1500;
            eager(setup);
            setup.hosts[sender].nodelay = false;
        }
        Cause::UnfinishedCork => {
            small(rng, setup);
            setup.sizes[1].body = between(rng, 50.0, 10_000.0) as u64;
            setup.hosts[1].writes = Writes::Corked;
            setup.hosts[1].tcp = Profile::LINUX;
        }
        Cause::DelayedAck => {
            small(rng, setup);
            let mss = u64::from(setup.path.mtu - 52);
            setup.sizes[1].body = mss * rng.u64(3..12);
            setup.hosts[1].send_buffer = mss * (1 + 2 * rng.u64(0..2));
            setup.hosts[1].offload_segments = 1;
        }
        Cause::SmallSegments => {
            small(rng, setup);
            setup.sizes[1].body = between(rng, 2e3, 2e4) as u64;
            setup.path.rtt_ns = time(rng, 50 * US, 500 * US);
            setup.path.bits_per_second = 1_000_000_000;
            setup.hosts[1].nodelay = true;
            setup.hosts[1].writes = Writes::Pieces { bytes: between(rng, 20.0, 150.0) as u64 };
        }
        Cause::WindowLimited => {
            large(rng, setup);
            setup.hosts[0].receive_buffer = between(rng, 8e3, 1.3e5) as u64;
        }
        Cause::BufferLimited => {
            large(rng, setup);
            setup.hosts[1].send_buffer = between(rng, 1.2e4, 1.3e5) as u64;
        }
        Cause::CongestionWindow => {
            large(rng, setup);
            setup.hosts[1].initial_window = [2, 4, 10][rng.usize(0..3)];
            // On connections that stay, the window is small once.
            setup.load.connection_per_request = true;
            setup.load.connections = count(rng, 4, 16);
        }
        Cause::SlowStartAfterIdle => {
            large(rng, setup);
            setup.hosts[1].slow_start_after_idle = true;
            let gap_ns = time(rng, 600 * MS, 3 * SECOND) + 2 * setup.operation_ns();
            setup.load.arrivals =
                if rng.bool() { Arrivals::Poisson { gap_ns } } else { Arrivals::Periodic { gap_ns } };
        }
        Cause::RoundTripBound => {
            small(rng, setup);
            setup.path.rtt_ns = time(rng, 2 * MS, 150 * MS);
            setup.service.time_ns = setup.service.time_ns.min(setup.path.rtt_ns / 20);
            setup.load.arrivals = Arrivals::Closed { think_ns: time(rng, US, setup.path.rtt_ns / 50) };
        }
        Cause::PathMtuBlackHole => {
            small(rng, setup);
            setup.path.mtu = 1500;
            setup.sizes[1] = Size { header: 150, body: 1_200, spread: 1.0 };
            setup.path.black_hole = Some(rng.u32(1_200..1_440));
            setup.load.connections = count(rng, 2, 8);
            setup.load.patience_ns = time(rng, 4 * SECOND, 20 * SECOND);
            setup.hosts.iter_mut().for_each(|host| host.offload_segments = 1);
            // The sender's side alone sees what vanished.
            setup.tap.place = if rng.bool() { Place::Server } else { Place::Both };
        }
        Cause::Retransmission => setup.path.loss = between(rng, 2e-3, 3e-2),
        Cause::DuplexMismatch => {
            setup.path.bits_per_second = if rng.bool() { 10_000_000 } else { 100_000_000 };
            setup.path.rtt_ns = time(rng, 100 * US, 2 * MS);
            setup.path.collisions = between(rng, 0.05, 0.5);
            setup.sizes[1].body = between(rng, 2e4, 2e5) as u64 / 512 * 512;
            setup.load.connections = count(rng, 1, 6);
            eager(setup);
        }
        Cause::Bufferbloat => {
            setup.path.bits_per_second = [10, 50, 100][rng.usize(0..3)] * 1_000_000;
            setup.path.rtt_ns = time(rng, MS, 50 * MS);
            small(rng, setup);
            let queue_ns = (setup.path.rtt_ns * rng.u64(2..10)).clamp(20 * MS, 500 * MS);
            setup.load.arrivals = Arrivals::Poisson { gap_ns: time(rng, 20 * MS, 200 * MS) };
            fit(setup);
            let period_ns = (setup.run_ns() / rng.u64(3..8)).max(queue_ns * 4);
            setup.path.bloat = Some(Bloat { period_ns, length_ns: period_ns * rng.u64(4..8) / 10, queue_ns });
        }
        Cause::SlowTarget => {
            eager(setup);
            let least = (setup.path.rtt_ns / 3).max(2 * MS);
            setup.service.time_ns = time(rng, least, least.max(200 * MS) + 1);
        }
        Cause::Saturated => {
            setup.load.connections = count(rng, 4, 32);
            setup.service.workers = count(rng, 1, 2);
            eager(setup);
            // So many requests that the workers are busy for longer than a request needs on its way.
            let places = u64::from(setup.load.connections * setup.load.depth);
            let workers = u64::from(setup.service.workers);
            let least = (3 * setup.path.rtt_ns.max(setup.transfer_ns() * places) * workers / places)
                .max(MS * workers);
            setup.service.time_ns = time(rng, least, 10 * least);
        }
        Cause::RareStalls => {
            few(rng, setup);
            fit(setup);
            let run = setup.run_ns();
            if rng.bool() {
                let period_ns = (run / rng.u64(8..24)).max(20 * setup.operation_ns());
                let length_ns = (period_ns as f64 * between(rng, 0.08, 0.4)) as u64;
                setup.service.pauses = Some(Pauses { period_ns, length_ns });
            } else {
                let more_ns = time(rng, 10 * setup.operation_ns(), 100 * setup.operation_ns());
                setup.service.rare = Some(Rare { share: between(rng, 0.01, 0.05), more_ns });
            }
        }
        Cause::ServerTimer => {
            setup.service.tick_ns =
                [1_000, 4_000, 10_000, 15_625, 20_000, 50_000, 100_000][rng.usize(0..7)] * US;
            setup.path.rtt_ns = setup.path.rtt_ns.min(20 * MS);
        }
        Cause::SlowInitiator => {
            eager(setup);
            setup.load.connections = count(rng, 16, 32);
            // The thread of each host is busy for longer than its requests in flight need.
            let own = u64::from(setup.load.connections) / CLIENTS as u64;
            let least = (4 * setup.operation_ns() / own).max(200 * US);
            setup.load.work_ns = time(rng, least, 10 * least);
        }
        Cause::QueueDepthLow => {
            setup.protocol = Protocol::Iscsi;
            setup.sizes = [
                Size { header: 48, body: 0, spread: 0.0 },
                Size { header: 48, body: 512 << rng.u64(3..7), spread: 0.0 },
            ];
            setup.load.depth = count(rng, 1, 2);
            setup.load.connections = 1;
            setup.path.rtt_ns = time(rng, 200 * US, 2 * MS);
            setup.tap.knows_rate = true;
            eager(setup);
        }
        Cause::LinkFull => {
            setup.path.bits_per_second = [100, 1_000][rng.usize(0..2)] * 1_000_000;
            setup.path.rtt_ns = time(rng, 100 * US, 5 * MS);
            setup.sizes[1].body = between(rng, 2e4, 2e5) as u64 / 512 * 512;
            setup.load.connections = count(rng, 4, 16);
            setup.path.queue_bytes = 16 << 20;
            setup.tap.knows_rate = true;
            eager(setup);
        }
        Cause::NoResponse => {
            setup.service.silent = between(rng, 0.01, 0.1);
            setup.load.patience_ns = time(rng, 2 * SECOND, 10 * SECOND);
        }
        Cause::FailedConnects | Cause::AcceptBacklog | Cause::ConnectionPerRequest => {
            if setup.protocol == Protocol::Iscsi {
                setup.protocol = Protocol::Http;
                setup.load.depth = 1;
                small(rng, setup);
            }
            setup.load.connection_per_request = true;
            setup.tap.late = false;
            match cause {
                Cause::FailedConnects => {
                    setup.service.refused = if chance(rng, 0.2) { 1.0 } else { between(rng, 0.05, 0.6) };
                }
                Cause::AcceptBacklog => setup.service.dropped_syns = between(rng, 0.03, 0.3),
                _ => {}
            }
        }
        Cause::Resets => setup.service.resets = between(rng, 0.05, 0.4),
        Cause::ErrorAnswers => {
            if setup.protocol != Protocol::Http {
                setup.protocol = Protocol::Http;
                setup.load.depth = 1;
                small(rng, setup);
            }
            setup.service.errors = between(rng, 0.05, 0.6);
        }
        Cause::CaptureLoss => setup.tap.holes = between(rng, 0.02, 0.3),
        Cause::ClockStep => {
            let size = time(rng, 50 * MS, 3_600 * SECOND) as i64;
            setup.tap.step_ns = if rng.bool() { size } else { -size };
        }
    }
    if setup.service.spread == Spread::Exponential && cause == Cause::ServerTimer {
        setup.service.spread = Spread::Narrow;
    }
    fit(setup);
}

/// Traits of healthy services that look like causes.
pub fn disguise(rng: &mut Rng, setup: &mut Setup) {
    if chance(rng, 0.08) {
        setup.path.reorder = between(rng, 1e-3, 2e-2);
    }
    if setup.protocol == Protocol::Iscsi || !chance(rng, 0.25) {
        return;
    }
    let server = &mut setup.hosts[1];
    server.nodelay = true;
    server.writes = match rng.u32(0..3) {
        0 => Writes::HeaderThenBody,
        1 => {
            Writes::Pieces { bytes: ((setup.sizes[1].body + setup.sizes[1].header) / rng.u64(2..4)).max(200) }
        }
        _ => {
            setup.sizes[1] = Size { header: 150, body: between(rng, 500.0, 5_000.0) as u64, spread: 0.2 };
            Writes::Stream { chunks: rng.u32(5..40), gap_ns: time(rng, MS, 60 * MS) }
        }
    };
}
