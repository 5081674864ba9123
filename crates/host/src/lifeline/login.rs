//! The caller's own connections, as sshd names them in the environment.

use std::net::IpAddr;
use std::path::Path;

use netlink::route::Connection;

/// The most processes between this one and the login.
const DEPTH_LIMIT: usize = 64;

/// The largest environment of a process that is searched, bytes.
const ENVIRONMENT_LIMIT: u64 = 1 << 20;

/// The caller's own connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logins {
    /// Those whose addresses are known.
    pub known: Vec<Login>,
    /// Why the addresses of another one cannot be told: the variable, its value and its process. Any interface may carry that one.
    pub unreadable: Vec<String>,
}

/// A connection of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The address where the caller is.
    pub remote: Option<IpAddr>,
    /// The address of this host that the caller has connected to.
    pub local: Option<IpAddr>,
    /// Index of the interface that packets to the caller take.
    pub interface_to_remote: Option<u32>,
}

/// The caller's logins: SSH_CONNECTION or SSH_CLIENT of this process and, as sudo removes them, of those that have started it.
#[must_use]
pub fn logins(proc: &Path) -> Logins {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let own = std::env::vars_os().map(|(key, value)| (text(key), text(value))).collect();
    logins_of(proc, own)
}

/// As [`logins`], with the environment of this process.
fn logins_of(proc: &Path, own: Vec<(String, String)>) -> Logins {
    let mut logins = Logins::default();
    let (mut process, mut environment_of_it) = (std::process::id(), own);
    for _ in 0..=DEPTH_LIMIT {
        match login(&environment_of_it) {
            Some(Ok(login)) => logins.known.push(login),
            Some(Err(why)) => {
                logins.unreadable.push(format!("{why} in the environment of process {process}"));
            }
            None => {}
        }
        let Some(parent) = parent(proc, process).filter(|parent| *parent > 0) else { break };
        environment_of_it = environment(proc, parent);
        process = parent;
    }
    logins.known.sort_by_key(|login| (login.remote, login.local));
    logins.known.dedup();
    for login in &mut logins.known {
        let to = login.remote.and_then(|remote| Connection::open().ok()?.route_to(remote).ok());
        login.interface_to_remote = to.and_then(|route| route.interface);
    }
    logins
}

/// `client port server port` of SSH_CONNECTION; SSH_CLIENT, which has no server, where that is empty. An error where a variable is there
/// and names no address.
fn login(environment: &[(String, String)]) -> Option<Result<Login, String>> {
    let value = |key: &str| environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let set: Vec<(&str, &str)> =
        ["SSH_CONNECTION", "SSH_CLIENT"].into_iter().filter_map(|key| Some((key, value(key)?))).collect();
    let (key, text) = *set.iter().find(|(_, text)| !text.trim().is_empty()).or(set.first())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let address = |at: usize| words.get(at).and_then(|word| without_zone(word).parse().ok());
    let (remote, local) = (address(0), address(2));
    let is_whole = remote.is_some() && (key == "SSH_CLIENT" || local.is_some());
    Some(if is_whole {
        Ok(Login { remote, local: local.filter(|_| key == "SSH_CONNECTION"), interface_to_remote: None })
    } else {
        Err(format!("{key} is '{text}', which does not name the addresses of a connection,"))
    })
}

/// `fe80::1%eth0` as `fe80::1`.
fn without_zone(address: &str) -> &str {
    address.split('%').next().unwrap_or(address)
}

fn parent(proc: &Path, process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn environment(proc: &Path, process: u32) -> Vec<(String, String)> {
    use std::io::Read as _;
    let Ok(file) = std::fs::File::open(proc.join(process.to_string()).join("environ")) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    if file.take(ENVIRONMENT_LIMIT).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_found_through_sudo() {
        let proc = tempfile::tempdir().unwrap();
        let process = |id: u32, parent: u32, environ: &str| {
            let folder = proc.path().join(id.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
            std::fs::write(
                folder.join("environ"),
                environ.replace(' ', "\0").replace('_', " ").replace('+', "_"),
            )
            .unwrap();
        };
        // `_` stands for a space and `+` for `_`.
        process(std::process::id(), 50, "PATH=/bin");
        process(50, 40, "PATH=/bin SUDO+UID=1000");
        process(40, 1, "A=b SSH+CONNECTION=192.0.2.9_50000_192.0.2.1_22 C=d");
        process(1, 0, "");
        let found = logins_of(proc.path(), Vec::new()).known;
        let expected = Some(("192.0.2.9".parse().unwrap(), Some("192.0.2.1".parse().unwrap())));
        assert!(found.iter().any(|login| login.remote.zip(Some(login.local)) == expected), "{found:?}");
        // A value that says nothing, anywhere on the way, is reported with its process.
        process(50, 40, "SSH+CONNECTION=UNKNOWN_65535_UNKNOWN_65535");
        let found = logins_of(proc.path(), vec![("SSH_CLIENT".to_owned(), "junk".to_owned())]);
        assert_eq!((found.known.len(), found.unreadable.len()), (1, 2), "{found:?}");
        assert!(found.unreadable[0].contains("SSH_CLIENT is 'junk'"), "{found:?}");
        assert!(found.unreadable[1].ends_with("in the environment of process 50"), "{found:?}");
        // A process that is its own ancestor does not hang it.
        process(40, 50, "");
        let _ = logins(proc.path());
    }

    #[test]
    fn login_variables_are_parsed() {
        let login = |variables: &[(&str, &str)]| {
            let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            login(&variables.iter().map(own).collect::<Vec<_>>())
        };
        let full = login(&[("SSH_CONNECTION", "fe80::1%eth0 5 fe80::2%eth0 22")]).unwrap().unwrap();
        assert_eq!(full.local, Some("fe80::2".parse().unwrap()));
        let client = login(&[("SSH_CLIENT", "10.0.0.9 5 22")]).unwrap().unwrap();
        assert_eq!((client.remote, client.local), (Some("10.0.0.9".parse().unwrap()), None));
        for variables in [
            &[("SSH_CONNECTION", ""), ("SSH_CLIENT", "10.0.0.9 5 22")][..],
            &[("SSH_CONNECTION", " "), ("SSH_CLIENT", "10.0.0.9 5 22")],
        ] {
            assert_eq!(login(variables), Some(Ok(client.clone())), "an empty one does not hide the other");
        }
        for bad in [
            "",
            " ",
            "x",
            "x y z",
            "10.0.0.9",
            "10.0.0.9 5 x 22",
            "x 5 10.0.0.1 22",
            "UNKNOWN 65535 UNKNOWN 65535",
        ] {
            let why = login(&[("SSH_CONNECTION", bad)]).unwrap().unwrap_err();
            assert!(why.contains("SSH_CONNECTION is '"), "{bad}: {why}");
        }
        assert!(login(&[("SSH_CLIENT", "x 5 22")]).unwrap().is_err());
        assert!(login(&[("SSH_CONNECTION", ""), ("SSH_CLIENT", "")]).unwrap().is_err());
        assert_eq!(login(&[("PATH", "10.0.0.9 5 10.0.0.1 22")]), None);
    }
}
