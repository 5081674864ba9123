//! `roundtrip host guard`: applies a change set, keeps its deadline and rolls it back. Started by this program, in a session of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow};
use host::apply::{self, Request, System};
use host::journal::{Journal, Now};
use host::rollback;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The largest request, bytes.
const REQUEST_LIMIT: u64 = 4 << 20;

/// The program itself, also if its file was replaced since.
const SELF: &str = "/proc/self/exe";

/// Keep the deadline of a change set
#[derive(Debug, clap::Args)]
pub(super) struct GuardArgs {
    /// Directory of the journal
    #[arg(long)]
    state: PathBuf,
}

/// What the guard answers, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Applied(u64),
    Failed(String),
}

/// Starts a guard that applies changes, and returns the number of their set.
pub(super) fn start(state: &Path, request: &Request) -> Result<u64, Failure> {
    let ended = || {
        anyhow!(
            "the process that was to apply the change has ended; `roundtrip host undo --list` shows what it did"
        )
    };
    let text = serde_json::to_vec(request).context("writing the request").map_err(Failure::Work)?;
    let state = std::path::absolute(state).context("finding the journal").map_err(Failure::Work)?;
    let mut child = Command::new(SELF)
        .args(["host", "guard", "--state"])
        .arg(&state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting the process that rolls back")
        .map_err(Failure::Work)?;
    // Closed when it is written: the request has no other end.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(&text));
    written
        .ok_or_else(ended)
        .and_then(|written| written.context("handing the request over"))
        .map_err(Failure::Work)?;
    let mut answer = String::new();
    let stdout = child.stdout.take().ok_or_else(ended).map_err(Failure::Work)?;
    BufReader::new(stdout.take(REQUEST_LIMIT))
        .read_line(&mut answer)
        .context("waiting for the change")
        .map_err(Failure::Work)?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Applied(id)) => Ok(id),
        Ok(Answer::Failed(why)) => Err(Failure::Work(anyhow!(why))),
        Err(_) => Err(Failure::Work(ended())),
    }
}

pub(super) fn run(args: &GuardArgs) -> Result<ExitCode, Failure> {
    rollback::detach().map_err(super::changes::classify)?;
    let journal = Journal::new(&args.state);
    let applied = read().and_then(|request| apply(&journal, &request));
    let answer = match &applied {
        Ok(id) => Answer::Applied(*id),
        Err(error) => Answer::Failed(crate::error_text(error)),
    };
    // The shell that has started it may be gone, and its terminal with it. The change is made all the same, and is taken back.
    if let Ok(text) = serde_json::to_string(&answer) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
    let id = applied.map_err(Failure::Work)?;
    rollback::keep_deadline(&System::default(), &journal, id).map_err(super::changes::classify)?;
    Ok(ExitCode::SUCCESS)
}

fn read() -> anyhow::Result<Request> {
    let mut text = Vec::new();
    std::io::stdin().take(REQUEST_LIMIT).read_to_end(&mut text).context("reading the request")?;
    serde_json::from_slice(&text).context("reading the request")
}

fn apply(journal: &Journal, request: &Request) -> anyhow::Result<u64> {
    let lock = journal.lock()?;
    Ok(apply::apply(&System::default(), journal, &lock, &Now::read()?, request)?.id)
}
