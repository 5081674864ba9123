//! Send policies from the initiator's view: no response is held back without need, and batching follows the policy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Client, Login, ram, set, start};
use iscsi::opcode::target as opcode;
use iscsi_target::{RunningTarget, SendPolicy, Threads};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];

fn serve(send: SendPolicy) -> (RunningTarget, Client) {
    let target = start(vec![ram(0, 1)], |config| config.send = send);
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    (target, client)
}

/// Sends reads in one segment, and receives all responses.
fn burst(client: &mut Client, count: u32) {
    let mut bytes = Vec::new();
    for tag in 1..=count {
        let read = iscsi::pdu::ScsiCommand { cmd_sn: client.cmd_sn, ..client.command(tag, &READ, 512) };
        bytes.extend(client.encode(read.write(), &[]));
        client.cmd_sn = client.cmd_sn.wrapping_add(1);
    }
    client.socket.write_all(&bytes).unwrap();
    for tag in 1..=count {
        let pdu = client.until(opcode::DATA_IN).1;
        assert_eq!((pdu.u32(16), pdu.data.len()), (tag, 512));
        client.exp_stat_sn = pdu.u32(24).wrapping_add(1);
    }
}

#[test]
fn single_response_is_never_delayed() {
    for send in SendPolicy::ALL {
        let (_target, mut client) = serve(send);
        // A burst first, so that an adaptive policy has adapted to bursts.
        burst(&mut client, 64);
        let begun = Instant::now();
        for _ in 0..100 {
            assert_eq!(client.read(0, &READ, 512).1, 0);
        }
        // A response held for a delayed acknowledgement would take 40 ms.
        assert!(begun.elapsed() < Duration::from_millis(1500), "{send}: {:?}", begun.elapsed());
    }
}

/// Commands that wait for their data have no StatSN, so that the initiator seems to have fewer in flight than it has: the first to
/// be answered is not the last.
#[test]
fn responses_of_writes_that_come_in_parts_leave_together() {
    const WRITES: u32 = 8;
    // The depth is that of the last few hundred commands.
    const ROUNDS: u32 = 200;
    let target = start(vec![ram(0, 1)], |config| config.send = SendPolicy::Batch);
    let keys = "ImmediateData=No";
    let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
    client.attentions(0);
    for _ in 0..ROUNDS {
        let mut all = Vec::new();
        for number in 0..WRITES {
            let mut cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            cdb[5] = number as u8;
            let read = client.command(client.cmd_sn, &cdb, 512);
            let write = iscsi::pdu::ScsiCommand { read: false, write_data: true, ..read };
            all.extend(client.encode(write.write(), &[]));
            client.cmd_sn = client.cmd_sn.wrapping_add(1);
        }
        client.socket.write_all(&std::mem::take(&mut all)).unwrap();
        for _ in 0..WRITES {
            let asked = client.until(opcode::R2T).1;
            let data = iscsi::pdu::DataOut {
                is_final: true,
                tag: asked.u32(16),
                transfer_tag: asked.u32(20),
                exp_stat_sn: client.exp_stat_sn,
                ..iscsi::pdu::DataOut::default()
            };
            all.extend(client.encode(data.write(), &[7; 512]));
        }
        client.socket.write_all(&all).unwrap();
        for _ in 0..WRITES {
            let answer = client.until(opcode::SCSI_RESPONSE).1;
            client.exp_stat_sn = answer.u32(24).wrapping_add(1);
        }
    }
    assert_eq!(client.log_out(0, 0), 0);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    // One or two sends for what asks for the data, one or two for the answers.
    let sends = target.statistics()[0].sends;
    assert!(sends < u64::from(ROUNDS * WRITES * 3 / 4), "{sends} sends in {ROUNDS} rounds");
}

#[test]
fn batched_responses_follow_the_send_policy() {
    for (send, fewest, most) in [
        (SendPolicy::Nodelay, 64 * 50, u64::MAX),
        (SendPolicy::Nagle, 64 * 50, u64::MAX),
        (SendPolicy::Batch, 50, 50 * 8),
        (SendPolicy::Auto, 50, u64::MAX),
    ] {
        let (target, mut client) = serve(send);
        for _ in 0..50 {
            burst(&mut client, 64);
        }
        assert_eq!(client.log_out(0, 0), 0);
        assert!(target.wait_until_idle(Duration::from_secs(5)));
        let all = target.statistics();
        let one = &all[0];
        assert!((fewest..most).contains(&one.sends), "{send}: {} sends", one.sends);
        let modes = one.modes;
        assert_eq!(modes.nodelay + modes.nagle + modes.batch, one.commands, "{send}");
        match send {
            SendPolicy::Nodelay => assert_eq!(modes.nodelay, one.commands),
            SendPolicy::Nagle => assert_eq!(modes.nagle, one.commands),
            SendPolicy::Batch => assert_eq!(modes.batch, one.commands),
            _ => {}
        }
    }
}

#[test]
fn send_policy_changes_while_commands_run() {
    let (target, mut client) = serve(SendPolicy::Nodelay);
    for round in 0..40 {
        target.set_send(SendPolicy::ALL[round % SendPolicy::ALL.len()]);
        burst(&mut client, 50);
        assert_eq!(client.read(0, &READ, 512).1, 0);
    }
    target.set_send(SendPolicy::Batch);
    burst(&mut client, 50);
    assert_eq!(client.log_out(0, 0), 0);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    assert_eq!(target.statistics()[0].send, SendPolicy::Batch);
    // New connections use the new policy.
    let mut later = Client::log_in(target.address(), &Login { isid: 2, ..Login::default() });
    later.attentions(0);
    assert_eq!(later.log_out(0, 0), 0);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    assert_eq!(target.statistics()[1].send, SendPolicy::Batch);
}

#[test]
fn busy_polling_thread_handles_notices_and_close() {
    let target = start(vec![ram(0, 1)], |config| {
        config.busy_poll = Duration::from_secs(60);
        config.cpus = vec![0];
    });
    let mut client = Client::log_in(target.address(), &Login::default());
    client.attentions(0);
    burst(&mut client, 20);
    // A notice, and the close.
    set(&target, &[ram(0, 1), ram(1, 1)], None);
    client.until(opcode::ASYNC);
    let begun = Instant::now();
    let statistics = target.statistics_handle();
    target.stop();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(statistics.statistics()[0].cpu, Some(0));
}

/// Copies what a client and a target send one another through this address; returns the bytes of each way at the end.
fn relay(target: SocketAddr) -> (SocketAddr, JoinHandle<(u64, u64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let copying = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(target).unwrap();
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let bytes = std::io::copy(&mut from, &mut to).unwrap();
            let _ = to.shutdown(Shutdown::Write);
            bytes
        };
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let requests = thread::spawn(move || copy(from, to));
        let responses = copy(server, client);
        (requests.join().unwrap(), responses)
    });
    (address, copying)
}

#[test]
fn statistics_count_what_the_connection_carried() {
    let target = start(vec![ram(0, 1)], |config| config.send = SendPolicy::Nodelay);
    let (address, copying) = relay(target.address());
    let mut client = Client::log_in(address, &Login::default());
    // Every attention is a command, and the one that reports none.
    let commands = 40 + client.attentions(0).len() as u64 + 1;
    for _ in 0..40 {
        assert_eq!(client.read(0, &READ, 512).1, 0);
    }
    assert_eq!(client.log_out(0, 0), 0);
    drop(client);
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    let (received_bytes, sent_bytes) = copying.join().unwrap();
    let one = target.statistics()[0].clone();
    assert_eq!((one.received_bytes, one.sent_bytes), (received_bytes, sent_bytes));
    assert_eq!((one.commands, one.busy_count.served, one.modes.nodelay), (commands, commands, commands));
    // Login and logout, too.
    assert!(one.sends >= commands + 2 && one.receives >= commands + 2, "{one:?}");
    assert!(
        !one.open && one.initiator_name == common::INITIATOR && one.send == SendPolicy::Nodelay,
        "{one:?}"
    );
}

#[test]
fn a_stop_does_not_wait_for_an_initiator_that_does_not_read() {
    for threads in [Threads::PerCpu, Threads::PerConnection] {
        let target = start(vec![ram(0, 64)], |config| config.threads = threads);
        let mut deaf = Client::log_in(target.address(), &Login::default());
        deaf.attentions(0);
        // 32 MiB of answers, far more than the sockets hold.
        let read = [0x28, 0, 0, 0, 0, 0, 0, 8, 0, 0];
        for tag in 1..=32 {
            let command = iscsi::pdu::ScsiCommand { read: true, ..deaf.command(tag, &read, 1 << 20) };
            deaf.issue(&command, &[]);
        }
        std::thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        target.stop();
        assert!(begun.elapsed() < Duration::from_secs(1), "{threads:?}: {:?}", begun.elapsed());
    }
}
