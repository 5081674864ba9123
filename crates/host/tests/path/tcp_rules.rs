//! Rules about TCP's settings and counters, on facts.

use host::facts::Facts;
use host::facts::tcp::RouteOptions;
use host::finding::Severity;

use crate::hosts::{debian_server, path, storage_server};
use crate::{changes, ids, only};

fn with(settings: &[(&str, &str)]) -> Facts {
    let mut facts = debian_server();
    facts.initiators.clear();
    for (name, value) in settings {
        facts.tcp.sysctls.insert((*name).to_owned(), (*value).to_owned());
    }
    facts
}

fn moving(counters: &[(&str, u64)]) -> Facts {
    let mut facts = with(&[]);
    facts.tcp.moved = counters.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
    facts
}

#[test]
fn settings_that_slow_every_connection_are_named_with_their_remedy() {
    let cases = [
        ("net.ipv4.tcp_window_scaling", "0", "tcp-window-scaling-off", "1"),
        ("net.ipv4.tcp_moderate_rcvbuf", "0", "receive-autotuning-off", "1"),
        ("net.ipv4.tcp_sack", "0", "tcp-sack-off", "1"),
        ("net.ipv4.tcp_timestamps", "0", "tcp-timestamps-off", "1"),
        ("net.ipv4.tcp_rto_min_us", "1000000", "rto-min-high", "200000"),
        ("net.ipv4.tcp_notsent_lowat", "1", "notsent-lowat-small", "131072"),
    ];
    for (name, value, id, better) in cases {
        let facts = with(&[(name, value)]);
        let found = only(&facts, id);
        assert_eq!(ids(&facts), [id]);
        assert_eq!(changes(&found), [format!("{name} = {better}")]);
        assert_eq!(found.commands, [format!("sysctl -w {name}='{better}'")]);
        assert!(found.measured.contains(name) && found.measured.contains(value), "{}", found.measured);
        assert_eq!(ids(&with(&[(name, better)])), [""; 0]);
    }
    // The kernel's own default is no finding.
    assert_eq!(ids(&with(&[("net.ipv4.tcp_rto_min_us", "200000")])), [""; 0]);
}

#[test]
fn what_a_window_carries_follows_from_the_round_trip_time() {
    let most = |id: &str, facts: &Facts| only(facts, id).cost.and_then(|cost| cost.bits_per_second_at_most);
    let mut facts = with(&[("net.ipv4.tcp_window_scaling", "0"), ("net.ipv4.tcp_moderate_rcvbuf", "0")]);
    facts.path = Some(path(None, 1500, 1000.0));
    assert_eq!(most("tcp-window-scaling-off", &facts), Some(65_535.0 * 8.0 * 1000.0));
    assert_eq!(most("receive-autotuning-off", &facts), Some(131_072.0 * 8.0 * 1000.0));
    facts.path = None;
    assert_eq!(only(&facts, "tcp-window-scaling-off").cost, None);
    let rto = only(&with(&[("net.ipv4.tcp_rto_min_us", "500000")]), "rto-min-high");
    assert_eq!(rto.cost.and_then(|cost| cost.us_per_round_trip), Some(500_000.0));
    assert!(rto.measured.ends_with("500.0 ms"), "{}", rto.measured);
}

#[test]
fn buffers_below_the_kernels_choice_for_this_memory_are_noted_without_a_path() {
    let mut facts =
        with(&[("net.ipv4.tcp_rmem", "4096 8192 262144"), ("net.ipv4.tcp_wmem", "4096 8192 262144")]);
    facts.path = None;
    let small = |facts: &Facts, name: &str| {
        let all = host::check::findings(facts);
        all.into_iter().find(|f| f.id == "small-buffers" && f.subject == name).expect("a finding")
    };
    let found = small(&facts, "net.ipv4.tcp_rmem");
    assert_eq!(found.severity, Severity::Note);
    assert_eq!(
        found.measured,
        "net.ipv4.tcp_rmem allows 262144 bytes; this kernel's default is 6291456; net.ipv4.tcp_rmem starts at 8192 bytes; the kernel's \
         default is 131072"
    );
    assert!(
        found.why.contains("1 Gb/s is reached up to a round trip time of 2.1 ms, 10 Gb/s up to 209.7 us"),
        "{}",
        found.why
    );
    assert_eq!(changes(&found), ["net.ipv4.tcp_rmem = 4096 131072 6291456"]);
    assert_eq!(changes(&small(&facts, "net.ipv4.tcp_wmem")), ["net.ipv4.tcp_wmem = 4096 16384 4194304"]);
    // A machine with 32 MiB has such limits by default.
    facts.tcp.sysctls.insert("net.ipv4.tcp_rmem".to_owned(), "4096 131072 262144".to_owned());
    facts.tcp.memory_bytes = Some(32 << 20);
    assert_eq!(ids(&facts), [""; 0]);
    // A short path needs no more.
    facts.tcp.memory_bytes = Some(32 << 30);
    facts.path = Some(path(Some(1_000_000_000), 1500, 200.0));
    assert_eq!(ids(&facts), [""; 0]);
}

#[test]
fn a_small_start_of_buffers_is_found_beside_a_large_limit_and_mended() {
    let of = |name: &str, value: &str| {
        let all = host::check::findings(&with(&[(name, value)]));
        all.into_iter()
            .map(|found| (found.id.clone(), found.measured.clone(), changes(&found)))
            .collect::<Vec<_>>()
    };
    let small = |measured: &str, change: &str| {
        vec![("small-buffers".to_owned(), measured.to_owned(), vec![change.to_owned()])]
    };
    let (rmem, wmem) = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem");
    assert_eq!(
        of(rmem, "4096 4096 6291456"),
        small(
            "net.ipv4.tcp_rmem starts at 4096 bytes; the kernel's default is 131072",
            "net.ipv4.tcp_rmem = 4096 131072 6291456"
        )
    );
    assert_eq!(
        of(wmem, "4096 4096 4194304"),
        small(
            "net.ipv4.tcp_wmem starts at 4096 bytes; the kernel's default is 16384",
            "net.ipv4.tcp_wmem = 4096 16384 4194304"
        )
    );
    // Half the default is the limit; 87380 was the default until Linux 4.19.
    assert_eq!((of(rmem, "4096 65535 6291456").len(), of(rmem, "4096 65536 6291456").len()), (1, 0));
    assert_eq!((of(wmem, "4096 8191 4194304").len(), of(wmem, "4096 8192 4194304").len()), (1, 0));
    for (name, healthy) in [
        (rmem, "4096 131072 6291456"),
        (rmem, "4096 87380 6291456"),
        (rmem, "4096 131072 33554432"),
        (wmem, "4096 16384 4194304"),
    ] {
        assert_eq!(of(name, healthy), [], "{name} {healthy}");
    }
}

#[test]
fn one_finding_at_a_time_gives_a_buffer_its_sizes() {
    // Both the start and the limit are too small for this path: two findings with different values could not be applied together.
    let mut facts = with(&[("net.ipv4.tcp_rmem", "4096 4096 65536")]);
    facts.path = Some(path(Some(1_000_000_000), 1500, 10_000.0));
    let all = host::check::findings(&facts);
    let of_rmem: Vec<Vec<String>> =
        all.iter().map(changes).filter(|all| all.iter().any(|change| change.contains("tcp_rmem"))).collect();
    assert_eq!(of_rmem, [["net.ipv4.tcp_rmem = 4096 131072 4194304"]]);
    // The limit is enough for a short path, the start is not.
    facts.path = Some(path(Some(1_000_000_000), 1500, 100.0));
    assert_eq!(changes(&only(&facts, "small-buffers")), ["net.ipv4.tcp_rmem = 4096 131072 131072"]);
}

fn with_route(route: RouteOptions) -> Facts {
    let mut facts = with(&[]);
    facts.tcp.routes = vec![RouteOptions { route: "10.0.0.0/24 dev eth0".to_owned(), ..route }];
    facts
}

#[test]
fn options_of_routes_that_slow_are_named() {
    let found = only(
        &with_route(RouteOptions { rto_min_ms: Some(1000), ..RouteOptions::default() }),
        "route-rto-min-high",
    );
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(1e6));
    assert_eq!(changes(&found), ["rto_min of the route 10.0.0.0/24 dev eth0 = "]);
    let found = only(
        &with_route(RouteOptions { initial_window_segments: Some(1), ..RouteOptions::default() }),
        "route-initial-window-small",
    );
    assert_eq!(found.measured, "initcwnd 1");
    let window = |bytes| RouteOptions { window_bytes: Some(bytes), ..RouteOptions::default() };
    // 1 Gb/s and 180 us need 22500 bytes.
    let found = only(&with_route(window(11_250)), "route-window-small");
    assert_eq!(found.cost.and_then(|cost| cost.bits_per_second_at_most), Some(5e8));
    assert_eq!(ids(&with_route(window(22_500))), [""; 0]);
    let healthy =
        RouteOptions { rto_min_ms: Some(200), initial_window_segments: Some(10), ..RouteOptions::default() };
    assert_eq!(ids(&with_route(healthy)), [""; 0]);
}

#[test]
fn a_hasty_rto_is_named_where_it_sends_twice() {
    let mut facts = storage_server();
    assert_eq!(ids(&facts), [""; 0]);
    facts.tcp.moved.insert("TCPSpuriousRTOs".to_owned(), 3);
    let found = only(&facts, "route-rto-min-low");
    assert_eq!(found.measured, "rto_min 5 ms; 3 spurious retransmissions in 2.0 s");
}

#[test]
fn queues_that_overflow_are_named() {
    let found = only(&moving(&[("ListenOverflows", 7), ("ListenDrops", 9)]), "accept-queue-full");
    assert_eq!(found.measured, "connections refused for a full queue: 9 in 2.0 s");
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(1e6));
    // The limit is the program's own, not the kernel's.
    assert_eq!(changes(&found), [""; 0]);
    let mut facts = moving(&[("ListenOverflows", 7)]);
    facts.tcp.sysctls.insert("net.core.somaxconn".to_owned(), "128".to_owned());
    assert_eq!(changes(&only(&facts, "accept-queue-full")), ["net.core.somaxconn = 4096"]);
}

#[test]
fn retransmissions_are_named_from_one_in_a_thousand() {
    let found =
        only(&moving(&[("OutSegs", 10_000), ("RetransSegs", 12), ("TCPTimeouts", 2)]), "retransmissions");
    assert_eq!(
        found.measured,
        "12 in 2.0 s of 10000 segments (0.12 %) retransmitted, 2 timeouts, 0 needless (D-SACK)"
    );
    assert_eq!(found.cost.and_then(|cost| cost.us_per_round_trip), Some(200_000.0));
    let quick = only(&moving(&[("OutSegs", 10_000), ("RetransSegs", 12)]), "retransmissions");
    assert_eq!(quick.cost, None);
    assert_eq!(ids(&moving(&[("OutSegs", 10_000), ("RetransSegs", 9)])), [""; 0]);
    assert_eq!(ids(&moving(&[("OutSegs", 100_000), ("RetransSegs", 99)])), [""; 0]);
    // Hosts that are down.
    assert_eq!(ids(&moving(&[("OutSegs", 100), ("RetransSegs", 50), ("TCPSynRetrans", 45)])), [""; 0]);
}

#[test]
fn needless_retransmissions_are_told_from_losses() {
    let counters = [("OutSegs", 1000), ("RetransSegs", 40), ("TCPDSACKRecv", 30)];
    assert_eq!(ids(&moving(&counters)), ["tcp-spurious-retransmissions"]);
    let counters = [("OutSegs", 1000), ("RetransSegs", 40), ("TCPDSACKRecv", 20)];
    assert_eq!(ids(&moving(&counters)), ["retransmissions"]);
}

#[test]
fn buffers_and_memory_that_run_out_are_named() {
    let found = only(&moving(&[("PruneCalled", 3), ("TCPRcvQDrop", 2)]), "receive-buffer-full");
    assert_eq!(
        (found.severity, found.measured.as_str()),
        (Severity::Slow, "receive buffers cleaned up: 5 in 2.0 s, of which 2 dropped data")
    );
    assert_eq!(only(&moving(&[("TCPRcvCollapsed", 3)]), "receive-buffer-full").severity, Severity::Note);
    let found = only(&moving(&[("TCPBacklogDrop", 4)]), "socket-backlog-drops");
    assert_eq!(found.measured, "segments dropped while the program held its socket: 4 in 2.0 s");
    let found = only(&moving(&[("TCPMemoryPressures", 1)]), "tcp-memory-pressure");
    assert_eq!(
        (found.severity, found.measured.as_str()),
        (Severity::Broken, "TCP ran short of memory: 1 in 2.0 s; net.ipv4.tcp_mem = unknown pages")
    );
}

#[test]
fn autocorking_is_noted_where_it_holds_many_writes() {
    let found = only(&moving(&[("TCPAutoCorking", 500), ("TCPOrigDataSent", 1000)]), "autocorking-holds");
    assert_eq!(found.severity, Severity::Note);
    assert_eq!(
        found.measured,
        "small writes held back by autocorking: 500 in 2.0 s, 1000 segments of data sent"
    );
    assert_eq!(changes(&found), ["net.ipv4.tcp_autocorking = 0"]);
    assert_eq!(ids(&moving(&[("TCPAutoCorking", 500), ("TCPOrigDataSent", 10_000)])), [""; 0]);
    assert_eq!(ids(&moving(&[("TCPAutoCorking", 99), ("TCPOrigDataSent", 100)])), [""; 0]);
}
