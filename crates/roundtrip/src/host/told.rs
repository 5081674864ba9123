//! What `tune` and the other verbs say about changes, as lines: nothing is read or written here.

use host::apply::Planned;
use host::change::Setting;
use host::finding::Finding;

/// From this many files of one kind on, they are one line.
const MANY: usize = 5;

/// Findings that nothing here mends, and what the other ends must do: each text once, with the findings that ask for it.
pub(super) fn about_findings(findings: &[&Finding]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.changes.is_empty()) {
        let commands = if finding.commands.is_empty() {
            String::new()
        } else {
            format!("; see: {}", finding.commands.join("; "))
        };
        lines.push(format!("{} is not changed by tune: {}{commands}", name(finding), finding.measured));
    }
    let mut told: Vec<&str> = Vec::new();
    for other_end in findings.iter().filter_map(|finding| finding.other_end.as_deref()) {
        if told.contains(&other_end) {
            continue;
        }
        told.push(other_end);
        let asks = findings.iter().filter(|finding| finding.other_end.as_deref() == Some(other_end));
        let names: Vec<String> = asks.map(|finding| name(finding)).collect();
        lines.push(format!("other end of {}: {other_end}", names.join(", ")));
    }
    lines
}

/// `half-duplex (eth0)`.
fn name(finding: &Finding) -> String {
    format!("{} ({})", finding.id, finding.subject)
}

/// Plans as groups: files below /sys whose paths differ in numbers alone and whose values are the same are one group.
pub(super) fn groups(planned: &[Planned]) -> Vec<Vec<&Planned>> {
    let mut groups: Vec<Vec<&Planned>> = Vec::new();
    for plan in planned {
        let fits = |group: &&mut Vec<&Planned>| group.first().is_some_and(|first| are_alike(first, plan));
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(plan),
            None => groups.push(vec![plan]),
        }
    }
    groups
        .into_iter()
        .flat_map(|group| {
            if group.len() < MANY { group.into_iter().map(|plan| vec![plan]).collect() } else { vec![group] }
        })
        .collect()
}

/// The name of a group: a setting, or `/sys/devices/system/cpu/cpu*/cpuidle/state3/disable (64 files)`.
pub(super) fn setting(group: &[&Planned]) -> String {
    match group {
        [] => String::new(),
        [one] => one.change.setting.to_string(),
        [first, ..] => {
            format!("/sys/{} ({} files)", pattern(&first.change.setting).unwrap_or_default(), group.len())
        }
    }
}

fn are_alike(a: &Planned, b: &Planned) -> bool {
    let pattern = pattern(&a.change.setting);
    pattern.is_some()
        && pattern == self::pattern(&b.change.setting)
        && (&a.in_force, &a.change.value, a.is_needed) == (&b.in_force, &b.change.value, b.is_needed)
}

/// The path of a file of a processor below /sys with `*` for the number of the processor. Numbers of states and queues stay.
fn pattern(setting: &Setting) -> Option<String> {
    let Setting::Sysfs { path } = setting else { return None };
    let part = |part: &str| match ["cpu", "policy"].iter().find(|name| is_numbered(part, name)) {
        Some(name) => format!("{name}*"),
        None => part.to_owned(),
    };
    let parts: Vec<String> = path.split('/').map(part).collect();
    parts.iter().any(|part| part.ends_with('*')).then(|| parts.join("/"))
}

fn is_numbered(part: &str, name: &str) -> bool {
    part.strip_prefix(name)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use host::change::Change;
    use host::finding::Severity;

    use super::*;

    fn finding(id: &str, subject: &str, other_end: Option<&str>) -> Finding {
        Finding {
            id: id.to_owned(),
            severity: Severity::Slow,
            subject: subject.to_owned(),
            measured: "100 Mb/s".to_owned(),
            why: "because".to_owned(),
            cost: None,
            commands: Vec::new(),
            changes: Vec::new(),
            other_end: other_end.map(str::to_owned),
        }
    }

    #[test]
    fn other_ends_are_named_once_with_the_findings_that_ask() {
        let mended = Finding {
            changes: vec![Change {
                setting: Setting::Mtu { interface: "eth2".to_owned() },
                value: "1500".to_owned(),
            }],
            ..finding("mtu-mismatch", "eth2", Some("raise it"))
        };
        let all = [
            finding("half-duplex", "eth0", Some("let it negotiate")),
            finding("half-duplex", "eth1", Some("let it negotiate")),
            Finding {
                commands: vec!["perf trace".to_owned(), "cat x".to_owned()],
                ..finding("receive-drops", "eth0", None)
            },
            mended,
        ];
        let lines = about_findings(&all.iter().collect::<Vec<_>>());
        assert_eq!(
            lines,
            [
                "half-duplex (eth0) is not changed by tune: 100 Mb/s",
                "half-duplex (eth1) is not changed by tune: 100 Mb/s",
                "receive-drops (eth0) is not changed by tune: 100 Mb/s; see: perf trace; cat x",
                "other end of half-duplex (eth0), half-duplex (eth1): let it negotiate",
                "other end of mtu-mismatch (eth2): raise it",
            ]
        );
    }

    fn planned(path: &str, in_force: &str) -> Planned {
        let change = Change { setting: Setting::Sysfs { path: path.to_owned() }, value: "1".to_owned() };
        Planned { change, in_force: in_force.to_owned(), is_needed: in_force != "1" }
    }

    #[test]
    fn files_of_many_processors_are_one_line_each_kind_and_value() {
        let path =
            |cpu: usize, state: usize| format!("devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable");
        let mut all: Vec<Planned> =
            (0..64).flat_map(|cpu| [planned(&path(cpu, 2), "0"), planned(&path(cpu, 3), "0")]).collect();
        all.push(planned(&path(64, 3), "1"));
        all.push(planned("class/net/eth0/queues/rx-0/rps_cpus", "0"));
        let names: Vec<String> = groups(&all).iter().map(|group| setting(group)).collect();
        assert_eq!(
            names,
            [
                "/sys/devices/system/cpu/cpu*/cpuidle/state2/disable (64 files)",
                "/sys/devices/system/cpu/cpu*/cpuidle/state3/disable (64 files)",
                "/sys/devices/system/cpu/cpu64/cpuidle/state3/disable",
                "/sys/class/net/eth0/queues/rx-0/rps_cpus",
            ]
        );
        let count: usize = groups(&all).iter().map(Vec::len).sum();
        assert_eq!(count, all.len(), "none is lost");
        let few: Vec<Planned> = (0..4).map(|cpu| planned(&path(cpu, 2), "0")).collect();
        assert_eq!(groups(&few).len(), 4);
    }
}
