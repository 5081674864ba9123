//! The verbs that change a host, in network and mount namespaces of the test's own.

use std::path::Path;

use testing::inside_namespaces;

use super::roundtrip;

/// The journal there.
pub const STATE: &str = "/run/state";
pub const LINK_FILE: &str = "/etc/systemd/network/00-roundtrip-tap0.link";
pub const LOGIN: &str = "10.7.0.2 50000 10.7.0.1 22";

/// Whether the calling test runs in namespaces of its own, where a TAP device `tap0` stands for the card.
#[track_caller]
pub fn inside() -> bool {
    inside_namespaces(
        "mount -t sysfs sysfs /sys; for d in /etc/systemd/network /etc/network /etc/sysctl.d /etc/tmpfiles.d /run; do \
         mkdir -p $d; mount -t tmpfs tmpfs $d; done; ip tuntap add tap0 mode tap; ip link set tap0 up",
    )
}

/// Exit code and all output of `roundtrip host` with a command line.
pub fn host(line: &str) -> (i32, String) {
    with_environment(&[], line)
}

/// As [`host`], for a caller with this SSH_CONNECTION.
pub fn logged_in(login: &str, line: &str) -> (i32, String) {
    with_environment(&[("SSH_CONNECTION", login)], line)
}

pub fn with_environment(variables: &[(&str, &str)], line: &str) -> (i32, String) {
    let mut command = roundtrip();
    command.arg("host").args(line.split_whitespace()).envs(variables.iter().copied());
    if line.split_whitespace().next() != Some("profile") {
        command.args(["--state", STATE]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

pub fn mtu(interface: &str) -> String {
    std::fs::read_to_string(Path::new("/sys/class/net").join(interface).join("mtu"))
        .unwrap()
        .trim()
        .to_owned()
}
