//! What differs between two declared states, for people: secrets are not shown.

use std::collections::{BTreeMap, BTreeSet};

use iscsi::login::chap::Credentials;
use iscsi_target::{Access, ActsFor, User};

use crate::disk::DiskSpec;
use crate::file::{NodeFile, TargetFile};

/// Returns a line for each difference: `+` is added, `-` removed, `~` changed.
#[must_use]
pub fn differences(before: &TargetFile, after: &TargetFile) -> Vec<String> {
    let mut lines = Vec::new();
    let text = |send: &Option<iscsi_target::SendPolicy>| {
        send.map_or_else(|| "auto".to_owned(), |send| send.to_string())
    };
    changed(&mut lines, "send", &text(&before.send), &text(&after.send));
    // A running target refuses these.
    let restart = [
        ("portal", before.portals != after.portals),
        ("state", before.state != after.state),
        ("limits", before.limits != after.limits),
    ];
    lines.extend(
        restart.iter().filter(|(_, differs)| *differs).map(|(key, _)| format!("~ {key}: needs a restart")),
    );
    for node in &before.nodes {
        if after.node(node.name()).is_none() {
            lines.push(format!("- target {}", node.name()));
        }
    }
    for node in &after.nodes {
        let new = NodeFile { iqn: node.iqn.clone(), groups: node.groups.clone(), ..NodeFile::default() };
        let old = before.node(node.name());
        if old.is_none() {
            lines.push(format!("+ target {}", node.name()));
        }
        of_node(&mut lines, old.unwrap_or(&new), node);
    }
    lines
}

fn changed(lines: &mut Vec<String>, what: &str, before: &str, after: &str) {
    if before != after {
        lines.push(format!("~ {what}: {before} -> {after}"));
    }
}

fn of_node(lines: &mut Vec<String>, before: &NodeFile, after: &NodeFile) {
    let place = after.name();
    let groups = |node: &NodeFile| {
        node.groups.as_ref().map_or_else(|| "all".to_owned(), |groups| format!("{groups:?}"))
    };
    changed(lines, &format!("groups of {place}"), &groups(before), &groups(after));
    let find = |node: &NodeFile, number: u16| -> Option<DiskSpec> {
        node.luns.iter().find(|(own, _)| *own == number).map(|(_, spec)| spec.clone())
    };
    for (number, spec) in &before.luns {
        if find(after, *number).is_none() {
            lines.push(format!("- LUN {number} of {place}: {spec}"));
        }
    }
    for (number, spec) in &after.luns {
        match find(before, *number) {
            None => lines.push(format!("+ LUN {number} of {place}: {spec}")),
            Some(old) => {
                let what = format!("LUN {number} of {place}");
                changed(lines, &what, &old.text, &spec.text);
                if old.names != spec.names {
                    lines.push(format!("~ {what}: other names"));
                }
            }
        }
    }
    let (was, is) = (rules(before.access.as_ref()), rules(after.access.as_ref()));
    let [old, new]: [BTreeSet<&String>; 2] = [was.iter().collect(), is.iter().collect()];
    for gone in old.difference(&new) {
        lines.push(format!("- access of {place}: {gone}"));
    }
    for added in new.difference(&old) {
        lines.push(format!("+ access of {place}: {added}"));
    }
    let (old, new) = (secrets(before.access.as_ref()), secrets(after.access.as_ref()));
    if old.iter().any(|(what, secret)| new.get(what).is_some_and(|now| now != secret)) {
        lines.push(format!("~ access of {place}: other secrets"));
    }
}

/// The secrets of rules, by what they are for: a user with its initiators, or the target.
fn secrets(access: Option<&Access>) -> BTreeMap<String, Vec<&Credentials>> {
    let Some(access) = access else { return BTreeMap::new() };
    let users = access
        .users
        .iter()
        .map(|user| (of_user(user), [&user.credentials].into_iter().chain(&user.own).collect()));
    users.chain(access.own.iter().map(|own| ("mutual CHAP".to_owned(), vec![own]))).collect()
}

/// A CHAP user as a line, without its secret.
fn of_user(user: &User) -> String {
    let names = match &user.acts_for {
        ActsFor::Any => "any initiator".to_owned(),
        ActsFor::Names(names) => names.join(", "),
    };
    let mutual = if user.own.is_some() { ", mutual" } else { "" };
    format!("CHAP user {} as {names}{mutual}", user.credentials.name)
}

/// Access rules as lines, without secrets.
#[must_use]
pub fn rules(access: Option<&Access>) -> Vec<String> {
    let Some(access) = access else { return vec!["every initiator".to_owned()] };
    if access.is_closed {
        return vec!["nobody".to_owned()];
    }
    let mut lines = Vec::new();
    lines.extend(access.addresses.iter().map(|network| format!("from {network}")));
    for initiator in &access.initiators {
        let disks = match &initiator.luns {
            None => "all disks".to_owned(),
            Some(luns) => {
                let shown = luns.iter().map(|shown| {
                    let read_only = if shown.read_only { " read-only" } else { "" };
                    if shown.number == shown.disk {
                        format!("{}{read_only}", shown.number)
                    } else {
                        format!("{} (disk {}){read_only}", shown.number, shown.disk)
                    }
                });
                format!("LUNs {}", shown.collect::<Vec<_>>().join(", "))
            }
        };
        let read_only = if initiator.read_only { ", read-only" } else { "" };
        lines.push(format!("initiator {}: {disks}{read_only}", initiator.name));
    }
    lines.extend(access.users.iter().map(of_user));
    if access.own.is_some() {
        lines.push("mutual CHAP".to_owned());
    }
    if !access.discovery {
        lines.push("discovery without authentication".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::parse;

    #[test]
    fn differences_are_told_without_secrets() {
        let before = parse(
            "iqn = 'iqn.a:b'\n[luns]\n0 = 'ram:1M'\n1 = 'ram:1M'\n[access]\n[[access.chap]]\nname = 'u'\nsecret = 'hidden secret'\ninitiators = 'any'",
        );
        let after = parse(
            "send = 'nagle'\niqn = 'IQN.a:b'\n[luns]\n0 = 'ram:2M'\n2 = { store = 'ram:1M', serial = 's' }\n[access]\naddresses = ['192.0.2.0/24']\n[[access.chap]]\nname = 'u'\nsecret = 'other secret'\ninitiators = 'any'\n[[target]]\niqn = 'iqn.a:c'\nluns.0 = 'zero:1M'",
        );
        let (before, after) = (before.expect("before"), after.expect("after"));
        assert_eq!(
            differences(&before, &after),
            [
                "~ send: auto -> nagle",
                "- LUN 1 of IQN.a:b: ram:1M",
                "~ LUN 0 of IQN.a:b: ram:1M -> ram:2M",
                "+ LUN 2 of IQN.a:b: ram:1M",
                "+ access of IQN.a:b: from 192.0.2.0/24",
                "~ access of IQN.a:b: other secrets",
                "+ target iqn.a:c",
                "+ LUN 0 of iqn.a:c: zero:1M",
            ]
        );
        assert!(differences(&after, &after).is_empty());
        assert!(differences(&after, &before).contains(&"- target iqn.a:c".to_owned()));
        let mut secret = before.clone();
        secret.nodes[0].access.as_mut().expect("access").users[0].credentials.secret =
            b"third secret".to_vec();
        assert_eq!(differences(&before, &secret), ["~ access of iqn.a:b: other secrets"]);
        // Namesakes that exchange their secrets.
        let users = |one: &str, two: &str| {
            let of = |secret: &str, name: &str| {
                format!("[[access.chap]]\nname = 'u'\nsecret = '{secret}'\ninitiators = ['{name}']\n")
            };
            parse(&format!("{}{}", of(one, "iqn.a:1"), of(two, "iqn.a:2"))).expect("users")
        };
        let (one, two) = ("the first secret", "the other secret");
        assert_eq!(differences(&users(one, two), &users(two, one)).len(), 1);
        // Beside other changes, too.
        secret.nodes[0].access.as_mut().expect("access").discovery = false;
        assert_eq!(differences(&before, &secret).len(), 2);
        let portals = TargetFile { limits: vec![("sessions".into(), "7".into())], ..before.clone() };
        assert_eq!(differences(&before, &portals), ["~ limits: needs a restart"]);
    }
}
