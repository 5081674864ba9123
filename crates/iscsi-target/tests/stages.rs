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

#[test]
fn a_disk_that_takes_the_threads_time_is_in_execute_and_delays_those_behind() {
    for threads in [Threads::Loops(1), Threads::PerConnection] {
        let Stages { queue, execute, store, .. } = stages(SendPolicy::Nodelay, threads, 1, 1);
        assert!(execute.count >= 2 && execute.mean_us() >= 0.9 * WORK_US, "{execute:?}");
        assert!(queue.mean_us() < WORK_US && store.count == 0, "{queue:?} {store:?}");
        // Eight at once: the last waits for seven. A turn ends within them, and what is left goes on in the next.
        let Stages { queue, .. } = stages(SendPolicy::Batch, Threads::PerConnection, 1, 8);
        assert!(queue.max_ns as f64 >= 2e3 * WORK_US, "{queue:?}");
    }
}

#[test]
fn what_a_disk_is_waited_for_is_in_store() {
    let Stages { execute, store, .. } = stages(SendPolicy::Auto, Threads::Loops(1), 2, 1);
    assert!(store.count >= ROUNDS as u64 && store.mean_us() >= DELAY_US, "all are timed: {store:?}");
    assert!(execute.mean_us() < DELAY_US / 2.0, "{execute:?}");
}

#[test]
fn what_a_policy_holds_back_is_in_transmit() {
    let held = stages(SendPolicy::Batch, Threads::PerConnection, 1, 3).transmit;
    assert!(held.max_ns as f64 >= 1e3 * WORK_US, "the first waits for two: {held:?}");
    let at_once = stages(SendPolicy::Nodelay, Threads::PerConnection, 1, 3).transmit;
    assert!(at_once.count >= 3 && at_once.mean_us() < WORK_US, "{at_once:?}");
    assert!(held.mean_us() > 2.0 * at_once.mean_us(), "{held:?} {at_once:?}");
}

#[test]
fn a_quick_disk_spends_little_anywhere() {
    let all = stages(SendPolicy::Auto, Threads::Loops(1), 0, 4);
    for (name, stage) in all.named() {
        assert!(name == "store" || stage.count > 0, "{name}");
        assert!(stage.mean_us() < 1000.0, "{name}: {stage:?}");
    }
    let sampled = all.execute.count;
    assert!(sampled < 4 * ROUNDS as u64 / 4, "most turns are not measured: {sampled}");
}
