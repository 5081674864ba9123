//! The access file of `roundtrip target`: who may log in.
//!
//! ```toml
//! discovery = true                 # discovery sessions authenticate too (the default)
//! # Who may use the target, and which disks each sees. May be left out: all that can authenticate, all disks.
//! initiators = ["iqn.1993-08.org.debian:01:abc", { name = "iqn.2000-01.other", luns = [0, 2] }]
//!
//! [[chap]]                         # an initiator's name and secret; repeat for more. Without any, names alone
//!                                  # are asked for, and a name proves nothing.
//! name = "alice"
//! secret = "at least 12 characters"
//!
//! [mutual]                         # what the target proves itself with, to initiators that ask
//! name = "target"
//! secret = "another 12 characters"
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use iscsi::login::chap::Credentials;
use iscsi::login::is_iscsi_name;
use iscsi::login::target::Authentication;
use serde::Deserialize;
use target::{Access, Initiator};

/// RFC 7143 12.1.3: secrets of less than 96 bits are not to be used without IPsec.
const SECRET_MIN: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessFile {
    #[serde(default = "yes")]
    discovery: bool,
    #[serde(default)]
    initiators: Vec<Listed>,
    #[serde(default)]
    chap: Vec<User>,
    mutual: Option<User>,
}

/// An initiator: its name, or its name and the disks that it sees.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listed {
    Name(String),
    Masked(Masked),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Masked {
    name: String,
    luns: Option<Vec<u16>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    name: String,
    secret: String,
}

fn yes() -> bool {
    true
}

/// Reads an access file.
///
/// # Errors
/// When it cannot be read, or would let in whom it should not.
pub(crate) fn read(path: &Path) -> anyhow::Result<Access> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<Access> {
    toml::from_str::<AccessFile>(text)?.checked()
}

impl AccessFile {
    /// What it says, where that lets in nobody whom it should not.
    pub(crate) fn checked(self) -> anyhow::Result<Access> {
        checked(self)
    }
}

fn checked(file: AccessFile) -> anyhow::Result<Access> {
    ensure!(
        !file.chap.is_empty() || !file.initiators.is_empty(),
        "name at least one user under chap, or one of the initiators, or leave the file out"
    );
    ensure!(
        !file.chap.is_empty() || file.mutual.is_none(),
        "mutual: nobody asks for it without chap; add an initiator's name and secret"
    );
    for user in file.chap.iter().chain(&file.mutual) {
        let name = &user.name;
        ensure!((1..=255).contains(&name.len()), "name '{name}': 1 to 255 bytes are possible");
        ensure!(
            (SECRET_MIN..=255).contains(&user.secret.len()),
            "the secret of '{name}' has {} bytes; {SECRET_MIN} to 255 are possible",
            user.secret.len()
        );
    }
    if let Some(mutual) = &file.mutual {
        let is_shared = file.chap.iter().any(|user| user.secret == mutual.secret);
        ensure!(!is_shared, "mutual: its secret is an initiator's too; each needs one of its own");
    }
    let initiators: Vec<Initiator> = file.initiators.into_iter().map(listed).collect();
    for Initiator { name, .. } in &initiators {
        ensure!(is_iscsi_name(name), "initiators: '{name}' does not begin with iqn., eui. or naa.");
    }
    let credentials = |user: User| Credentials { name: user.name, secret: user.secret.into_bytes() };
    Ok(Access {
        authentication: Authentication {
            initiators: file.chap.into_iter().map(credentials).collect(),
            own: file.mutual.map(credentials),
        },
        users: BTreeMap::new(),
        discovery: file.discovery,
        initiators,
    })
}

fn listed(listed: Listed) -> Initiator {
    match listed {
        Listed::Name(name) => Initiator { name, luns: None },
        Listed::Masked(Masked { name, luns }) => Initiator { name, luns },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_would_let_in_whom_they_should_not_are_refused_with_the_key() {
        let user = "[[chap]]\nname = 'a'\nsecret = 'twelve bytes'\n";
        let good = parse(user).expect("good");
        assert!(good.discovery && good.authentication.initiators[0].name == "a");
        for (text, word) in [
            ("chap = []", "at least one"),
            ("initiators = ['iqn.2000-01.a']\n[mutual]\nname = 't'\nsecret = 'twelve bytes'", "without chap"),
            ("[[chap]]\nname = 'a'\nsecret = 'short'", "12 to 255"),
            ("[[chap]]\nname = ''\nsecret = 'twelve bytes'", "1 to 255"),
            (&format!("initiators = ['disk']\n{user}"), "iqn."),
            (&format!("{user}[mutual]\nname = 't'\nsecret = 'twelve bytes'"), "of its own"),
            (&format!("discover = false\n{user}"), "unknown field"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }
}
