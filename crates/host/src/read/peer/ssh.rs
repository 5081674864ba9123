//! Runs the check on another host over ssh.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::facts::peer::{CheckedHost, PeerFacts};
use crate::read::Wanted;
use crate::report::Checked;

/// How long the other host may take beyond the time that it watches.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest answer, bytes.
const LIMIT: u64 = 16 << 20;

/// How much of an error message is shown, characters.
const SHOWN: usize = 300;

/// The command that asks a host, without what names the host: ssh must not ask for a password, which nobody may be there to type.
fn command(destination: &str, wanted: &Wanted) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", destination]);
    command.arg(format!("roundtrip host check --json --watch {}ms", wanted.watch.as_millis()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the check on another host.
///
/// # Errors
/// Why there is no result, and what to do.
pub(super) fn check(destination: &str, wanted: &Wanted) -> Result<PeerFacts, String> {
    // Behind `--` ssh still takes the first word as destination, but a host begins with no dash.
    if destination.starts_with('-') {
        return Err(format!("{destination} is no host"));
    }
    let child = command(destination, wanted).spawn().map_err(|error| format!("cannot run ssh: {error}"))?;
    let (output, complaint) = collect(child, PATIENCE + wanted.watch)?;
    parse(destination, &output).map_err(|error| match complaint.trim() {
        "" => error,
        complaint => complaint.chars().take(SHOWN).collect(),
    })
}

/// Output and errors of a command that ends within a time; one that does not is ended.
fn collect(mut child: Child, patience: Duration) -> Result<(Vec<u8>, String), String> {
    let (sender, receiver) = mpsc::channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let complaints = sender.clone();
    std::thread::spawn(move || sender.send((Stream::Output, read_all(output))));
    std::thread::spawn(move || complaints.send((Stream::Errors, read_all(errors))));
    let (mut output, mut complaint) = (Vec::new(), String::new());
    let mut outcome = Ok(());
    for _ in 0..2 {
        match receiver.recv_timeout(patience) {
            Ok((Stream::Output, bytes)) => output = bytes,
            Ok((Stream::Errors, bytes)) => complaint = String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => outcome = Err(format!("no answer within {} s", patience.as_secs())),
        }
    }
    if outcome.is_err() {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    // What its exit code says follows from its output: findings are 1, too.
    let _ = child.wait();
    outcome.map(|()| (output, complaint))
}

enum Stream {
    Output,
    Errors,
}

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is parsed, and fails where it is incomplete.
        let _ = stream.take(LIMIT).read_to_end(&mut bytes);
    }
    bytes
}

/// What the other host answered.
fn parse(destination: &str, output: &[u8]) -> Result<PeerFacts, String> {
    let checked: Checked = serde_json::from_slice(output)
        .map_err(|error| format!("`roundtrip host check --json` there printed no result: {error}"))?;
    let host = CheckedHost {
        hostname: checked.facts.system.hostname,
        links: checked.facts.links,
        findings: checked.findings,
    };
    Ok(PeerFacts::Ssh { destination: destination.to_owned(), host: Box::new(host) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_asks_no_password_and_names_the_host_behind_the_options() {
        let wanted = Wanted { watch: Duration::from_millis(1500), ..Wanted::default() };
        let command = command("store2", &wanted);
        let arguments: Vec<&str> = command.get_args().filter_map(|a| a.to_str()).collect();
        assert_eq!(
            arguments,
            [
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=5",
                "--",
                "store2",
                "roundtrip host check --json --watch 1500ms"
            ]
        );
    }

    #[test]
    fn a_destination_that_is_an_option_is_refused() {
        let error = check("-oProxyCommand=true", &Wanted::default()).unwrap_err();
        assert!(error.contains("is no host"), "{error}");
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let child =
            Command::new("sleep").arg("1000").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let error = collect(child, Duration::from_millis(1)).unwrap_err();
        assert!(error.starts_with("no answer within"), "{error}");
    }
}
