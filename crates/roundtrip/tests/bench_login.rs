//! `bench` and `study --compare` with CHAP, digests, names and redirections, and what becomes of their secrets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::tgt::Tgt;
use common::{IQN, Target, bench, roundtrip};
use serde_json::Value;

const OWN: &str = "wonderland-12";
const TARGET: &str = "looking-glass";
const SHORT: [&str; 6] = ["--runtime", "50ms", "--ramp", "0ms", "--iodepth", "4"];

/// A folder with secrets, and the configuration of a target that asks for them.
struct Secrets(tempfile::TempDir);

impl Secrets {
    fn new() -> Self {
        let secrets = Self(tempfile::tempdir().unwrap());
        secrets.file("own", OWN);
        secrets.file("target", TARGET);
        secrets.file("wrong", "wonderland-13");
        secrets.file(
            "target.toml",
            &format!(
                "[luns]\n0 = 'ram:8M'\n[[access.chap]]\nname = 'alice'\nsecret = '{OWN}'\ninitiators = 'any'\n\
                 [access.mutual]\nname = 'disk'\nsecret = '{TARGET}'\n"
            ),
        );
        secrets
    }

    /// Writes a file that only its owner may read.
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn target(&self) -> Target {
        Target::start(&["--config", &self.text("target.toml")])
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// No output holds a secret, as text, as a list of bytes or in hexadecimal.
fn shows_no_secret(text: &str) {
    for secret in [OWN, TARGET, "wonderland-13"] {
        let bytes = format!("{:?}", secret.as_bytes());
        let digits: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        for form in [secret, bytes.trim_matches(['[', ']']), &digits] {
            assert!(!text.contains(form), "{form} in {text}");
        }
    }
}

#[test]
fn chap_in_both_directions_and_digests() {
    let secrets = Secrets::new();
    let target = secrets.target();
    let (own, theirs) = (secrets.text("own"), secrets.text("target"));
    let one_way = ["--chap-user", "alice", "--chap-secret-file", &own];
    let mutual = ["--chap-mutual-user", "disk", "--chap-mutual-secret-file", &theirs];
    let digests = ["--header-digest", "--data-digest"];
    let verified = ["--rw", "randrw", "--verify", "--bs", "512,64k,1M"];
    for login in
        [&one_way[..], &[&one_way[..], &mutual].concat(), &[&one_way[..], &mutual, &digests].concat()]
    {
        for options in [&[][..], &verified] {
            let result = bench(&target.url(0), &[&SHORT[..], login, options].concat());
            let runs = result["runs"].as_array().unwrap();
            assert!(runs.iter().all(|run| run["operations"].as_u64() > Some(0) && run["errors"] == 0));
        }
    }
    let statistics = target.stop();
    assert!(statistics.contains("iqn.2026-11.example.roundtrip:bench"), "{statistics}");
}

#[test]
fn user_in_the_url_and_secrets_in_the_environment() {
    let secrets = Secrets::new();
    let target = secrets.target();
    let url = target.url(0).replace("iscsi://", "iscsi://alice@");
    let name = "iqn.2026-11.example:named";
    let output = roundtrip()
        .args(["bench", &url, "--initiator-name", name])
        .args(SHORT)
        .env("ROUNDTRIP_CHAP_SECRET", OWN)
        .env("ROUNDTRIP_CHAP_MUTUAL_SECRET", TARGET)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(target.stop().contains(name));
}

/// Wrong secrets, missing ones, and every level of the log.
#[test]
fn no_output_shows_a_secret() {
    let secrets = Secrets::new();
    let target = secrets.target();
    let url = target.url(0);
    let with_secret = url.replace("iscsi://", &format!("iscsi://alice%{OWN}@"));
    let malformed = with_secret.replace("iscsi://", "iscsi:/");
    let file = |name: &str| secrets.text(name);
    let (own, wrong, theirs) = (file("own"), file("wrong"), file("target"));
    secrets.file("lines", &format!("{OWN}\n{TARGET}\n"));
    std::fs::set_permissions(secrets.file("open", OWN), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (lines, open, missing) = (file("lines"), file("open"), file("missing"));
    let user = ["--chap-user", "alice"];
    let ops = file("ops.csv");
    let cases: [(&str, Vec<&str>, i32, &str); 12] = [
        (&url, [&user[..], &["--chap-secret-file", &own, "--json", "--ops", &ops]].concat(), 0, "operations"),
        (&url, [&user[..], &["--chap-secret-file", &own, "--output-format", "json+"]].concat(), 0, "jobname"),
        (&url, [&user[..], &["--chap-secret-file", &wrong]].concat(), 1, "authentication failure"),
        (
            &url,
            [&user[..], &["--chap-secret-file", &own, "--chap-mutual-secret-file", &wrong]].concat(),
            1,
            "did not prove",
        ),
        (
            &url,
            [&user[..], &["--chap-secret-file", &own, "--chap-mutual-secret-file", &own]].concat(),
            2,
            "of its own",
        ),
        (&url, [&user[..], &["--chap-secret-file", &lines]].concat(), 2, "several lines"),
        (&url, [&user[..], &["--chap-secret-file", &open]].concat(), 2, "chmod 600"),
        (&url, [&user[..], &["--chap-secret-file", &missing]].concat(), 2, "No such file"),
        (&url, vec!["--chap-mutual-secret-file", &theirs], 2, "--chap-user"),
        (&url, vec!["--chap-secret", OWN], 2, "unexpected argument"),
        (&with_secret, vec![], 2, "--chap-secret-file"),
        (&malformed, vec![], 2, "***"),
    ];
    for (url, arguments, code, expected) in cases {
        let output = roundtrip()
            .args(["bench", url])
            .args(SHORT)
            .args(&arguments)
            .env("ROUNDTRIP_LOG", "trace")
            .output()
            .unwrap();
        let text = text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        shows_no_secret(&text);
    }
    shows_no_secret(&std::fs::read_to_string(ops).unwrap());
    let environment = roundtrip()
        .args(["bench", &url, "--chap-user", "alice"])
        .env("ROUNDTRIP_CHAP_SECRET", format!("{OWN}\n{OWN}"))
        .output()
        .unwrap();
    assert!(environment.status.code() == Some(2) && text(&environment).contains("several lines"));
    shows_no_secret(&text(&environment));
}

/// The secret is neither on the command line of a running client nor of any process that it starts.
#[test]
fn command_lines_hold_no_secret() {
    let secrets = Secrets::new();
    let target = secrets.target();
    let mut child = roundtrip()
        .args(["bench", &target.url(0), "--chap-user", "alice", "--chap-secret-file", &secrets.text("own")])
        .args(["--runtime", "300ms"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let line = || std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
    // Until execve(2) it is that of the test.
    while !line().contains("alice") {
        std::thread::yield_now();
    }
    let line = line();
    assert!(child.wait().unwrap().success());
    shows_no_secret(&line);
}

/// A study compares another target that asks for CHAP; results, report and journal hold the file's name only.
#[test]
fn studies_and_plans_authenticate() {
    let secrets = Secrets::new();
    let target = secrets.target();
    let own = secrets.text("own");
    let plan = format!(
        "name = 'n'\nabout = 'a'\nrate = '1gbit'\nruntime = '100ms'\nrepeats = 1\ntraces = false\n[[case]]\nlabel = 'c'\n\
         work = {{ url = {{ url = '{}', rw = 'randread', block = '4k', depth = 1 }} }}\n\
         login = {{ chap-user = 'alice', chap-secret-file = '{own}', data-digest = true }}\n",
        target.url(0)
    );
    let plan = secrets.file("plan.toml", &plan);
    let compare =
        ["--compare", &target.url(0), "--chap-user", "alice", "--chap-secret-file", &own, "--header-digest"];
    let small = ["--bs", "4k", "--iodepth", "1", "--repeats", "1", "--runtime", "100ms"];
    for (name, arguments) in
        [("plan", vec!["--plan", plan.to_str().unwrap()]), ("compare", [&compare[..], &small].concat())]
    {
        let out = secrets.path(name);
        let output = roundtrip()
            .args(["study", "--json", "--loopback", "-o"])
            .arg(&out)
            .args(&arguments)
            .env("ROUNDTRIP_LOG", "trace")
            .output()
            .unwrap();
        let text = text(&output);
        assert!(output.status.success(), "{name}: {text}");
        shows_no_secret(&text);
        files(&out)
            .iter()
            .for_each(|file| shows_no_secret(&String::from_utf8_lossy(&std::fs::read(file).unwrap())));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result.to_string().contains("alice"), "{result:#}");
    }
    secrets.file("own", "wonderland-13");
    let output = roundtrip()
        .args(["study", "--plan", plan.to_str().unwrap(), "-o"])
        .arg(secrets.path("x"))
        .output()
        .unwrap();
    assert!(
        output.status.code() == Some(1) && text(&output).contains("authentication failure"),
        "{}",
        text(&output)
    );
    shows_no_secret(&text(&output));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn portals_may_be_names_and_ipv6_addresses() {
    let named = common::ready(&["target", "--portal", "localhost:0", "--iqn", IQN, "--lun", "0=ram:8M"]);
    let port = named.address.strip_prefix("127.0.0.1:").unwrap();
    let url = |host: &str, port: &str| format!("iscsi://{host}:{port}/{IQN}/0");
    // Nobody listens on ::1, so a name with both addresses needs both attempts.
    bench(&url("localhost", port), &SHORT);
    let output =
        roundtrip().args(["bench", &url("no-such-host.invalid", "3260")]).args(SHORT).output().unwrap();
    assert!(
        output.status.code() == Some(2) && text(&output).contains("no-such-host.invalid"),
        "{}",
        text(&output)
    );
    let v6 = common::ready(&["target", "--portal", "[::1]:0", "--iqn", IQN, "--lun", "0=ram:8M"]);
    assert!(v6.address.starts_with("[::1]:"), "{}", v6.address);
    bench(&format!("iscsi://{}/{IQN}/0", v6.address), &SHORT);
}

/// A portal that moves logins to a name, which is resolved.
#[test]
fn redirections_to_names_are_followed() {
    let secrets = Secrets::new();
    let disk = Target::start(&["--lun", "0=ram:8M"]);
    let port = disk.address.rsplit_once(':').unwrap().1;
    let moved = |address: &str| {
        let config = format!(
            "iqn = '{IQN}'\nluns = 'none'\n[[portal]]\nlisten = '127.0.0.1:0'\nmoved = {{ address = '{address}' }}\n"
        );
        let path = secrets.file("moved.toml", &config);
        common::ready(&["target", "--config", path.to_str().unwrap()])
    };
    // The name is the target's, not one of the command line.
    let nowhere = moved("no-such-host.invalid:3260");
    let url = format!("iscsi://{}/{IQN}/0", nowhere.address);
    let output = roundtrip().args(["bench", &url]).args(SHORT).output().unwrap();
    let expected =
        format!("{}: the target redirects the login to no-such-host.invalid:3260", nowhere.address);
    assert!(output.status.code() == Some(1) && text(&output).contains(&expected), "{}", text(&output));
    let target = moved(&format!("localhost:{port}"));
    bench(&format!("iscsi://{}/{IQN}/0", target.address), &SHORT);
}

#[test]
fn tgt_with_chap_in_both_directions() {
    if !testing::require_root("tgtd") {
        return;
    }
    let secrets = Secrets::new();
    let image = secrets.path("disk");
    std::fs::write(&image, vec![0; 8 << 20]).unwrap();
    let tgt = Tgt::start(&image);
    let account = ["--mode", "account", "--op"];
    for arguments in [
        &[&account[..], &["new", "--user", "alice", "--password", OWN]].concat()[..],
        &[&account[..], &["new", "--user", "disk", "--password", TARGET]].concat(),
        &[&account[..], &["bind", "--tid", "1", "--user", "alice"]].concat(),
        &[&account[..], &["bind", "--tid", "1", "--user", "disk", "--outgoing"]].concat(),
    ] {
        assert!(tgt.admin(arguments), "{arguments:?}");
    }
    let url = format!("iscsi://alice@localhost:{}/{IQN}/1", tgt.port);
    let file = |name: &str| secrets.text(name);
    let (own, theirs, wrong) = (file("own"), file("target"), file("wrong"));
    let one_way = ["--chap-secret-file", &own];
    let mutual = ["--chap-mutual-user", "disk", "--chap-mutual-secret-file", &theirs];
    let both_ways = [&one_way[..], &mutual].concat();
    let digests = [&both_ways[..], &["--header-digest", "--data-digest"]].concat();
    for login in [&one_way[..], &both_ways, &digests] {
        if login.contains(&"--header-digest") {
            let refused = roundtrip().args(["bench", &url]).args(login).output().unwrap();
            assert!(
                text(&refused).contains("refuses a digest"),
                "tgt has none by default: {}",
                text(&refused)
            );
            for name in ["HeaderDigest", "DataDigest"] {
                let update =
                    ["--mode", "target", "--op", "update", "--tid", "1", "--name", name, "--value", "CRC32C"];
                assert!(tgt.admin(&update), "{name}");
            }
        }
        let result = bench(&url, &[&SHORT[..], login, &["--rw", "randrw", "--verify"]].concat());
        let run = &result["runs"][0];
        assert!(run["operations"].as_u64() > Some(0) && run["mismatched_blocks"] == 0, "{run:#}");
    }
    for (login, expected) in [
        (["--chap-secret-file", &wrong, "--sessions", "1"], "authentication failure"),
        (["--chap-secret-file", &own, "--chap-mutual-secret-file", &wrong], "did not prove"),
    ] {
        let output = roundtrip().args(["bench", &url]).args(login).output().unwrap();
        assert!(output.status.code() == Some(1) && text(&output).contains(expected), "{}", text(&output));
        shows_no_secret(&text(&output));
    }
    let open = url.replace("alice@", "");
    assert_eq!(roundtrip().args(["bench", &open]).output().unwrap().status.code(), Some(1));
}
