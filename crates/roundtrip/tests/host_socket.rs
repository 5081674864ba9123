//! `roundtrip host socket` on running programs: what it lists, what it changes, and that a change mends what a check found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use common::live::{analyze, captured, kinds, may_capture};
use common::roundtrip;
use host::finding::Finding;
use host::report::Checked;
use serde_json::Value;

/// chatty.py: a server and its client.
struct Chatty {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    port: u16,
    fd: String,
}

impl Chatty {
    fn start(arguments: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/chatty.py");
        let mut command = Command::new("python3");
        command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [port, fd] = words[..] else { panic!("'{line}'") };
        let (port, fd) = (port.parse().unwrap(), fd.to_owned());
        Self { child, input, output, port, fd }
    }

    /// Gives a command, and waits until it is carried out.
    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// `roundtrip host socket` for the server's connection.
    fn socket(&self, arguments: &[&str]) -> Output {
        let mut command = roundtrip();
        command.args(["host", "socket", "--pid", &self.pid(), "--fd", &self.fd]).args(arguments);
        command.output().unwrap()
    }

    fn nagle(&self) -> bool {
        let output = self.socket(&["--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(listed["sockets"].as_array().unwrap().len(), 1, "{listed}");
        listed["sockets"][0]["options"]["nagle"].as_bool().unwrap()
    }
}

impl Drop for Chatty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    testing::require("python3", found)
}

/// `roundtrip host check` of the program's port: its result, and what it finds at the program's sockets.
fn check(chatty: &Chatty) -> (Checked, Vec<Finding>) {
    let mut command = roundtrip();
    command.args(["host", "check", "--json", "--watch", "0s", "--port", &chatty.port.to_string()]);
    let output = command.output().unwrap();
    let checked: Checked =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    // The machine may have faults of its own.
    assert_eq!(output.status.code(), Some(i32::from(!checked.findings.is_empty())));
    let end = format!("127.0.0.1:{}", chatty.port);
    let found = checked.findings.iter().filter(|finding| finding.subject.contains(&end)).cloned().collect();
    (checked, found)
}

/// What a check finds while the program's connection is in use.
fn check_busy(chatty: &mut Chatty) -> Vec<Finding> {
    chatty.tell("start");
    check(chatty).1
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The verdicts about exchanges, and their median round trip, us.
fn measured(chatty: &mut Chatty, file: &Path) -> (Vec<String>, f64) {
    // The first exchanges of a connection are acknowledged at once.
    chatty.tell("run 30");
    let port = chatty.port;
    let ((), _) = captured("lo", port, file, || Ok(()), || chatty.tell("run 40"));
    let result = analyze(&[file.to_str().unwrap(), "--port", &port.to_string()]);
    let parts = result["stanzas"][0]["parts"].as_array().unwrap();
    let whole = parts.iter().find(|part| part["part"] == "round_trip").unwrap();
    (kinds(&result), whole["p50_us"].as_f64().unwrap())
}

#[test]
fn a_chatty_server_is_found_mended_and_restored() {
    let Some(_alone) = may_capture() else { return };
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let state = ["--state", state.to_str().unwrap()];
    let mut chatty = Chatty::start(&["parts"]);

    let (verdicts, before_us) = measured(&mut chatty, &folder.path().join("before.pcapng"));
    assert_eq!(verdicts, ["nagle_delayed_ack"]);

    let found = check_busy(&mut chatty);
    assert_eq!(found.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["nagle-on-small-messages"]);
    let command =
        format!("roundtrip host socket --pid {} --fd {} nodelay=on --apply", chatty.pid(), chatty.fd);
    assert_eq!(found[0].commands, [command]);
    // The waiting time that the check saw is the one that the capture shows.
    let cost = found[0].cost.unwrap().us_per_round_trip.unwrap();
    assert!((0.7..1.3).contains(&(cost / before_us)), "{cost} {before_us}");
    chatty.tell("stop");

    // Without --apply nothing changes.
    let shown = chatty.socket(&["nodelay=on"]);
    assert!(text(&shown).contains("would set nodelay=on, now off"), "{}", text(&shown));
    assert!(shown.status.success() && chatty.nagle());

    let applied = chatty.socket(&[&["nodelay=on", "--apply"], &state[..]].concat());
    assert!(applied.status.success(), "{}", text(&applied));
    assert!(text(&applied).starts_with("changed nodelay: on, was off: 127.0.0.1:"), "{}", text(&applied));
    assert!(!chatty.nagle());
    let found = check_busy(&mut chatty);
    assert!(found.is_empty(), "{found:?}");
    chatty.tell("stop");

    let (verdicts, after_us) = measured(&mut chatty, &folder.path().join("after.pcapng"));
    assert!(!verdicts.contains(&"nagle_delayed_ack".to_owned()), "{verdicts:?}");
    assert!(before_us > 20.0 * after_us, "{before_us} {after_us}");

    let undone = roundtrip().args(["host", "socket", "--undo"]).args(state).output().unwrap();
    assert!(text(&undone).starts_with("restored nodelay: off, was on: 127.0.0.1:"), "{}", text(&undone));
    assert!(undone.status.success() && chatty.nagle());
    let again = roundtrip().args(["host", "socket", "--undo"]).args(state).output().unwrap();
    assert_eq!(text(&again), "nothing to restore\n");
}

#[test]
fn servers_that_nagle_does_not_delay_are_no_finding() {
    if !has_python() {
        return;
    }
    for arguments in [&["parts", "nodelay"][..], &["whole"], &["bulk"]] {
        let found = check_busy(&mut Chatty::start(arguments));
        assert!(found.is_empty(), "{arguments:?}: {found:?}");
    }
}

#[test]
fn an_idle_connection_is_no_finding() {
    if !has_python() {
        return;
    }
    let mut chatty = Chatty::start(&["parts"]);
    chatty.tell("run 30");
    let (checked, found) = check(&chatty);
    let sockets = &checked.facts.sockets;
    assert!(sockets.iter().any(|s| s.watched.is_some_and(|w| w.readings > 5)), "{sockets:?}");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_program_that_has_ended_is_refused_at_undo() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = ["--state", folder.path().to_str().unwrap()];
    let chatty = Chatty::start(&["parts"]);
    let applied = chatty.socket(&[&["cork=on", "quickack=on", "--apply"], &state[..]].concat());
    assert!(applied.status.success(), "{}", text(&applied));
    assert!(text(&applied).contains("note: quickack is not permanent"), "{}", text(&applied));
    drop(chatty);
    let undone = roundtrip().args(["host", "socket", "--undo"]).args(state).output().unwrap();
    assert_eq!(undone.status.code(), Some(1), "{}", text(&undone));
    assert_eq!(text(&undone).matches("No such process").count(), 2, "{}", text(&undone));
}

#[test]
fn a_rejected_option_takes_back_those_before_it() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = ["--state", folder.path().to_str().unwrap()];
    let chatty = Chatty::start(&["parts"]);
    let options = ["nodelay=on", "notsent-lowat=64k", "congestion=no-such-thing", "--apply"];
    let refused = chatty.socket(&[&options[..], &state[..]].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let said = text(&refused);
    assert!(
        said.contains("congestion=no-such-thing") && said.contains("the 2 changes before it were taken back"),
        "{said}"
    );
    assert!(!said.contains("changed nodelay"), "{said}");
    assert!(chatty.nagle());
    let undone = roundtrip().args(["host", "socket", "--undo"]).args(state).output().unwrap();
    assert_eq!(text(&undone), "nothing to restore\n");
}

#[test]
fn a_fifo_in_place_of_the_record_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sockets.json");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let state = ["--state", folder.path().to_str().unwrap()];
    let undone = roundtrip().args(["host", "socket", "--undo"]).args(state).output().unwrap();
    assert_eq!(undone.status.code(), Some(1), "{}", text(&undone));
    assert!(text(&undone).contains("not a regular file"), "{}", text(&undone));
}

#[test]
fn arguments_that_name_no_socket_are_refused() {
    let code = |arguments: &[&str]| {
        let output = roundtrip().args(["host", "socket"]).args(arguments).output().unwrap();
        (output.status.code(), text(&output))
    };
    let (status, said) = code(&["nodelay=on"]);
    assert!(status == Some(2) && said.contains("name a process (--pid), a port (--port)"), "{said}");
    let own = std::process::id().to_string();
    let (status, said) = code(&["--pid", &own, "--fd", "0", "nodelay=on"]);
    assert!(status == Some(2) && said.contains("no TCP socket of a visible process matches"), "{said}");
    for (arguments, why) in [
        (&["--pid", "99999999"][..], "there is no process 99999999"),
        (&["--pid", "0"], "there is no process 0"),
        (&["--pid", "99999999", "nodelay=on"], "there is no process 99999999"),
        (&["--port", "0"], "0 is not in 1..="),
        (&["--pid", &own, "--fd", "9999"], "no TCP socket of a visible process matches at descriptor 9999"),
        (&["--force"], "--undo"),
    ] {
        let (status, said) = code(arguments);
        assert!(status == Some(2) && said.contains(why), "{arguments:?}: {said}");
    }
    for arguments in
        [&["--fd", "3"][..], &["--apply"], &["nagle=on", "--pid", "1"], &["--undo", "nodelay=on"]]
    {
        assert_eq!(code(arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn explanations_are_listed_and_printed() {
    let run =
        |arguments: &[&str]| roundtrip().args(["host", "explain"]).args(arguments).output().expect("it runs");
    let list = run(&[]);
    assert!(list.status.success());
    let names: Vec<String> =
        text(&list).lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names, host::explain::all().keys().cloned().collect::<Vec<_>>());
    let page = run(&["nagle-on-small-messages"]);
    assert!(
        page.status.success() && text(&page).contains("ndd -set /dev/tcp tcp_naglim_def 1"),
        "{}",
        text(&page)
    );
    let json: Value = serde_json::from_slice(&run(&["half-duplex", "--json"]).stdout).unwrap();
    assert_eq!(json["id"], "half-duplex");
    assert!(json["steps"]["illumos"].as_array().unwrap().len() > 2, "{json}");
    let unknown = run(&["no-such\u{1b}[2Jfinding"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown).contains("roundtrip host explain lists the names"));
    assert!(!text(&unknown).contains('\u{1b}'));
}
