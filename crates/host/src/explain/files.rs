//! The files of the explanations, in the order of their names.

/// Explanations, by the name of their finding.
pub(super) const FINDINGS: &[(&str, &str)] = &[
    ("accept-queue-full", include_str!("../../explain/accept-queue-full.toml")),
    ("coalescing", include_str!("../../explain/coalescing.toml")),
    ("corked", include_str!("../../explain/corked.toml")),
    ("deep-c-states", include_str!("../../explain/deep-c-states.toml")),
    ("duplex-mismatch", include_str!("../../explain/duplex-mismatch.toml")),
    ("forced-against-negotiating", include_str!("../../explain/forced-against-negotiating.toml")),
    ("governor", include_str!("../../explain/governor.toml")),
    ("half-duplex", include_str!("../../explain/half-duplex.toml")),
    ("link-errors", include_str!("../../explain/link-errors.toml")),
    ("link-flaps", include_str!("../../explain/link-flaps.toml")),
    ("mtu-black-hole", include_str!("../../explain/mtu-black-hole.toml")),
    ("mtu-mismatch", include_str!("../../explain/mtu-mismatch.toml")),
    ("nagle-on-small-messages", include_str!("../../explain/nagle-on-small-messages.toml")),
    ("offloads-off", include_str!("../../explain/offloads-off.toml")),
    ("peer-window-limited", include_str!("../../explain/peer-window-limited.toml")),
    ("receive-buffer-limited", include_str!("../../explain/receive-buffer-limited.toml")),
    ("retransmissions", include_str!("../../explain/retransmissions.toml")),
    ("send-buffer-limited", include_str!("../../explain/send-buffer-limited.toml")),
    ("slow-start-after-idle", include_str!("../../explain/slow-start-after-idle.toml")),
    ("small-buffers", include_str!("../../explain/small-buffers.toml")),
    ("speed-below-possible", include_str!("../../explain/speed-below-possible.toml")),
    ("zero-window", include_str!("../../explain/zero-window.toml")),
];

/// What to type, by topic.
pub(super) const TOPICS: &[(&str, &str)] = &[
    ("accept-queue", include_str!("../../explain/topics/accept-queue.toml")),
    ("buffers", include_str!("../../explain/topics/buffers.toml")),
    ("coalescing", include_str!("../../explain/topics/coalescing.toml")),
    ("congestion", include_str!("../../explain/topics/congestion.toml")),
    ("cork", include_str!("../../explain/topics/cork.toml")),
    ("flow-control", include_str!("../../explain/topics/flow-control.toml")),
    ("idle-restart", include_str!("../../explain/topics/idle-restart.toml")),
    ("initiator", include_str!("../../explain/topics/initiator.toml")),
    ("interrupts", include_str!("../../explain/topics/interrupts.toml")),
    ("link-errors", include_str!("../../explain/topics/link-errors.toml")),
    ("link-modes", include_str!("../../explain/topics/link-modes.toml")),
    ("mtu", include_str!("../../explain/topics/mtu.toml")),
    ("nagle", include_str!("../../explain/topics/nagle.toml")),
    ("offloads", include_str!("../../explain/topics/offloads.toml")),
    ("path-mtu", include_str!("../../explain/topics/path-mtu.toml")),
    ("power", include_str!("../../explain/topics/power.toml")),
    ("rings", include_str!("../../explain/topics/rings.toml")),
    ("slow-reader", include_str!("../../explain/topics/slow-reader.toml")),
];
