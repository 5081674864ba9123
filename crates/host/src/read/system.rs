//! Reads facts about the system.

use std::fs;
use std::net::IpAddr;

use super::Roots;
use crate::facts::Unseen;
use crate::facts::system::SystemFacts;

/// The variable in which sshd tells its session who connected: addresses and ports of both ends.
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// Reads facts about the system.
#[must_use]
pub fn read(roots: &Roots, _wanted: &super::Wanted, unseen: &mut Vec<Unseen>) -> SystemFacts {
    let mut kernel_file = |name: &str| {
        let path = roots.proc.join("sys/kernel").join(name);
        let text = fs::read_to_string(&path).map_err(|error| {
            unseen.push(Unseen {
                what: format!("{name} of the system"),
                why: format!("{}: {error}", path.display()),
            });
        });
        text.unwrap_or_default().trim().to_owned()
    };
    let hostname = kernel_file("hostname");
    let kernel = kernel_file("osrelease");
    let uptime = fs::read_to_string(roots.proc.join("uptime")).unwrap_or_default();
    SystemFacts {
        hostname,
        kernel,
        distribution: fs::read_to_string(roots.etc.join("os-release")).ok().as_deref().and_then(distribution),
        is_root: nix::unistd::geteuid().is_root(),
        uptime_seconds: uptime.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok()),
        caller: std::env::var(SSH_CONNECTION).ok().as_deref().and_then(caller),
    }
}

/// ID of an os-release file.
fn distribution(text: &str) -> Option<String> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID="))?;
    Some(id.trim_matches(['"', '\'']).to_owned())
}

/// The first address of SSH_CONNECTION. A link-local one has its interface behind a percent sign.
pub(super) fn caller(connection: &str) -> Option<IpAddr> {
    connection.split(' ').next()?.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_the_first_address_of_the_connection() {
        assert_eq!(caller("192.0.2.7 51514 192.0.2.1 22"), "192.0.2.7".parse().ok());
        assert_eq!(caller("fe80::1%eth0 51514 fe80::2%eth0 22"), "fe80::1".parse().ok());
        assert_eq!(caller(""), None);
        assert_eq!(caller("UNKNOWN 65535 UNKNOWN 65535"), None);
    }

    #[test]
    fn a_system_is_read_from_its_roots_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let mut unseen = Vec::new();
        let nothing = read(&roots, &crate::read::Wanted::default(), &mut unseen);
        assert_eq!((nothing.hostname.as_str(), unseen.len()), ("", 2));
        let kernel = roots.proc.join("sys/kernel");
        fs::create_dir_all(&kernel).unwrap();
        fs::create_dir_all(&roots.etc).unwrap();
        fs::write(kernel.join("hostname"), "store1\n").unwrap();
        fs::write(kernel.join("osrelease"), "6.1.0-18-amd64\n").unwrap();
        fs::write(roots.proc.join("uptime"), "86400.73 100.00\n").unwrap();
        fs::write(roots.etc.join("os-release"), "NAME=Debian\nID=\"debian\"\n").unwrap();
        unseen.clear();
        let system = read(&roots, &crate::read::Wanted::default(), &mut unseen);
        assert_eq!((system.hostname.as_str(), system.kernel.as_str()), ("store1", "6.1.0-18-amd64"));
        assert_eq!((system.uptime_seconds, system.distribution.as_deref()), (Some(86_400), Some("debian")));
        assert_eq!(unseen, []);
    }
}
