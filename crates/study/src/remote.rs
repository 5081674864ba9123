//! A client on another host: a copy of this program, started there over ssh, that performs jobs. Clocks of the two hosts are
//! never compared.

mod messages;
mod there;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use load::initiator::{MUTUAL_SECRET_VARIABLE, Phase, SECRET_VARIABLE};

pub(crate) use self::messages::{Account, Hello, Reply};
use self::messages::{Answer, Request};
pub use self::there::serve;
use crate::client::Job;
use crate::error::StudyError;
use crate::interface::Interface;

/// The client's host, and how it is reached.
#[derive(Clone, Debug)]
pub struct RemoteSpec {
    /// A host as ssh names it: `host` or `user@host`.
    pub host: String,
    /// The command that reaches it, with its options: `ssh`.
    pub shell: Vec<String>,
    /// The program that is copied there: static, or made for the same C library.
    pub program: PathBuf,
    /// This host's address as the client reaches it; `None`: the one that ssh came from.
    pub address: Option<IpAddr>,
}

/// The verb that starts the program as a client.
pub const CLIENT_VERB: &str = "study-client";

/// Longest line accepted: twice the records of [`crate::capturing::REMOTE_OPERATIONS_MAX`] operations.
const LINE_MAX: u64 = 256 << 20;
/// Time limit for reaching the other host, and for copying the program there.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of a job.
const JOB_PATIENCE: Duration = Duration::from_secs(600);
/// Kept bytes of the standard error of ssh.
const ERRORS_MAX: usize = 4 << 10;

/// A client on another host.
#[derive(Debug)]
pub(crate) struct Remote {
    host: String,
    child: Child,
    ask: ChildStdin,
    answers: Receiver<Option<Answer>>,
    errors: Arc<Mutex<String>>,
}

impl Remote {
    /// Copies the program there, starts it, and waits until it answers.
    pub(crate) fn start(spec: &RemoteSpec, stop: &dyn Fn() -> bool) -> Result<Self, StudyError> {
        let path = copy(spec)?;
        // With --remove it deletes its own file when it starts, so that nothing is left there.
        let command = format!("exec '{path}' {CLIENT_VERB} --remove");
        let failed = |source| StudyError::machine("starting ssh", source);
        let mut child = shell(spec, &command).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let missing = || failed(std::io::Error::other("it has no pipe"));
        let ask = child.stdin.take().ok_or_else(missing)?;
        let (out, error) =
            (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let (sender, answers) = mpsc::sync_channel(4);
        std::thread::spawn(move || {
            let mut out = BufReader::with_capacity(1 << 20, out);
            loop {
                let mut line = String::new();
                let read = out.by_ref().take(LINE_MAX).read_line(&mut line);
                let answer = match read {
                    Ok(1..) => serde_json::from_str(&line).ok(),
                    _ => None,
                };
                let is_over = answer.is_none();
                if sender.send(answer).is_err() || is_over {
                    break;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&errors);
        std::thread::spawn(move || {
            for line in BufReader::new(error).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() + line.len() < ERRORS_MAX {
                    kept.push_str(line.trim());
                    kept.push_str("; ");
                }
            }
        });
        let mut remote = Self { host: spec.host.clone(), child, ask, answers, errors };
        // Fails here if it cannot run there.
        remote.hello(stop)?;
        Ok(remote)
    }

    /// Its host.
    pub(crate) fn hello(&mut self, stop: &dyn Fn() -> bool) -> Result<Hello, StudyError> {
        match self.exchange(&Request::Hello, &|_| (), stop, PATIENCE)? {
            Answer::Hello(hello) => Ok(*hello),
            _ => Err(self.fault("it answered something else".into())),
        }
    }

    /// Its interface towards an address.
    pub(crate) fn interface(
        &mut self,
        towards: IpAddr,
        stop: &dyn Fn() -> bool,
    ) -> Result<Interface, StudyError> {
        match self.exchange(&Request::Look(towards), &|_| (), stop, PATIENCE)? {
            Answer::Look(interface) => Ok(interface),
            _ => Err(self.fault("it answered something else".into())),
        }
    }

    /// Performs a job; `observe` is called with its phases as their messages arrive.
    pub(crate) fn perform(
        &mut self,
        job: &Job,
        observe: &dyn Fn(Phase),
        stop: &dyn Fn() -> bool,
    ) -> Result<Reply, StudyError> {
        match self.exchange(&Request::Do(Box::new(job.clone())), observe, stop, JOB_PATIENCE)? {
            Answer::Done(reply) => Ok(*reply),
            _ => Err(self.fault("it answered something else".into())),
        }
    }

    fn exchange(
        &mut self,
        request: &Request,
        observe: &dyn Fn(Phase),
        stop: &dyn Fn() -> bool,
        patience: Duration,
    ) -> Result<Answer, StudyError> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.fault(error.to_string()))?;
        line.push(b'\n');
        // A failed write is detected by the missing answer.
        let _ = self.ask.write_all(&line).and_then(|()| self.ask.flush());
        let begun = Instant::now();
        loop {
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                Ok(Some(Answer::Phase(phase))) => observe(phase),
                Ok(Some(Answer::Failed(message))) => return Err(self.fault(message)),
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                    // Its last errors may still be in flight.
                    std::thread::sleep(Duration::from_millis(100));
                    let text = self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let hint = if text.contains("GLIBC") || text.contains("No such file") {
                        "; this program needs a C library that is not there: `make static` makes one that needs none (--client-program)"
                    } else {
                        ""
                    };
                    let text = text.trim_end_matches("; ");
                    return Err(self
                        .fault(format!("it ended{}{text}{hint}", if text.is_empty() { "" } else { ": " })));
                }
                Err(RecvTimeoutError::Timeout) if stop() => return Err(StudyError::Interrupted),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() > patience => {
                    return Err(self.fault(format!("no answer within {patience:?}")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn fault(&self, message: String) -> StudyError {
        StudyError::Remote { host: self.host.clone(), message }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The end of its input ends the process there, also during a job.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// ssh, with the host (which begins with no hyphen) and a command for the shell there.
fn shell(spec: &RemoteSpec, command: &str) -> Command {
    let (program, options) =
        spec.shell.split_first().map_or(("ssh", &[][..]), |(first, rest)| (first.as_str(), rest));
    let mut shell = Command::new(program);
    shell.args(options).arg(&spec.host).arg(command);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    // ssh might pass variables on.
    shell.env_remove(SECRET_VARIABLE).env_remove(MUTUAL_SECRET_VARIABLE);
    shell
}

/// Copies the program to a folder of its own there and returns its path.
fn copy(spec: &RemoteSpec) -> Result<String, StudyError> {
    let fault = |message: String| StudyError::Remote { host: spec.host.clone(), message };
    let program = std::fs::read(&spec.program)
        .map_err(|error| fault(format!("cannot read {}: {error}", spec.program.display())))?;
    let take = "umask 077 && d=$(mktemp -d) && cat > \"$d/roundtrip\" && chmod 700 \"$d/roundtrip\" && echo \"$d/roundtrip\"";
    let mut child = shell(spec, take)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fault(format!("cannot run {}: {error}", spec.shell.join(" "))))?;
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(&program),
        None => Ok(()),
    };
    let output = child.wait_with_output().map_err(|error| fault(error.to_string()))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let is_path = Path::new(&path).is_absolute() && !path.contains(['\'', '\n']);
    if !output.status.success() || written.is_err() || !is_path {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(fault(format!(
            "copying this program there failed: {}; keys and known hosts are ssh's own business, see ssh(1)",
            said.trim().lines().last().unwrap_or("ssh said nothing")
        )));
    }
    Ok(path)
}
