//! Programs that read and change settings which have no file of the kernel.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Runs a program to its end in the calling thread's namespace. Returns its output, or what it complained about.
pub(super) fn run(program: &str, package: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        // An ordinary user's PATH may lack the system directories.
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{program} is missing; install the package {package}"),
            _ => format!("cannot run {program}: {error}"),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {}: {message}", arguments.join(" ")))
}
