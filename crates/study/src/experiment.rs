//! Experiments: cases that differ in one property, run interleaved, with medians and spread beside published figures.

mod cases;
mod followed;
mod planted;
mod result;
mod run;

use std::time::Duration;

use load::Pattern;
use load::initiator::url::redacted;
use load::initiator::{InitiatorError, IscsiUrl, Login, LoginSpec};
use load::{EndpointOptions, Load, http};
use record::Writes;
use serde::{Deserialize, Serialize};

pub use self::planted::SecondLoad;
pub use self::result::{CaseResult, ExperimentResult, Found, KeptRun, Structure};
pub use self::run::{Keep, TakeOps};
use crate::placement::Placement;
use crate::values::{check_common, rate, rate_text, size, time, time_text, toml_error};

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// Rate of the wire, bits per second.
    #[serde(deserialize_with = "rate", serialize_with = "rate_text")]
    pub rate: u64,
    /// Measured time of each run.
    #[serde(deserialize_with = "time", serialize_with = "time_text")]
    pub runtime: Duration,
    /// Runs of each case.
    pub repeats: u32,
    /// Each run is made once more while its packets are kept: for the observer's cost, and for the frames.
    #[serde(default = "yes")]
    pub traces: bool,
    /// The CPUs.
    #[serde(default)]
    pub placement: Placement,
    /// The cases.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// Its name in the table.
    pub label: String,
    /// MTU of the wire.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// Its work.
    pub work: Work,
    /// How the initiator logs in; for `iscsi` and `url`.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub login: LoginSpec,
    /// The client's side.
    #[serde(default)]
    pub client: EndpointOptions,
    /// The server's.
    #[serde(default)]
    pub server: EndpointOptions,
    /// Layers over the disk of `iscsi`, the first one nearest to it ([`store::layer::LayerSpec`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Another load meanwhile, for `iscsi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondLoad>,
    /// Each run is made once more while every operation is followed through all capture points, and their structure is
    /// searched; for `iscsi`.
    #[serde(default, skip_serializing_if = "is_not")]
    pub structure: bool,
    /// The case that this one is compared with, by its label.
    pub against: Option<String>,
    /// Published figures, in words.
    pub published: Option<String>,
}

fn is_plain(login: &LoginSpec) -> bool {
    *login == LoginSpec::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_not(is: &bool) -> bool {
    !is
}

fn usual_mtu() -> u32 {
    9000
}

fn yes() -> bool {
    true
}

/// The work of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Work {
    /// Posts of this many bytes, one after another on one connection.
    Post(usize),
    /// Gets of this many bytes.
    Get(usize),
    /// Messages of a header and a body.
    Messages(Load),
    /// A copy over plain TCP.
    Copy {
        /// Bytes in all.
        #[serde(deserialize_with = "size")]
        bytes: u64,
        /// Bytes of one write.
        #[serde(deserialize_with = "size")]
        block: u64,
    },
    /// iSCSI against any target, from this host. It overwrites data there.
    Url {
        /// `iscsi://host[:port]/iqn/lun`.
        url: String,
        /// Access pattern.
        rw: Pattern,
        /// Bytes of an operation.
        #[serde(deserialize_with = "size")]
        block: u64,
        /// Operations in flight.
        depth: u32,
    },
    /// iSCSI against a disk in memory; Nagle on the server's side is its send policy `nagle`, or `nagle-unflushed`.
    Iscsi {
        /// Access pattern.
        rw: Pattern,
        /// Bytes of an operation.
        #[serde(deserialize_with = "size")]
        block: u64,
        /// Operations in flight.
        depth: u32,
    },
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Exchanges per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Millions of bytes per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
}

impl Unit {
    /// All units.
    pub const ALL: [Self; 2] = [Self::PerSecond, Self::MegabytesPerSecond];

    /// The name that reports print.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "1/s",
            Self::MegabytesPerSecond => "MB/s",
        }
    }
}

impl Work {
    /// The unit of the compared figure.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self {
            Self::Post(_) | Self::Get(_) | Self::Messages(_) => Unit::PerSecond,
            Self::Copy { .. } | Self::Iscsi { .. } | Self::Url { .. } => Unit::MegabytesPerSecond,
        }
    }
}

impl Experiment {
    /// Reads a plan.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn read(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        let wrong = |why: String| Err(why);
        if plan.cases.is_empty() {
            return wrong("a plan has at least one [[case]]".into());
        }
        for (index, case) in plan.cases.iter().enumerate() {
            if plan.cases[..index].iter().any(|other| other.label == case.label) {
                return wrong(format!("case '{}': there are two of that label", case.label));
            }
        }
        for case in &plan.cases {
            let of = |why: String| wrong(format!("case '{}': {why}", case.label));
            if let Err(why) = check_common(plan.repeats, case.mtu) {
                return of(why);
            }
            if let Some(against) = &case.against
                && !plan.cases.iter().any(|other| other.label == *against)
            {
                return of(format!("against = '{against}': there is no such case"));
            }
            if let Some(why) = case.idle_setting() {
                return of(why.into());
            }
            if let Err(why) = case.check_planted(plan.runtime) {
                return of(why);
            }
            let is_right = match &case.work {
                Work::Post(bytes) | Work::Get(bytes) => *bytes <= http::BODY_MAX,
                Work::Messages(load) => {
                    let largest = [load.request, load.response].iter().map(|m| m.0.saturating_add(m.1)).max();
                    (1..=1024).contains(&load.queue_depth)
                        && load.request.0 > 0
                        && load.response.0 > 0
                        && largest.is_some_and(|bytes| bytes <= http::BODY_MAX)
                }
                Work::Copy { bytes, block } => *bytes > 0 && (1..=64 << 20).contains(block),
                Work::Url { url, .. } if url.parse::<IscsiUrl>().is_err() => {
                    return of(format!(
                        "url = '{}': write iscsi://[user@]host[:port]/iqn/lun, and a secret's file as chap-secret-file",
                        redacted(url)
                    ));
                }
                Work::Iscsi { block, depth, .. } | Work::Url { block, depth, .. } => {
                    *block > 0
                        && block.is_multiple_of(512)
                        && *block <= 16 << 20
                        && (1..=1024).contains(depth)
                }
            };
            if !is_right {
                return of(
                    "sizes are up to 64 MiB (iSCSI: multiples of 512 B up to 16 MiB), depths 1 to 1024"
                        .into(),
                );
            }
        }
        Ok(plan)
    }
}

impl Experiment {
    /// Reads the secrets of all logins, so that a missing one is noticed before anything starts.
    ///
    /// # Errors
    /// The first secret that cannot be used.
    pub fn check_logins(&self) -> Result<(), InitiatorError> {
        self.cases.iter().try_for_each(|case| case.log_in().map(drop))
    }
}

impl Case {
    /// Returns the login with its secrets.
    pub(crate) fn log_in(&self) -> Result<Login, InitiatorError> {
        let mut spec = self.login.clone();
        if let (None, Work::Url { url, .. }) = (&spec.chap_user, &self.work) {
            spec.chap_user = url.parse::<IscsiUrl>()?.user;
        }
        spec.load(|name| std::env::var(name).ok())
    }

    /// A setting that this work does not use.
    fn idle_setting(&self) -> Option<&'static str> {
        let (client, server) = (&self.client, &self.server);
        let one = Writes::One;
        match &self.work {
            Work::Post(_) | Work::Get(_) | Work::Messages(_) | Work::Copy { .. }
                if !is_plain(&self.login) =>
            {
                Some("login: it is for iscsi and url")
            }
            _ if client.unflushed => Some("unflushed of the client: it is for the server of iscsi"),
            Work::Iscsi { .. } if server.unflushed && !server.nagle => {
                Some("unflushed of the server: it is for nagle = true")
            }
            Work::Post(_) | Work::Get(_) | Work::Messages(_) | Work::Copy { .. } if server.unflushed => {
                Some("unflushed of the server: it is for iscsi")
            }
            Work::Post(_) | Work::Get(_) | Work::Messages(_) | Work::Copy { .. } | Work::Url { .. }
                if self.structure || self.second.is_some() || !self.layers.is_empty() =>
            {
                Some("layers, second and structure: they are for iscsi")
            }
            Work::Iscsi { .. } if server.writes != one => {
                Some("writes of the server: iSCSI's responses leave by a send policy (nagle, or not)")
            }
            Work::Iscsi { .. } | Work::Url { .. }
                if !matches!(client.writes, Writes::One | Writes::Apart | Writes::More) =>
            {
                Some("writes of the client: iSCSI has one, apart and more")
            }
            Work::Url { .. } if *server != EndpointOptions::default() => {
                Some("server: another's target is set on its own host")
            }
            Work::Copy { .. } if client.writes != one || server.writes != one => {
                Some("writes is for post and messages: a copy is written block by block")
            }
            Work::Messages(load) if load.batch && client.writes != one => {
                Some("writes of the client: a batch leaves in one send")
            }
            Work::Post(_) if server.writes != one => {
                Some("writes of the server: a POST's answer has no body")
            }
            Work::Get(_) if client.writes != one => Some("writes of the client: a GET has no body"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_settings_are_rejected() {
        let plan = |case: &str| {
            let text = format!(
                "name = 'n'\nabout = 'a'\nrate = '1gbit'\nruntime = '1s'\nrepeats = 1\n[[case]]\nlabel = 'c'\n{case}"
            );
            Experiment::read(&text).map(drop)
        };
        plan("work = { post = 480 }\nclient = { writes = 'apart' }").unwrap();
        let iscsi = "work = { iscsi = { rw = 'write', block = '1k', depth = 4 } }";
        plan(&format!("{iscsi}\nserver = {{ nagle = true, unflushed = true }}")).unwrap();
        for (sides, why) in [
            ("server = { unflushed = true }", "it is for nagle = true"),
            ("client = { nagle = true, unflushed = true }", "it is for the server"),
        ] {
            let text = plan(&format!("{iscsi}\n{sides}")).unwrap_err();
            assert!(text.contains(why), "{sides}: {text}");
        }
        for (case, why) in [
            (
                "work = { iscsi = { rw = 'read', block = '4k', depth = 1 } }\nclient = { writes = 'cork' }",
                "writes",
            ),
            ("work = { get = 5 }\nclient = { writes = 'cork' }", "no body"),
            ("work = { get = 5 }\nserver = { nagle = true, unflushed = true }", "it is for iscsi"),
            (
                "work = { url = { url = 'iscsi://a/iqn.2000-01.x:y/0', rw = 'write', block = '4k', depth = 1 } }\nserver = { nagle = true }",
                "server",
            ),
            ("work = { copy = { bytes = '1M', block = '4k' } }\nserver = { writes = 'apart' }", "writes"),
            ("work = { post = 480 }\ncolour = 'blue'", "unknown field"),
            ("work = { post = 480 }\nlogin = { header-digest = true }", "login"),
            (
                "work = { messages = { request = [9, 0], response = [9, 0], queue_depth = 2, colour = 1 } }",
                "unknown field",
            ),
            (
                "work = { messages = { request = [9, 1], response = [9, 0], queue_depth = 2, batch = true } }\nclient = { writes = 'apart' }",
                "batch",
            ),
        ] {
            let text = plan(case).unwrap_err();
            assert!(text.contains(why), "{case}: {text}");
        }
    }
    /// Whatever is wrong with a plan, its error does not show a secret that was written into it.
    #[test]
    fn errors_do_not_show_secrets() {
        let begin =
            "name = 'n'\nabout = 'a'\nrate = '1gbit'\nruntime = '1s'\nrepeats = 1\n[[case]]\nlabel = 'c'\n";
        let url = |url: &str| {
            format!("work = {{ url = {{ url = '{url}', rw = 'read', block = '4k', depth = 1 }} }}")
        };
        let good = url("iscsi://a/iqn.2000-01.x:y/0");
        for case in [
            url("iscsi://alice%wonderland@a/iqn.2000-01.x:y/0"),
            url("iscsi://alice%wonderland/iqn.2000-01.x:y/0"),
            format!("{good}\nlogin = {{ chap-secret = 'wonderland' }}"),
            format!("{good}\nlogin = {{ chap-user = 'a', secret = 'wonderland' }}"),
            format!("{good}\nlogin.chap-secret-file = ['wonderland']"),
            format!("{good}\n[case.login]\nchap-secret 'wonderland'"),
            format!("{good}\n[case.login]\nchap-secret = wonderland"),
            format!("{good}\n[case.login]\nchap-secret = \"\"\"\nwonderland\"\"\""),
            format!("{good}\n[case.login]\nchap-password = 'wonderland"),
            "work = { url = { url = 'iscsi://alice%wonderland@a/iqn.x/0', rw = 'raed' } }".to_owned(),
            "work = 'iscsi://alice%wonderland@a/iqn.x/0'".to_owned(),
        ] {
            let text = format!("{begin}{case}\n");
            for error in [Experiment::read(&text).unwrap_err(), crate::AnyPlan::read(&text).unwrap_err()] {
                assert!(!error.contains("wonderland") && !error.is_empty(), "{case}: {error}");
            }
        }
        let plan = format!(
            "{begin}{good}\nlogin = {{ chap-user = 'a', chap-secret-file = '/dev/null/x', data-digest = true }}\n"
        );
        let plan = Experiment::read(&plan).unwrap();
        assert!(plan.check_logins().unwrap_err().to_string().contains("/dev/null/x"));
        let other = Experiment::read(&format!("{begin}{good}\ncolour = 'blue'\n")).unwrap_err();
        assert!(other.contains("colour = 'blue'"), "other errors quote their line: {other}");
    }
}
