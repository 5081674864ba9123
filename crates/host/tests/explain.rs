//! Explanations: each finding that a rule can produce has one, and no explanation is of a finding that does not exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use host::explain::{all, of};

/// Names in the rules that are no findings: drivers, schedulers, features of cards.
const OTHER_NAMES: [&str; 11] = [
    "amd-pstate-epp",
    "mq-deadline",
    "rx-checksum",
    "rx-gro",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];

/// Names of one word, which the form of a text does not reveal.
const OF_ONE_WORD: [&str; 4] = ["coalescing", "corked", "governor", "retransmissions"];

/// Explained for people who ask for it; no rule calls it a fault.
const WITHOUT_RULE: [&str; 1] = ["slow-start-after-idle"];

/// Texts in the sources below a folder that look like the name of a finding.
fn names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let rules = text.split("#[cfg(test)]").next().unwrap();
        for literal in rules.split('"').skip(1).step_by(2) {
            let is_name = literal.contains('-')
                && literal.split('-').all(|word| {
                    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                });
            if (is_name && !OTHER_NAMES.contains(&literal)) || OF_ONE_WORD.contains(&literal) {
                found.insert(literal.to_owned());
            }
        }
    }
}

#[test]
fn every_finding_of_the_rules_is_explained_and_no_other() {
    let mut found = BTreeSet::new();
    names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check"), &mut found);
    let with_rule = found.clone();
    found.extend(WITHOUT_RULE.map(str::to_owned));
    let explained: BTreeSet<String> = all().keys().cloned().collect();
    let without: Vec<&String> = found.difference(&explained).collect();
    let unknown: Vec<&String> = explained.difference(&found).collect();
    assert!(without.is_empty() && unknown.is_empty(), "not explained: {without:?}; unknown: {unknown:?}");
    assert!(WITHOUT_RULE.iter().all(|name| !with_rule.contains(*name)), "it has a rule now");
}

#[test]
fn the_switches_of_other_systems_are_explained() {
    let text = |id: &str| of(id).unwrap().lines().join("\n");
    let nagle = text("nagle-on-small-messages");
    for line in [
        "ndd -get /dev/tcp tcp_naglim_def",
        "ndd -set /dev/tcp tcp_naglim_def 1",
        "ipadm set-prop -p _naglim_def=1 tcp",
        "TcpAckFrequency",
        "TcpNoDelay",
        "sysctl net.inet.tcp.delayed_ack=0",
        "socket.NoDelay = true;",
        "socket.setTcpNoDelay(true);",
        "SetNoDelay(true)",
        "sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)",
        "socket.setNoDelay(true);",
    ] {
        assert!(nagle.contains(line), "{line}");
    }
    for id in ["half-duplex", "duplex-mismatch", "forced-against-negotiating", "speed-below-possible"] {
        let modes = text(id);
        for line in [
            "ndd -get /dev/bge0 link_speed",
            "ndd -get /dev/bge0 link_duplex",
            "dladm show-ether",
            "dladm set-linkprop -p adv_autoneg_cap=1 bge0",
            "ifconfig em0 media autoselect",
            "Set-NetAdapterAdvancedProperty -Name 'Ethernet' -RegistryKeyword '*SpeedDuplex' -RegistryValue 0",
            "duplex auto",
            "set interfaces ge-0/0/1 ether-options auto-negotiation",
        ] {
            assert!(modes.contains(line), "{id}: {line}");
        }
    }
}

#[test]
fn an_explanation_has_its_parts_in_order() {
    let lines = of("corked").unwrap().lines();
    assert_eq!(lines[0], "corked: the program holds data back");
    assert!(
        lines[1].starts_with("  what  Less than a segment") && lines[2].starts_with("  how   The program")
    );
    assert_eq!(lines[3], "  Linux");
    assert!(
        lines[4].starts_with("    roundtrip host socket --pid 4711 --fd 7 cork=off --apply    # uncorks")
    );
    let python = lines.iter().position(|line| line == "  Python").unwrap();
    let node = lines.iter().position(|line| line == "  Node.js").unwrap();
    assert!(python < node && node + 1 < lines.len());
    assert!(of("no-such-finding").is_none());
}

/// Commands of this program in explanations and findings that do not exist would be worse than none.
#[test]
fn commands_of_this_program_name_verbs_and_options_that_it_has() {
    for page in all().values() {
        for step in page.steps.values().flatten().filter_map(|step| step.run.as_deref()) {
            let Some(rest) = step.strip_prefix("roundtrip host ") else { continue };
            let mut words = rest.split(' ');
            assert_eq!(words.next(), Some("socket"), "{step}");
            for word in words {
                let is_number = word.parse::<u32>().is_ok();
                let is_option = ["--pid", "--fd", "--port", "--apply"].contains(&word);
                assert!(
                    is_number || is_option || word.parse::<socket::foreign::Wish>().is_ok(),
                    "{step}: {word}"
                );
            }
        }
    }
}

/// The names after `word` in a text that have the form of a finding's name: words with hyphens.
fn names_after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let rest = text.match_indices(word).map(|(at, _)| &text[at + word.len()..]);
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let names = rest.map(|rest| &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]);
    names.filter(|name| name.contains('-') && !name.starts_with('-')).collect()
}

/// A name in a help text or a document that no finding has sends its reader nowhere.
#[test]
fn findings_that_help_texts_and_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files =
        |folder: &str| std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let paths = files("docs").chain(files("crates/roundtrip/src/host")).chain(files(""));
    let mut seen = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|kind| kind == "md" || kind == "rs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for name in [names_after(text, "host tune "), names_after(text, "host explain ")].concat() {
            assert!(of(name).is_some(), "{}: there is no finding {name}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn tables_of_findings_name_findings_that_exist() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/host.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut is_inside, mut seen) = (false, 0);
    for line in text.lines() {
        let first = line.strip_prefix("| ").and_then(|line| line.split(" | ").next());
        is_inside = line.starts_with('|') && (is_inside || matches!(first, Some("finding" | "name")));
        let names =
            first.filter(|_| is_inside).into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
        for name in names.filter(|name| !name.starts_with('-')) {
            assert!(of(name).is_some(), "docs/host.md: there is no finding {name}");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}
