//! Random setups in which nothing is wrong.

use fastrand::Rng;
use tcpsim::{Ns, Profile};

use crate::setup::{
    Arrivals, BUFFER_LARGE, Host, Load, MS, Path, Place, Protocol, SECOND, Service, Setup, Size, Spread, Tap,
    US, Writes,
};

/// A value between two others whose logarithm is uniform.
pub fn between(rng: &mut Rng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(rng.f64())
}

/// A time between two others whose logarithm is uniform, ns.
pub fn time(rng: &mut Rng, least: Ns, most: Ns) -> Ns {
    between(rng, least as f64, most as f64) as Ns
}

/// A whole number between two others whose logarithm is uniform.
pub fn count(rng: &mut Rng, least: u32, most: u32) -> u32 {
    (between(rng, f64::from(least), f64::from(most) + 1.0) as u32).clamp(least, most)
}

/// True in this share of the cases.
pub fn chance(rng: &mut Rng, share: f64) -> bool {
    rng.f64() < share
}

/// Segments that a run may have at the most, about.
const SEGMENTS: u64 = 5_000;

fn host(rng: &mut Rng) -> Host {
    // FreeBSD and macOS add 200 ms to every time-out (`net.inet.tcp.rexmit_slop`).
    let slow = |tcp: Profile| Profile { rto_min_ns: tcp.rto_min_ns + 200 * MS, ..tcp };
    let (tcp, ttl) = match rng.u32(0..20) {
        0..14 => (Profile::LINUX, 64),
        14..17 => (Profile::WINDOWS, 128),
        17..19 => (slow(Profile::FREEBSD), 64),
        _ => (slow(Profile::MACOS), 64),
    };
    Host {
        tcp,
        ttl,
        nodelay: chance(rng, 0.7),
        writes: Writes::Whole,
        send_buffer: BUFFER_LARGE,
        receive_buffer: BUFFER_LARGE,
        initial_window: 10,
        slow_start_after_idle: false,
        offload_segments: if tcp == Profile::LINUX && chance(rng, 0.2) { 16 } else { 1 },
        packet_ns: time(rng, 300, 2 * US),
    }
}

fn path(rng: &mut Rng) -> Path {
    let rtt_ns = time(rng, 50 * US, 200 * MS);
    let rates: &[u64] = match rtt_ns {
        0..MS => &[1_000, 10_000, 25_000],
        MS..10_000_000 => &[100, 1_000, 10_000],
        _ => &[20, 100, 1_000],
    };
    let bits_per_second = rates[rng.usize(0..rates.len())] * 1_000_000;
    let product = rtt_ns as f64 * bits_per_second as f64 / 8e9;
    Path {
        rtt_ns,
        forward: 0.3 + 0.4 * rng.f64(),
        bits_per_second,
        mtu: if rtt_ns < MS && chance(rng, 0.3) { 9000 } else { 1500 },
        queue_bytes: (2.0 * product).max(1e6) as u64,
        loss: if chance(rng, 0.1) { 1e-4 } else { 0.0 },
        reorder: 0.0,
        black_hole: None,
        collisions: 0.0,
        bloat: None,
    }
}

fn sizes(rng: &mut Rng, protocol: Protocol) -> [Size; 2] {
    let spread = if chance(rng, 0.5) { 0.0 } else { 0.6 };
    match protocol {
        Protocol::Iscsi => {
            let blocks = 1 << rng.u32(0..8);
            [Size { header: 48, body: 0, spread: 0.0 }, Size { header: 48, body: 512 * blocks, spread: 0.0 }]
        }
        Protocol::Http | Protocol::Turns => {
            let upload = chance(rng, 0.1);
            let request = if upload {
                between(rng, 2e3, 1e5) as u64
            } else {
                rng.u64(0..2) * between(rng, 20.0, 500.0) as u64
            };
            let response = between(rng, 50.0, 2e5) as u64;
            [
                Size { header: between(rng, 80.0, 700.0) as u64, body: request, spread },
                Size { header: between(rng, 80.0, 300.0) as u64, body: response, spread },
            ]
        }
    }
}

fn tap(rng: &mut Rng) -> Tap {
    let place = match rng.u32(0..10) {
        0..3 => Place::Client,
        3..6 => Place::Server,
        6 => Place::Middle,
        7 => Place::Apart,
        _ => Place::Both,
    };
    Tap {
        place,
        is_told: chance(rng, 0.5),
        knows_rate: chance(rng, 0.3),
        snap: if chance(rng, 0.1) { 256 } else { 0 },
        holes: 0.0,
        doubled: chance(rng, 0.03),
        step_ns: 0,
        late: chance(rng, 0.15),
    }
}

/// A setup without a fault: responses in less than a millisecond, no loss to speak of, large buffers, and enough capacity for
/// its demand.
pub fn healthy(rng: &mut Rng, seed: u64) -> Setup {
    let protocol = match rng.u32(0..10) {
        0..5 => Protocol::Http,
        5..8 => Protocol::Turns,
        _ => Protocol::Iscsi,
    };
    let load = Load {
        connections: count(rng, 1, if protocol == Protocol::Iscsi { 4 } else { 24 }),
        depth: if protocol == Protocol::Iscsi { count(rng, 1, 16) } else { 1 },
        arrivals: Arrivals::Closed { think_ns: 0 },
        operations: 0,
        connection_per_request: false,
        patience_ns: 30 * SECOND,
        work_ns: 0,
    };
    let service = Service {
        time_ns: time(rng, 10 * US, 700 * US),
        spread: if chance(rng, 0.5) { Spread::Narrow } else { Spread::Exponential },
        workers: 0,
        pauses: None,
        rare: None,
        tick_ns: 0,
        errors: 0.0,
        resets: 0.0,
        silent: 0.0,
        refused: 0.0,
        dropped_syns: 0.0,
    };
    let (path, hosts, sizes, tap) = (path(rng), [host(rng), host(rng)], sizes(rng, protocol), tap(rng));
    let mut setup = Setup { seed, protocol, path, hosts, load, sizes, service, tap };
    if protocol == Protocol::Iscsi {
        setup.path.rtt_ns = setup.path.rtt_ns.min(2 * MS);
    }
    setup.load.arrivals = arrivals(rng, &setup);
    fit(&mut setup);
    setup
}

fn arrivals(rng: &mut Rng, setup: &Setup) -> Arrivals {
    let each = setup.operation_ns();
    let gap_ns = time(rng, 4 * each, (100 * each).clamp(5 * each, 2 * SECOND.max(3 * each)));
    match rng.u32(0..10) {
        0..3 => Arrivals::Closed { think_ns: 0 },
        3..5 => Arrivals::Closed { think_ns: time(rng, US, each / 100 + 2 * US) },
        5..8 => Arrivals::Poisson { gap_ns },
        _ => Arrivals::Periodic { gap_ns },
    }
}

/// Sets the length of a run such that it has enough operations, and not too many segments.
pub fn fit(setup: &mut Setup) {
    let bytes = setup.sizes[0].header + setup.sizes[0].body + setup.sizes[1].header + setup.sizes[1].body;
    let response = setup.sizes[1].header + setup.sizes[1].body;
    let calls = match setup.hosts[1].writes {
        Writes::Pieces { bytes } => response / bytes.max(1),
        Writes::Stream { chunks, .. } => chunks.into(),
        _ => 0,
    };
    let segments = 4 + (bytes / u64::from(setup.path.mtu - 52)).max(calls) * 3 / 2;
    let each = u64::from(setup.load.connections * setup.load.depth);
    let least = (each * 4).clamp(60, 400);
    setup.load.operations = (SEGMENTS / segments).clamp(least, 800) as u32;
}
