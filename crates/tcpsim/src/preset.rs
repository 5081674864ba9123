//! Setups with a name.

/// A setup with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The setup as TOML.
    pub text: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 12] = [
    Preset {
        name: "seed-512",
        about: "the paper's 512 B reads, TCP_NODELAY: remote initiator, 1 Gb/s, MTU 9000",
        text: include_str!("preset/seed-512.toml"),
    },
    Preset {
        name: "seed-512-nagle",
        about: "the same with Nagle's algorithm always on, never flushed",
        text: include_str!("preset/seed-512-nagle.toml"),
    },
    Preset {
        name: "two-sends",
        about: "header and data in two sends under Nagle: a delayed ACK for each",
        text: include_str!("preset/two-sends.toml"),
    },
    Preset {
        name: "more-broken",
        about: "MSG_MORE on the last write as well: the probe timer releases it",
        text: include_str!("preset/more-broken.toml"),
    },
    Preset {
        name: "cork-broken",
        about: "TCP_CORK, never lifted",
        text: include_str!("preset/cork-broken.toml"),
    },
    Preset {
        name: "post",
        about: "HTTP POST as in the note: header and body apart, Nagle on the client's side, 205.5 ms",
        text: include_str!("preset/post.toml"),
    },
    Preset {
        name: "post-nodelay",
        about: "the same without Nagle: 49.1 ms",
        text: include_str!("preset/post-nodelay.toml"),
    },
    Preset {
        name: "post-linux",
        about: "HTTP POST of 480 B between two Linux hosts, header and body apart, Nagle on the client's side",
        text: include_str!("preset/post-linux.toml"),
    },
    Preset {
        name: "post-together",
        about: "the same in one send, between two Linux hosts",
        text: include_str!("preset/post-together.toml"),
    },
    Preset {
        name: "nagle-write",
        about: "iSCSI writes of 1 KiB at MTU 1500, as in the note on dd: compare nodelay and nagle-unflushed",
        text: include_str!("preset/nagle-write.toml"),
    },
    Preset {
        name: "lossy",
        about: "4 KiB reads over a wire that loses 1 % of the segments",
        text: include_str!("preset/lossy.toml"),
    },
    Preset {
        name: "windows-client",
        about: "two sends under Nagle, answered by Windows' delayed ACK",
        text: include_str!("preset/windows-client.toml"),
    },
];

impl Preset {
    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;

    #[test]
    fn every_preset_is_a_valid_setup() {
        for Preset { name, text, .. } in PRESETS {
            let setup = Setup::read(text);
            assert!(setup.is_ok(), "{name}: {setup:?}");
        }
    }
}
