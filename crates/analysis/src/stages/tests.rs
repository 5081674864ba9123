//! Rings whose stage times are known, as the kernel would show them.

use proptest::prelude::*;
use record::{Side, Softirq};

use super::*;

const CLIENT: i32 = 10;
const SERVER: i32 = 20;
pub(crate) const REQUEST: u64 = 48;
pub(crate) const RESPONSE: u64 = 560;
pub(crate) const BEGAN: u64 = 1_000_000;

use record::KernelEventKind as Kind;

/// A packet's transmission that nothing captures.
fn transmitted(side: Side, bytes: u32) -> Kind {
    Kind::Transmitted { side, bytes, taps_ns: 0 }
}

fn event(at_ns: u64, cpu: u16, thread: i32, kind: Kind) -> KernelEvent {
    KernelEvent { at_ns, cpu, thread, kind }
}

/// The events of an operation at the end of a stage.
fn at_end_of(stage: Stage, at: u64) -> Vec<KernelEvent> {
    let (request, response) = (REQUEST as u32 + 66, RESPONSE as u32 + 66);
    match stage {
        Stage::ClientProgram => {
            vec![event(at, 0, CLIENT, Kind::SendBegan), event(at + 1, 0, CLIENT, Kind::Sent(REQUEST as i64))]
        }
        Stage::ServerProgram => {
            vec![event(at, 1, SERVER, Kind::SendBegan), event(at + 1, 1, SERVER, Kind::Sent(RESPONSE as i64))]
        }
        Stage::ClientSend => vec![event(at, 0, CLIENT, Kind::Queued(Side::Client, request))],
        Stage::ClientQueue => vec![event(at, 0, CLIENT, transmitted(Side::Client, request))],
        Stage::RequestPath => vec![event(at, 1, 0, Kind::Arrived(Side::Server, request - 14))],
        Stage::ServerReceive => vec![event(at, 1, SERVER, Kind::Received(REQUEST as i64))],
        Stage::ServerSend => vec![event(at, 1, SERVER, Kind::Queued(Side::Server, response))],
        Stage::ServerQueue => vec![event(at, 1, SERVER, transmitted(Side::Server, response))],
        Stage::ResponsePath => vec![event(at, 0, 0, Kind::Arrived(Side::Client, response - 14))],
        Stage::ClientReceive => vec![event(at, 0, CLIENT, Kind::Received(RESPONSE as i64))],
    }
}

/// A closed ring of stages that serve one operation at a time, in order.
struct Ring {
    events: Vec<KernelEvent>,
    /// Time of each operation in each stage, nanoseconds.
    times: Vec<[u64; 10]>,
    /// When each was received, nanoseconds.
    finished: Vec<u64>,
    depth: u32,
    end: u64,
}

impl Ring {
    /// `service` returns the service time of an operation in a stage, ns.
    fn of(depth: u32, operations: usize, mut service: impl FnMut(usize, Stage) -> u64) -> Self {
        let mut ring = Self { events: Vec::new(), times: Vec::new(), finished: Vec::new(), depth, end: 0 };
        let mut free = [BEGAN; 10];
        let mut ends: Vec<[u64; 10]> = Vec::new();
        for number in 0..operations {
            // An operation begins when its predecessor by the queue depth was received.
            let mut at = number.checked_sub(depth as usize).map_or(BEGAN, |before| ends[before][9]);
            let (mut own, mut times) = ([0; 10], [0; 10]);
            for stage in Stage::ALL {
                let index = stage as usize;
                let end = at.max(free[index]) + service(number, stage).max(2);
                (own[index], times[index], free[index]) = (end, end - at, end);
                ring.events.extend(at_end_of(stage, end));
                at = end;
            }
            ring.end = ring.end.max(at);
            ends.push(own);
            ring.times.push(times);
            ring.finished.push(at);
        }
        ring.events.sort_by_key(|event| event.at_ns);
        ring
    }

    fn window(&self) -> TraceWindow<'_> {
        let span = self.end - BEGAN;
        TraceWindow {
            measured_ns: (BEGAN + span / 5, self.end - span / 5),
            issued: self.times.len() as u64,
            queue_depth: self.depth,
            sees_interrupts: false,
            ..window_of(&self.events, self.end)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// N adds up to the queue depth, W to the round trip, and each stage has the time that its operations spent there,
    /// also where a stage is never empty.
    #[test]
    fn stages_have_the_times_of_the_ring_that_made_them(
        depth in 1_u32..40,
        means in proptest::collection::vec(200_u64..20_000, 10),
        seed in any::<u64>(),
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let ring = Ring::of(depth, 4000, |_, stage| random.u64(0..2 * means[stage as usize]));
        let traced = Traced::of(&ring.window()).unwrap();
        prop_assert!((traced.operations() - f64::from(depth)).abs() < 1e-6, "{}", traced.operations());
        for stage in Stage::ALL {
            let (begin, end) = ring.window().measured_ns;
            let inside: Vec<u64> = ring
                .times
                .iter()
                .zip(&ring.finished)
                .filter(|(_, at)| (begin..end).contains(at))
                .map(|(times, _)| times[stage as usize])
                .collect();
            let truth = inside.iter().sum::<u64>() as f64 / inside.len() as f64 / 1000.0;
            let own = traced.stage(stage).unwrap();
            prop_assert!((own.mean_us - truth).abs() < 1e-6, "{stage:?}: {} of {truth}", own.mean_us);
            prop_assert!(own.least >= 0);
            let causes: f64 = own.causes.iter().map(|c| c.mean_us).sum();
            prop_assert!((causes - own.operations / traced.iops * 1e6).abs() < 1e-6);
        }
        prop_assert!(traced.counts.iter().all(|c| c.operations == 4000), "{:?}", traced.counts);
    }
}

#[test]
fn equal_service_times_give_exact_stage_times() {
    let ring = Ring::of(1, 2000, |_, stage| 1000 * (stage as u64 + 1));
    let traced = Traced::of(&ring.window()).unwrap();
    for stage in Stage::ALL {
        let own = traced.stage(stage).unwrap();
        // The client's program also holds the time between two calls.
        let wanted = (stage as u64 + 1) as f64;
        assert!((own.mean_us - wanted).abs() < 0.005 * wanted, "{stage:?}: {}", own.mean_us);
        assert!(own.times_empty > 1000);
    }
    assert!((traced.round_trip_us() - 55.0).abs() < 0.1);
    assert!((traced.segment_us(Segment::Server) - (5.0 + 6.0 + 7.0 + 8.0)).abs() < 0.1);
}

/// A missed call, packet or arrival shows in the counts and as a level below zero.
#[test]
fn a_missed_event_is_noticed_at_its_stage() {
    let ring = Ring::of(8, 2000, |number, stage| 500 + (number as u64 * 7 + stage as u64 * 13) % 900);
    for stage in Stage::ALL {
        let mut window = ring.window();
        let (middle, wanted) = (window.measured_ns.0 + 1000, at_end_of(stage, 0)[0].kind);
        let mut events = ring.events.clone();
        let missed = events
            .iter()
            .position(|e| e.at_ns > middle && e.kind == wanted && e.thread == at_end_of(stage, 0)[0].thread);
        events.remove(missed.unwrap());
        window.events = &events;
        let traced = Traced::of(&window).unwrap();
        let count = traced.counts.iter().find(|c| c.ends == stage).unwrap();
        assert_eq!(count.operations, 1999, "{stage:?}");
        let next = Stage::ALL[(stage as usize + 1) % 10];
        assert!(traced.stage(next).unwrap().least < 0, "{next:?}: {:?}", traced.stage(next));
    }
}

/// One exchange at queue depth 1, with every piece of its time known: who ran where, and which interrupt was under way.
pub(crate) fn exchange(events: &mut Vec<KernelEvent>, begin: u64) -> u64 {
    let mut at = begin;
    let mut add = |after: u64, cpu: u16, thread: i32, kind: Kind| {
        at += after;
        events.push(event(at, cpu, thread, kind));
    };
    let (request, response) = (REQUEST as u32 + 66, RESPONSE as u32 + 66);
    for side in [Side::Client, Side::Server] {
        let (own, other) = if side == Side::Client { (0, 1) } else { (1, 0) };
        let (thread, peer) = if side == Side::Client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let (sent, sent_bytes, got) =
            if side == Side::Client { (request, REQUEST, REQUEST) } else { (response, RESPONSE, RESPONSE) };
        add(1000, own, thread, Kind::SendBegan); // program: 1 us
        add(2000, own, thread, Kind::Queued(side, sent)); // send: 2 us
        add(100, own, thread, transmitted(side, sent)); // queue: 0.1 us
        add(200, own, thread, Kind::SoftirqBegan(Softirq::Receive));
        add(300, own, thread, Kind::InterruptSent(other)); // path: 0.5 us of the sender
        add(100, own, thread, Kind::SoftirqEnded(Softirq::Receive));
        add(100, own, thread, Kind::Sent(sent_bytes as i64));
        add(400, own, thread, Kind::Switched(0));
        add(200, own, 0, Kind::IdleBegan); // 0.2 us into the idle state
        add(9800, other, 0, Kind::InterruptBegan); // 10.6 us of the interrupt
        add(300, other, 0, Kind::SoftirqBegan(Softirq::Receive)); // 0.3 us of its handler
        add(500, other, 0, Kind::Arrived(side.peer(), sent - 14)); // path: 0.5 us of the receiver's softirq
        add(1500, other, 0, Kind::Woken(peer));
        add(700, other, 0, Kind::SoftirqEnded(Softirq::Receive)); // receive: 2.2 us of softirq
        add(200, other, 0, Kind::IdleEnded);
        add(400, other, 0, Kind::Switched(peer)); // 0.6 us runnable, 0.4 us of them out of the idle state
        add(900, other, peer, Kind::Received(got as i64)); // 0.9 us of the thread
    }
    at
}

pub(crate) fn window_of(events: &[KernelEvent], end: u64) -> TraceWindow<'_> {
    let issued = events.iter().filter(|e| e.kind == Kind::Sent(REQUEST as i64)).count() as u64;
    TraceWindow {
        events,
        load_ns: (BEGAN, end + 10),
        measured_ns: (BEGAN, end),
        issued,
        queue_depth: 1,
        request_bytes: REQUEST,
        response_bytes: RESPONSE,
        client_thread: CLIENT,
        client_cpus: SideCpus { thread: 0, softirq: 0 },
        server_cpus: SideCpus { thread: 1, softirq: 1 },
        observers: &[],
        sees_interrupts: true,
    }
}

#[test]
fn every_piece_of_a_round_trip_has_its_cause() {
    let mut events = vec![event(BEGAN, 0, 0, Kind::Switched(CLIENT))];
    let mut at = BEGAN;
    for _ in 0..500 {
        at = exchange(&mut events, at);
    }
    let traced = Traced::of(&window_of(&events, at)).unwrap();
    let close = |stage, cause, wanted: f64| {
        let own = traced.time_us(stage, cause);
        assert!(
            (own - wanted).abs() < 0.01,
            "{stage:?} by {cause:?}: {own}, not {wanted}; {:?}",
            traced.stage(stage)
        );
    };
    for (path, receive, program, send, queue) in [
        (
            Stage::RequestPath,
            Stage::ServerReceive,
            Stage::ServerProgram,
            Stage::ServerSend,
            Stage::ServerQueue,
        ),
        (
            Stage::ResponsePath,
            Stage::ClientReceive,
            Stage::ClientProgram,
            Stage::ClientSend,
            Stage::ClientQueue,
        ),
    ] {
        close(path, Cause::Thread, 0.2);
        close(path, Cause::Softirq, 0.3 + 0.5);
        close(path, Cause::Interrupt, 10.6 + 0.3);
        close(receive, Cause::Softirq, 2.2);
        close(receive, Cause::Runnable, 0.6);
        close(receive, Cause::Thread, 0.9);
        close(program, Cause::Thread, 1.0);
        close(send, Cause::Thread, 2.0);
        close(queue, Cause::Wire, 0.1);
    }
    for segment in Segment::ALL {
        assert!(traced.unexplained(segment) < 0.001, "{segment:?}: {}", traced.unexplained(segment));
    }
    for side in [traced.client, traced.server] {
        assert!((side.receive_softirq_us - 2.7).abs() < 0.02, "{side:?}");
        assert!((side.transmit_softirq_us - 0.4).abs() < 0.02, "{side:?}");
        assert!(
            (side.kernel_us - 0.3).abs() < 0.02 && (side.transitions_us - (0.2 + 0.4)).abs() < 0.05,
            "{side:?}"
        );
        assert!((side.thread_us - (0.9 + 1.0 + 2.0 + 0.1 + 0.2 + 0.1 + 0.4)).abs() < 0.02, "{side:?}");
        assert!((side.thread_share().unwrap() - 5.1 / 7.8).abs() < 0.01);
    }
}

/// A pause in which nothing runs is unexplained, wherever it is.
#[test]
fn time_without_a_cause_is_unexplained() {
    let mut events = vec![event(BEGAN, 0, 0, Kind::Switched(CLIENT))];
    let mut at = BEGAN;
    for _ in 0..500 {
        let from = events.len();
        at = exchange(&mut events, at);
        // The server's thread sleeps 5 us between its receive and its send.
        let received =
            events[from..].iter().position(|e| e.kind == Kind::Received(REQUEST as i64)).unwrap() + from;
        let time = events[received].at_ns;
        events[received + 1..].iter_mut().for_each(|e| e.at_ns += 5000);
        at += 5000;
        events.insert(received + 1, event(time, 1, SERVER, Kind::Switched(0)));
        events.insert(received + 2, event(time, 1, 0, Kind::IdleBegan));
        events.insert(received + 3, event(time + 5000, 1, 0, Kind::IdleEnded));
        events.insert(received + 4, event(time + 5000, 1, 0, Kind::Switched(SERVER)));
    }
    let traced = Traced::of(&window_of(&events, at)).unwrap();
    assert!((traced.time_us(Stage::ServerProgram, Cause::Unexplained) - 5.0).abs() < 0.05);
    assert!(traced.unexplained(Segment::Server) > 0.3);
    assert!(traced.unexplained(Segment::Client) < 0.001);
}

/// Two responses to a packet, and a response in two packets.
#[test]
fn packets_are_counted_with_the_responses_in_them() {
    let ring = Ring::of(4, 1000, |_, stage| 1000 + 100 * stage as u64);
    let with = |change: &dyn Fn(u64, u32) -> Vec<u32>| {
        let mut events = Vec::new();
        let mut number = 0;
        for event in &ring.events {
            let Kind::Transmitted { side: Side::Server, bytes, .. } = event.kind else {
                events.push(*event);
                continue;
            };
            number += 1;
            let packets = change(number, bytes).into_iter();
            events.extend(
                packets.map(|bytes| KernelEvent { kind: transmitted(Side::Server, bytes), ..*event }),
            );
        }
        Traced::of(&TraceWindow { events: &events, ..ring.window() }).unwrap()
    };
    let header = 66;
    let one = with(&|_, bytes| vec![bytes]);
    assert!((one.responses_per_packet - 1.0).abs() < 0.01, "{}", one.responses_per_packet);
    let shared = with(&|number, bytes| if number % 2 == 0 { vec![2 * bytes - header] } else { Vec::new() });
    assert!((shared.responses_per_packet - 2.0).abs() < 0.01, "{}", shared.responses_per_packet);
    let split = with(&|_, bytes| vec![header + 100, bytes - 100]);
    assert!((split.responses_per_packet - 0.5).abs() < 0.01, "{}", split.responses_per_packet);
    assert!(
        [one, shared, split].iter().all(|traced| traced.counts.iter().all(|count| count.operations == 1000))
    );
}

/// The login before the load and the logout behind it are no operations.
#[test]
fn messages_outside_the_load_do_not_count() {
    let ring = Ring::of(4, 1000, |_, stage| 1000 + 100 * stage as u64);
    let (mut events, mut at) = (Vec::new(), 1000);
    for stage in Stage::ALL {
        events.extend(at_end_of(stage, at));
        at += 1000;
    }
    events.extend(ring.events.iter().copied());
    at = ring.end + 1000;
    for stage in Stage::ALL {
        events.extend(at_end_of(stage, at));
        at += 1000;
    }
    let traced = Traced::of(&TraceWindow { events: &events, ..ring.window() }).unwrap();
    assert!(traced.counts.iter().all(|count| count.operations == 1000), "{:?}", traced.counts);
    assert_eq!(traced.stages, Traced::of(&ring.window()).unwrap().stages);
}

/// What TCP held back until an acknowledgement came is told from what nobody can explain.
#[test]
fn data_that_an_acknowledgement_released_was_held_by_tcp() {
    let with = |by_acknowledgement: bool| {
        let mut events = vec![event(BEGAN, 0, 0, Kind::Switched(CLIENT))];
        let mut at = BEGAN;
        for _ in 0..500 {
            let from = events.len();
            at = exchange(&mut events, at);
            // The response waits 40 us behind the server's call, and the CPU is idle.
            let is_queued = |e: &KernelEvent| matches!(e.kind, Kind::Queued(Side::Server, _));
            let queued = events[from..].iter().position(is_queued).unwrap() + from;
            let time = events[queued].at_ns;
            events[queued..].iter_mut().for_each(|e| e.at_ns += 40_000);
            at += 40_000;
            let softirq = |kind: fn(Softirq) -> Kind| {
                if by_acknowledgement { kind(Softirq::Receive) } else { kind(Softirq::Other) }
            };
            let idle = [
                event(time, 1, SERVER, Kind::Switched(0)),
                event(time, 1, 0, Kind::IdleBegan),
                event(time + 39_990, 1, 0, softirq(Kind::SoftirqBegan)),
            ];
            events.splice(queued..queued, idle);
            events.insert(queued + 4, event(time + 40_000, 1, 0, softirq(Kind::SoftirqEnded)));
            events.insert(queued + 5, event(time + 40_000, 1, 0, Kind::Switched(SERVER)));
        }
        Traced::of(&window_of(&events, at)).unwrap()
    };
    let (held, unknown) = (with(true), with(false));
    assert!(
        (held.time_us(Stage::ServerSend, Cause::Tcp) - 40.0).abs() < 0.2,
        "{:?}",
        held.stage(Stage::ServerSend)
    );
    assert!(held.unexplained(Segment::Server) < 0.01);
    assert!((unknown.time_us(Stage::ServerSend, Cause::Unexplained) - 40.0).abs() < 0.2);
}

/// Other programs on these CPUs send and receive, much or little, and none of it counts.
#[test]
fn calls_of_other_programs_are_not_the_servers() {
    let mut events = vec![event(BEGAN, 0, 0, Kind::Switched(CLIENT))];
    let mut at = BEGAN;
    (0..500).for_each(|_| at = exchange(&mut events, at));
    let alone = Traced::of(&window_of(&events, at)).unwrap();
    for bytes in [1, RESPONSE as i64 / 2, RESPONSE as i64 * 100] {
        let mut more = events.clone();
        for number in 0..500 {
            let time = BEGAN + number * 100;
            more.push(event(time, 1, 88, Kind::SendBegan));
            more.push(event(time + 1, 1, 88, Kind::Sent(bytes)));
            more.push(event(time + 2, 1, 88, Kind::Received(bytes)));
        }
        more.sort_by_key(|event| event.at_ns);
        let traced = Traced::of(&TraceWindow { events: &more, ..window_of(&events, at) }).unwrap();
        assert_eq!(traced.counts, alone.counts, "{bytes} B");
        let levels =
            |traced: &Traced| traced.stages.iter().map(|s| (s.operations, s.mean_us)).collect::<Vec<_>>();
        assert_eq!(levels(&traced), levels(&alone), "{bytes} B");
    }
}

/// Captures and other programs take a CPU's time under their own names.
#[test]
fn observers_and_other_programs_are_told_apart() {
    let mut events = vec![event(BEGAN, 0, 0, Kind::Switched(CLIENT))];
    let mut at = BEGAN;
    for number in 0..500 {
        let from = events.len();
        at = exchange(&mut events, at);
        let time = events[from].at_ns;
        events[from..].iter_mut().for_each(|e| e.at_ns += 7000);
        at += 7000;
        let thread = if number % 2 == 0 { 77 } else { 88 };
        events.insert(from, event(time, 0, CLIENT, Kind::Switched(thread)));
        events.insert(from + 1, event(time + 7000, 0, thread, Kind::Switched(CLIENT)));
    }
    let traced = Traced::of(&TraceWindow { observers: &[77], ..window_of(&events, at) }).unwrap();
    let client = traced.client;
    assert!((client.observers_us - 3.5).abs() < 0.02 && (client.others_us - 3.5).abs() < 0.02, "{client:?}");
    assert!((traced.time_us(Stage::ClientProgram, Cause::OtherWork) - 7.0).abs() < 0.02);
    let parts = client.thread_us + client.receive_softirq_us + client.transmit_softirq_us + client.kernel_us;
    assert!((client.busy_us - parts - 7.0).abs() < 0.02, "{client:?}");
}

#[test]
fn windows_that_hold_no_load_are_refused() {
    let ring = Ring::of(2, 100, |_, _| 1000);
    let none = TraceWindow { events: &[], ..ring.window() };
    assert_eq!(Traced::of(&none), Err(TracedError::NoServer));
    assert_eq!(Traced::of(&TraceWindow { measured_ns: (5, 5), ..ring.window() }), Err(TracedError::Empty));
    let others: Vec<KernelEvent> =
        ring.events.iter().filter(|e| !matches!(e.kind, Kind::Arrived(Side::Server, _))).copied().collect();
    let window = TraceWindow { events: &others, ..ring.window() };
    assert_eq!(Traced::of(&window), Err(TracedError::NothingCounted(Stage::RequestPath)));
}
