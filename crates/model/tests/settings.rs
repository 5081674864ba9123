//! What is written, measured or changed by hand, and the model that follows from it.

mod common;

use common::close;
use model::calibrate::{Calibrated, DepthOne, Placement, Saturated, SideWork, WireTimes, calibrate};
use model::extras::{Coalescing, Side, Slow};
use model::known_zero::{Condition, rules, zero_waits};
use model::preset::{PRESETS, Preset};
use model::setup::Setup;
use model::transfer::{CopyModel, Measured, Post, Transfer};
use model::{Bound, Known, Model, Ring, Stage, file};
use record::Term;
use record::wire::{Link, Messages};

/// Softirq, thread and transmit of a side, each with an uncertainty of its own.
fn work(softirq: f64, thread: f64, transmit: f64) -> SideWork {
    let known = |value| Known::within(value, value / 10.0);
    SideWork { softirq: known(softirq), thread: known(thread), transmit: Some(known(transmit)) }
}

/// A round of 100 us: 70 outside the client, 30 of them at the server; 12 from C1 to S1.
fn calibrated(placement: Placement, paced: bool) -> Calibrated {
    let saturated = Saturated { server: work(3.0, 8.0, 4.0), client: work(2.0, 6.0, 1.0) };
    let depth_one = DepthOne {
        rtt: Known::exactly(100.0),
        outside_client: Known::exactly(70.0),
        server: Known::exactly(30.0),
        request_path: Some(Known::exactly(12.0)),
    };
    calibrate(&saturated, &depth_one, &WireTimes { w1_us: 2.0, w2_us: 5.0, paced }, placement)
        .expect("two runs")
}

#[test]
fn a_sides_work_is_all_of_it() {
    let sum = work(3.0, 8.0, 4.0).sum();
    close(sum.value, 15.0);
    close(sum.plus_minus, (0.3_f64 * 0.3 + 0.8 * 0.8 + 0.4 * 0.4).sqrt());
    close(SideWork { transmit: None, ..work(3.0, 8.0, 4.0) }.sum().value, 11.0);
}

#[test]
fn terms_follow_from_the_two_runs() {
    let term = |paced: bool, name: &str| {
        let terms = calibrated(Placement::OneStage, paced).terms;
        terms.iter().find(|t| t.term == name).unwrap().us.value
    };
    // The path of a request is S1 - C1 less its time on the wire; that of a response is what is left.
    for (name, expected) in [
        ("SI+SP+SK", 15.0),
        ("CI+CP+CK", 9.0),
        ("W1", 2.0),
        ("W2", 5.0),
        ("SL", 15.0),
        ("CL", 21.0),
        ("CT+SR", 10.0),
        ("ST+CR", 23.0),
        ("(CT+SR)+(ST+CR)", 33.0),
    ] {
        close(term(false, name), expected);
    }
    // A token bucket keeps operations apart and delays none that comes alone: its time is in the latencies.
    close(term(true, "CT+SR"), 12.0);
    close(term(true, "ST+CR"), 28.0);
}

#[test]
fn a_placement_says_which_work_is_one_stage() {
    let stages = |placement| {
        let ring = calibrated(placement, false).ring;
        close(ring.rtt_alone_us(), 100.0);
        let of =
            |s: &Stage| (s.name.clone(), s.service_us, s.start_latency_us, s.resource.clone(), s.interrupt);
        ring.stages().iter().map(of).collect::<Vec<_>>()
    };
    let expected = |list: &[(&str, f64, f64, &str, bool)]| {
        list.iter().map(|&(n, s, l, r, i)| (n.to_owned(), s, l, r.to_owned(), i)).collect::<Vec<_>>()
    };
    assert_eq!(
        stages(Placement::OneStage),
        expected(&[
            ("W1", 2.0, 10.0, "W1", false),
            ("SI+SP+SK", 15.0, 15.0, "server CPU", false),
            ("W2", 5.0, 23.0, "W2", false),
            ("CI+CP+CK", 9.0, 21.0, "client CPU", false),
        ])
    );
    assert_eq!(
        stages(Placement::Interrupts),
        expected(&[
            ("W1", 2.0, 10.0, "W1", false),
            ("SI", 3.0, 0.0, "server CPU", true),
            ("SP", 8.0, 15.0, "server CPU", false),
            ("SK", 4.0, 0.0, "server CPU", true),
            ("W2", 5.0, 23.0, "W2", false),
            ("CI", 2.0, 0.0, "client CPU", true),
            ("CP", 6.0, 21.0, "client CPU", false),
            ("CK", 1.0, 0.0, "client CPU", true),
        ])
    );
    // The paper's pinned thread: "the CPU-bound limit ... is 1/(SI+SP)".
    let pinned = calibrated(Placement::TransmitApart, false).ring;
    assert_eq!((pinned.bottleneck().stages.as_str(), pinned.tpt_min_us()), ("SI+SP", 11.0));
    assert_eq!(calibrated(Placement::Interrupts, false).ring.tpt_min_us(), 15.0);
    assert_eq!(
        stages(Placement::OwnCpus),
        expected(&[
            ("W1", 2.0, 10.0, "W1", false),
            ("SI", 3.0, 0.0, "SI", false),
            ("SP", 8.0, 15.0, "SP", false),
            ("SK", 4.0, 0.0, "SK", false),
            ("W2", 5.0, 23.0, "W2", false),
            ("CI", 2.0, 0.0, "CI", false),
            ("CP", 6.0, 21.0, "CP", false),
            ("CK", 1.0, 0.0, "CK", false),
        ])
    );
    let paced = calibrated(Placement::OneStage, true).ring;
    assert!(paced.stages()[0].paced && paced.stages()[2].paced && !paced.stages()[1].paced);
}

#[test]
fn work_before_the_capture_point_is_taken_from_the_path() {
    // The server's segment is 5 us shorter than its work: so much of it was done before S1.
    let run = |server_thread: f64| {
        let saturated = Saturated {
            server: SideWork { thread: Known::exactly(server_thread), ..SideWork::default() },
            client: SideWork::default(),
        };
        let depth_one = DepthOne {
            rtt: Known::exactly(100.0),
            outside_client: Known::exactly(70.0),
            server: Known::exactly(30.0),
            request_path: None,
        };
        let wire = WireTimes { w1_us: 2.0, w2_us: 5.0, paced: false };
        calibrate(&saturated, &depth_one, &wire, Placement::OneStage)
    };
    let term = |run: &Calibrated, name: &str| run.terms.iter().find(|t| t.term == name).unwrap().us.value;
    let found = run(35.0).unwrap();
    // Both ways are 40 us, 33 without the wire: half of it is the request's path, less 5.
    close(term(&found, "SL"), 0.0);
    close(term(&found, "(CT+SR)+(ST+CR)"), 28.0);
    let latencies: Vec<f64> = found.ring.stages().iter().map(|s| s.start_latency_us).collect();
    close(latencies[0], 11.5);
    close(latencies[2], 16.5);
    // Two clocks do not tell the directions apart.
    assert!(!found.terms.iter().any(|t| t.term == "CT+SR" || t.term == "ST+CR"));
    // As much as the path has and the message takes on the wire; more is no one system's.
    assert!(run(48.5).is_ok() && run(48.6).is_err());
}

/// A ring on a wire of 1 Gbit/s.
fn setup() -> Setup {
    let stages = vec![
        Stage::own("W1", 1.104, 20.0),
        Stage::own("SP", 15.9, 16.7),
        Stage::own("W2", 5.2, 20.0),
        Stage::own("CP", 8.6, 23.7),
    ];
    Setup::new(Ring::new(stages).expect("a ring"), Link::ethernet(1_000_000_000, 9000), Messages::read(512))
}

#[test]
fn another_wire_changes_both_directions_and_nothing_else() {
    let after = setup().with("bandwidth=10gbit").unwrap();
    let times = |setup: &Setup| setup.ring.stages().iter().map(|s| s.service_us).collect::<Vec<_>>();
    // 48 and 560 bytes in packets of their own, 90 bytes around each.
    close(times(&after)[0], 138.0 * 8e6 / 1e10);
    close(times(&after)[2], 650.0 * 8e6 / 1e10);
    assert_eq!((times(&after)[1], times(&after)[3]), (15.9, 8.6));
    // A write carries its data the other way.
    let mut write = setup();
    write.rewire(write.link, Messages { write: true, ..write.messages }).unwrap();
    close(times(&write)[0], 5.2);
    close(times(&write)[2], 1.104);
    let mut wire = setup();
    assert!(wire.rewire(Link { mtu_bytes: 53, ..wire.link }, wire.messages).is_ok(), "one byte in a packet");
    assert!(wire.rewire(Link { mtu_bytes: 52, ..wire.link }, wire.messages).is_err(), "none");
    assert!(wire.rewire(Link { mtu_bytes: 65_536, ..wire.link }, wire.messages).is_err());
    let mut wire = setup();
    assert!(wire.rewire(wire.link, Messages::read(1 << 30)).is_ok());
    assert!(wire.rewire(wire.link, Messages::read((1 << 30) + 1)).is_err());
}

#[test]
fn with_nagle_responses_share_packets_and_the_server_waits_for_them() {
    let needs = setup().nagle_needs().unwrap();
    // 8948 bytes of payload hold 15.98 responses of 560; CL is what is not the server's.
    close(needs.responses_per_packet, 8948.0 / 560.0);
    let sn = (63.7 + 30.804 - 2.0 * 15.9_f64).min(15.9 * (8948.0 / 560.0 - 1.0));
    close(needs.delay.sn_max_us(), sn);
    close(needs.more_operations, sn / 15.9);
    close(needs.backlog, (63.7 + 30.804 + sn) / 15.9 - 1.0);
    let client_only = Ring::new(vec![Stage::own("CP", 1.0, 0.0)]).unwrap();
    assert_eq!(Setup { ring: client_only, ..setup() }.nagle_needs(), None);
    // Where the wire is the limit, packed responses raise it: full packets, whose 90 bytes 15.98 of them share.
    let mut wire_bound = setup().with("SP.service=2us").unwrap().with("CP.service=2us").unwrap();
    close(wire_bound.outcome(60).unwrap().iops.value, 1e6 / 5.2);
    wire_bound = wire_bound.with("nodelay=off").unwrap();
    let w2 = (8948.0 + 90.0) * 0.008 * 560.0 / 8948.0;
    let iops = wire_bound.outcome(60).unwrap().iops.value;
    assert!((iops * w2 / 1e6 - 1.0).abs() < 5e-3, "{iops}");
    // A single response shares its packet with none.
    close(wire_bound.outcome(1).unwrap().rtt_us.value, setup().ring.rtt_alone_us() - 13.9 - 6.6);
}

#[test]
fn manual_changes_have_no_uncertainty() {
    let uncertain = setup().ring.stages().iter().map(|s| s.clone().known_within(0.5, 0.5)).collect();
    let setup = Setup { ring: Ring::new(uncertain).unwrap(), ..setup() };
    let after = setup.with("SP.service=7us").unwrap().with("sl=0").unwrap().with("cl=3us").unwrap();
    let [_, sp, _, cp] = after.ring.stages() else { panic!("four stages") };
    assert_eq!((sp.service_us, sp.service_within_us), (7.0, 0.0));
    assert_eq!((sp.start_latency_us, sp.latency_within_us), (0.0, 0.0));
    assert_eq!((cp.start_latency_us, cp.latency_within_us), (3.0, 0.0));
    assert_eq!((cp.service_us, cp.service_within_us), (8.6, 0.5), "what was not changed stays");
    // Polling does not do without the interrupt.
    let mut stages = setup.ring.stages().to_vec();
    stages.insert(1, Stage { interrupt: true, ..Stage::own("SI", 1.0, 9.0).on("SP") });
    let after = Setup { ring: Ring::new(stages).unwrap(), ..setup }.with("sl=0").unwrap();
    assert_eq!(
        (after.ring.stages()[1].start_latency_us, after.ring.stages()[2].start_latency_us),
        (9.0, 0.0)
    );
}

#[test]
fn settings_are_read_as_written() {
    let with = |change: &str| setup().with(change).unwrap();
    let coalescing = |change: &str| with(change).extras.coalescing;
    let of = |hold_us, packets, side| Coalescing { hold_us, packets, side };
    assert_eq!(coalescing("coalescing=50us"), of(50.0, 64, Side::Client));
    assert_eq!(coalescing("coalescing=50us/8@server"), of(50.0, 8, Side::Server));
    assert_eq!(coalescing("coalescing=50us@both"), of(50.0, 64, Side::Both));
    assert_eq!(coalescing("coalescing=off"), Coalescing::default());
    assert_eq!(with("slow=3/203us").extras.slow, Slow { every: 3, extra_us: 203.0 });
    assert_eq!(with("slow=off").extras.slow, Slow::default());
    assert_eq!(with("think=2ms").extras.think_us, 2000.0);
    assert_eq!((with("sessions=3").sessions, with("queue-depth=65536").queue_depth), (3, 65_536));
    assert_eq!((with("mtu=68").link.mtu_bytes, with("mtu=65535").link.mtu_bytes), (68, 65_535));
    assert!(with("ip=6").link.ipv6 && !with("ip=4").link.ipv6);
    assert!(with("vlan=on").link.vlan && !with("timestamps=off").link.timestamps);
    for (text, header, data) in
        [("none", false, false), ("header", true, false), ("data", false, true), ("both", true, true)]
    {
        let messages = with(&format!("digests={text}")).messages;
        assert_eq!((messages.header_digest, messages.data_digest), (header, data), "{text}");
    }
    assert_eq!(with("nodelay=off").nagle.map(|nagle| nagle.sends), Some(1));
    assert_eq!(with("nodelay=off").with("sends=2").unwrap().nagle.map(|nagle| nagle.sends), Some(2));
    assert_eq!(with("nodelay=off").with("nodelay=on").unwrap().nagle, None);
}

#[test]
fn a_file_with_anything_impossible_is_refused_by_its_key() {
    let ring = |more: &str| file::read(&format!("{more}\n[[stage]]\nname = \"SP\"\nservice = \"10us\"\n"));
    assert!(ring("").is_ok());
    for (text, key) in [
        ("[ring]\nsessions = 0", "ring.sessions"),
        ("[ring]\nsends = 3", "ring.sends"),
        ("[ring]\nqueue-depth = 0", "queue-depth"),
        ("[ring]\nblock-size = \"0\"", "ring.block-size"),
        ("[ring]\nblock-size = \"2G\"", "ring.block-size"),
        ("[ring]\noperation = \"copy\"", "ring.operation"),
        ("[ring]\nack-delay = \"40\"", "ring.ack-delay"),
        ("[wire]\nip = 5", "wire.ip"),
        ("[wire]\nmtu = 67", "wire.mtu"),
        ("[wire]\nmtu = 72\nip = 6", "wire.mtu"),
        ("[wire]\ndigests = \"all\"", "wire.digests"),
        ("[wire]\nbandwidth = \"1\"", "wire.bandwidth"),
        ("[colour]\nred = 1", "file"),
        ("[post]\nrest = \"1ms\"\ngap = \"1ms\"\nack-delay = \"1ms\"", "file"),
    ] {
        let error = ring(text).unwrap_err();
        assert_eq!(error.key, key, "{text}: {error}");
    }
    assert_eq!(file::read("").unwrap_err().key, "file", "nothing at all");
    let nothing = file::read("[[stage]]\nname = \"SP\"").unwrap_err();
    assert_eq!(nothing.key, "SP.service", "only the wire's times follow from it");
}

#[test]
fn a_stage_has_the_values_of_its_file() {
    let text = r#"
        [ring]
        operation = "write"
        queue-depth = 3
        nagle = true
        ack-delay = "100ms"
        [[stage]]
        name = "W1"
        paced = true
        [[stage]]
        name = "SI"
        service = "3us+-0.5us"
        latency = "2us"
        resource = "cpu"
        interrupt = true
    "#;
    let Ok(Model::Ring(setup)) = file::read(text) else { panic!("a ring") };
    let [w1, si] = setup.ring.stages() else { panic!("two stages") };
    assert!(w1.paced && !w1.interrupt && w1.resource == "W1");
    close(w1.service_us, (560.0 + 90.0) * 0.008);
    assert!(si.interrupt && !si.paced && si.resource == "cpu");
    assert_eq!(
        (si.service_us, si.service_within_us, si.start_latency_us, si.latency_within_us),
        (3.0, 0.5, 2.0, 0.0)
    );
    assert_eq!(
        (setup.queue_depth, setup.nagle.map(|n| (n.sends, n.ack_delay_us))),
        (3, Some((1, 100_000.0)))
    );
}

#[test]
fn softirqs_that_are_known_apart_interrupt_the_thread_of_their_cpu() {
    let ring = |more: &str| {
        let text = format!(
            "[saturated]\n{more}\nserver-thread = \"12us\"\nclient-thread = \"7us\"\n[depth-one]\nrtt = \"100us\"\n\
             c2-c1 = \"70us\"\ns2-s1 = \"30us\""
        );
        let Ok(Model::Ring(setup)) = file::read(&text) else { panic!("a ring") };
        let interrupts = setup.ring.stages().iter().map(|s| (s.name.clone(), s.interrupt));
        interrupts.filter(|(name, _)| !name.starts_with('W')).collect::<Vec<_>>()
    };
    let stages = |list: &[(&str, bool)]| list.iter().map(|&(n, i)| (n.to_owned(), i)).collect::<Vec<_>>();
    // A sum is one stage; with softirqs they are two on one CPU, unless each has its own.
    assert_eq!(ring(""), stages(&[("SI+SP+SK", false), ("CI+CP+CK", false)]));
    let apart = [("SI", true), ("SP+SK", false), ("CI", true), ("CP+CK", false)];
    assert_eq!(ring("server-softirq = \"3us\""), stages(&apart));
    assert_eq!(ring("client-softirq = \"3us\""), stages(&apart));
    let own = [("SI", false), ("SP", false), ("CI", false), ("CP", false)];
    assert_eq!(ring("cpus = \"own\"\nserver-softirq = \"3us\""), stages(&own));
}

#[test]
fn presets_describe_themselves() {
    for preset in PRESETS {
        assert!(!preset.about.is_empty(), "{}", preset.name);
        let alike = PRESETS.iter().filter(|other| other.name == preset.name || other.about == preset.about);
        assert_eq!(alike.count(), 1, "{}: a list of them is to choose from", preset.name);
        assert_eq!(Preset::named(preset.name), Some(preset));
    }
}

#[test]
fn equalities_hold_where_the_paper_says() {
    let of =
        |depth, nodelay, bound| rules(depth, nodelay, bound).map(|rule| rule.condition).collect::<Vec<_>>();
    let count = |all: &[Condition], one| all.iter().filter(|c| **c == one).count();
    let alone = of(1, true, Bound::Network);
    assert_eq!(
        (alone.len(), count(&alone, Condition::DepthOne), count(&alone, Condition::Nodelay)),
        (5, 4, 1)
    );
    assert_eq!(of(2, false, Bound::Network), [Condition::NetworkBound; 2]);
    assert_eq!(of(2, false, Bound::ServerCpu), [Condition::CpuBound; 3]);
    assert_eq!(of(2, false, Bound::ClientCpu), []);
    for (depth, nodelay, bound, expected) in [
        (1, false, Bound::Network, &[Term::Cw, Term::Sw][..]),
        (2, false, Bound::Network, &[Term::St, Term::Cr]),
        (2, true, Bound::Network, &[Term::St, Term::Cr]),
        (2, true, Bound::ServerCpu, &[Term::Sw]),
        (2, false, Bound::ServerCpu, &[]),
        (2, true, Bound::ClientCpu, &[]),
    ] {
        assert_eq!(zero_waits(depth, nodelay, bound), expected, "{depth} {nodelay} {bound:?}");
    }
}

#[test]
fn uncertainty_of_a_sum_follows_from_its_parts() {
    let (a, b) = (Known::within(10.0, 3.0), Known::within(4.0, 0.4));
    let parts = |known: Known| (known.value, known.plus_minus);
    assert_eq!(parts(a - Known::within(4.0, 4.0)), (6.0, 5.0));
    assert_eq!(parts(a + Known::within(4.0, 4.0)), (14.0, 5.0));
    assert_eq!(parts(a * -2.0), (-20.0, 6.0));
    assert_eq!(parts([a, Known::within(4.0, 4.0)].into_iter().sum()), (14.0, 5.0));
    let ratio = a / b;
    close(ratio.value, 2.5);
    close(ratio.plus_minus, 2.5 * 0.3_f64.hypot(0.1));
    close(a.relative(), 0.3);
    assert_eq!((Known::exactly(0.0).relative(), Known::within(0.0, 1.0).relative()), (0.0, f64::INFINITY));
    assert!(Known::within(1.0, 1.0).may_be_zero() && !Known::within(1.1, 1.0).may_be_zero());
    let number = |text: &str| Known::parse_number(text).map(parts);
    assert_eq!(number("63,000+-500"), Ok((63_000.0, 500.0)));
    assert_eq!(number("63_000±500"), Ok((63_000.0, 500.0)));
    assert_eq!(number("50%+-10%"), Ok((0.5, 0.1)));
    assert_eq!(number("2.50"), Ok((2.5, 0.005)));
    assert!(number("-1").is_err() && number("inf").is_err() && number("").is_err());
    let time = |text: &str| Known::parse_time_us(text).map(parts);
    assert_eq!(time("2ms"), Ok((2000.0, 500.0)));
    assert_eq!(time("16.7us+-0.4us"), Ok((16.7, 0.4)));
}

#[test]
fn a_copys_costs_are_one_for_each_byte_and_one_for_each_unit() {
    // 1 us for a kilobyte, and 5 us for a unit.
    let costs = Transfer { per_byte_us: 0.001, per_unit_us: 5.0 };
    let measured = |unit_bytes| Measured { unit_bytes, bytes_per_second: costs.bytes_per_second(unit_bytes) };
    close(costs.bytes_per_second(5000.0), 1e6 / 0.002);
    for pair in [[measured(1000.0), measured(8000.0)], [measured(8000.0), measured(1000.0)]] {
        let found = CopyModel::new("block", pair, &[5000.0]).unwrap();
        close(found.costs.per_byte_us, 0.001);
        close(found.costs.per_unit_us, 5.0);
        close(found.predicted[0].bytes_per_second, 5e8);
    }
    assert!(CopyModel::new("block", [measured(1000.0), measured(8000.0)], &[0.0]).is_err());
    assert!(Transfer::calibrate(measured(1000.0), measured(1000.0)).is_err(), "one unit twice");
    // As fast with either unit: a unit costs nothing, and that is possible.
    let same = |unit_bytes| Measured { unit_bytes, bytes_per_second: 1e8 };
    close(Transfer::calibrate(same(1000.0), same(8000.0)).unwrap().per_unit_us, 0.0);
    let post = Post { rest_us: 10.0, gap_us: 2.0, ack_delay_us: 40.0 };
    assert_eq!((post.nodelay_request_us(), post.nagle_request_us()), (12.0, 50.0));
    assert_eq!(
        Post { gap_us: 60.0, ..post }.nagle_request_us(),
        70.0,
        "the ACK came before the body was ready"
    );
}

#[test]
fn sessions_share_the_resources_of_the_ring() {
    // Two stations of 10 us each and no latencies: with N operations 1 / (10 us) * N / (N + 1) pass.
    let ring = Ring::new(vec![Stage::own("A", 10.0, 0.0), Stage::own("B", 10.0, 0.0)]).unwrap();
    let shared = ring.shared(3, 2).unwrap();
    close(shared.iops, 1e5 * 6.0 / 7.0);
    close(shared.rtt_us, 70.0);
    shared.queued.iter().for_each(|&queued| close(queued, 3.0));
    assert_eq!((shared.sessions, shared.queue_depth), (3, 2));
    // A latency delays and occupies nothing.
    let late = Ring::new(vec![Stage::own("A", 10.0, 30.0)]).unwrap();
    close(late.shared(1, 1).unwrap().rtt_us, 40.0);
    assert!(ring.shared(0, 1).is_err() && ring.shared(2, 32_768).is_ok() && ring.shared(2, 32_769).is_err());
}

#[test]
fn each_side_s_delayed_ack_is_a_setting() {
    // Two sends under Nagle's algorithm wait for the client's delayed ACK: 1/(40 ms), or "two IOPS with ... 500 ms".
    let two = Preset::named("seed-512-two-sends").unwrap().setup().unwrap();
    let iops = |change: &str| two.with(change).unwrap().outcome(1).unwrap().iops.value;
    assert!((24.0..25.0).contains(&iops("client-ack-delay=40ms")));
    assert!((1.9..2.0).contains(&iops("client-ack-delay=500ms")));
    assert_eq!(iops("ack-delay=500ms"), iops("client-ack-delay=500ms"));
    // The server's holds the client's requests, and nothing here.
    let error = two.with("server-ack-delay=500ms").unwrap_err().to_string();
    assert!(error.contains("client-nodelay=off"), "{error}");
    let both = two.with("client-nodelay=off").unwrap().with("server-ack-delay=500ms").unwrap();
    assert_eq!(both.client_nagle.map(|nagle| nagle.ack_delay_us), Some(500_000.0));
    assert_eq!(both.nagle.map(|nagle| nagle.ack_delay_us), Some(40_000.0));
    assert!(two.with("nodelay=on").unwrap().with("flush=on").is_err());
    assert!(two.with("flush=on").unwrap().nagle.unwrap().flushes_when_idle);
}

#[test]
fn transmit_work_can_have_a_cpu_of_its_own() {
    let shared = Setup { ring: calibrated(Placement::Interrupts, false).ring, ..setup() };
    let limit = |change: &str| {
        let ring = shared.with(change).unwrap().ring;
        (ring.bottleneck().stages, ring.tpt_min_us())
    };
    assert_eq!(limit("server-cpu=shared"), ("SI+SP+SK".to_owned(), 15.0));
    assert_eq!(limit("server-cpu=transmit-apart"), ("SI+SP".to_owned(), 11.0));
    assert_eq!(limit("server-cpu=own"), ("CI+CP+CK".to_owned(), 9.0));
}
