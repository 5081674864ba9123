//! Rules about counters: those that moved while the check watched, and totals that are large beside the packets received.

use netlink::ethtool::Duplex;
use netlink::route::Counters;

use super::{Partner, finding, remedy, within};
use crate::change::{Change, Setting};
use crate::check::shell::word;
use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::finding::{Finding, Severity};

/// Damaged frames of all frames that a link within its specification stays below: a bit error rate of 1e-12 damages one frame of
/// 1500 bytes in 80 million.
const DAMAGED_SHARE: f64 = 1e-5;

/// Lost frames of all frames that are worth knowing.
const LOST_SHARE: f64 = 1e-5;

/// Totals below which a share means nothing: they may come from one event, such as plugging in.
const FEW: u64 = 100;

/// Packets dropped of packets received that are more than frames of protocols that nobody here takes.
const DROPPED_SHARE: f64 = 0.01;

/// Packets dropped before sending, of those that were to be sent, that cost time: as for segments that are sent again, which is what
/// becomes of them. TCP at one loss in a thousand still fills a window of some 40 segments (1.2 / sqrt(p)); a queue that drops less is
/// how it finds the rate of a busy interface.
const UNSENT_SHARE: f64 = 0.001;

/// Interfaces without a queue of their own, which hand packets to another one: what they drop has no destination or is too long, such
/// as the kernel's own multicast on a vxlan without peers. The queue below counts for itself.
const TUNNELS: [&str; 18] = [
    "amt",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "gtp",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "sit",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "xfrm",
    "bareudp",
];

/// Dropped packets below which their share means nothing.
const FEW_DROPS: u64 = 10;

/// The name of all findings about damaged frames: one bad cable moves several of the counters.
const LINK_ERRORS: &str = "link-errors";

/// Collisions after the time in which the whole medium has heard the frame.
pub(super) fn late_collisions(link: &LinkFacts, facts: &Facts) -> Option<Finding> {
    let moving = link.grew("tx_window_errors").max(link.grew("standard_late_collisions"));
    let total = total(link, |counters| counters.tx_window_errors);
    let total = total.max(link.statistics.and_then(|standard| standard.late_collisions).unwrap_or_default());
    let is_half = link.modes.as_ref().is_some_and(|modes| modes.duplex == Some(Duplex::Half));
    if moving == 0 && !(total > 0 && is_half) {
        return None;
    }
    let measured = if moving > 0 {
        format!("{moving} late collisions{}", within(link))
    } else {
        format!("{total} late collisions so far, at half duplex")
    };
    let why = "A collision after the first 64 bytes means that the other side does not listen before it sends: it uses full duplex and \
               this side half. Each one loses a frame that TCP repeats after 200 ms or more.";
    let mut found = finding("duplex-mismatch", Severity::Broken, link, measured, why);
    found.commands =
        vec![format!("ethtool {}", word(link.name())), format!("ethtool -S {}", word(link.name()))];
    found.other_end = Some(remedy::late_collisions(link, &Partner::of(link, facts)));
    Some(found)
}

/// Frames that arrive damaged.
pub(super) fn crc_errors(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let moving = link.grew("rx_crc_errors").max(link.grew("standard_frame_check_sequence_errors"));
    let standard =
        link.statistics.and_then(|standard| standard.frame_check_sequence_errors).unwrap_or_default();
    let total = total(link, |counters| counters.rx_crc_errors).max(standard);
    let why = "Frames arrive with a wrong CRC and are dropped: a bad cable, plug or module, dirt on a fibre, or a duplex mismatch, \
               whose full-duplex side sees the other's broken-off frames so. TCP repeats what was lost and halves its rate.";
    damaged(link, &Damage { name: "CRC errors", moving, total, why })
}

/// Frames of no whole number of bytes.
pub(super) fn alignment_errors(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let moving = link.grew("rx_frame_errors").max(link.grew("standard_alignment_errors"));
    let standard = link.statistics.and_then(|standard| standard.alignment_errors).unwrap_or_default();
    let total = total(link, |counters| counters.rx_frame_errors).max(standard);
    let why = "Frames end within a byte and are dropped: on a link of 10 or 100 Mb/s the usual cause is a duplex mismatch, otherwise a \
               bad cable.";
    damaged(link, &Damage { name: "alignment errors", moving, total, why })
}

/// Symbols that no sender sends.
pub(super) fn symbol_errors(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let moving = link.grew("standard_symbol_errors");
    let total = link.statistics.and_then(|standard| standard.symbol_errors).unwrap_or_default();
    let why = "The transceiver receives symbols that are not part of its code: a bad cable, plug or module. Frames that contain them \
               are lost.";
    damaged(link, &Damage { name: "symbol errors", moving, total, why })
}

/// Blocks that forward error correction could not mend.
pub(super) fn fec_uncorrectable(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let moving = link.grew("fec_uncorrectable_blocks");
    let total = link.fec.as_ref().and_then(|fec| fec.uncorrectable_blocks).unwrap_or_default();
    let why = "Blocks have more errors than forward error correction mends, and each loses several frames: a bad cable or module, or \
               one that is too long for the FEC in use.";
    damaged(link, &Damage { name: "uncorrectable FEC blocks", moving, total, why })
}

struct Damage {
    name: &'static str,
    moving: u64,
    total: u64,
    why: &'static str,
}

fn damaged(link: &LinkFacts, damage: &Damage) -> Option<Finding> {
    let Damage { name, moving, total, why } = *damage;
    let received = received(link);
    let is_large = total >= FEW && total as f64 > received as f64 * DAMAGED_SHARE;
    let (severity, measured) = match moving {
        0 if !is_large => return None,
        0 => (Severity::Slow, format!("{total} {name} so far, {received} packets received")),
        _ => (Severity::Broken, format!("{moving} {name}{}", within(link))),
    };
    let mut found = finding(LINK_ERRORS, severity, link, measured, why);
    found.commands = vec![
        format!("ethtool -S {}", word(link.name())),
        format!("ethtool --cable-test {}", word(link.name())),
    ];
    found.other_end = Some("compare the port's counters; replace the cable, then the modules".to_owned());
    Some(found)
}

/// Frames sent without a carrier.
pub(super) fn carrier_errors(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let moving = link.grew("tx_carrier_errors").max(link.grew("standard_carrier_sense_errors"));
    if moving == 0 {
        return None;
    }
    let why = "The card lost the carrier while it sent: a bad cable or transceiver, or a duplex mismatch.";
    let mut found =
        finding(LINK_ERRORS, Severity::Broken, link, format!("{moving} carrier errors{}", within(link)), why);
    found.commands = vec![format!("ethtool --cable-test {}", word(link.name()))];
    Some(found)
}

/// Frames that the card received and had no buffer for.
pub(super) fn ring_overruns(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let names = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
    // Drivers count one loss in several of them.
    let moving = names.iter().map(|name| link.grew(name)).max().unwrap_or_default();
    let total = total(link, |counters| {
        counters.rx_missed_errors.max(counters.rx_fifo_errors).max(counters.rx_over_errors)
    });
    let received = received(link);
    let is_large = total >= FEW && total as f64 > received as f64 * LOST_SHARE;
    if moving == 0 && !is_large {
        return None;
    }
    let (severity, lost) = match moving {
        0 => (Severity::Slow, format!("{total} frames lost so far, {received} packets received")),
        _ => (Severity::Broken, format!("{moving} frames lost{}", within(link))),
    };
    let ring = link.rings.and_then(|rings| rings.rx);
    let room =
        ring.and_then(|ring| ring.max.filter(|max| *max > ring.current).map(|max| (ring.current, max)));
    let ring = match (room, ring) {
        (Some((current, max)), _) => format!("; the receive ring has {current} of {max} descriptors"),
        (None, Some(ring)) => format!("; the receive ring has its full {} descriptors", ring.current),
        (None, None) => String::new(),
    };
    let why = "Frames arrive in bursts faster than this host takes them from the card, and what exceeds the receive ring is lost. TCP \
               repeats it, often after 200 ms. A larger ring holds longer bursts; with a full one the processor is too slow or asleep.";
    let mut found = finding("ring-overruns", severity, link, format!("{lost}{ring}"), why);
    if let Some((_, max)) = room {
        found.commands = vec![format!("ethtool -G {} rx {max}", word(link.name()))];
        let interface = link.name().to_owned();
        found.changes = vec![Change {
            setting: Setting::Ring { interface, parameter: "rx".to_owned() },
            value: max.to_string(),
        }];
    } else {
        found.commands =
            vec![format!("ethtool -l {}", word(link.name())), "cat /proc/net/softnet_stat".to_owned()];
    }
    Some(found)
}

/// Packets that this host received and dropped.
pub(super) fn receive_drops(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let (dropped, received) = (link.grew("rx_dropped"), link.grew("rx_packets"));
    if dropped < FEW_DROPS || (dropped as f64) < received as f64 * DROPPED_SHARE {
        return None;
    }
    let why = "This host drops packets that the card delivered: for want of memory, or because their protocol or VLAN has no taker \
               here. The former loses data that TCP repeats; the latter is harmless.";
    let measured = format!("{dropped} of {received} received packets dropped{}", within(link));
    let mut found = finding("receive-drops", Severity::Slow, link, measured, why);
    found.commands = vec![
        format!("ip -s -s link show dev {}", word(link.name())),
        "cat /proc/net/softnet_stat".to_owned(),
        "perf trace --event skb:kfree_skb --max-events 100".to_owned(),
    ];
    Some(found)
}

/// Packets that this host dropped before they were sent.
pub(super) fn transmit_drops(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let dropped = link.grew("tx_dropped");
    let offered = link.grew("tx_packets").saturating_add(dropped);
    let is_tunnel = link.link.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind));
    let is_much = dropped >= FEW_DROPS && dropped as f64 >= offered as f64 * UNSENT_SHARE;
    if !is_much || is_tunnel || !link.has_link() {
        return None;
    }
    let why = "Packets are dropped before the wire: the interface's queue is full or the driver has no descriptors. TCP repeats them.";
    let measured = format!("{dropped} of {offered} packets dropped before sending{}", within(link));
    let mut found = finding("transmit-drops", Severity::Slow, link, measured, why);
    found.commands = vec![
        format!("tc -s qdisc show dev {}", word(link.name())),
        format!("ethtool -g {}", word(link.name())),
    ];
    Some(found)
}

/// The partner stops this side.
pub(super) fn pause_frames(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let paused = link.grew("pause_received_frames");
    if paused == 0 {
        return None;
    }
    let why = "The other end stops everything that this host sends to it, of all connections, while its buffers are full: one slow \
               receiver delays all others.";
    let measured = format!("{paused} PAUSE frames received{}", within(link));
    let mut found = finding("pause-frames", Severity::Slow, link, measured, why);
    found.commands = vec![format!("ethtool -I -a {}", word(link.name()))];
    found.other_end = Some(
        "find what it cannot pass on in time: a slower port, a host with overruns, or flow control in a loop"
            .to_owned(),
    );
    Some(found)
}

fn received(link: &LinkFacts) -> u64 {
    total(link, |counters| counters.rx_packets)
}

fn total(link: &LinkFacts, counter: impl Fn(&Counters) -> u64) -> u64 {
    link.link.counters.as_ref().map(counter).unwrap_or_default()
}
