//! What may be asked of a target, and what HTTP has to do with it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol, the first part of each path but that of the metrics. A change that an old client does not understand
/// gets another one.
pub const VERSION: &str = "v1";

/// What is asked of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What it is and does.
    Status,
    /// Its targets with their disks.
    Targets,
    /// Adds a target without disks, or replaces the rules of one that exists.
    AddTarget(String, TargetBody),
    /// Removes a target.
    RemoveTarget(String),
    /// Its portals.
    Portals,
    /// The disks of all targets.
    Disks,
    /// Adds a disk, or replaces or resizes the one with this number.
    SetDisk(String, u16, DiskBody),
    /// Resizes a disk.
    ResizeDisk(String, u16, SizeBody),
    /// Removes a disk.
    RemoveDisk(String, u16),
    /// The sessions.
    Sessions,
    /// Ends a session, by its number. Its initiator may log in again.
    DropSession(u64),
    /// Ends the sessions of an initiator. It may log in again.
    DropInitiator(String),
    /// The connections with their statistics.
    Connections,
    /// The reservations.
    Reservations,
    /// Ends the reservations of a disk.
    ClearReservations(String, u16),
    /// The access rules of all targets, without secrets.
    Access,
    /// Replaces the access rules of a target.
    SetAccess(String, AccessBody),
    /// The send policy.
    Send,
    /// Replaces the send policy of all connections.
    SetSend(SendBody),
    /// The levels of the log.
    LogLevel,
    /// Replaces the levels of the log.
    SetLogLevel(LogBody),
    /// Reads the configuration file anew.
    Reload,
    /// Applies a configuration file that comes with the request, or says what it would change.
    Apply(ApplyBody),
    /// The configuration file with the changes that were made since.
    Config,
    /// Takes no more logins, asks the initiators to log out, and ends.
    Drain(DrainBody),
    /// What happens, as a line of JSON for each event, for as long as the connection lasts.
    Events,
    /// This protocol in OpenAPI.
    OpenApi,
    /// The metrics in OpenMetrics' text format.
    Metrics,
}

/// The settings of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetBody {
    /// The portal groups through which it is reached; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<u16>>,
    /// Its access rules, as in an access file, or `open` (as a new target has them by default) or `nobody`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// A disk, as in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskBody {
    /// The store, such as `ram:1G`.
    pub store: String,
    /// Unit serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// NAA designator, 16 or 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naa: Option<String>,
    /// Vendor specific identifier of the T10 vendor ID designator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t10: Option<String>,
    /// T10 vendor identification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product identification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Product revision level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The disk must not exist yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new: bool,
}

/// The size of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeBody {
    /// Such as `20G`.
    pub size: String,
}

/// Access rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessBody {
    /// The rules in the format of an access file (TOML); `open` admits every initiator, `nobody` none.
    pub rules: String,
}

/// A send policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    /// Its name, such as `auto`.
    pub policy: String,
}

/// Levels of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogBody {
    /// As in ROUNDTRIP_LOG, such as `info` or `iscsi_target=debug,warn`.
    pub level: String,
}

/// A configuration file to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyBody {
    /// The file's text (TOML).
    pub config: String,
    /// Say what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// How a target drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainBody {
    /// How long the initiators have to log out, milliseconds.
    #[serde(default = "DrainBody::patience_ms")]
    pub patience_ms: u64,
}

impl DrainBody {
    fn patience_ms() -> u64 {
        30_000
    }

    /// How long the initiators have to log out.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms)
    }
}

/// What a target answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// JSON.
    Json(Value),
    /// Text: a configuration file.
    Text(String),
    /// OpenMetrics' text.
    Metrics(String),
}

/// Why a request was not carried out; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request is malformed, or asks for something impossible: status 400.
    #[error("{0}")]
    Invalid(String),
    /// What it names does not exist: status 404.
    #[error("{0}")]
    NotFound(String),
    /// The path exists, but not with this method: status 405.
    #[error("{0}")]
    Method(String),
    /// What it asks for contradicts what is: status 409.
    #[error("{0}")]
    Conflict(String),
    /// The body is too long: status 413.
    #[error("{0}")]
    TooLong(String),
    /// It could not be done: status 500.
    #[error("{0}")]
    Failed(String),
    /// The target has no time, or is ending: status 503.
    #[error("{0}")]
    Unavailable(String),
}

impl Refusal {
    /// The status of HTTP.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::NotFound(_) => 404,
            Self::Method(_) => 405,
            Self::Conflict(_) => 409,
            Self::TooLong(_) => 413,
            Self::Failed(_) => 500,
            Self::Unavailable(_) => 503,
        }
    }
}

/// A path with a method: what OpenAPI lists.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path; `{name}` stands for a part that differs.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The type of its body, in OpenAPI's schemas.
    pub body: Option<&'static str>,
    read: fn(Parts<'_>) -> Result<Request, Refusal>,
}

/// The parts of a path that differ, and the body.
#[derive(Clone, Copy)]
struct Parts<'a> {
    names: &'a [String],
    body: &'a [u8],
}

impl Parts<'_> {
    fn name(self, at: usize) -> String {
        self.names.get(at).cloned().unwrap_or_default()
    }

    fn lun(self, at: usize) -> Result<u16, Refusal> {
        let text = self.name(at);
        let lun = text.parse().ok().filter(|lun| *lun <= 255);
        lun.ok_or_else(|| Refusal::Invalid(format!("'{text}' is not a LUN; use 0 to 255")))
    }

    fn json<T: serde::de::DeserializeOwned>(self) -> Result<T, Refusal> {
        let body = if self.body.is_empty() { b"{}" } else { self.body };
        serde_json::from_slice(body).map_err(|error| Refusal::Invalid(format!("the body: {error}")))
    }
}

macro_rules! route {
    ($method:literal, $path:literal, $summary:literal, $read:expr) => {
        Route { method: $method, path: $path, summary: $summary, body: None, read: $read }
    };
    ($method:literal, $path:literal, $summary:literal, $body:literal, $read:expr) => {
        Route { method: $method, path: $path, summary: $summary, body: Some($body), read: $read }
    };
}

/// All requests but the metrics.
pub static ROUTES: [Route; 27] = [
    route!("GET", "/v1/status", "What the target is and does", |_| Ok(Request::Status)),
    route!("GET", "/v1/targets", "The targets with their disks", |_| Ok(Request::Targets)),
    route!(
        "PUT",
        "/v1/targets/{iqn}",
        "Adds a target without disks, or replaces the rules of one",
        "TargetBody",
        |p| { Ok(Request::AddTarget(p.name(0), p.json()?)) }
    ),
    route!("DELETE", "/v1/targets/{iqn}", "Removes a target; its initiators are asked to log out", |p| {
        Ok(Request::RemoveTarget(p.name(0)))
    }),
    route!("GET", "/v1/portals", "The portals", |_| Ok(Request::Portals)),
    route!("GET", "/v1/disks", "The disks of all targets, with what was counted", |_| Ok(Request::Disks)),
    route!("PUT", "/v1/targets/{iqn}/disks/{lun}", "Adds, replaces or resizes a disk", "DiskBody", |p| {
        Ok(Request::SetDisk(p.name(0), p.lun(1)?, p.json()?))
    }),
    route!("DELETE", "/v1/targets/{iqn}/disks/{lun}", "Removes a disk", |p| {
        Ok(Request::RemoveDisk(p.name(0), p.lun(1)?))
    }),
    route!("PUT", "/v1/targets/{iqn}/disks/{lun}/size", "Resizes a disk", "SizeBody", |p| {
        Ok(Request::ResizeDisk(p.name(0), p.lun(1)?, p.json()?))
    }),
    route!("DELETE", "/v1/targets/{iqn}/disks/{lun}/reservations", "Ends the reservations of a disk", |p| {
        Ok(Request::ClearReservations(p.name(0), p.lun(1)?))
    }),
    route!("GET", "/v1/sessions", "The sessions", |_| Ok(Request::Sessions)),
    route!("DELETE", "/v1/sessions/{id}", "Drops a session; its initiator may log in again", |p| {
        let id = p.name(0);
        let id =
            id.parse().map_err(|_| Refusal::Invalid(format!("'{id}' is not the number of a session")))?;
        Ok(Request::DropSession(id))
    }),
    route!(
        "DELETE",
        "/v1/initiators/{name}",
        "Drops the sessions of an initiator; it may log in again",
        |p| { Ok(Request::DropInitiator(p.name(0))) }
    ),
    route!("GET", "/v1/connections", "The connections with their statistics", |_| Ok(Request::Connections)),
    route!("GET", "/v1/reservations", "The reservations", |_| Ok(Request::Reservations)),
    route!("GET", "/v1/access", "The access rules, without secrets", |_| Ok(Request::Access)),
    route!("PUT", "/v1/targets/{iqn}/access", "Replaces the access rules of a target", "AccessBody", |p| {
        Ok(Request::SetAccess(p.name(0), p.json()?))
    }),
    route!("GET", "/v1/send", "The send policy", |_| Ok(Request::Send)),
    route!("PUT", "/v1/send", "Replaces the send policy of all connections", "SendBody", |p| {
        Ok(Request::SetSend(p.json()?))
    }),
    route!("GET", "/v1/log-level", "The levels of the log", |_| Ok(Request::LogLevel)),
    route!("PUT", "/v1/log-level", "Replaces the levels of the log", "LogBody", |p| {
        Ok(Request::SetLogLevel(p.json()?))
    }),
    route!("POST", "/v1/reload", "Reads the configuration file anew", |_| Ok(Request::Reload)),
    route!("POST", "/v1/apply", "Applies a configuration, or says what it would change", "ApplyBody", |p| {
        Ok(Request::Apply(p.json()?))
    }),
    route!("GET", "/v1/config", "The configuration in force, as a file", |_| Ok(Request::Config)),
    route!(
        "POST",
        "/v1/drain",
        "Takes no more logins, lets initiators log out, and ends",
        "DrainBody",
        |p| { Ok(Request::Drain(p.json()?)) }
    ),
    route!("GET", "/v1/events", "What happens, a line of JSON for each event", |_| Ok(Request::Events)),
    route!("GET", "/v1/openapi.json", "This protocol", |_| Ok(Request::OpenApi)),
];

impl Request {
    /// Reads a request of HTTP. `metrics_only` is for sockets that anybody may reach.
    ///
    /// # Errors
    /// When there is no such path, method or body.
    pub fn read(method: &str, path: &str, body: &[u8], metrics_only: bool) -> Result<Self, Refusal> {
        let none = || Refusal::NotFound(format!("there is no {path}"));
        let reads = |wanted: &str| method == wanted || (wanted == "GET" && method == "HEAD");
        if path == "/metrics" {
            return if reads("GET") {
                Ok(Self::Metrics)
            } else {
                Err(Refusal::Method(format!("{path}: use GET")))
            };
        }
        if metrics_only {
            return Err(none());
        }
        let mut methods = Vec::new();
        for route in &ROUTES {
            let Some(names) = parts(route.path, path) else { continue };
            if !reads(route.method) {
                methods.push(route.method);
                continue;
            }
            let names: Vec<String> =
                names.into_iter().map(decoded).collect::<Option<_>>().ok_or_else(|| {
                    Refusal::Invalid(format!(
                        "{path}: a percent sign without two hexadecimal digits, or no UTF-8"
                    ))
                })?;
            return (route.read)(Parts { names: &names, body });
        }
        if methods.is_empty() {
            Err(none())
        } else {
            Err(Refusal::Method(format!("{path}: use {}", methods.join(" or "))))
        }
    }
}

/// The parts of a path that stand for the names of a route; `None` if it is another route's.
fn parts<'a>(route: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let mut names = Vec::new();
    let (mut wanted, mut given) = (route.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(names),
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => names.push(given),
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// A part of a path without its percent signs (RFC 3986 2.1).
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// A part of a path, with percent signs where it needs them.
#[must_use]
pub fn encoded(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let encode =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    part.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, path: &str, body: &str) -> Result<Request, Refusal> {
        Request::read(method, path, body.as_bytes(), false)
    }

    #[test]
    fn each_request_has_its_method_and_path() {
        let disk = || DiskBody { store: "ram:1G".to_owned(), ..DiskBody::default() };
        let iqn = || "iqn.a:b".to_owned();
        for (method, path, body, expected) in [
            ("GET", "/v1/status", "", Request::Status),
            ("HEAD", "/v1/status", "", Request::Status),
            ("PUT", "/v1/targets/iqn.a:b", "", Request::AddTarget(iqn(), TargetBody::default())),
            ("DELETE", "/v1/targets/iqn.a:b", "", Request::RemoveTarget(iqn())),
            (
                "PUT",
                "/v1/targets/iqn.a:b/disks/3",
                r#"{"store":"ram:1G"}"#,
                Request::SetDisk(iqn(), 3, disk()),
            ),
            ("DELETE", "/v1/targets/iqn.a:b/disks/3", "", Request::RemoveDisk(iqn(), 3)),
            ("DELETE", "/v1/targets/iqn.a:b/disks/3/reservations", "", Request::ClearReservations(iqn(), 3)),
            ("DELETE", "/v1/sessions/7", "", Request::DropSession(7)),
            ("DELETE", "/v1/initiators/iqn.a:b%20c", "", Request::DropInitiator("iqn.a:b c".to_owned())),
            (
                "PUT",
                "/v1/send",
                r#"{"policy":"auto"}"#,
                Request::SetSend(SendBody { policy: "auto".to_owned() }),
            ),
            ("POST", "/v1/drain", "", Request::Drain(DrainBody { patience_ms: 30_000 })),
            ("POST", "/v1/drain", r#"{"patience_ms":5}"#, Request::Drain(DrainBody { patience_ms: 5 })),
            ("GET", "/metrics", "", Request::Metrics),
        ] {
            assert_eq!(read(method, path, body), Ok(expected), "{method} {path}");
        }
        for route in &ROUTES {
            let (path, body) = (route.path.replace("{iqn}", "iqn.a:b").replace("{lun}", "0"), route.body);
            let path = path.replace("{id}", "1").replace("{name}", "iqn.i");
            let answer = read(route.method, &path, "");
            assert!(
                answer.is_ok() || (body.is_some() && matches!(answer, Err(Refusal::Invalid(_)))),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_status() {
        for (method, path, body, status) in [
            ("GET", "/", "", 404),
            ("GET", "/v1", "", 404),
            ("GET", "/v2/status", "", 404),
            ("GET", "/v1/status/", "", 404),
            ("GET", "/v1/status/more", "", 404),
            ("GET", "//v1/status", "", 404),
            ("GET", "status", "", 404),
            ("PUT", "/v1/targets/", "", 404),
            ("POST", "/v1/status", "", 405),
            ("GET", "/v1/reload", "", 405),
            ("GET", "/v1/targets/iqn.a:b/disks/0", "", 405),
            ("POST", "/metrics", "", 405),
            ("PUT", "/v1/targets/iqn.a:b/disks/x", r#"{"store":"ram:1G"}"#, 400),
            ("PUT", "/v1/targets/iqn.a:b/disks/-1", r#"{"store":"ram:1G"}"#, 400),
            ("PUT", "/v1/targets/iqn.a:b/disks/256", r#"{"store":"ram:1G"}"#, 400),
            ("PUT", "/v1/targets/iqn.a:b/disks/0", "", 400),
            ("PUT", "/v1/targets/iqn.a:b/disks/0", r#"{"store":"ram:1G","more":1}"#, 400),
            ("PUT", "/v1/send", r#"{"policy":7}"#, 400),
            ("DELETE", "/v1/sessions/one", "", 400),
            ("DELETE", "/v1/initiators/%g0", "", 400),
            ("DELETE", "/v1/initiators/%f", "", 400),
            ("DELETE", "/v1/initiators/%ff", "", 400),
        ] {
            assert_eq!(
                read(method, path, body).map_err(|refusal| refusal.status()),
                Err(status),
                "{method} {path} {body}"
            );
        }
    }

    #[test]
    fn others_read_metrics_alone() {
        for route in &ROUTES {
            let read = Request::read(route.method, route.path, b"", true);
            assert_eq!(read.map_err(|refusal| refusal.status()), Err(404), "{}", route.path);
        }
        assert_eq!(Request::read("GET", "/metrics", b"", true), Ok(Request::Metrics));
    }

    #[test]
    fn names_survive_a_path() {
        for name in ["iqn.2026-11.example:a/b", "eui.02004567A425678D", "\u{e4} \u{f6}%", ""] {
            assert_eq!(decoded(&encoded(name)).as_deref(), Some(name));
            assert!(!encoded(name).contains('/'));
        }
    }
}
