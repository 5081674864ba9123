//! What a ring's stages bound: its limit, its band, its uncertainty, and what makes no ring.

mod common;

use common::{close, four};
use model::bound::{queue_depth_cpu_bound, queue_depth_network_bound};
use model::nagle::{NagleDelay, backlog_cpu_bound, iops_delayed_ack};
use model::{Bound, Ring, STAGES_MAX, Stage, TIME_US_MAX};

fn ring(stages: Vec<Stage>) -> Ring {
    Ring::new(stages).expect("a ring")
}

#[test]
fn times_and_stages_are_possible_up_to_their_ends() {
    assert!(Ring::new(vec![Stage::own("SP", TIME_US_MAX, TIME_US_MAX)]).is_ok());
    assert!(Ring::new(vec![Stage::own("SP", TIME_US_MAX * 1.001, 0.0)]).is_err());
    assert!(Ring::new(vec![Stage::own("SP", 1.0, TIME_US_MAX * 1.001)]).is_err());
    assert!(Ring::new(vec![Stage::own("SP", 1.0, 0.0); STAGES_MAX]).is_ok());
    assert!(Ring::new(vec![Stage::own("SP", 1.0, 0.0); STAGES_MAX + 1]).is_err());
    assert!(Ring::new(vec![Stage::own("W", 0.0, 0.0), Stage::own("SP", 1.0, 0.0)]).is_ok(), "one takes time");
    let ring = ring(four());
    assert!(ring.band(1).is_ok() && ring.band(65_536).is_ok() && ring.band(65_537).is_err());
}

#[test]
fn the_band_is_between_every_latency_paid_and_none() {
    // QD / sum(P + L) and QD / sum(P), neither above 1 / max P.
    let ring = ring(four());
    close(ring.rtt_min_us(), 20.0);
    close(ring.latencies_us(), 18.0);
    close(ring.rtt_alone_us(), 38.0);
    close(ring.iops_max(), 125_000.0);
    for (depth, low, high) in [
        (1, 1e6 / 38.0, 50_000.0),
        (2, 2e6 / 38.0, 100_000.0),
        (3, 3e6 / 38.0, 125_000.0),
        (9, 125_000.0, 125_000.0),
    ] {
        let band = ring.band(depth).unwrap();
        close(band.low, low);
        close(band.high, high);
    }
    // The knee: a busy bottleneck does not pay its own latency.
    close(ring.knee(), (20.0 + 14.0) / 8.0);
}

#[test]
fn where_order_is_not_determined_only_one_operation_is_sure_to_move() {
    // Client and server on one CPU, their stages not next to each other; and a softirq that interrupts.
    let mut apart = four();
    apart[1] = apart[1].clone().on("cpu");
    apart[3] = apart[3].clone().on("cpu");
    close(ring(apart.clone()).band(8).unwrap().low, 1e6 / 38.0);
    let mut interrupted = four();
    interrupted[1].interrupt = true;
    close(ring(interrupted).band(8).unwrap().low, 1e6 / 38.0);
    // A pacer's spacing is no part of the way, but one operation after another has to wait for it.
    apart[0] = Stage::pacer("W1", 30.0);
    let paced = ring(apart);
    close(paced.rtt_alone_us(), 35.0);
    close(paced.band(8).unwrap().low, 1e6 / 65.0);
    close(paced.band(8).unwrap().high, 1e6 / 30.0);
}

#[test]
fn work_of_one_resource_adds_up_and_the_most_of_it_limits() {
    let mut stages = four();
    stages[0] = stages[0].clone().on("server");
    stages[1] = stages[1].clone().on("server");
    let ring = ring(stages);
    let loads = ring.loads();
    let names: Vec<(&str, &str)> = loads.iter().map(|l| (l.resource.as_str(), l.stages.as_str())).collect();
    assert_eq!(names, [("server", "W1+SP"), ("W2", "W2"), ("CP", "CP")]);
    close(ring.tpt_min_us(), 9.0);
    let busy: Vec<f64> = ring.utilisation(1e6 / 18.0).into_iter().map(|u| u.share).collect();
    [0.5, 5.0 / 18.0, 6.0 / 18.0].into_iter().zip(busy).for_each(|(expected, share)| close(share, expected));
    // Of equal ones the first is named.
    let equal = Ring::new(vec![Stage::own("A", 3.0, 0.0), Stage::own("B", 3.0, 0.0)]).unwrap();
    assert_eq!(equal.bottleneck().stages, "A");
}

#[test]
fn a_merged_stage_is_known_as_well_as_its_parts_together() {
    let mut stages = four();
    stages[1] = Stage::own("SI", 8.0, 4.0).on("server").known_within(0.3, 0.6);
    stages.insert(2, Stage::own("SP", 2.0, 1.0).on("server").known_within(0.4, 0.8));
    let merged = ring(stages.clone()).merged().unwrap();
    let both = &merged.stages()[1];
    assert_eq!((both.name.as_str(), both.interrupt), ("SI+SP", false));
    close(both.service_us, 10.0);
    close(both.start_latency_us, 5.0);
    // Independent uncertainties add in quadrature.
    close(both.service_within_us, 0.5);
    close(both.latency_within_us, 1.0);
    stages[2].interrupt = true;
    assert!(ring(stages).merged().unwrap().stages()[1].interrupt);
    // A pacer is merged with nothing: its spacing is no work.
    let mut paced = four();
    paced[1] = Stage { paced: true, ..Stage::own("T", 8.0, 0.0).on("x") };
    paced[2] = paced[2].clone().on("x");
    assert_eq!(ring(paced).merged(), None);
    // One stage stays one.
    let alone = ring(vec![Stage::own("SP", 1.0, 0.0)]);
    assert_eq!(alone.merged(), Some(alone.clone()));
}

#[test]
fn a_ring_is_uncertain_when_any_of_its_times_is() {
    let exact = ring(four());
    assert!(!exact.is_uncertain());
    for (service, latency) in [(0.5, 0.0), (0.0, 0.5)] {
        let mut stages = four();
        stages[2] = stages[2].clone().known_within(service, latency);
        assert!(ring(stages).is_uncertain(), "{service} {latency}");
    }
    let mut stages = four();
    stages[1] = stages[1].clone().known_within(0.5, 5.0);
    let ring = ring(stages);
    let ends = [model::Edge::Slow, model::Edge::Fast].map(|edge| {
        let edge = ring.at_edge(edge);
        (edge.stages()[1].service_us, edge.stages()[1].start_latency_us)
    });
    // No time is below zero, however badly it is known.
    assert_eq!(ends, [(8.5, 9.0), (7.5, 0.0)]);
}

#[test]
fn both_conditions_of_the_paper_are_the_knee() {
    // [1]: QD >= (CL + RTTmin + SL) / W2; [2]: QD >= (CL + RTTmin) / SP.
    close(queue_depth_network_bound(23.7, 30.8, 16.7, 5.2), 71.2 / 5.2);
    close(queue_depth_cpu_bound(23.7, 30.8, 15.9), 54.5 / 15.9);
    let texts = [Bound::Network, Bound::ServerCpu, Bound::ClientCpu].map(Bound::text);
    assert_eq!(texts, ["network bound", "CPU bound (server)", "CPU bound (client)"]);
}

#[test]
fn nagle_waits_for_a_full_packet_or_for_the_ack() {
    // SN <= SP * (n - 1), or CL + RTTmin - 2 SP where the ACK comes first: SP > (CL + RTTmin) / (n + 1).
    let full_first = NagleDelay::limits(10.0, 20.0, 30.0, 3.0);
    assert_eq!((full_first.until_full_us, full_first.until_ack_us), (20.0, None));
    assert_eq!(full_first.sn_max_us(), 20.0);
    let ack_first = NagleDelay::limits(10.0, 20.0, 30.0, 5.0);
    assert_eq!((ack_first.until_full_us, ack_first.until_ack_us), (40.0, Some(30.0)));
    assert_eq!(ack_first.sn_max_us(), 30.0);
    let edge = NagleDelay::limits(10.0, 20.0, 30.0, 4.0);
    assert_eq!(edge.until_ack_us, None, "at the very moment the packet is full");
    // A response that fills its packet waits for nothing; nor does one whose ACK is there already.
    assert_eq!(NagleDelay::limits(10.0, 20.0, 30.0, 0.5).sn_max_us(), 0.0);
    assert_eq!(NagleDelay::limits(40.0, 20.0, 30.0, 5.0).until_ack_us, Some(0.0));
    // [3], and one delayed ACK for each round.
    close(backlog_cpu_bound(20.0, 30.0, 10.0, 15.0), 3.0);
    close(iops_delayed_ack(4, 40_000.0), 100.0);
}

#[test]
fn merging_does_not_depend_on_where_the_ring_is_cut() {
    let stage = |name: &str, resource: &str, service_us: f64, paced: bool| {
        let mut stage = Stage::own(name, service_us, 0.0).on(resource);
        stage.paced = paced;
        stage
    };
    let all = [stage("SP", "x", 10.0, false), stage("W", "w", 20.0, false), stage("T", "x", 5.0, true)];
    for turn in 0..3 {
        let mut stages = all.to_vec();
        stages.rotate_left(turn);
        // A token bucket's time is no part of a thread's work: these two stay apart, and the ring is none that merges.
        assert!(ring(stages).merged().is_none(), "{turn}");
    }
}

#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod every_option {
    use super::*;
    use model::extras::{Coalescing, Extras, Side, Slow};
    use model::preset::PRESETS;
    use model::setup::{AT_LIMIT, KNEE_MAX, Nagle, Setup};
    use proptest::prelude::*;
    use record::wire::{Link, Messages};

    /// The finite run of a computation: its end effects.
    const MEASURED: f64 = 0.005;

    fn lies_in_its_band(setup: &Setup, depth: u32) -> Result<(), TestCaseError> {
        let (band, outcome) = (setup.band(depth).unwrap(), setup.outcome(depth).unwrap());
        prop_assert!(band.low <= band.high, "{band:?}");
        prop_assert!(
            outcome.iops_low >= band.low * (1.0 - MEASURED),
            "{depth}: {outcome:?} {band:?} {setup:?}"
        );
        prop_assert!(
            outcome.iops_high <= band.high * (1.0 + MEASURED),
            "{depth}: {outcome:?} {band:?} {setup:?}"
        );
        Ok(())
    }

    /// At the knee the throughput is that of the deepest queue, and at half of it not.
    fn saturates_at_its_knee(setup: &Setup) -> Result<(), TestCaseError> {
        let outcome = |depth: u32| setup.outcome(depth.max(1)).unwrap();
        let (Some(knee), limit) = (setup.knee().unwrap(), outcome(KNEE_MAX).iops.value) else {
            return Ok(());
        };
        let at = |depth: f64| outcome(depth as u32).iops_low / limit;
        prop_assert!(limit <= setup.iops_max() * (1.0 + MEASURED), "{limit} {setup:?}");
        prop_assert!(
            at(knee.ceil()) >= AT_LIMIT - 0.005,
            "knee {knee}: {} of the limit, {setup:?}",
            at(knee.ceil())
        );
        for behind in [knee.ceil() + 1.0, (knee.ceil() * 2.0).min(KNEE_MAX.into())] {
            prop_assert!(
                at(behind) >= AT_LIMIT - 0.005,
                "knee {knee}: {} at {behind}, {setup:?}",
                at(behind)
            );
        }
        // Where operations pass or wait for each other, depths at the limit and below it may take turns before the knee.
        let is_steady = setup.ring.is_orderly()
            && !setup.extras.coalescing.is_on()
            && !setup.extras.slow.is_on()
            && setup.nagle.is_none()
            && setup.client_nagle.is_none();
        if is_steady && knee >= 4.0 {
            prop_assert!(
                at((knee / 2.0).floor()) < AT_LIMIT,
                "knee {knee}: saturated at half of it, {setup:?}"
            );
        }
        Ok(())
    }

    #[test]
    fn the_published_runs_lie_in_their_bands_and_saturate_at_their_knees() {
        for preset in PRESETS {
            let setup = preset.setup().unwrap();
            for depth in [1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 20, 24, 32, 48, 64, 128, 256] {
                lies_in_its_band(&setup, depth).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
            }
            saturates_at_its_knee(&setup).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        }
    }

    fn nagle() -> impl Strategy<Value = Option<Nagle>> {
        let on = (1_u32..3, 100.0_f64..50_000.0, any::<bool>()).prop_map(
            |(sends, ack_delay_us, flushes_when_idle)| Nagle { sends, ack_delay_us, flushes_when_idle },
        );
        prop_oneof![2 => Just(None), 1 => on.prop_map(Some)]
    }

    fn extras() -> impl Strategy<Value = Extras> {
        let think = prop_oneof![Just(0.0), 1.0_f64..500.0];
        let slow = prop_oneof![
            Just(Slow::default()),
            (1_u32..20, 1.0_f64..400.0).prop_map(|(every, extra_us)| Slow { every, extra_us })
        ];
        let side = prop_oneof![Just(Side::Client), Just(Side::Server), Just(Side::Both)];
        let coalescing = prop_oneof![
            Just(Coalescing::default()),
            (1.0_f64..200.0, 2_u32..20, side).prop_map(|(hold_us, packets, side)| Coalescing {
                hold_us,
                packets,
                side
            })
        ];
        (think, slow, coalescing).prop_map(|(think_us, slow, coalescing)| Extras {
            think_us,
            slow,
            coalescing,
            ..Extras::default()
        })
    }

    /// Rings of four to six stages on shared and own CPUs, with every option.
    fn setups() -> impl Strategy<Value = Setup> {
        let side = (0.5_f64..20.0, 0.5_f64..20.0, 0.0_f64..100.0, 0.0_f64..1.0, 0.0_f64..1.0, 0_u8..3);
        let wire = (0.0_f64..150.0, any::<bool>());
        (side.clone(), side, wire, nagle(), nagle(), extras(), 1_u32..4, 1_u64..20_000).prop_map(
            |(server, client, (latency, paced), nagle, client_nagle, extras, sessions, block)| {
                let link = Link::ethernet(1_000_000_000, 9000);
                let messages = Messages::read(block);
                let of_wire = |name: &str, bytes: u64| {
                    let us = link.wire().own_packets_us(bytes);
                    if paced { Stage::pacer(name, us) } else { Stage::own(name, us, latency) }
                };
                let side =
                    |soft: &str, thread: &str, cpu: &str, (softirq, work, start, received, sent, kind)| {
                        let thread = |us: f64| Stage::own(thread, us, start).per_packet(0.0, us * sent);
                        match kind {
                            0 => vec![
                                Stage::own(soft, softirq + work, start)
                                    .per_packet(softirq * received, work * sent)
                                    .on(cpu),
                            ],
                            1 => vec![
                                Stage {
                                    interrupt: true,
                                    ..Stage::own(soft, softirq, start / 2.0)
                                        .per_packet(softirq * received, 0.0)
                                        .on(cpu)
                                },
                                thread(work).on(cpu),
                            ],
                            _ => vec![
                                Stage::own(soft, softirq, start).per_packet(softirq * received, 0.0),
                                thread(work),
                            ],
                        }
                    };
                let mut stages = vec![of_wire("W1", messages.request_bytes())];
                stages.extend(side("SI", "SP", "server CPU", server));
                stages.push(of_wire("W2", messages.response_bytes()));
                stages.extend(side("CI", "CP", "client CPU", client));
                let ring = Ring::new(stages).unwrap();
                Setup { nagle, client_nagle, extras, sessions, ..Setup::new(ring, link, messages) }
            },
        )
    }

    // 10 000 setups, in two tests that run beside each other.
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]
        #[test]
        fn every_setup_lies_in_its_band_at_low_depth(setup in setups(), depth in 1_u32..6) {
            lies_in_its_band(&setup, depth)?;
        }

        #[test]
        fn every_setup_lies_in_its_band_at_depth(setup in setups(), depth in 6_u32..24) {
            lies_in_its_band(&setup, depth)?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn every_setup_saturates_at_its_knee(setup in setups()) {
            saturates_at_its_knee(&Setup { sessions: 1, ..setup })?;
        }
    }
}
