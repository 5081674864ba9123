//! Requirements of tests on the machine: root, devices, kernel features.
//!
//! A test that cannot run must not look like one that passed. If a requirement is not met, the test fails when the
//! environment variable `CI` is set. Otherwise it is listed in a file, which `make test` prints at the end.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

mod namespaces;

pub use namespaces::{inside_namespaces, sh};

/// The file that lists tests that did not run, one line each.
#[must_use]
pub fn not_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/not-run.txt")
}

/// Whether the calling test can run: `is_met` states whether the `requirement` is met.
///
/// # Panics
/// When it is not met and `CI` is set.
#[must_use]
#[track_caller]
pub fn require(requirement: &str, is_met: bool) -> bool {
    if is_met {
        return true;
    }
    let caller = std::panic::Location::caller();
    let thread = std::thread::current();
    // The thread of a test has the test's name.
    let test = thread.name().unwrap_or("a test");
    let line = format!("{test} ({}): needs {requirement}", caller.file());
    assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "not run: {line}");
    // With another target folder this one may not exist.
    let _ = not_run().parent().map(std::fs::create_dir_all);
    let file = OpenOptions::new().create(true).append(true).open(not_run());
    // One write, so that lines of several processes do not interleave.
    let noted = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    eprintln!("not run: {line}{}", noted.err().map(|error| format!(" ({error})")).unwrap_or_default());
    false
}

/// Whether the calling test, which needs root for `what`, can run.
///
/// # Panics
/// As [`require`].
#[must_use]
#[track_caller]
pub fn require_root(what: &str) -> bool {
    require(&format!("root, for {what}"), nix::unistd::geteuid().is_root())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const IN_CHILD: &str = "TESTING_CHILD";

    /// Runs the test below with or without `CI`: returns whether it passed, and its output.
    fn run(ci: Option<&str>) -> (bool, String) {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "tests::a_child", "--nocapture"]).env(IN_CHILD, "1").env_remove("CI");
        if let Some(value) = ci {
            command.env("CI", value);
        }
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    #[test]
    fn a_child() {
        if std::env::var_os(IN_CHILD).is_some() {
            assert!(super::require("what is there", true));
            assert!(!super::require("a unicorn", false));
        }
    }

    #[test]
    fn unmet_requirement_fails_in_ci_and_is_listed_elsewhere() {
        let listed =
            || std::fs::read_to_string(super::not_run()).unwrap_or_default().matches("a unicorn").count();
        let before = listed();
        let (passed, text) = run(Some("true"));
        assert!(!passed && text.contains("needs a unicorn") && listed() == before, "{text}");
        for ci in [None, Some("")] {
            let (passed, text) = run(ci);
            assert!(passed && text.contains("not run: tests::a_child"), "{text}");
        }
        assert_eq!(listed(), before + 2);
        // These lines are not requirements of the machine.
        let kept = std::fs::read_to_string(super::not_run()).unwrap_or_default();
        let kept: String =
            kept.lines().filter(|l| !l.contains("a unicorn")).map(|l| format!("{l}\n")).collect();
        std::fs::write(super::not_run(), kept).expect("the list");
    }
}
