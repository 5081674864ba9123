//! What a finding means, and what to type on other systems, on switches and in programs.
//!
//! The texts are files: `explain/ID.toml` for a finding, `explain/topics/NAME.toml` for what to type. Findings that are mended by
//! the same settings share a topic.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

mod files;

/// A system, a switch or a language that an explanation covers, in the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Linux: iproute2, ethtool, NetworkManager, systemd.
    Linux,
    /// Windows: PowerShell, the registry.
    Windows,
    /// FreeBSD.
    Freebsd,
    /// illumos and Solaris.
    Illumos,
    /// macOS.
    Macos,
    /// Switches with Cisco IOS.
    CiscoIos,
    /// Switches with Arista EOS.
    AristaEos,
    /// Switches with Junos.
    Junos,
    /// Any other switch.
    OtherSwitch,
    /// Programs for .NET.
    Dotnet,
    /// Programs in Java.
    Java,
    /// Programs in Go.
    Go,
    /// Programs in Python.
    Python,
    /// Programs for Node.js.
    Node,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Linux,
        Self::Windows,
        Self::Freebsd,
        Self::Illumos,
        Self::Macos,
        Self::CiscoIos,
        Self::AristaEos,
        Self::Junos,
        Self::OtherSwitch,
        Self::Dotnet,
        Self::Java,
        Self::Go,
        Self::Python,
        Self::Node,
    ];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Windows => "Windows",
            Self::Freebsd => "FreeBSD",
            Self::Illumos => "illumos, Solaris",
            Self::Macos => "macOS",
            Self::CiscoIos => "switch: Cisco IOS",
            Self::AristaEos => "switch: Arista EOS",
            Self::Junos => "switch: Junos",
            Self::OtherSwitch => "switch: others",
            Self::Dotnet => ".NET",
            Self::Java => "Java",
            Self::Go => "Go",
            Self::Python => "Python",
            Self::Node => "Node.js",
        }
    }
}

/// One line to type, and what it does. Without a line, a remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The line: a command, a line of a configuration or of a program.
    pub run: Option<String>,
    /// What it does.
    pub does: String,
}

/// What to type where.
pub type Steps = BTreeMap<Place, Vec<Step>>;

/// What a finding means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The finding's name.
    pub id: String,
    /// In a few words.
    pub title: String,
    /// What it is.
    pub what: String,
    /// How it comes about.
    pub how: String,
    /// What to type, by place.
    pub steps: Steps,
}

/// `explain/ID.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FindingFile {
    title: String,
    what: String,
    how: String,
    /// Whose steps it shares.
    topics: Vec<String>,
    /// Steps of its own, before those of the topics.
    #[serde(default)]
    steps: Steps,
}

/// All explanations, by the name of their finding. Files that cannot be parsed are left out, which a test rules out.
#[must_use]
pub fn all() -> &'static BTreeMap<String, Explanation> {
    static ALL: OnceLock<BTreeMap<String, Explanation>> = OnceLock::new();
    ALL.get_or_init(|| {
        let pages =
            files::FINDINGS.iter().filter_map(|(id, text)| Some(((*id).to_owned(), parse(id, text).ok()?)));
        pages.collect()
    })
}

/// The explanation of a finding.
#[must_use]
pub fn of(id: &str) -> Option<&'static Explanation> {
    all().get(id)
}

fn parse(id: &str, text: &str) -> Result<Explanation, String> {
    let file: FindingFile = toml::from_str(text).map_err(|error| format!("explain/{id}.toml: {error}"))?;
    let mut steps = file.steps;
    for topic in &file.topics {
        let found = files::TOPICS.iter().find(|(name, _)| name == topic);
        let (_, text) = found.ok_or_else(|| format!("explain/{id}.toml: no topic {topic}"))?;
        let more: Steps =
            toml::from_str(text).map_err(|error| format!("explain/topics/{topic}.toml: {error}"))?;
        for (place, more) in more {
            steps.entry(place).or_default().extend(more);
        }
    }
    Ok(Explanation { id: id.to_owned(), title: file.title, what: file.what, how: file.how, steps })
}

impl Explanation {
    /// As text, one line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.id, self.title)];
        lines.push(format!("  what  {}", self.what));
        lines.push(format!("  how   {}", self.how));
        for (place, steps) in &self.steps {
            lines.push(format!("  {}", place.name()));
            let steps = steps.iter().map(|step| match &step.run {
                Some(run) => format!("    {run}    # {}", step.does),
                None => format!("    # {}", step.does),
            });
            lines.extend(steps);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses_and_is_listed() {
        for (id, text) in files::FINDINGS {
            if let Err(error) = parse(id, text) {
                panic!("{error}");
            }
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("explain");
        let names = |folder: &std::path::Path| -> Vec<String> {
            let entries =
                std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
            let files = entries.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
            let mut names: Vec<String> =
                files.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        let listed =
            |list: &[(&str, &str)]| list.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&folder), listed(files::FINDINGS));
        assert_eq!(names(&folder.join("topics")), listed(files::TOPICS));
    }

    #[test]
    fn every_explanation_covers_every_place_with_single_lines() {
        for (id, page) in all() {
            let places: Vec<Place> = page.steps.keys().copied().collect();
            assert_eq!(places, Place::ALL, "{id}");
            for (place, steps) in &page.steps {
                assert!(!steps.is_empty(), "{id}: {place:?}");
                for step in steps {
                    let is_line =
                        |text: &str| !text.is_empty() && !text.contains('\n') && text.trim() == text;
                    assert!(is_line(&step.does), "{id}: {place:?}: {step:?}");
                    assert!(step.run.as_deref().is_none_or(is_line), "{id}: {place:?}: {step:?}");
                }
            }
            assert!(
                !page.what.contains('\n') && !page.how.contains('\n') && !page.title.contains('\n'),
                "{id}"
            );
        }
    }

    #[test]
    fn every_topic_is_used() {
        let texts: Vec<FindingFile> =
            files::FINDINGS.iter().map(|(_, text)| toml::from_str(text).expect("TOML")).collect();
        for (topic, _) in files::TOPICS {
            assert!(texts.iter().any(|file| file.topics.iter().any(|name| name == topic)), "{topic}");
        }
    }
}
