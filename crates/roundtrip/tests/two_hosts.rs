//! A study whose client is on another host, reached by ssh: a real one, served in a namespace that has nothing but the other
//! end of a wire.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::roundtrip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Two hosts, emulated on one kernel: a namespace each, a shaped wire, and an ssh server in the client's.
struct TwoHosts {
    folder: tempfile::TempDir,
    name: String,
    server: Option<Child>,
}

impl TwoHosts {
    /// `None` without root or without the programs.
    fn up() -> Option<Self> {
        if !testing::require_root("namespaces") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("two-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut hosts = Self { folder, name, server: None };
        let up = hosts.wire(&["up", "--name", &hosts.name, "--rate", "1gbit", "--mtu", "9000"]);
        assert!(up.status.success(), "{}", text(&up));
        // Each host has a CPU of its own, also for its packets: otherwise its accounts contain work of the other.
        for (side, mask) in [("client", "1"), ("server", "2")] {
            let script =
                format!("for queue in /sys/class/net/*/queues/rx-0/rps_cpus; do echo {mask} > $queue; done");
            let namespace = format!("roundtrip-{}-{side}", hosts.name);
            let set = Command::new("ip")
                .args(["netns", "exec", &namespace, "sh", "-ec", &script])
                .output()
                .unwrap();
            assert!(set.status.success(), "{}", text(&set));
        }
        let path = |file: &str| hosts.folder.path().join(file).display().to_string();
        for (program, arguments) in [
            ("dropbearkey", vec!["-t", "ed25519", "-f", &path("host")]),
            ("ssh-keygen", vec!["-q", "-t", "ed25519", "-N", "", "-f", &path("key")]),
        ] {
            let made = Command::new(program).args(&arguments).output().unwrap();
            assert!(made.status.success(), "{program}: {}", text(&made));
        }
        // In a mount namespace of its own: the host's /root is neither seen nor touched, and what is made in /tmp there is in a
        // folder of ours.
        let script = format!(
            "set -e; mount --make-rprivate /; mount -t tmpfs -o mode=700 none /root; mkdir -m 700 /root/.ssh; \
             cp {} /root/.ssh/authorized_keys; cp {} /root/host; mount --bind {} /tmp; \
             exec dropbear -F -E -s -p 10.99.0.1:2222 -r /root/host -P /root/pid",
            path("key.pub"),
            path("host"),
            hosts.there().display()
        );
        let namespace = format!("roundtrip-{}-client", hosts.name);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, "unshare", "-m", "sh", "-c", &script]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        std::fs::create_dir(hosts.there()).unwrap();
        hosts.server = Some(command.process_group(0).spawn().unwrap());
        std::fs::write(
            hosts.folder.path().join("config"),
            format!(
                "Host *\n Port 2222\n IdentityFile {}\n UserKnownHostsFile {}\n StrictHostKeyChecking accept-new\n BatchMode yes\n \
                 ConnectionAttempts 20\n",
                path("key"),
                path("known")
            ),
        )
        .unwrap();
        Some(hosts)
    }

    /// The folder in which the other host makes temporary ones.
    fn there(&self) -> std::path::PathBuf {
        self.folder.path().join("there")
    }

    fn wire(&self, arguments: &[&str]) -> Output {
        let state = self.folder.path().join("wires");
        roundtrip().arg("wire").arg("--state").arg(state).args(arguments).output().unwrap()
    }

    /// A study with its server here.
    fn study(&self, arguments: &[&str]) -> Command {
        let namespace = format!("roundtrip-{}-server", self.name);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, env!("CARGO_BIN_EXE_roundtrip"), "study"]);
        let ssh = format!("ssh -F {}", self.folder.path().join("config").display());
        command.args(["--client", "ssh:root@10.99.0.1", "--ssh", &ssh]);
        command.args(["--client-cpu", "0", "--server-cpu", "1"]).args(arguments);
        command
    }

    fn is_clean_there(&self) -> bool {
        std::fs::read_dir(self.there()).unwrap().next().is_none()
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = kill(Pid::from_raw(-(server.id() as i32)), Signal::SIGKILL);
            let _ = server.wait();
        }
        let _ = self.wire(&["down", "--name", &self.name]);
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn out(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn a_study_with_its_client_on_another_host_closes_and_leaves_nothing_there() {
    let Some(hosts) = TwoHosts::up() else { return };
    let (ring, cases) = (out(hosts.folder.path(), "ring"), out(hosts.folder.path(), "cases"));
    let done = hosts
        .study(&["--quick", "--bs", "512", "--iodepth", "32", "--send", "nodelay", "--runtime", "300ms"])
        .args(["--rate", "1gbit", "-o", &ring, "--json"])
        .output()
        .unwrap();
    let result: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done)));
    let stanzas = result["stanzas"].as_array().unwrap();
    assert_eq!(done.status.code(), Some(common::code_of_study(&result["stanzas"])), "{}", text(&done));
    assert_eq!(stanzas.len(), 2);
    for stanza in stanzas {
        let (completed, followed) = (&stanza["completed"], &stanza["followed"]);
        assert!(completed == followed && completed.as_u64() > Some(100), "{stanza:#}");
        assert_eq!(stanza["breakdown"]["joined"]["holds"], true, "{stanza:#}");
        // The client's kernel is another host's.
        let closure = &stanza["closure"];
        assert_ne!(closure["outcome"], "holds", "{stanza:#}");
        // Clocks of two hosts are not compared.
        assert_eq!(stanza["segments"]["request_path"], Value::Null);
        let terms: Vec<&str> = stanza["breakdown"]["terms"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|t| t["terms"].as_str())
            .collect();
        assert!(terms.contains(&"CT+SR+ST+CR"), "{terms:?}");
    }
    assert_eq!(result["observation"], "packets");
    assert!(result["client_machine"]["kernel"].as_str().unwrap().starts_with("Linux"), "{result:#}");
    assert!(hosts.is_clean_there(), "the program is gone");

    let plan = r#"
name = "both"
about = "each kind of work"
rate = "1gbit"
runtime = "100ms"
repeats = 1
[[case]]
label = "post"
work = { post = 480 }
client = { nagle = true, writes = "apart" }
[[case]]
label = "messages"
work = { messages = { request = [48, 0], response = [48, 512], queue_depth = 4 } }
[[case]]
label = "copy"
work = { copy = { bytes = "5M", block = "64k" } }
[[case]]
label = "iscsi"
work = { iscsi = { rw = "write", block = "4k", depth = 4 } }
"#;
    let file = out(hosts.folder.path(), "plan.toml");
    std::fs::write(&file, plan).unwrap();
    let done = hosts.study(&["--plan", &file, "-o", &cases, "--json"]).output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    for case in result["cases"].as_array().unwrap() {
        assert!(case["median"].as_f64().unwrap() > 1.0, "{case:#}");
        assert!(case["observer_cost"].is_number(), "{case:#}");
    }
    assert!(hosts.is_clean_there());
}

#[test]
fn a_study_that_is_killed_leaves_nothing_on_the_other_host() {
    let Some(hosts) = TwoHosts::up() else { return };
    let folder = out(hosts.folder.path(), "killed");
    let mut study = hosts
        .study(&["--quick", "--bs", "512", "-o", &folder])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let clients = || {
        let namespace = format!("roundtrip-{}-client", hosts.name);
        let all = Command::new("ip").args(["netns", "pids", &namespace]).output().unwrap();
        let is_client = |pid: &&str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.get(1) == Some(&&b"study-client"[..])
        };
        String::from_utf8_lossy(&all.stdout).lines().filter(is_client).count()
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("a client is there", &|| clients() == 1);
    study.kill().unwrap();
    study.wait().unwrap();
    until("it ends by itself", &|| clients() == 0);
    assert!(hosts.is_clean_there());
}

#[test]
fn reports_unusable_hosts_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = out(folder.path(), "out");
    let study = |arguments: &[&str]| {
        let output = roundtrip().args(["study", "--quick", "-o", &path]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (arguments, code, stderr) in [
        (&["--client", "host"][..], 2, "ssh:host or ssh:user@host"),
        (&["--client", "ssh:-oProxyCommand=x"], 2, "ssh:host or ssh:user@host"),
        (&["--client", "ssh:h", "--ssh", "/nowhere/ssh"], 1, "cannot run /nowhere/ssh"),
        (&["--client", "ssh:h", "--ssh", "false"], 1, "copying this program there failed"),
        (&["--client", "ssh:h", "--client-program", "/nowhere"], 1, "cannot read /nowhere"),
        // A host where the copy does not run.
        (
            &["--client", "ssh:h", "--ssh", "sh -c 'cat >/dev/null; echo /nowhere/roundtrip'"],
            1,
            "the client on h",
        ),
    ] {
        let (ended, error) = study(arguments);
        assert!(ended == Some(code) && error.contains(stderr), "{arguments:?}: {error}");
    }
}
