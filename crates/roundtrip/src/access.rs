//! The access file of `roundtrip target`: who may log in.
//!
//! ```toml
//! discovery = true                 # discovery sessions authenticate too (the default)
//! initiators = ["iqn.1993-08.org.debian:01:abc"]   # may be left out: all that can authenticate
//!
//! [[chap]]                         # an initiator's name and secret; repeat for more
//! name = "alice"
//! secret = "at least 12 characters"
//!
//! [mutual]                         # what the target proves itself with, to initiators that ask
//! name = "target"
//! secret = "another 12 characters"
//! ```

use std::path::Path;

use anyhow::{Context as _, ensure};
use iscsi::login::chap::Credentials;
use iscsi::login::is_iscsi_name;
use iscsi::login::target::Authentication;
use serde::Deserialize;
use target::Access;

/// RFC 7143 12.1.3: secrets of less than 96 bits are not to be used without IPsec.
const SECRET_MIN: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessFile {
    #[serde(default = "yes")]
    discovery: bool,
    #[serde(default)]
    initiators: Vec<String>,
    chap: Vec<User>,
    mutual: Option<User>,
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
    let file: AccessFile = toml::from_str(text)?;
    ensure!(!file.chap.is_empty(), "chap: name at least one initiator, or leave the file out");
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
    for name in &file.initiators {
        ensure!(is_iscsi_name(name), "initiators: '{name}' does not begin with iqn., eui. or naa.");
    }
    let credentials = |user: User| Credentials { name: user.name, secret: user.secret.into_bytes() };
    Ok(Access {
        authentication: Authentication {
            initiators: file.chap.into_iter().map(credentials).collect(),
            own: file.mutual.map(credentials),
        },
        discovery: file.discovery,
        initiators: file.initiators,
    })
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
