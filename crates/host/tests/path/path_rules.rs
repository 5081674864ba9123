//! Rules about the path, on facts.

use host::facts::path::{DatagramFacts, SegmentFacts};
use host::finding::Severity;

use crate::hosts::{debian_server, path};
use crate::{changes, ids, only};

#[test]
fn buffers_below_bandwidth_times_delay_limit_the_connection() {
    let mut facts = debian_server();
    facts.initiators.clear();
    // 1 Gb/s and 10 ms need 1.25 MB.
    facts.path = Some(path(Some(1_000_000_000), 1500, 10_000.0));
    let set = |facts: &mut host::facts::Facts, name: &str, max: u64| {
        facts.tcp.sysctls.insert(name.to_owned(), format!("4096 16384 {max}"));
    };
    set(&mut facts, "net.ipv4.tcp_rmem", 1_250_000);
    assert!(!ids(&facts).contains(&"receive-buffer-below-bdp".to_owned()));
    set(&mut facts, "net.ipv4.tcp_rmem", 625_000);
    let found = only(&facts, "receive-buffer-below-bdp");
    assert_eq!(found.severity, Severity::Slow);
    assert_eq!(found.cost.and_then(|cost| cost.bits_per_second_at_most), Some(5e8));
    assert_eq!(
        found.measured,
        "net.ipv4.tcp_rmem allows 625000 bytes; 1.00 Gb/s with a round trip of 10.0 ms needs 1250000"
    );
    assert!(found.why.contains("500.00 Mb/s instead of 1.00 Gb/s"), "{}", found.why);
    assert_eq!(changes(&found), ["net.ipv4.tcp_rmem = 4096 131072 4194304"]);
    assert_eq!(found.commands, ["sysctl -w net.ipv4.tcp_rmem='4096 131072 4194304'"]);
    set(&mut facts, "net.ipv4.tcp_wmem", 125_000);
    let found = only(&facts, "send-buffer-below-bdp");
    assert_eq!(found.cost.and_then(|cost| cost.bits_per_second_at_most), Some(1e8));
    assert_eq!(changes(&found), ["net.ipv4.tcp_wmem = 4096 131072 4194304"]);
    // The same buffers fill the same link on a short path, and a link without a rate says nothing.
    facts.path = Some(path(Some(1_000_000_000), 1500, 100.0));
    assert!(!ids(&facts).iter().any(|id| id.ends_with("below-bdp")), "{:?}", ids(&facts));
    facts.path = Some(path(None, 1500, 10_000.0));
    assert!(!ids(&facts).iter().any(|id| id.ends_with("below-bdp")), "{:?}", ids(&facts));
}

#[test]
fn the_remedy_of_a_long_path_ends_its_finding() {
    let mut facts = debian_server();
    facts.initiators.clear();
    for (bits, rtt_us) in [(10_000_000_000, 20_000.0), (25_000_000_000, 90_000.0), (1_000_000_000, 250_000.0)]
    {
        facts.path = Some(path(Some(bits), 1500, rtt_us));
        for id in ["receive-buffer-below-bdp", "send-buffer-below-bdp"] {
            let mut mended = facts.clone();
            for change in only(&facts, id).changes {
                mended.tcp.sysctls.insert(change.setting.to_string(), change.value);
            }
            assert!(!ids(&mended).contains(&id.to_owned()), "{id} {bits} {rtt_us}");
        }
    }
}

#[test]
fn reno_is_named_on_a_long_path_alone() {
    let mut facts = debian_server();
    facts.initiators.clear();
    facts.tcp.sysctls.insert("net.ipv4.tcp_congestion_control".to_owned(), "reno".to_owned());
    assert_eq!(ids(&facts), [""; 0]);
    // 833 segments of 1500 bytes; half of them, one in 100 ms each.
    facts.path = Some(path(Some(100_000_000), 1500, 100_000.0));
    let found = only(&facts, "reno-on-long-path");
    assert!(found.measured.ends_with("made up for after 41.7 s"), "{}", found.measured);
    assert_eq!(changes(&found), ["net.ipv4.tcp_congestion_control = cubic"]);
}

#[test]
fn segments_decide_about_a_black_hole_before_datagrams() {
    let mut facts = debian_server();
    let path = facts.path.as_mut().expect("a path");
    let hole = DatagramFacts {
        largest_answered_bytes: Some(1280),
        smallest_lost_bytes: Some(1281),
        announced_mtu_bytes: None,
    };
    path.datagrams = Some(hole);
    // TCP's full segments arrive: a lowered MSS.
    assert_eq!(ids(&facts), [""; 0]);
    facts.path.as_mut().expect("a path").segments = None;
    let found = only(&facts, "mtu-black-hole");
    assert!(
        found.measured.starts_with("datagrams of up to 1280 bytes arrive, larger ones"),
        "{}",
        found.measured
    );
    let path = facts.path.as_mut().expect("a path");
    path.segments = Some(SegmentFacts {
        full_bytes: 1500,
        largest_delivered_bytes: Some(1000),
        smallest_lost_bytes: Some(1500),
    });
    let found = only(&facts, "mtu-black-hole");
    assert!(
        found.measured.starts_with("TCP segments of up to 1000 bytes arrive, those of 1500 vanish"),
        "{}",
        found.measured
    );
    // Nothing passes at all: that is no matter of size.
    path_of(&mut facts).segments = Some(SegmentFacts {
        full_bytes: 1500,
        largest_delivered_bytes: None,
        smallest_lost_bytes: Some(552),
    });
    assert_eq!(ids(&facts), [""; 0]);
}

fn path_of(facts: &mut host::facts::Facts) -> &mut host::facts::path::PathFacts {
    facts.path.as_mut().expect("a path")
}

#[test]
fn a_kernel_that_searches_itself_is_not_told_to() {
    let mut facts = debian_server();
    path_of(&mut facts).segments = Some(SegmentFacts {
        full_bytes: 1500,
        largest_delivered_bytes: Some(1280),
        smallest_lost_bytes: Some(1281),
    });
    assert_eq!(changes(&only(&facts, "mtu-black-hole")), ["net.ipv4.tcp_mtu_probing = 1"]);
    facts.tcp.sysctls.insert("net.ipv4.tcp_mtu_probing".to_owned(), "1".to_owned());
    assert_eq!(changes(&only(&facts, "mtu-black-hole")), [""; 0]);
}

#[test]
fn small_differences_of_the_mtu_are_no_jumbo_frames() {
    let mut facts = debian_server();
    let path = path_of(&mut facts);
    path.interface_mtu_bytes = Some(9000);
    path.segments = Some(SegmentFacts {
        full_bytes: 8900,
        largest_delivered_bytes: Some(8900),
        smallest_lost_bytes: None,
    });
    path.datagrams = None;
    assert_eq!(ids(&facts), [""; 0]);
    path_of(&mut facts).segments = Some(SegmentFacts {
        full_bytes: 9000,
        largest_delivered_bytes: Some(1500),
        smallest_lost_bytes: None,
    });
    assert_eq!(
        only(&facts, "path-mtu-below-jumbo").measured,
        "the interface's MTU is 9000, the path carries 1500"
    );
}
