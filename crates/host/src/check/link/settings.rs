//! Rules about settings of a card: offloads, coalescing, energy saving.

use model::extras::{Coalescing, Side};
use netlink::ethtool::CoalescingParameter;

use super::finding;
use crate::change::{Change, Setting};
use crate::check::shell::word;
use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::finding::{Cost, Finding, Severity};

/// Offloads whose absence costs processor time for each packet. Drivers switch them on wherever the card has them. Those of checksums
/// come first: without them, the kernel keeps segmentation and scatter-gather waiting, which then are not switched off themselves.
const USUAL: [&str; 9] = [
    "rx-checksum",
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv6",
    "rx-gro",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];

/// Kinds of virtual interfaces that hand segments on whole unless somebody switched that off.
const PASSING_ON: [&str; 7] = ["bond", "bridge", "macvlan", "macvtap", "team", "veth", "vlan"];

/// Microseconds of coalescing that matter beside a round trip within a storage network.
const LONG_HOLD_US: u32 = 20;

/// What `tune` sets: enough to gather the frames of a burst at 10 Gb/s, and less than a wake-up.
const SHORT_HOLD_US: u32 = 8;

/// Offloads that somebody switched off.
pub(super) fn offloads(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let is_passing_on = link.link.kind.as_deref().is_some_and(|kind| PASSING_ON.contains(&kind));
    let offloads = &link.offloads.as_ref().filter(|_| link.is_physical() || is_passing_on)?.features;
    // One that is wanted and not in force waits for another setting or for the user of a TAP device. A veth merges nothing unless
    // asked to, as what it receives was merged before.
    let is_off = |name: &&&str| {
        offloads.get(**name).is_some_and(|state| state.is_changeable && !state.is_on && !state.is_wanted)
            && (**name != "rx-gro" || link.is_physical())
    };
    let off: Vec<&str> = USUAL.iter().filter(is_off).copied().collect();
    if off.is_empty() {
        return None;
    }
    let why = "Without checksum and segmentation offloads and GRO the processor handles each packet of 1500 bytes instead of up to 64 KiB at once, \
               which takes several times as long for each byte and bounds the rate.";
    let mut found = finding("offloads-off", Severity::Slow, link, format!("off: {}", off.join(", ")), why);
    found.commands = off.iter().map(|name| format!("ethtool -K {} {name} on", word(link.name()))).collect();
    let change = |name: &&str| Change {
        setting: Setting::Feature { interface: link.name().to_owned(), feature: (*name).to_owned() },
        value: "on".to_owned(),
    };
    found.changes = off.iter().map(change).collect();
    Some(found)
}

/// The card holds received frames for a fixed time before it interrupts.
pub(super) fn coalescing(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let parameters = link.coalescing.as_ref()?;
    let hold = parameters.get(CoalescingParameter::RxUsecs)?;
    let is_adaptive = parameters.get(CoalescingParameter::AdaptiveRx).is_some_and(|on| on > 0);
    let frames = parameters.get(CoalescingParameter::RxFrames).unwrap_or_default();
    let coalescing = Coalescing {
        hold_us: f64::from(hold),
        // Zero frames is no limit.
        packets: if frames == 0 { u32::MAX } else { frames },
        side: Side::Client,
    };
    if is_adaptive || hold < LONG_HOLD_US || !coalescing.is_on() {
        return None;
    }
    let why = "A received frame waits for its interrupt until the time has passed or enough frames have come. At a low queue depth none \
               comes, so each round trip is longer by this time; at a high rate it saves interrupts.";
    let mut found = finding("coalescing", Severity::Slow, link, measured(hold, frames), why);
    found.cost = Some(Cost { us_per_round_trip: Some(coalescing.delay_us()), bits_per_second_at_most: None });
    found.commands = vec![format!("ethtool -C {} rx-usecs {SHORT_HOLD_US}", word(link.name()))];
    let interface = link.name().to_owned();
    let setting =
        Setting::Coalescing { interface, parameter: CoalescingParameter::RxUsecs.name().to_owned() };
    found.changes = vec![Change { setting, value: SHORT_HOLD_US.to_string() }];
    found.other_end = Some("the other host's card may hold requests as well: check it there".to_owned());
    Some(found)
}

fn measured(hold: u32, frames: u32) -> String {
    let frames = if frames == 0 { String::new() } else { format!(", or {frames} frames") };
    format!("received frames wait up to {hold} us{frames}; not adaptive")
}

/// The transmitters sleep between frames.
pub(super) fn energy_efficient_ethernet(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    if link.eee?.is_active != Some(true) || !link.has_link() {
        return None;
    }
    // Times to wake a transmitter (IEEE 802.3 table 78-4, Tw_sys_tx).
    let wake_us = match link.modes.as_ref()?.speed_mbps? {
        100 => 30.0,
        1000 => 16.5,
        10_000 => 7.36,
        _ => return None,
    };
    let why = "Both sides switch their transmitters off between frames. A request wakes this side's, a response the partner's, and each \
               waits until the link is ready.";
    let measured = format!("active; a transmitter wakes in {wake_us} us");
    let mut found = finding("energy-efficient-ethernet", Severity::Note, link, measured, why);
    found.cost = Some(Cost { us_per_round_trip: Some(2.0 * wake_us), bits_per_second_at_most: None });
    found.commands = vec![format!("ethtool --set-eee {} eee off", word(link.name()))];
    let setting = Setting::EnergyEfficientEthernet { interface: link.name().to_owned() };
    found.changes = vec![Change { setting, value: "off".to_owned() }];
    Some(found)
}
