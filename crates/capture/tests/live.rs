//! Live captures of the loopback interface.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use capture::{CaptureError, LiveCapture, LiveConfig, Watch};
use iscsi::pdu::{DataIn, ScsiCommand};
use nix::sched::{CloneFlags, unshare};
use record::Side;

/// A capture of `lo`; `None` if this process may not capture.
fn watch(port: u16) -> Option<Watch> {
    let config = LiveConfig {
        interface: "lo".into(),
        port,
        ring_bytes: 64 << 20,
        snap_bytes: LiveConfig::SNAP_NOTHING,
    };
    match Watch::start(config, &[Side::Client, Side::Server], 65_536, 100_000, || Ok(())) {
        Ok(watch) => Some(watch),
        Err(CaptureError::NotPermitted { .. }) => {
            assert!(!testing::require("CAP_NET_RAW", false));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Loopback's largest packets are not a multiple of four and longer than 65,535 bytes with their Ethernet
/// header; PDUs begin anywhere in them. None may be missed.
#[test]
fn every_operation_in_the_largest_packets_is_seen() {
    const OPERATIONS: u32 = 20_000;
    const DATA_BYTES: usize = 400;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(watch) = watch(listener.local_addr().unwrap().port()) else { return };
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let answers = thread::spawn(move || {
        let mut commands = vec![0; 48 * OPERATIONS as usize];
        server.read_exact(&mut commands).unwrap();
        let mut answers = Vec::new();
        for tag in 0..OPERATIONS {
            let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
            bhs.set_data_bytes(DATA_BYTES);
            answers.extend_from_slice(&bhs.0);
            answers.resize(answers.len() + DATA_BYTES, tag as u8);
        }
        server.write_all(&answers).unwrap();
        server
    });
    let commands: Vec<u8> = (0..OPERATIONS)
        .flat_map(|tag| {
            let mut command = ScsiCommand { read: true, is_final: true, tag, ..ScsiCommand::default() };
            command.cdb[0] = 0x28;
            command.write().0
        })
        .collect();
    client.write_all(&commands).unwrap();
    let mut answers_seen = vec![0; (48 + DATA_BYTES) * OPERATIONS as usize];
    client.read_exact(&mut answers_seen).unwrap();
    let _server = answers.join().unwrap();
    let report = watch.stop().unwrap();
    assert_eq!(report.drops, 0);
    for side in &report.sides {
        assert_eq!(side.ops.len(), OPERATIONS as usize, "{:?} {:?}", side.side, side.counters);
        assert_eq!((side.counters.holes, side.counters.skipped_bytes), (0, 0));
        assert!(side.ops.iter().all(|op| op.c2.since(op.c1).or(op.s2.since(op.s1)).is_some_and(|ns| ns > 0)));
    }
}

#[test]
fn capture_stops_during_traffic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(watch) = watch(listener.local_addr().unwrap().port()) else { return };
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let traffic = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut byte = [0];
            while !is_over.load(Ordering::Relaxed) {
                client.write_all(b"x").unwrap();
                server.read_exact(&mut byte).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let (stopped, has_stopped) = mpsc::channel();
    thread::spawn(move || stopped.send(watch.stop().map(|report| report.packets)));
    let ended = has_stopped.recv_timeout(Duration::from_secs(10));
    is_over.store(true, Ordering::Relaxed);
    traffic.join().unwrap();
    assert!(ended.expect("it stopped").unwrap() > 0);
}

/// Sets `lo` of the calling thread's network namespace up or down.
fn set_loopback(is_up: bool) {
    let state = if is_up { "up" } else { "down" };
    let status = std::process::Command::new("ip").args(["link", "set", "lo", state]).status();
    assert!(status.is_ok_and(|s| s.success()), "ip link set lo {state}");
}

#[test]
fn an_interface_that_goes_down_is_an_error_and_not_a_busy_loop() {
    let inside = thread::spawn(|| {
        // A namespace of its own, so that no other loopback goes down.
        let is_alone = unshare(CloneFlags::CLONE_NEWNET).is_ok();
        if !testing::require("CAP_SYS_ADMIN, for a network namespace", is_alone) {
            return;
        }
        set_loopback(true);
        let config = LiveConfig { interface: "lo".into(), port: 1, ring_bytes: 0, snap_bytes: 100 };
        let mut capture = LiveCapture::open(&config).unwrap();
        assert!(!capture.poll(Duration::from_millis(1), |_| ()).unwrap());
        set_loopback(false);
        let error = capture.poll(Duration::from_secs(5), |_| ()).unwrap_err();
        assert!(error.to_string().starts_with("capturing on lo: waiting for packets: "), "{error}");
    });
    inside.join().unwrap();
}

#[test]
fn error_names_a_missing_interface() {
    let config = LiveConfig { interface: "nosuch0".into(), port: 1, ring_bytes: 0, snap_bytes: 100 };
    match LiveCapture::open(&config) {
        Err(CaptureError::NoInterface { interface }) => assert_eq!(interface, "nosuch0"),
        Err(CaptureError::NotPermitted { .. }) => assert!(!testing::require("CAP_NET_RAW", false)),
        other => panic!("{other:?}"),
    }
}
