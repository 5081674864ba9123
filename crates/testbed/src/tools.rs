//! The programs that set a wire up: iproute2 and ethtool, which speak netlink better than we need to.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::WireError;

/// Runs a program to its end in the calling thread's namespace.
pub(crate) fn run(program: &'static str, arguments: &[&str]) -> Result<String, WireError> {
    let package = if program == "ethtool" { "ethtool" } else { "iproute2" };
    tracing::debug!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        // An ordinary user's PATH may lack the system directories.
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => WireError::MissingTool { program, package },
            _ => WireError::Io { what: format!("running {program}"), source },
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(WireError::Tool { command: format!("{program} {}", arguments.join(" ")), message })
}

/// The output of `ip` as JSON.
pub(crate) fn ip_json(arguments: &[&str]) -> Result<Value, WireError> {
    let text = run("ip", &[&["-j"], arguments].concat())?;
    let io = |error: serde_json::Error| WireError::Io {
        what: "reading what ip prints".into(),
        source: error.into(),
    };
    // `ip -j` prints nothing for an empty list.
    if text.trim().is_empty() {
        Ok(Value::Array(Vec::new()))
    } else {
        serde_json::from_str(&text).map_err(io)
    }
}
