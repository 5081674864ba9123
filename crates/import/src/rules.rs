//! Access rules: what another target demands of initiators, as rules of this target.
//!
//! Rules that cannot be written admit nobody. A user that cannot be written must not leave its initiators to a user of every
//! name, so such users go too.

use std::collections::BTreeSet;

use ipnet::IpNet;
use iscsi::login::is_iscsi_name;
use serde::Serialize;
use target_config::access::{NAME_BYTES, SECRET_BYTES};

use crate::notes::Notes;

/// The rules of a target in the file.
pub(crate) enum Rules {
    /// Every initiator is admitted.
    Open,
    /// None is.
    Nobody,
    /// Those that the table admits.
    Table(Table),
}

/// The table of rules.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    discovery: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    initiators: Vec<Initiator>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chap: Vec<Chap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutual: Option<Credential>,
}

/// An initiator that is admitted, and the disks that it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Initiator {
    pub(crate) name: String,
    /// `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) luns: Option<Vec<Seen>>,
}

/// A disk as an initiator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Seen {
    pub(crate) lun: u16,
    pub(crate) disk: u16,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) read_only: bool,
}

/// A name and a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Credential {
    pub(crate) name: String,
    pub(crate) secret: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Chap {
    name: String,
    secret: String,
    initiators: Names,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutual: Option<Credential>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Names {
    Any(&'static str),
    These(Vec<String>),
}

/// A CHAP user of another target.
pub(crate) struct User {
    pub(crate) credential: Credential,
    /// The initiators that it stands for; `None`: every name that no other user is bound to.
    pub(crate) initiators: Option<Vec<String>>,
    /// What the target answers it with.
    pub(crate) mutual: Option<Credential>,
}

/// What another target demands.
#[derive(Default)]
pub(crate) struct Demands {
    /// Initiators authenticate by CHAP.
    pub(crate) must_authenticate: bool,
    /// Discovery sessions authenticate, too.
    pub(crate) discovery: bool,
    pub(crate) users: Vec<User>,
    /// What the target answers every user with.
    pub(crate) mutual: Option<Credential>,
    /// The initiators that are admitted; `None`: of every name.
    pub(crate) initiators: Option<Vec<Initiator>>,
    /// The addresses that initiators may come from; `None`: any.
    pub(crate) addresses: Option<Vec<String>>,
    /// Initiators that a user of every name does not stand for, since they have rules that cannot be written.
    pub(crate) reserved: Vec<String>,
}

/// Returns rules that admit nobody, and notes the reason.
pub(crate) fn nobody(place: &str, why: &str, notes: &mut Notes) -> Rules {
    notes.add(place, format!("nobody is admitted: {why}"));
    Rules::Nobody
}

/// Writes the rules of a target.
pub(crate) fn rules(place: &str, demands: Demands, notes: &mut Notes) -> Rules {
    let Demands { must_authenticate, discovery, users, mutual, initiators, addresses, reserved } = demands;
    let mut initiators = initiators.map(|listed| valid_initiators(place, listed, notes));
    let addresses = addresses.map(|addresses| valid_addresses(place, addresses, notes));
    let mut reserved: BTreeSet<String> = reserved.iter().map(|name| name.to_ascii_lowercase()).collect();
    let mut chap = Vec::new();
    if must_authenticate {
        for user in users {
            add_user(place, user, initiators.as_deref(), &mut chap, &mut reserved, notes);
        }
    } else if !users.is_empty() {
        notes.add(
            place,
            "its secrets are not used, since it does not demand authentication: initiators are known by name or address only, which proves nothing",
        );
    }
    let is_bound = |chap: &[Chap], name: &str| {
        chap.iter().any(|user| matches!(&user.initiators, Names::These(names) if names.iter().any(|n| n.eq_ignore_ascii_case(name))))
    };
    reserved.retain(|name| !is_bound(&chap, name));
    match &mut initiators {
        Some(listed) => listed.retain(|initiator| {
            let is_kept = !reserved.contains(&initiator.name.to_ascii_lowercase());
            if !is_kept {
                notes.add(place, format!("the initiator {} is not admitted: its rules cannot be written", initiator.name));
            }
            is_kept
        }),
        None if !reserved.is_empty() => chap.retain(|user| {
            let is_kept = matches!(user.initiators, Names::These(_));
            if !is_kept {
                notes.add(
                    place,
                    format!("the user '{}' is left out: with it, initiators could log in whose own user cannot be written", user.name),
                );
            }
            is_kept
        }),
        None => {}
    }
    let why = match (&initiators, &addresses) {
        _ if must_authenticate && chap.is_empty() => "it demands authentication, and no user can be written",
        (Some(listed), _) if listed.is_empty() => {
            "no initiator of its list can be written, or the list is empty"
        }
        (_, Some(networks)) if networks.is_empty() => "no address of its list can be written",
        (None, _) if !must_authenticate && !reserved.is_empty() => {
            "some initiators have rules that cannot be written"
        }
        _ => "",
    };
    if !why.is_empty() {
        return nobody(place, why, notes);
    }
    let (initiators, addresses) = (initiators.unwrap_or_default(), addresses.unwrap_or_default());
    if chap.is_empty() && initiators.is_empty() && addresses.is_empty() {
        notes.add(place, "every initiator is admitted, as before (access = \"open\")");
        return Rules::Open;
    }
    let mut mutual = mutual;
    check_mutual(place, &mut chap, &mut mutual, notes);
    let discovery = (must_authenticate && !discovery).then_some(false);
    Rules::Table(Table { discovery, initiators, addresses, chap, mutual })
}

fn valid_initiators(place: &str, listed: Vec<Initiator>, notes: &mut Notes) -> Vec<Initiator> {
    let mut seen = BTreeSet::new();
    let mut keep = |initiator: &Initiator| {
        let name = &initiator.name;
        if !is_iscsi_name(name) {
            notes.add(place, format!("the initiator '{name}' is left out: it is not an iSCSI name"));
            return false;
        }
        let is_new = seen.insert(name.to_ascii_lowercase());
        if !is_new {
            notes.add(place, format!("the initiator {name} is given twice; the first entry counts"));
        }
        is_new
    };
    listed.into_iter().filter(|initiator| keep(initiator)).collect()
}

fn valid_addresses(place: &str, addresses: Vec<String>, notes: &mut Notes) -> Vec<String> {
    let mut keep = |text: &String| {
        let is_valid = text.parse::<IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok();
        if !is_valid {
            notes.add(place, format!("the address '{text}' is left out: it is not an address or a network"));
        }
        is_valid
    };
    addresses.into_iter().filter(|text| keep(text)).collect()
}

/// Adds a user, or reserves its initiators when it cannot be written.
fn add_user(
    place: &str,
    user: User,
    listed: Option<&[Initiator]>,
    chap: &mut Vec<Chap>,
    reserved: &mut BTreeSet<String>,
    notes: &mut Notes,
) {
    let User { credential: Credential { name, secret }, initiators, mutual } = user;
    let mut names = initiators;
    if let Some(names) = &mut names {
        let mut seen = BTreeSet::new();
        names.retain(|name| {
            let is_listed =
                listed.is_none_or(|listed| listed.iter().any(|other| other.name.eq_ignore_ascii_case(name)));
            is_iscsi_name(name) && is_listed && seen.insert(name.to_ascii_lowercase())
        });
    }
    let why = if !NAME_BYTES.contains(&name.len()) {
        Some("its name has no valid length".to_owned())
    } else if !SECRET_BYTES.contains(&secret.len()) {
        Some(format!(
            "its secret has {} bytes, and 12 to 255 are demanded; give it another on both sides",
            secret.len()
        ))
    } else if names.as_ref().is_some_and(Vec::is_empty) {
        Some("no initiator that is admitted may log in with it".to_owned())
    } else {
        conflict(&name, &secret, names.as_deref(), mutual.as_ref(), chap)
    };
    match (why, names) {
        (Some(why), names) => {
            notes.add(place, format!("the user '{name}' is left out: {why}"));
            reserved.extend(names.into_iter().flatten().map(|name| name.to_ascii_lowercase()));
        }
        (None, Some(names)) => {
            let same = chap.iter_mut().find(|other| other.secret == secret);
            match same.map(|other| &mut other.initiators) {
                Some(Names::These(those)) => {
                    let is_new =
                        |name: &String, those: &[String]| those.iter().all(|n| !n.eq_ignore_ascii_case(name));
                    for name in names {
                        if is_new(&name, those) {
                            those.push(name);
                        }
                    }
                }
                _ => chap.push(Chap { name, secret, initiators: Names::These(names), mutual }),
            }
        }
        (None, None) => chap.push(Chap { name, secret, initiators: Names::Any("any"), mutual }),
    }
}

/// Returns why a user cannot stand beside those before it.
fn conflict(
    name: &str,
    secret: &str,
    names: Option<&[String]>,
    mutual: Option<&Credential>,
    chap: &[Chap],
) -> Option<String> {
    for other in chap {
        let those = match &other.initiators {
            Names::Any(_) => None,
            Names::These(those) => Some(those),
        };
        if other.secret == secret {
            let is_mergeable = other.name == name
                && other.mutual.as_ref() == mutual
                && those.is_some()
                && names.is_some_and(|names| {
                    chap.iter().all(|user| user.secret == secret || !shares(user, names))
                });
            if !is_mergeable {
                return Some(format!(
                    "the user '{}' before it has the same secret; give it one of its own",
                    other.name
                ));
            }
        } else if other.name == name
            && (names.is_none() || those.is_none() || names.is_some_and(|names| shares(other, names)))
        {
            return Some("another user before it has its name".to_owned());
        }
    }
    None
}

/// Returns whether a user stands for one of these initiators.
fn shares(user: &Chap, names: &[String]) -> bool {
    matches!(&user.initiators, Names::These(those)
        if those.iter().any(|one| names.iter().any(|name| name.eq_ignore_ascii_case(one))))
}

/// Removes the target's own credentials that it would refuse. An initiator that asks the target to authenticate is then refused.
fn check_mutual(place: &str, chap: &mut [Chap], mutual: &mut Option<Credential>, notes: &mut Notes) {
    if chap.is_empty() && mutual.take().is_some() {
        notes.add(place, "its own credentials (mutual CHAP) are left out: initiators do not authenticate");
        return;
    }
    let secrets: BTreeSet<String> = chap.iter().map(|user| user.secret.clone()).collect();
    let all = std::iter::once(mutual).chain(chap.iter_mut().map(|user| &mut user.mutual));
    for own in all {
        let Some(Credential { name, secret }) = own else { continue };
        let why = if !NAME_BYTES.contains(&name.len()) || !SECRET_BYTES.contains(&secret.len()) {
            "the secret must have 12 to 255 bytes, the name 1 to 255"
        } else if secrets.contains(secret) {
            "a user has the same secret"
        } else {
            continue;
        };
        notes.add(
            place,
            format!("its own credentials '{name}' (mutual CHAP) are left out: {why}; initiators that demand them cannot log in"),
        );
        *own = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(name: &str, secret: &str) -> Credential {
        Credential { name: name.into(), secret: secret.into() }
    }

    fn user(name: &str, secret: &str, names: &[&str]) -> User {
        let initiators = (!names.is_empty()).then(|| names.iter().map(|&name| name.into()).collect());
        User { credential: credential(name, secret), initiators, mutual: None }
    }

    fn table(demands: Demands) -> (Option<Table>, String) {
        let mut notes = Notes::default();
        let rules = rules("t", demands, &mut notes);
        let text = notes.into_all().iter().map(|note| format!("{}\n", note.text)).collect();
        match rules {
            Rules::Open => (None, text),
            // No other rules are an empty table.
            Rules::Nobody => (Some(Table::default()), text),
            Rules::Table(table) => (Some(table), text),
        }
    }

    fn listed(names: &[&str]) -> Option<Vec<Initiator>> {
        Some(names.iter().map(|&name| Initiator { name: name.into(), luns: None }).collect())
    }

    fn chap(users: Vec<User>) -> Demands {
        Demands { must_authenticate: true, users, ..Demands::default() }
    }

    #[test]
    fn demands_that_cannot_be_written_admit_nobody() {
        for (demands, why) in [
            (chap(vec![]), "no user"),
            (chap(vec![user("a", "short", &[])]), "5 bytes"),
            (Demands { initiators: listed(&[]), ..Demands::default() }, "list is empty"),
            (Demands { initiators: listed(&["disk"]), ..Demands::default() }, "'disk'"),
            (Demands { addresses: Some(vec!["host".into()]), ..Demands::default() }, "'host'"),
            (Demands { reserved: vec!["iqn.a:b".into()], ..Demands::default() }, "cannot be written"),
        ] {
            let (table, notes) = table(demands);
            assert!(table.is_some_and(|table| table == Table::default()) && notes.contains(why), "{notes}");
        }
        assert!(table(Demands::default()).0.is_none(), "open");
    }

    #[test]
    fn initiators_whose_user_is_left_out_are_not_admitted_by_another_user() {
        let users = || vec![user("a", "short", &["iqn.a:b"]), user("all", "twelve bytes", &[])];
        assert_eq!(table(chap(users())).0.expect("a table"), Table::default());
        let (table, _) = table(Demands { initiators: listed(&["iqn.a:B", "iqn.a:c"]), ..chap(users()) });
        let table = table.expect("a table");
        assert_eq!(table.initiators.iter().map(|i| &*i.name).collect::<Vec<_>>(), ["iqn.a:c"]);
        assert_eq!(table.chap.len(), 1);
    }

    #[test]
    fn users_with_one_secret_are_merged_or_left_out() {
        let users = vec![
            user("a", "twelve bytes", &["iqn.a:b"]),
            user("a", "twelve bytes", &["iqn.a:c"]),
            user("b", "twelve bytes", &["iqn.a:d"]),
            user("a", "another secret", &["iqn.a:e"]),
            user("a", "a third secret", &["iqn.a:E"]),
        ];
        let (table, notes) = table(chap(users));
        let table = table.expect("a table");
        assert_eq!(table.chap.len(), 2, "{notes}");
        assert_eq!(table.chap[0].initiators, Names::These(vec!["iqn.a:b".into(), "iqn.a:c".into()]));
        assert!(notes.contains("'b' is left out") && notes.contains("has its name"), "{notes}");
    }

    #[test]
    fn credentials_of_the_target_need_a_secret_of_their_own() {
        for (secret, is_kept) in [("twelve bytes", false), ("short", false), ("another secret", true)] {
            let demands = Demands {
                mutual: Some(credential("t", secret)),
                ..chap(vec![user("a", "twelve bytes", &[])])
            };
            let (table, notes) = table(demands);
            assert_eq!(table.expect("a table").mutual.is_some(), is_kept, "{notes}");
        }
        let demands = Demands {
            mutual: Some(credential("t", "another secret")),
            initiators: listed(&["iqn.a:b"]),
            ..Demands::default()
        };
        assert!(table(demands).1.contains("do not authenticate"));
    }
}
