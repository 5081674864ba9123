//! Ten thousand sessions: how fast they log in, what an idle one holds, and how long a discovery storm takes, as after the reboot of a
//! switch, with what it leaves to an active session. Initiators and target share the machine's CPUs. docs/performance.md holds its
//! results.

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

mod served;

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use iscsi::initiator::Direction;
use load::initiator::{Session, SessionOptions, commands};
use served::Served;

#[derive(Parser)]
struct Args {
    /// Sessions that stay, and discoveries of the storm
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Initiators that log in at once
    #[arg(long, default_value_t = 64)]
    threads: usize,
    /// Connections that the target accepts in a second
    #[arg(long, default_value_t = 1_000_000)]
    accepts: u32,
    /// Event loops of the target; as many as CPUs by default
    #[arg(long)]
    loops: Option<u16>,
}

/// Sessions differ in their initiator's name: a session of the same name and number would replace the one before.
fn options(number: usize) -> SessionOptions {
    SessionOptions {
        initiator_name: format!("iqn.2026-11.example.host:{number}"),
        patience: Duration::from_secs(60),
        ..SessionOptions::default()
    }
}

/// Runs `work` for each number on all threads, which begin together. Returns the results and the time.
fn together<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> (Vec<T>, Duration) {
    let (next, begin) = (AtomicU64::new(0), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let run = || {
            begin.wait();
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed) as usize);
            numbers.take_while(|&number| number < count).map(&work).collect::<Vec<T>>()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        begin.wait();
        let begun = Instant::now();
        let all = running.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (all, begun.elapsed())
    })
}

fn main() {
    let args = Args::parse();
    let most = (2 * args.sessions + 100).to_string();
    let limits: Vec<String> = ["connections", "connections_per_address", "logins", "sessions"]
        .map(|name| format!("{name}={most}"))
        .into();
    let rates = ["accepts_per_second", "accepts_per_address"].map(|name| format!("{name}={}", args.accepts));
    let mut arguments = vec!["--lun", "0=ram:64M"];
    limits.iter().chain(&rates).for_each(|limit| arguments.extend(["--limit", limit]));
    let loops = args.loops.map(|loops| loops.to_string());
    arguments.extend(loops.iter().flat_map(|loops| ["--threads", loops]));
    let target = Served::start(&arguments);
    // What the first session costs once.
    let mut active = Session::open(&target.url(0), &options(usize::MAX)).unwrap();
    read(&mut active);
    let before = target.uses();
    let url = target.url(0);
    let (sessions, took) =
        together(args.threads, args.sessions, |number| Session::open(&url, &options(number)).unwrap());
    let used = target.uses();
    let seconds = took.as_secs_f64();
    println!(
        "log in: {} sessions in {seconds:.2} s, {:.0} a second",
        sessions.len(),
        sessions.len() as f64 / seconds
    );
    println!(
        "  the target's CPU {:.0} us each; with its initiators on {} CPUs",
        (used.cpu_s - before.cpu_s) * 1e6 / sessions.len() as f64,
        std::thread::available_parallelism().unwrap()
    );
    std::thread::sleep(Duration::from_secs(1));
    let idle = target.uses();
    println!(
        "idle: {:.2} KiB each, {} threads, {} descriptors",
        (idle.memory_bytes.saturating_sub(before.memory_bytes)) as f64 / 1024.0 / sessions.len() as f64,
        idle.threads,
        idle.descriptors
    );
    let rested = target.uses();
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "  CPU of {} idle sessions: {:.2} %",
        sessions.len(),
        (target.uses().cpu_s - rested.cpu_s) / 5.0 * 100.0
    );
    storm(&args, &target, active);
}

fn read(session: &mut Session) {
    let cdb = commands::read_write(false, 0, 8);
    // The unit attention of a new session.
    if session.command(cdb, Direction::In(4096)).unwrap().status != 0 {
        assert_eq!(session.command(cdb, Direction::In(4096)).unwrap().status, 0);
    }
}

/// Discoveries at once beside an active session, and a load of the same CPU time without the target beside it: what of the loss is the
/// CPU's.
fn storm(args: &Args, target: &Served, mut active: Session) {
    let (host, port) = target.address.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                read(&mut active);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let rate_over = |work: &dyn Fn()| {
            let (before, begun) = (count.load(Ordering::Relaxed), Instant::now());
            work();
            (count.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
        };
        let alone = rate_over(&|| std::thread::sleep(Duration::from_secs(2)));
        let took = Cell::new(Duration::ZERO);
        let during = rate_over(&|| {
            let (found, time) = together(args.threads, args.sessions, |number| {
                Session::discover(host, port, &options(1_000_000 + number)).map(|targets| targets.len())
            });
            let failed = found.iter().filter(|found| !matches!(found, Ok(1))).count();
            println!("storm: {failed} of {} discoveries failed", found.len());
            took.set(time);
        });
        // The same threads, busy without the target.
        let took = took.get();
        let beside = rate_over(&|| {
            let until = Instant::now() + took;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| while Instant::now() < until {});
                }
            });
        });
        is_over.store(true, Ordering::Relaxed);
        println!(
            "storm: {} discoveries in {:.2} s, {:.0} a second; an active session at depth 1: {alone:.0} reads/s before, {during:.0} \
             during it ({:.2}); {beside:.0} beside two threads that compute ({:.2})",
            args.sessions,
            took.as_secs_f64(),
            args.sessions as f64 / took.as_secs_f64(),
            during / alone,
            beside / alone,
        );
    });
}
