//! Setups with a name.

/// Names, what they are, and their text.
pub const PRESETS: [(&str, &str, &str); 9] = [
    (
        "seed-512",
        "the paper's 512 B reads, TCP_NODELAY: remote initiator, 1 Gb/s, MTU 9000",
        include_str!("preset/seed-512.toml"),
    ),
    (
        "seed-512-nagle",
        "the same with Nagle's algorithm always on, never flushed",
        include_str!("preset/seed-512-nagle.toml"),
    ),
    (
        "two-sends",
        "header and data in two sends under Nagle: a delayed ACK for each",
        include_str!("preset/two-sends.toml"),
    ),
    (
        "more-broken",
        "MSG_MORE on the last write as well: the probe timer releases it",
        include_str!("preset/more-broken.toml"),
    ),
    ("cork-broken", "TCP_CORK, never lifted", include_str!("preset/cork-broken.toml")),
    (
        "post",
        "HTTP POST of 480 B, header and body apart, Nagle on the client's side",
        include_str!("preset/post.toml"),
    ),
    ("post-together", "the same in one send", include_str!("preset/post-together.toml")),
    ("lossy", "4 KiB reads over a wire that loses 1 % of the segments", include_str!("preset/lossy.toml")),
    (
        "windows-client",
        "two sends under Nagle, answered by Windows' delayed ACK",
        include_str!("preset/windows-client.toml"),
    ),
];

/// The text of the setup of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(own, ..)| *own == name).map(|(_, _, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;

    #[test]
    fn every_preset_is_a_setup() {
        for (name, _, text) in PRESETS {
            let setup = Setup::read(text);
            assert!(setup.is_ok(), "{name}: {setup:?}");
        }
    }
}
