//! Tests in network and mount namespaces of their own, and the commands that prepare them.

use std::process::Command;

/// Set in a test that runs in namespaces of its own.
const INSIDE: &str = "TESTING_INSIDE_NAMESPACES";

/// Whether the calling test runs in network and mount namespaces of its own, which the shell commands in `prepare` have set up. If not, it
/// is run in them, in a process without the caller's login, and passes as it does there. Needs root.
///
/// # Panics
/// When the test fails there.
#[must_use]
#[track_caller]
pub fn inside_namespaces(prepare: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        sh(prepare);
        return true;
    }
    if !crate::require_root("namespaces") {
        return false;
    }
    // The thread of a test has the test's name.
    let thread = std::thread::current();
    let name = thread.name().expect("a test").to_owned();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .env_remove("SSH_CONNECTION")
        .env_remove("SSH_CLIENT")
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// The output of shell commands.
///
/// # Panics
/// When one fails.
#[track_caller]
pub fn sh(commands: &str) -> String {
    let output = Command::new("sh").args(["-ec", commands]).output().expect("sh runs");
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
