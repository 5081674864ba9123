//! A target under everything at once, for a long time: steady sessions, logins and logouts, connections that are closed in the middle
//! of commands, a slow disk, and reloads. Memory, threads, descriptors and the steady sessions' latency have to stay flat after the first
//! sixth of the time: `make soak MINUTES=30`. docs/performance.md holds its results. Ends with 1 if something grows.

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

mod served;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use iscsi::initiator::Direction;
use load::initiator::{InitiatorError, IscsiUrl, Session, SessionOptions, commands};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use served::{Served, Uses};

#[derive(Parser)]
struct Args {
    /// Length, minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Steady sessions
    #[arg(long, default_value_t = 32)]
    steady: usize,
    /// Initiators that log in and out
    #[arg(long, default_value_t = 4)]
    visitors: usize,
    /// Where the figures go
    #[arg(long)]
    json: Option<std::path::PathBuf>,
}

/// Parts that the time is divided into; the first `WARM` may still grow.
const PARTS: usize = 30;
const WARM: usize = 5;
/// What a later part may use more than the parts behind the warm-up: the allocator's and the pool's own play.
const MEMORY_PLAY: u64 = 2 << 20;
const COUNT_PLAY: u64 = 8;
/// Factor between the median latency of the last third and that of the one behind the warm-up: other programs share the machine.
const DRIFT: f64 = 1.5;

/// What was done, by kind.
#[derive(Default)]
struct Done {
    steady: AtomicU64,
    visits: AtomicU64,
    given_up: AtomicU64,
    slow: AtomicU64,
    reloads: AtomicU64,
    /// Commands and logins that failed and should not have.
    failed: AtomicU64,
}

fn count(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

fn add(to: &AtomicU64) {
    to.fetch_add(1, Ordering::Relaxed);
}

fn options(number: usize) -> SessionOptions {
    SessionOptions {
        initiator_name: format!("iqn.2026-11.example.host:{number}"),
        ..SessionOptions::default()
    }
}

/// Places of 64 KiB that are read and written: a disk in memory grows until all of it has been written, which is soon.
const PLACES: u32 = 100;
/// The sense key.
const UNIT_ATTENTION: u8 = 6;

/// Reads or writes; a unit attention, as a reload raises, is answered by another try.
fn once(session: &mut Session, random: &mut fastrand::Rng) -> Result<(), InitiatorError> {
    let blocks = if random.u8(..8) == 0 { 128 } else { 8 };
    let (is_write, lba) = (random.bool(), u64::from(random.u32(..PLACES)) * 128);
    let cdb = commands::read_write(is_write, lba, blocks);
    let bytes = 512 * blocks as usize;
    for _ in 0..8 {
        let reply = if is_write {
            session.write(cdb, &vec![7; bytes])?
        } else {
            session.command(cdb, Direction::In(bytes as u32))?
        };
        if reply.status == 0 {
            return Ok(());
        }
        if reply.sense.get(2).is_none_or(|key| key & 15 != UNIT_ATTENTION) {
            return Err(InitiatorError::Spec(format!("no unit attention: {reply:x?}")));
        }
    }
    Err(InitiatorError::Spec("eight unit attentions, one behind the other".to_owned()))
}

/// A visitor that logs out after some commands.
fn stay_for(url: &IscsiUrl, number: usize, commands: u8) -> Result<(), InitiatorError> {
    let mut random = fastrand::Rng::new();
    let mut session = Session::open(url, &options(1000 + number))?;
    for _ in 0..commands {
        once(&mut session, &mut random)?;
    }
    session.close().map(drop)
}

/// A visitor that waits for the slow disk.
fn wait_for(slow: &IscsiUrl, number: usize) -> Result<(), InitiatorError> {
    let mut session = Session::open(slow, &options(2000 + number))?;
    once(&mut session, &mut fastrand::Rng::new())?;
    session.close().map(drop)
}

/// A visitor that closes its connection while a command waits for the slow disk: the answer meets a reset.
fn give_up(slow: &IscsiUrl, number: usize) -> Result<(), InitiatorError> {
    let options = SessionOptions { patience: Duration::from_millis(100), ..options(3000 + number) };
    // On a busy machine the login may take longer than its patience.
    let Ok(mut session) = Session::open(slow, &options) else { return Ok(()) };
    // The first commands of a session, and those behind a reload, are answered at once with a unit attention.
    for _ in 0..8 {
        let Ok(reply) = session.command(commands::read_write(false, 0, 8), Direction::In(4096)) else {
            return Ok(());
        };
        if reply.status == 0 {
            // This program had no time for as long as the disk takes.
            return Ok(());
        }
    }
    Ok(())
}

fn configuration(turn: u64) -> String {
    let more = if turn.is_multiple_of(2) { "2 = \"zero:1G\"\n" } else { "" };
    format!("[luns]\n0 = \"ram:64M\"\n1 = \"zero:64M,delay=300ms\"\n{more}")
}

/// A part of the time.
struct Part {
    uses: Uses,
    median_us: f64,
    p99_us: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    std::fs::write(&file, configuration(0)).unwrap();
    let limits = ["accepts_per_second=10000", "accepts_per_address=10000"].map(|limit| ["--limit", limit]);
    let arguments = [&["--config", file.to_str().unwrap()][..], limits.as_flattened()].concat();
    let target = Served::start(&arguments);
    let (done, is_over) = (&Done::default(), &AtomicBool::new(false));
    let latencies = &Mutex::new(Vec::<u32>::new());
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let parts = std::thread::scope(|scope| {
        for number in 0..args.steady {
            let url = target.url(0);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                let mut session = Session::open(&url, &options(number)).unwrap();
                while goes_on() {
                    let begun = Instant::now();
                    match once(&mut session, &mut random) {
                        Ok(()) => {
                            latencies.lock().unwrap().push(begun.elapsed().as_micros() as u32);
                            add(&done.steady);
                        }
                        Err(error) => {
                            eprintln!("steady session {number}: {error}");
                            add(&done.failed);
                            return;
                        }
                    }
                    std::thread::sleep(Duration::from_micros(random.u64(..2000)));
                }
            });
        }
        for number in 0..args.visitors {
            let (url, slow) = (target.url(0), target.url(1));
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(1000 + number as u64);
                while goes_on() {
                    let kind = random.u8(..4);
                    let visited = match kind {
                        0 => give_up(&slow, number).inspect(|()| add(&done.given_up)),
                        1 => wait_for(&slow, number).inspect(|()| add(&done.slow)),
                        _ => stay_for(&url, number, random.u8(1..20)),
                    };
                    match visited {
                        Ok(()) => add(&done.visits),
                        Err(error) => {
                            eprintln!("visitor {number}: {error}");
                            add(&done.failed);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            while goes_on() {
                let turn = count(&done.reloads);
                add(&done.reloads);
                std::fs::write(&file, configuration(turn + 1)).unwrap();
                kill(Pid::from_raw(target.pid() as i32), Signal::SIGHUP).unwrap();
                std::thread::sleep(Duration::from_secs(2));
            }
        });
        println!(
            "minute    memory  threads  files   CPU   p50 us   p99 us   operations   visits  left at  reloads"
        );
        let begun = Instant::now();
        let mut parts = Vec::new();
        for part in 1..=PARTS {
            let until = length * part as u32 / PARTS as u32;
            // The highest of each part.
            let (mut uses, cpu_s) =
                (Uses::default(), parts.last().map_or(0.0, |part: &Part| part.uses.cpu_s));
            while begun.elapsed() < until {
                std::thread::sleep(Duration::from_secs(1).min(until.saturating_sub(begun.elapsed())));
                let now = target.uses();
                uses.cpu_s = now.cpu_s;
                uses.memory_bytes = uses.memory_bytes.max(now.memory_bytes);
                uses.threads = uses.threads.max(now.threads);
                uses.descriptors = uses.descriptors.max(now.descriptors);
            }
            let mut seen = std::mem::take(&mut *latencies.lock().unwrap());
            seen.sort_unstable();
            let at = |share: f64| seen.get((seen.len() as f64 * share) as usize).map_or(0.0, |&us| us.into());
            let (median_us, p99_us) = (at(0.5), at(0.99));
            println!(
                "{:>6.1} {:>5.1} MiB {:>8} {:>6} {:>3.0} % {median_us:>8.0} {p99_us:>8.0} {:>12} {:>8} {:>8} {:>8}",
                begun.elapsed().as_secs_f64() / 60.0,
                uses.memory_bytes as f64 / f64::from(1 << 20),
                uses.threads,
                uses.descriptors,
                (uses.cpu_s - cpu_s) / (length.as_secs_f64() / PARTS as f64) * 100.0,
                count(&done.steady),
                count(&done.visits),
                count(&done.given_up),
                count(&done.reloads),
            );
            parts.push(Part { uses, median_us, p99_us });
        }
        is_over.store(true, Ordering::Relaxed);
        parts
    });
    let grown = grown(&parts, count(&done.failed));
    if let Some(path) = &args.json {
        let all: Vec<_> = parts
            .iter()
            .map(|p| json!({ "memory_bytes": p.uses.memory_bytes, "threads": p.uses.threads, "descriptors": p.uses.descriptors, "p50_us": p.median_us, "p99_us": p.p99_us }))
            .collect();
        let done = json!({ "operations": count(&done.steady), "visits": count(&done.visits), "given_up": count(&done.given_up), "slow": count(&done.slow), "reloads": count(&done.reloads), "failed": count(&done.failed) });
        let text = json!({ "minutes": args.minutes, "steady": args.steady, "parts": all, "done": done, "grown": grown });
        std::fs::write(path, serde_json::to_string_pretty(&text).unwrap()).unwrap();
    }
    if grown.is_empty() {
        println!("flat: memory, threads, descriptors and latency behind the first sixth of the time");
        return ExitCode::SUCCESS;
    }
    grown.iter().for_each(|what| println!("not flat: {what}"));
    ExitCode::FAILURE
}

/// A figure of what is used.
type Of = fn(&Uses) -> u64;

/// What the last third uses more than the time between the warm-up and it.
fn grown(parts: &[Part], failed: u64) -> Vec<String> {
    let (early, late) = parts[WARM..].split_at((PARTS - WARM) / 2);
    let most =
        |parts: &[Part], of: fn(&Uses) -> u64| parts.iter().map(|part| of(&part.uses)).max().unwrap_or(0);
    let mut grown = Vec::new();
    let kinds: [(&str, Of, u64); 3] = [
        ("memory, bytes", |uses| uses.memory_bytes, MEMORY_PLAY),
        ("threads", |uses| uses.threads, COUNT_PLAY),
        ("descriptors", |uses| uses.descriptors, COUNT_PLAY),
    ];
    for (name, of, play) in kinds {
        let (before, after) = (most(early, of), most(late, of));
        if after > before + play {
            grown.push(format!("{name}: {before}, then {after}"));
        }
    }
    let median = |parts: &[Part]| {
        let mut all: Vec<f64> = parts.iter().map(|part| part.median_us).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (before, after) = (median(early), median(late));
    if after > DRIFT * before {
        grown.push(format!("median latency, us: {before}, then {after}"));
    }
    if failed > 0 {
        grown.push(format!("{failed} commands or logins failed"));
    }
    grown
}
