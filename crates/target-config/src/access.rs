//! The access file of `roundtrip target`: which initiators may log in.
//!
//! ```toml
//! discovery = true                 # discovery sessions authenticate too (the default)
//! # The initiators that may use the target and the disks that each sees. Optional: by default every initiator that
//! # can authenticate sees all disks.
//! initiators = ["iqn.1993-08.org.debian:01:abc", { name = "iqn.2000-01.other", luns = [0, 2] }]
//!
//! [[chap]]                         # a user's name and secret; repeat for more. Without any, initiators are
//!                                  # identified by name only, which is no authentication.
//! name = "alice"
//! secret = "at least 12 characters"
//! initiators = ["iqn.1993-08.org.debian:01:abc"]   # the InitiatorNames that alice may use; "any": all that no
//!                                                  # other user is bound to
//!
//! [mutual]                         # the target's credentials for mutual CHAP
//! name = "target"
//! secret = "another 12 characters"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, ensure};
use ipnet::IpNet;
use iscsi::login::chap::Credentials;
use iscsi::login::is_iscsi_name;
use iscsi_target::{Access, ActsFor, Initiator, Shown, User};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::text::{from_toml, read_text};
use crate::word_or::WordOr;

/// Most users, initiators and addresses of a target: some of the checks, and a login, look at all of them.
const ENTRIES_MAX: usize = 4096;

/// Lengths of secrets, bytes. RFC 7143 12.1.3: CHAP secrets of less than 96 bits must not be used without IPsec.
pub const SECRET_BYTES: RangeInclusive<usize> = 12..=255;
/// Lengths of CHAP names, bytes.
pub const NAME_BYTES: RangeInclusive<usize> = 1..=255;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessFile {
    /// Discovery sessions authenticate too.
    #[serde(default = "yes")]
    discovery: bool,
    /// The initiators that may use the target; by default all that can authenticate.
    #[serde(default)]
    initiators: Vec<Listed>,
    /// The addresses and networks from which initiators may come; by default any.
    #[serde(default)]
    addresses: Vec<String>,
    /// CHAP users; by default initiators need not authenticate.
    #[serde(default)]
    chap: Vec<Chap>,
    /// The target's own name and secret, for mutual authentication.
    mutual: Option<Credential>,
}

/// An initiator: its name, or its name and the disks that it sees.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Listed {
    Name(String),
    Masked(Masked),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Masked {
    name: String,
    luns: Option<Vec<Seen>>,
    #[serde(default)]
    read_only: bool,
}

/// A disk that an initiator sees: its number, or how it sees it.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Seen {
    Number(u16),
    Mapped(Mapped),
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Mapped {
    lun: Option<u16>,
    disk: u16,
    #[serde(default)]
    read_only: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Chap {
    name: String,
    secret: String,
    initiators: Option<WordOr<Vec<String>>>,
    mutual: Option<Credential>,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Credential {
    name: String,
    secret: String,
}

fn yes() -> bool {
    true
}

/// Reads an access file; also returns it as it was written.
///
/// # Errors
/// When it cannot be read, is invalid, or could admit unintended initiators.
pub fn read(path: &Path) -> anyhow::Result<(Access, toml::Table)> {
    rules(&read_text(path)?).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<Access> {
    checked(from_toml(text)?)
}

/// Parses the text of an access file; also returns it as it was written.
///
/// # Errors
/// When it is invalid, or could admit unintended initiators.
pub fn rules(text: &str) -> anyhow::Result<(Access, toml::Table)> {
    Ok((parse(text)?, from_toml(text)?))
}

/// Rules that admit nobody, and how they are written.
#[must_use]
pub fn nobody() -> (Access, String) {
    (Access { is_closed: true, ..Access::default() }, NOBODY.to_owned())
}

/// The word for rules that admit nobody.
pub(crate) const NOBODY: &str = "nobody";

/// Returns the rules, unless they could admit unintended initiators.
pub(crate) fn checked(file: AccessFile) -> anyhow::Result<Access> {
    ensure!(
        !file.chap.is_empty() || !file.initiators.is_empty() || !file.addresses.is_empty(),
        "no rules: configure at least one user under chap, one of the initiators or an address, or omit the file"
    );
    ensure!(
        !file.chap.is_empty() || file.mutual.is_none(),
        "mutual: without chap no initiator authenticates; add an initiator's name and secret under chap"
    );
    for (what, count) in [
        ("chap", file.chap.len()),
        ("initiators", file.initiators.len()),
        ("addresses", file.addresses.len()),
    ] {
        ensure!(count <= ENTRIES_MAX, "{what}: {count} entries; use at most {ENTRIES_MAX} for a target");
    }
    let names: usize = file.chap.iter().map(|user| user.initiators.as_ref().map_or(0, names_of)).sum();
    ensure!(names <= ENTRIES_MAX, "chap: {names} initiators; use at most {ENTRIES_MAX} for a target");
    let mut users: Vec<User> = Vec::new();
    for Chap { name, secret, initiators, mutual } in file.chap {
        check_user(&name, &secret)?;
        let acts_for = acts_for(initiators).with_context(|| format!("chap '{name}'"))?;
        for other in &users {
            let is_namesake = other.credentials.name == name;
            ensure!(
                !is_namesake || are_apart(&other.acts_for, &acts_for),
                "chap: the user '{name}' is given twice; users with one name need initiators of their own"
            );
            ensure!(
                other.credentials.secret != secret.as_bytes(),
                "chap: '{}' and '{name}' have one secret; give each user a secret of its own",
                other.credentials.name
            );
        }
        if let Some(mutual) = &mutual {
            check_user(&mutual.name, &mutual.secret)?;
        }
        let credentials = Credentials { name, secret: secret.into_bytes() };
        users.push(User { credentials, acts_for, own: mutual.map(credentials_of) });
    }
    if let Some(mutual) = &file.mutual {
        check_user(&mutual.name, &mutual.secret)?;
    }
    let own = file.mutual.map(credentials_of);
    for mutual in own.iter().chain(users.iter().filter_map(|user| user.own.as_ref())) {
        let is_shared = users.iter().any(|user| user.credentials.secret == mutual.secret);
        ensure!(!is_shared, "mutual: a user under chap has the same secret; give the target one of its own");
    }
    let initiators: Vec<Initiator> =
        file.initiators.into_iter().map(listed).collect::<anyhow::Result<_>>()?;
    check_names(initiators.iter().map(|initiator| &*initiator.name)).context("initiators")?;
    let listed: BTreeSet<String> = initiators.iter().map(|listed| listed.name.to_ascii_lowercase()).collect();
    let is_listed = |name: &str| listed.contains(&name.to_ascii_lowercase());
    for user in &users {
        let ActsFor::Names(names) = &user.acts_for else { continue };
        let missing = names.iter().find(|name| !initiators.is_empty() && !is_listed(name));
        if let Some(missing) = missing {
            anyhow::bail!(
                "chap '{}': '{missing}' is not on the list of initiators; add it to that list or remove it from this user",
                user.credentials.name
            );
        }
    }
    let addresses = file.addresses.iter().map(|text| network(text)).collect::<anyhow::Result<_>>()?;
    Ok(Access { users, own, discovery: file.discovery, initiators, addresses, is_closed: false })
}

fn names_of(initiators: &WordOr<Vec<String>>) -> usize {
    match initiators {
        WordOr::Word(_) => 0,
        WordOr::Value(names) => names.len(),
    }
}

fn credentials_of(Credential { name, secret }: Credential) -> Credentials {
    Credentials { name, secret: secret.into_bytes() }
}

/// Returns whether two users act for initiators of their own.
fn are_apart(one: &ActsFor, other: &ActsFor) -> bool {
    match (one, other) {
        (ActsFor::Names(one), ActsFor::Names(other)) => {
            !one.iter().any(|name| other.iter().any(|other| other.eq_ignore_ascii_case(name)))
        }
        _ => false,
    }
}

/// Parses an address or a network.
fn network(text: &str) -> anyhow::Result<IpNet> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network
        .with_context(|| format!("addresses: '{text}': write an address or a network, such as 192.0.2.0/24"))
}

fn check_user(name: &str, secret: &str) -> anyhow::Result<()> {
    ensure!(NAME_BYTES.contains(&name.len()), "name '{name}': use 1 to 255 bytes");
    ensure!(
        SECRET_BYTES.contains(&secret.len()),
        "the secret of '{name}' has {} bytes; use {} to {}",
        secret.len(),
        SECRET_BYTES.start(),
        SECRET_BYTES.end()
    );
    Ok(())
}

/// Returns the InitiatorNames that a user may log in with.
fn acts_for(initiators: Option<WordOr<Vec<String>>>) -> anyhow::Result<ActsFor> {
    match initiators {
        None => anyhow::bail!(
            "the initiators that may log in with this name are missing; write initiators = [\"iqn...\"], or \
             initiators = \"any\""
        ),
        Some(WordOr::Word(word)) => {
            ensure!(word == "any", "initiators = '{word}': write \"any\", or a list of names");
            Ok(ActsFor::Any)
        }
        Some(WordOr::Value(names)) => {
            ensure!(!names.is_empty(), "initiators: name at least one, or write \"any\"");
            check_names(names.iter().map(|name| &**name)).context("initiators")?;
            Ok(ActsFor::Names(names))
        }
    }
}

/// Checks initiator names. They are compared without case (RFC 7143 4.2.7.2) and must be unique.
fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for name in names {
        ensure!(is_iscsi_name(name), "'{name}' does not begin with iqn., eui. or naa.");
        if let Some(other) = seen.insert(name.to_ascii_lowercase(), name) {
            anyhow::bail!("'{other}' and '{name}' are the same name; list it once");
        }
    }
    Ok(())
}

fn listed(listed: Listed) -> anyhow::Result<Initiator> {
    let Masked { name, luns, read_only } = match listed {
        Listed::Name(name) => Masked { name, luns: None, read_only: false },
        Listed::Masked(masked) => masked,
    };
    let shown = |seen: Seen| match seen {
        Seen::Number(number) => Shown::same(number),
        Seen::Mapped(Mapped { lun, disk, read_only }) => {
            Shown { number: lun.unwrap_or(disk), disk, read_only }
        }
    };
    let luns: Option<Vec<Shown>> = luns.map(|luns| luns.into_iter().map(shown).collect());
    for (index, shown) in luns.iter().flatten().enumerate() {
        ensure!(shown.number <= 255, "initiators: '{name}': LUN {}: use 0 to 255", shown.number);
        let clash = |other: &&Shown| other.number == shown.number || other.disk == shown.disk;
        if let Some(other) = luns.iter().flatten().take(index).find(clash) {
            anyhow::bail!(
                "initiators: '{name}' sees LUN {} of disk {} and LUN {} of disk {}; show each disk once, under a number of its own",
                other.number,
                other.disk,
                shown.number,
                shown.disk
            );
        }
    }
    Ok(Initiator { name, luns, read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_files_that_admit_too_much_are_rejected_naming_the_key() {
        let user = "[[chap]]\nname = 'a'\nsecret = 'twelve bytes'\ninitiators = 'any'\n";
        let bound = "[[chap]]\nname = 'b'\nsecret = 'thirteen bytes'\ninitiators = ['iqn.2000-01.b']\n";
        let good = parse(&format!("{user}{bound}")).expect("good");
        assert!(good.discovery && good.users[0].credentials.name == "a");
        assert_eq!(good.users[0].acts_for, ActsFor::Any);
        assert_eq!(good.users[1].acts_for, ActsFor::Names(vec!["iqn.2000-01.b".into()]));
        parse(&format!("initiators = ['IQN.2000-01.B']\n{user}{bound}")).expect("listed, in another case");
        let chap = "[[chap]]\nname = 'a'\nsecret = 'twelve bytes'\n";
        for (text, word) in [
            ("chap = []", "at least one"),
            ("initiators = ['iqn.2000-01.a']\n[mutual]\nname = 't'\nsecret = 'twelve bytes'", "without chap"),
            ("[[chap]]\nname = 'a'\nsecret = 'short'\ninitiators = 'any'", "12 to 255"),
            ("[[chap]]\nname = ''\nsecret = 'twelve bytes'\ninitiators = 'any'", "1 to 255"),
            (&format!("initiators = ['disk']\n{user}"), "iqn."),
            (&format!("{user}[mutual]\nname = 't'\nsecret = 'twelve bytes'"), "of its own"),
            (&format!("discover = false\n{user}"), "unknown field"),
            (chap, "write initiators = [\"iqn...\"], or initiators = \"any\""),
            (&format!("{chap}initiators = 'all'"), "'all'"),
            (&format!("{chap}initiators = []"), "at least one"),
            (&format!("{chap}initiators = ['alice']"), "'alice' does not begin"),
            (&format!("{chap}initiators = ['iqn.a:b', 'IQN.a:B']"), "the same name"),
            (&format!("{chap}initiators = 'any'\nluns = [0]"), "unknown field"),
            (&format!("{user}{}", user.replace("twelve bytes", "thirteen bytes")), "'a' is given twice"),
            (&format!("{user}{}", bound.replace("thirteen bytes", "twelve bytes")), "have one secret"),
            (&format!("initiators = ['iqn.2000-01.a']\n{bound}"), "not on the list"),
            ("initiators = ['IQN.a:b', { name = 'iqn.a:b', luns = [1] }]", "the same name"),
            (&format!("{bound}{}", bound.replace("thirteen", "fourteen")), "initiators of their own"),
            ("addresses = ['192.0.2.0/33']", "192.0.2.0/33"),
            ("addresses = ['host']", "'host'"),
            ("initiators = [{ name = 'iqn.a:b', luns = [0, { lun = 0, disk = 1 }] }]", "a number of its own"),
            ("initiators = [{ name = 'iqn.a:b', luns = [0, { lun = 1, disk = 0 }] }]", "show each disk once"),
            ("initiators = [{ name = 'iqn.a:b', luns = [{ lun = 256, disk = 0 }] }]", "LUN 256"),
            (
                &format!("{chap}initiators = 'any'\nmutual = {{ name = 't', secret = 'twelve bytes' }}"),
                "of its own",
            ),
            (&format!("{chap}initiators = 'any'\nmutual = {{ name = 't', secret = 'short' }}"), "12 to 255"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }

    #[test]
    fn disks_are_mapped_and_namesakes_bound() {
        let text = "addresses = ['192.0.2.0/24', '2001:db8::1']
            initiators = ['iqn.a:c', { name = 'iqn.a:b', read_only = true, luns = [3, { lun = 7, disk = 0, read_only = true }] }]
            [[chap]]\nname = 'u'\nsecret = 'twelve bytes'\ninitiators = ['iqn.a:b']
            mutual = { name = 't', secret = 'thirteen bytes' }
            [[chap]]\nname = 'u'\nsecret = 'other twelve'\ninitiators = ['iqn.a:c']";
        let access = parse(text).expect("good");
        let shown = [Shown::same(3), Shown { number: 7, disk: 0, read_only: true }];
        assert_eq!(access.initiators[1].luns.as_deref(), Some(&shown[..]));
        assert!(access.initiators[1].read_only && !access.initiators[0].read_only);
        assert_eq!(access.users[0].own.as_ref().expect("mutual").name, "t");
        assert_eq!(access.users_for("iqn.a:c").count(), 1);
        assert_eq!(access.addresses.len(), 2);
    }

    #[test]
    fn documented_example_parses() {
        let example: String = include_str!("access.rs")
            .lines()
            .skip_while(|line| !line.contains("```toml"))
            .skip(1)
            .take_while(|line| !line.contains("```"))
            .map(|line| format!("{}\n", line.trim_start_matches("//!")))
            .collect();
        let access = parse(&example).expect("the example");
        assert_eq!(access.users[0].acts_for, ActsFor::Names(vec!["iqn.1993-08.org.debian:01:abc".into()]));
        for text in include_str!("../../../docs/target.md").split("```toml\n").skip(1) {
            let text = text.split("```").next().expect("a part");
            if text.contains("[mutual]") {
                assert_eq!(parse(text).expect("docs/target.md").users, access.users);
            } else if text.contains("[luns") || text.contains(".luns]") {
                crate::file::parse(text).expect(text).check_masks().expect(text);
            } else {
                assert_eq!(
                    parse(text).expect(text).initiators[1].luns.as_ref().map(Vec::len),
                    Some(2),
                    "{text}"
                );
            }
        }
    }
}
