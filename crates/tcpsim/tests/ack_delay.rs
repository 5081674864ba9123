//! The delayed acknowledgement of each side, set apart from its TCP's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tcpsim::preset::Preset;
use tcpsim::{RunResult, Setup, simulate};

fn run(preset: &str, settings: &[&str]) -> RunResult {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let setup = Setup::read_with(Preset::named(preset).unwrap().text, &settings).unwrap();
    simulate(&Setup { operations: 60, ..setup }, &mut ())
}

/// "This would be two IOPS with the maximum allowable ACK delay of 500 ms" (the paper); Linux's timer adds a tick.
#[test]
fn two_sends_with_the_longest_delay_give_two_operations_a_second() {
    for preset in ["two-sends", "windows-client"] {
        let run = run(preset, &["client.ack-delay=500ms"]);
        assert!((1.95..=2.0).contains(&run.iops), "{preset}: {}", run.iops);
        assert_eq!(run.server.sent_again, 0, "{preset}: nothing is lost");
    }
}

/// Linux's own time-out of 200 ms ends before a delay of 500 ms: the header is sent again, and its duplicate is acknowledged at once.
/// By default the sender's time-out is that of RFC 6298, which delayed acknowledgements do not exceed.
#[test]
fn a_time_out_shorter_than_the_peer_s_delay_repeats_every_header() {
    let run = run("two-sends", &["client.ack-delay=500ms", "server.rto-min=200ms"]);
    assert!((4.7..4.9).contains(&run.iops) && run.server.sent_again >= 59, "{run:?}");
    let setup = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Setup::read_with("", &settings).unwrap()
    };
    let rto_min = |setup: &Setup| setup.server.profile_towards(&setup.client).rto_min_ns;
    assert_eq!(rto_min(&setup(&[])), 200_000_000);
    assert_eq!(rto_min(&setup(&["client.ack-delay=200ms"])), 200_000_000);
    assert_eq!(rto_min(&setup(&["client.ack-delay-max=201ms"])), 1_000_000_000);
    assert_eq!(rto_min(&setup(&["server.ack-delay=500ms"])), 200_000_000, "its own delay is not the peer's");
}

/// The rate follows the delay of the side that owes the acknowledgement, and no other.
#[test]
fn the_delay_is_that_of_the_side_that_owes_the_acknowledgement() {
    for (ms, least, most) in [(10, 10.0, 18.5), (40, 40.0, 48.5), (100, 100.0, 108.5), (200, 200.0, 208.5)] {
        let setting = format!("client.ack-delay={ms}ms");
        let round_trip_ms = run("two-sends", &[&setting]).rtt_us.p50 / 1e3;
        assert!((least..most).contains(&round_trip_ms), "{ms}: {round_trip_ms}");
        let other = format!("server.ack-delay={ms}ms");
        let round_trip_ms = run("two-sends", &[&other]).rtt_us.p50 / 1e3;
        assert!((43.9..44.1).contains(&round_trip_ms), "the server owes none, {ms}: {round_trip_ms}");
    }
    // The request is in two sends: the server owes.
    let round_trip_ms = run("post-linux", &["server.ack-delay=120ms"]).rtt_us.p50 / 1e3;
    assert!((120.0..128.5).contains(&round_trip_ms), "{round_trip_ms}");
    let round_trip_ms = run("post-linux", &["client.ack-delay=120ms"]).rtt_us.p50 / 1e3;
    assert!((43.9..44.1).contains(&round_trip_ms), "{round_trip_ms}");
}

/// A profile's values are the default.
#[test]
fn setting_a_profile_s_own_delay_changes_nothing() {
    let own = run("two-sends", &[]);
    assert_eq!(run("two-sends", &["client.ack-delay=40ms", "client.ack-delay-max=200ms"]), own);
    let windows = run("windows-client", &[]);
    assert_eq!(run("windows-client", &["client.ack-delay=40ms"]), windows);
}

#[test]
fn impossible_delays_are_rejected_with_the_key() {
    let error = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Setup::read_with("", &settings).unwrap_err().to_string()
    };
    for (settings, why) in [
        (&["client.ack-delay=501ms"][..], "client: ack-delay and ack-delay-max are at most 500 ms"),
        (&["server.ack-delay-max=2s"], "server: ack-delay and ack-delay-max are at most 500 ms"),
        (&["server.ack-delay-max=20ms"], "ack-delay-max of 20 ms is below ack-delay, 40 ms"),
        (&["client.ack-delay=90ms", "client.ack-delay-max=80ms"], "80 ms is below ack-delay, 90 ms"),
        (&["client.tcp=freebsd", "client.ack-delay-max=90ms"], "freebsd has one delay"),
        (&["client.ack-delay=40"], "40"),
        (&["client.rto-min=0ms"], "client: rto-min is 1 ms to 60 s"),
        (&["server.rto-min=61s"], "server: rto-min is 1 ms to 60 s"),
    ] {
        let error = error(settings);
        assert!(error.contains(why), "{settings:?}: {error}");
    }
    // A longer shortest delay raises the longest with it.
    let setup = Setup::read_with("", &["client.ack-delay=300ms".to_owned()]).unwrap();
    let profile = setup.client.profile();
    assert_eq!((profile.delay_min_ns, profile.delay_max_ns), (300_000_000, 300_000_000));
}
