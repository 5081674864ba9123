//! The stages of a connection's commands have the time that was spent in them, and no other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Client, Login, lun_field, start};
use iscsi::pdu::ScsiCommand;
use iscsi_target::{LunConfig, SendPolicy, Stages, Threads};
use store::layer::{Delay, Layered, Work};
use store::{Ram, Store};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];
const WORK_US: f64 = 300.0;
const DELAY_US: f64 = 3000.0;
/// Turns enough for several samples, even where one has several rounds: a client that shares the CPU answers within it.
const ROUNDS: usize = 400;

/// The stages of a connection that reads so many blocks at once, again and again, from a disk that is quick (0), takes the thread's time
/// (1), or is waited for (2).
fn stages(send: SendPolicy, threads: Threads, lun: u8, at_once: u32) -> Stages {
    let ram = Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>;
    let work = Layered::new(Work(Duration::from_micros(WORK_US as u64)), Arc::clone(&ram));
    let delay = Layered::new(Delay(Duration::from_micros(DELAY_US as u64)), Arc::clone(&ram));
    let luns = vec![
        LunConfig::new(0, ram),
        LunConfig::new(1, Arc::new(work) as Arc<dyn Store>),
        LunConfig::new(2, Arc::new(delay)),
    ];
    let target = start(luns, |config| (config.send, config.threads) = (send, threads));
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(lun);
    for _ in 0..ROUNDS {
        let mut all = Vec::new();
        for tag in 0..at_once {
            let command = ScsiCommand { lun: lun_field(lun), ..client.command(tag, &READ, 512) };
            all.extend(client.encode(command.write(), &[]));
            client.cmd_sn = client.cmd_sn.wrapping_add(1);
        }
        std::io::Write::write_all(&mut client.socket, &all).unwrap();
        for _ in 0..at_once {
            let answer = client.receive().unwrap();
            client.exp_stat_sn = client.exp_stat_sn.max(answer.u32(24).wrapping_add(1));
        }
    }
    assert_eq!(client.log_out(0, 0), 0);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    let [connection] = &target.statistics()[..] else { panic!("one connection") };
    connection.stages
}

/// Upper bounds hold in one of a few runs: a machine that is busy makes each longer.
fn in_some_run(run: impl Fn() -> Result<(), String>) {
    let mut all = Vec::new();
    while let Err(why) = run() {
        all.push(why);
        assert!(all.len() < 5, "{all:#?}");
    }
}

fn check(holds: bool, stages: &Stages) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{stages:?}")) }
}

#[test]
fn a_disk_that_takes_the_threads_time_is_in_execute_and_delays_those_behind() {
    for threads in [Threads::Loops(1), Threads::PerConnection] {
        in_some_run(|| {
            let all = stages(SendPolicy::Nodelay, threads, 1, 1);
            assert!(all.execute.count >= 2 && all.execute.mean_us() >= 0.9 * WORK_US, "{all:?}");
            assert_eq!(all.store.count, 0);
            check(all.queue.mean_us() < WORK_US, &all)
        });
        // Eight at once: the last waits for seven, also where each has a turn of its own.
        let all = stages(SendPolicy::Batch, threads, 1, 8);
        assert!(all.queue.max_ns as f64 >= 6.5e3 * WORK_US, "{all:?}");
        assert!(all.queue.mean_us() >= 2.0 * WORK_US, "{all:?}");
    }
}

#[test]
fn what_a_disk_is_waited_for_is_in_store() {
    in_some_run(|| {
        let all = stages(SendPolicy::Auto, Threads::Loops(1), 2, 1);
        let Stages { execute, store, .. } = all;
        assert!(store.count >= ROUNDS as u64 && store.mean_us() >= DELAY_US, "all are timed: {store:?}");
        check(execute.mean_us() < DELAY_US / 2.0, &all)
    });
}

#[test]
fn what_a_policy_holds_back_is_in_transmit() {
    let held = stages(SendPolicy::Batch, Threads::PerConnection, 1, 3).transmit;
    assert!(held.max_ns as f64 >= 1e3 * WORK_US, "the first waits for two: {held:?}");
    in_some_run(|| {
        let all = stages(SendPolicy::Nodelay, Threads::PerConnection, 1, 3);
        assert!(all.transmit.count >= 3);
        check(all.transmit.mean_us() < WORK_US && all.transmit.mean_us() < held.mean_us() / 2.0, &all)
    });
}

#[test]
fn a_quick_disk_spends_little_anywhere() {
    in_some_run(|| {
        let all = stages(SendPolicy::Auto, Threads::Loops(1), 0, 4);
        assert!(all.named().iter().all(|(name, stage)| *name == "store" || stage.count > 0), "{all:?}");
        assert!(all.execute.count < 4 * ROUNDS as u64 / 4, "most turns are not measured: {all:?}");
        check(all.named().iter().all(|(_, stage)| stage.mean_us() < 1000.0), &all)
    });
}

/// A client that reads slowly leaves answers unsent; each is in `transmit` from where it was made, and no longer than it took.
#[test]
fn an_initiator_that_reads_slowly_is_in_transmit() {
    let target = start(vec![LunConfig::new(0, Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>)], |config| {
        config.threads = Threads::Loops(1);
        config.tcp.send_buffer = Some(64 << 10);
    });
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    let mut long = READ;
    long[5] = 0;
    (long[7], long[8]) = (0, 128);
    let begun = std::time::Instant::now();
    for _ in 0..200 {
        let command = client.command(client.cmd_sn, &long, 64 << 10);
        client.issue(&command, &[]);
    }
    let mut received = 0;
    while received < 200 * (64 << 10) {
        let pdu = client.receive().unwrap();
        received += pdu.data.len();
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = begun.elapsed();
    client.exp_stat_sn = client.exp_stat_sn.wrapping_add(200);
    drop(client);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    let transmit = target.statistics()[0].stages.transmit;
    assert!(transmit.count > 0, "{transmit:?}");
    assert!(u128::from(transmit.max_ns) <= took.as_nanos(), "{transmit:?} in {took:?}");
    assert!(transmit.max_ns >= 2_000_000, "it has waited for the reader: {transmit:?}");
}
