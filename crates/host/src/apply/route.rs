//! Options of routes, by iproute2, which prints a route in the words in which it takes it.

use crate::apply::tool::run;
use crate::change::Setting;
use crate::error::ChangeError;

const PACKAGE: &str = "iproute2";

/// Options with a value that a change may set (ip-route(8)).
const OPTIONS: [&str; 16] = [
    "advmss",
    "congctl",
    "cwnd",
    "features",
    "hoplimit",
    "initcwnd",
    "initrwnd",
    "metric",
    "mtu",
    "quickack",
    "reordering",
    "rto_min",
    "rtt",
    "rttvar",
    "ssthresh",
    "window",
];

/// Words that `ip route` prints about the state of a route and does not take.
const STATES: [&str; 6] = ["dead", "linkdown", "offload", "trap", "offload_failed", "rt_trap"];

/// The value of an option; empty where it is not set.
pub(super) fn read(setting: &Setting, route: &str, option: &str) -> Result<String, ChangeError> {
    let words = find(route, option).map_err(|why| ChangeError::Read { setting: setting.to_string(), why })?;
    Ok(value_of(&words, option).unwrap_or_default())
}

/// Sets an option, or removes it where the value is empty.
pub(super) fn write(setting: &Setting, route: &str, option: &str, value: &str) -> Result<(), ChangeError> {
    let wrong =
        |why: String| ChangeError::Write { setting: setting.to_string(), value: value.to_owned(), why };
    if value.split_whitespace().count() > 2 || value.starts_with('-') {
        return Err(wrong("it is not a value of an option".to_owned()));
    }
    let words = with_option(&find(route, option).map_err(wrong)?, option, value);
    let mut arguments = vec![family(&words), "route", "replace"];
    arguments.extend(words.iter().map(String::as_str));
    run("ip", PACKAGE, &arguments).map(|_| ()).map_err(wrong)
}

fn family(words: &[String]) -> &'static str {
    if words.first().is_some_and(|destination| destination.contains(':')) { "-6" } else { "-4" }
}

/// The one route that begins with the words of `route`, with all its options.
fn find(route: &str, option: &str) -> Result<Vec<String>, String> {
    if !OPTIONS.contains(&option) {
        return Err(format!(
            "'{option}' is not an option that can be restored; these are: {}",
            OPTIONS.join(", ")
        ));
    }
    let wanted: Vec<String> = route.split_whitespace().map(str::to_owned).collect();
    let Some(destination) = wanted.first().filter(|word| !word.starts_with('-')) else {
        return Err("it must begin with a destination, as `ip route` prints it".to_owned());
    };
    let text = run("ip", PACKAGE, &[family(&wanted), "route", "show", "exact", destination])?;
    let found: Vec<Vec<String>> = text.lines().map(words).filter(|words| has_words(words, &wanted)).collect();
    match <[Vec<String>; 1]>::try_from(found) {
        Ok([words]) => Ok(words),
        Err(found) if found.is_empty() => Err(format!("there is no route '{route}'")),
        Err(found) => Err(format!("'{route}' means {} routes; name its via, dev or metric too", found.len())),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().filter(|word| !STATES.contains(word)).map(str::to_owned).collect()
}

/// Whether a route has the destination and each pair of words (`dev eth0`) of another.
fn has_words(route: &[String], wanted: &[String]) -> bool {
    let has = |pair: &[String]| route[1..].windows(pair.len()).any(|words| words == pair);
    route.first() == wanted.first() && wanted[1..].chunks(2).all(has)
}

fn place(words: &[String], option: &str) -> Option<(usize, usize)> {
    // The first word is the destination, and not an option's name.
    let at = words.iter().skip(1).position(|word| word == option)? + 1;
    // `mtu lock 1400` has two.
    let length = if words.get(at + 1).is_some_and(|word| word == "lock") { 3 } else { 2 };
    Some((at, (at + length).min(words.len())))
}

fn value_of(words: &[String], option: &str) -> Option<String> {
    place(words, option).map(|(at, end)| words[at + 1..end].join(" "))
}

fn with_option(words: &[String], option: &str, value: &str) -> Vec<String> {
    let mut words = words.to_vec();
    let at = match place(&words, option) {
        Some((at, end)) => {
            words.drain(at..end);
            at
        }
        None => words.len(),
    };
    if !value.is_empty() {
        let new = std::iter::once(option).chain(value.split_whitespace()).map(str::to_owned);
        words.splice(at..at, new);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        words(text)
    }

    #[test]
    fn an_option_is_set_replaced_and_removed() {
        let route = "10.0.0.0/24 via 10.1.0.1 dev eth0 proto static metric 100 linkdown quickack 1 mtu lock 1400 initcwnd 20";
        let plain = split(route);
        assert_eq!(value_of(&plain, "quickack").as_deref(), Some("1"));
        assert_eq!(value_of(&plain, "mtu").as_deref(), Some("lock 1400"));
        assert_eq!(value_of(&plain, "rto_min"), None);
        assert!(!plain.contains(&"linkdown".to_owned()), "a state is not an option");
        for (option, value) in
            [("quickack", "0"), ("mtu", "9000"), ("rto_min", "5ms"), ("mtu", ""), ("rto_min", "")]
        {
            let changed = with_option(&plain, option, value);
            assert_eq!(value_of(&changed, option).unwrap_or_default(), value, "{changed:?}");
            let back = value_of(&plain, option).unwrap_or_default();
            let mut restored = with_option(&changed, option, &back);
            let mut expected = plain.clone();
            restored.sort();
            expected.sort();
            assert_eq!(restored, expected);
        }
    }

    #[test]
    fn a_route_is_found_by_its_words() {
        let route = split("10.0.0.0/24 via 10.1.0.1 dev eth0 metric 100");
        for (wanted, is_found) in [
            ("10.0.0.0/24", true),
            ("10.0.0.0/24 dev eth0", true),
            ("10.0.0.0/24 dev eth0 via 10.1.0.1", true),
            ("10.0.0.0/24 dev eth1", false),
            ("10.0.0.0/16 dev eth0", false),
            ("10.0.0.0/24 dev eth0 metric 200", false),
        ] {
            assert_eq!(has_words(&route, &split(wanted)), is_found, "{wanted}");
        }
    }

    #[test]
    fn only_known_options_and_destinations_reach_the_program() {
        assert!(find("10.0.0.0/24", "via").unwrap_err().contains("not an option"));
        assert!(find("", "mtu").is_err());
        assert!(find("-batch /etc/passwd", "mtu").is_err());
    }
}
