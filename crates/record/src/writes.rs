//! How a message of a header and a body is written to a socket.

use serde::{Deserialize, Serialize};

/// How header and body leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// In one call; messages that leave together share it.
    #[default]
    One,
    /// In one call each.
    Apart,
    /// In one call each, the header with MSG_MORE.
    More,
    /// The same, and the body with MSG_MORE too, although no more data follows.
    MoreUnfinished,
    /// Between setting and lifting TCP_CORK.
    Cork,
    /// After setting TCP_CORK, which is never lifted.
    CorkUnfinished,
}

impl Writes {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::One, Self::Apart, Self::More, Self::MoreUnfinished, Self::Cork, Self::CorkUnfinished];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Apart => "apart",
            Self::More => "more",
            Self::MoreUnfinished => "more-unfinished",
            Self::Cork => "cork",
            Self::CorkUnfinished => "cork-unfinished",
        }
    }
}
