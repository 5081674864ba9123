//! The client's process on its own host.

use std::io::{BufRead as _, Write};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};

use load::initiator::Phase;

use super::messages::{Account, Answer, Hello, Reply, Request};
use crate::accounts::Snapshot;
use crate::client::{Job, perform};
use crate::congestion;
use crate::error::StudyError;
use crate::interface::Interface;
use crate::machine::Machine;

/// Serves a study over standard input and output until they are closed. Closing them during a job ends the process.
///
/// # Errors
/// When an answer cannot be written.
pub fn serve() -> Result<(), StudyError> {
    let failed = |what| move |source| StudyError::machine(what, source);
    let cpus = socket::cpu::allowed().map_err(failed("asking for CPUs"))?;
    let cpu = cpus.first().copied().unwrap_or(0);
    let machine = Machine::here();
    let requests = requests();
    let out = Mutex::new(std::io::stdout());
    while let Ok(request) = requests.recv() {
        let answer = match request {
            Request::Hello => Answer::Hello(Box::new(Hello {
                machine: machine.clone(),
                cpus: cpus.clone(),
                caller: std::env::var("SSH_CONNECTION")
                    .ok()
                    .and_then(|text| text.split_whitespace().next()?.parse().ok()),
                congestion: congestion::choices(),
            })),
            Request::Look(address) => match Interface::towards(address) {
                Ok(interface) => Answer::Look(interface),
                Err(error) => Answer::Failed(format!("no way to {address}: {error}")),
            },
            Request::Do(job) => match accounted(*job, cpu, &|phase| {
                let _ = send(&out, &Answer::Phase(phase));
            }) {
                Ok(reply) => Answer::Done(Box::new(reply)),
                Err(error) => Answer::Failed(error.to_string()),
            },
        };
        send(&out, &answer).map_err(failed("answering the study"))?;
    }
    Ok(())
}

fn send(out: &Mutex<std::io::Stdout>, answer: &Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    out.write_all(&line)?;
    out.flush()
}

/// Reads requests on a thread of its own, which detects the end of input also during a job.
fn requests() -> Receiver<Request> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let request = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            if request.is_none_or(|request| sender.send(request).is_err()) {
                break;
            }
        }
        std::process::exit(0);
    });
    receiver
}

/// Performs a job and accounts for the CPU.
fn accounted(mut job: Job, cpu: usize, report: &(dyn Fn(Phase) + Sync)) -> Result<Reply, StudyError> {
    if let Job::Iscsi(job) = &mut job {
        // Pins the sessions only: the capture's thread runs on any CPU.
        job.spec.cpu = Some(cpu);
    }
    let is_pinned = !matches!(job, Job::Iscsi(_));
    let snapshots = Mutex::new(Vec::new());
    let snap = || snapshots.lock().unwrap_or_else(PoisonError::into_inner).extend(Snapshot::take(&[]));
    snap();
    let observe = |phase| {
        snap();
        report(phase);
    };
    let inside = || {
        if is_pinned {
            socket::cpu::pin(cpu).map_err(|source| StudyError::machine("choosing a CPU", source))?;
        }
        perform(&job, &observe, &|| false)
    };
    let done = std::thread::scope(|scope| scope.spawn(inside).join());
    let lost = |_| Err(StudyError::machine("a job", std::io::Error::other("the thread panicked")));
    let done = done.unwrap_or_else(lost)?;
    snap();
    let snapshots = snapshots.into_inner().unwrap_or_else(PoisonError::into_inner);
    let account = match &snapshots[..] {
        // Before, at the beginning and at the end of the measured time, after.
        [_, first, .., last, _] | [first, last] => Account {
            cpu: last.cpu_since(first, cpu),
            seconds: last.seconds_since(first),
            others: last.others_since(first, &[cpu]),
        },
        _ => Account::default(),
    };
    Ok(Reply { done, account })
}
