//! systemd's `.link` files, which udev applies to every interface when it appears (systemd.link(5) of version 252).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use netlink::ethtool::{Duplex, LinkModesChange};

use super::{Desired, HEADER, Kind, OwnFile, OwnerFacts, lost};
use crate::apply::link_value::{parse_modes, parse_pause};
use crate::change::{Change, Setting};

/// Between what is copied from the file that ours replaces and what we set.
const MARK: &str = "# Set by `roundtrip host`:";

/// The modes of `Advertise=`.
const MODES: [&str; 14] = [
    "10baset-half",
    "10baset-full",
    "100baset-half",
    "100baset-full",
    "1000baset-half",
    "1000baset-full",
    "10000baset-full",
    "2500basex-full",
    "1000basekx-full",
    "10000basekx4-full",
    "10000basekr-full",
    "10000baser-fec",
    "20000basemld2-full",
    "20000basekr2-full",
];

/// Features of the kernel and their keys.
const FEATURES: [(&str, &str); 13] = [
    ("rx-checksum", "ReceiveChecksumOffload"),
    ("tx-tcp-segmentation", "TCPSegmentationOffload"),
    ("tx-tcp6-segmentation", "TCP6SegmentationOffload"),
    ("tx-generic-segmentation", "GenericSegmentationOffload"),
    ("rx-gro", "GenericReceiveOffload"),
    ("rx-gro-hw", "GenericReceiveOffloadHardware"),
    ("rx-lro", "LargeReceiveOffload"),
    ("rx-vlan-hw-parse", "ReceiveVLANCTAGHardwareAcceleration"),
    ("tx-vlan-hw-insert", "TransmitVLANCTAGHardwareAcceleration"),
    ("rx-vlan-filter", "ReceiveVLANCTAGFilter"),
    ("tx-vlan-stag-hw-insert", "TransmitVLANSTAGHardwareAcceleration"),
    ("rx-ntuple-filter", "NTupleFilter"),
    ("tx-checksum-ip-generic", "TransmitChecksumOffload"),
];

/// Parameters of coalescing that are a number of frames or packets, and switches, with their keys.
const COALESCING: [(&str, &str); 13] = [
    ("adaptive-rx", "UseAdaptiveRxCoalesce"),
    ("adaptive-tx", "UseAdaptiveTxCoalesce"),
    ("rx-frames", "RxMaxCoalescedFrames"),
    ("rx-frames-irq", "RxMaxCoalescedIrqFrames"),
    ("rx-frames-low", "RxMaxCoalescedLowFrames"),
    ("rx-frames-high", "RxMaxCoalescedHighFrames"),
    ("tx-frames", "TxMaxCoalescedFrames"),
    ("tx-frames-irq", "TxMaxCoalescedIrqFrames"),
    ("tx-frames-low", "TxMaxCoalescedLowFrames"),
    ("tx-frames-high", "TxMaxCoalescedHighFrames"),
    ("pkt-rate-low", "CoalescePacketRateLow"),
    ("pkt-rate-high", "CoalescePacketRateHigh"),
    ("sample-interval", "CoalescePacketRateSampleIntervalSec"),
];

/// Parameters of coalescing that are microseconds.
const COALESCING_US: [(&str, &str); 9] = [
    ("rx-usecs", "RxCoalesceSec"),
    ("rx-usecs-irq", "RxCoalesceIrqSec"),
    ("rx-usecs-low", "RxCoalesceLowSec"),
    ("rx-usecs-high", "RxCoalesceHighSec"),
    ("tx-usecs", "TxCoalesceSec"),
    ("tx-usecs-irq", "TxCoalesceIrqSec"),
    ("tx-usecs-low", "TxCoalesceLowSec"),
    ("tx-usecs-high", "TxCoalesceHighSec"),
    ("stats-block-usecs", "StatisticsBlockCoalesceSec"),
];

/// The path of the file of an interface.
pub(super) fn path(interface: &str) -> PathBuf {
    PathBuf::from("etc/systemd/network").join(format!("00-roundtrip-{interface}.link"))
}

/// The file of an interface. Udev applies only the first that matches, so it repeats what the one in force says.
pub(super) fn link_file(facts: &OwnerFacts, changes: &[Change], desired: &mut Desired) {
    let path = path(&facts.interface);
    if let Some(first) = other_that_sorts_before(facts, &path) {
        let why = format!("{first} applies to the interface first; write the settings there");
        desired.lost.extend(changes.iter().map(|change| lost(&change.setting, &why)));
        return;
    }
    let mut lines = Vec::new();
    for change in changes {
        match keys(change) {
            Ok(keys) => lines.extend(keys),
            Err(why) => desired.lost.push(lost(&change.setting, &why)),
        }
    }
    if lines.is_empty() {
        return;
    }
    let mut content = format!("{HEADER}# systemd.link(5)\n[Match]\n");
    let _ = match &facts.permanent_address {
        // The kernel's name of a card may differ when udev sees it.
        Some(address) => writeln!(content, "PermanentMACAddress={address}"),
        None => writeln!(content, "OriginalName={}", facts.interface),
    };
    content.push_str("\n[Link]\n");
    if let Some(file) = &facts.link_file {
        let copied = link_section(&file.content);
        if !copied.is_empty() {
            let _ = writeln!(
                content,
                "# As in the file that applied before, such as the policy of names:\n{}",
                copied.join("\n")
            );
        }
    }
    let _ = writeln!(content, "{MARK}\n{}", lines.join("\n"));
    desired.files.push(OwnFile { path, kind: Kind::Text, content });
    desired.notes.push(
        "udev applies .link files when an interface appears; where the initramfs has a copy of them, `update-initramfs -u` renews it"
            .to_owned(),
    );
}

fn other_that_sorts_before(facts: &OwnerFacts, own: &Path) -> Option<String> {
    let other = &facts.link_file.as_ref()?.path;
    (other.file_name()? < own.file_name()?).then(|| other.display().to_string())
}

/// The lines of a file's [Link] section; of one of ours, those that it has copied.
fn link_section(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[Link]").skip(1);
    lines
        .take_while(|line| !line.starts_with('[') && *line != MARK)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .collect()
}

/// The lines that make a change.
fn keys(change: &Change) -> Result<Vec<String>, String> {
    let value = &change.value;
    let number = || value.parse::<u32>().map_err(|_| "its value is not a whole number".to_owned());
    let switch = |value: &str| {
        if value == "on" {
            "yes".to_owned()
        } else if value == "off" {
            "no".to_owned()
        } else {
            value.to_owned()
        }
    };
    match &change.setting {
        Setting::Mtu { .. } => Ok(vec![format!("MTUBytes={}", number()?)]),
        Setting::Ring { parameter, .. } if parameter == "rx" => {
            Ok(vec![format!("RxBufferSize={}", number()?)])
        }
        Setting::Ring { parameter, .. } if parameter == "tx" => {
            Ok(vec![format!("TxBufferSize={}", number()?)])
        }
        Setting::Feature { feature, .. } => match FEATURES.iter().find(|(name, _)| name == feature) {
            Some((_, key)) => Ok(vec![format!("{key}={}", switch(value))]),
            None => Err("systemd 252 has no key for this feature".to_owned()),
        },
        Setting::Coalescing { parameter, .. } => {
            let find = |list: &[(&str, &'static str)]| {
                list.iter().find(|(name, _)| name == parameter).map(|(_, key)| *key)
            };
            match (find(&COALESCING), find(&COALESCING_US)) {
                (Some(key), _) => Ok(vec![format!("{key}={}", switch(value))]),
                (_, Some(key)) => Ok(vec![format!("{key}={}us", number()?)]),
                _ => Err("systemd 252 has no key for this parameter".to_owned()),
            }
        }
        Setting::Pause { .. } => {
            let pause = parse_pause(value)?;
            let keys = [
                ("AutoNegotiationFlowControl", pause.autoneg),
                ("RxFlowControl", pause.rx),
                ("TxFlowControl", pause.tx),
            ];
            let yes = |value| if value { "yes" } else { "no" };
            Ok(keys.iter().filter_map(|(key, value)| Some(format!("{key}={}", yes((*value)?)))).collect())
        }
        Setting::LinkModes { .. } => modes(&parse_modes(value)?),
        setting => Err(format!("a .link file cannot keep the {setting}")),
    }
}

fn modes(change: &LinkModesChange) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    if let Some(autoneg) = change.autoneg {
        lines.push(format!("AutoNegotiation={}", if autoneg { "yes" } else { "no" }));
    }
    lines.extend(change.speed_mbps.map(|speed| format!("BitsPerSecond={speed}M")));
    lines.extend(
        change
            .duplex
            .map(|duplex| format!("Duplex={}", if duplex == Duplex::Full { "full" } else { "half" })),
    );
    for mode in change.advertise.iter().flatten() {
        let name = mode.to_ascii_lowercase().replace('/', "-");
        if !MODES.contains(&&*name) {
            return Err(format!("systemd 252 cannot advertise {mode}"));
        }
        lines.push(format!("Advertise={name}"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::owner::LinkFile;

    fn written(facts: &OwnerFacts, value: &str) -> Desired {
        let setting = Setting::LinkModes { interface: facts.interface.clone() };
        let mut desired = Desired::default();
        link_file(facts, &[Change { setting, value: value.to_owned() }], &mut desired);
        desired
    }

    fn with_file(path: &str, content: &str) -> OwnerFacts {
        let link_file = Some(LinkFile { path: PathBuf::from(path), content: content.to_owned() });
        OwnerFacts { interface: "eth4".to_owned(), link_file, ..OwnerFacts::default() }
    }

    /// Udev applies one file only: without the policy of names, the interface would have another name after the next boot.
    #[test]
    fn the_file_that_applied_before_is_repeated() {
        let default = "# systemd\n[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel\n# x\nMACAddressPolicy=persistent\n[SR-IOV]\nA=1\n";
        let facts = with_file("/usr/lib/systemd/network/99-default.link", default);
        let first = written(&facts, "autoneg=off speed=100 duplex=full").files.remove(0);
        assert!(
            first.content.contains("\nNamePolicy=keep kernel\nMACAddressPolicy=persistent\n"),
            "{}",
            first.content
        );
        assert!(
            !first.content.contains("OriginalName=*") && !first.content.contains("A=1"),
            "{}",
            first.content
        );
        // The next time, the file in force is ours: what it set is replaced, what it copied stays.
        let facts = with_file("/etc/systemd/network/00-roundtrip-eth4.link", &first.content);
        let second = written(&facts, "autoneg=off speed=10 duplex=half").files.remove(0);
        let expected = first.content.replace("=100M", "=10M").replace("Duplex=full", "Duplex=half");
        assert_eq!(second.content, expected);
    }

    #[test]
    fn a_file_that_udev_would_prefer_is_named() {
        let desired = written(&with_file("/etc/systemd/network/00-aaa.link", "[Link]\n"), "autoneg=on");
        assert!(
            desired.files.is_empty()
                && desired.lost[0].why.contains("00-aaa.link applies to the interface first")
        );
    }

    #[test]
    fn a_card_is_matched_by_its_permanent_address() {
        let mut facts = with_file("/usr/lib/systemd/network/99-default.link", "");
        assert!(written(&facts, "autoneg=on").files[0].content.contains("[Match]\nOriginalName=eth4\n"));
        facts.permanent_address = Some("02:00:00:00:00:01".to_owned());
        let content = &written(&facts, "autoneg=on").files[0].content;
        assert!(
            content.contains("[Match]\nPermanentMACAddress=02:00:00:00:00:01\n")
                && !content.contains("OriginalName")
        );
    }

    #[test]
    fn modes_that_systemd_does_not_know_are_named() {
        let facts = with_file("/usr/lib/systemd/network/99-default.link", "");
        let desired = written(&facts, "autoneg=on advertise=1000baseT/Full,2500baseT/Full");
        assert!(desired.files.is_empty() && desired.lost[0].why.contains("cannot advertise 2500baseT/Full"));
        let content = &written(&facts, "autoneg=on advertise=1000baseT/Full,100baseT/Full").files[0].content;
        assert!(
            content.ends_with("AutoNegotiation=yes\nAdvertise=1000baset-full\nAdvertise=100baset-full\n"),
            "{content}"
        );
    }
}
