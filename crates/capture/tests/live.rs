//! Live captures of the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use capture::record_to_file::{RecordSpec, record};
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

/// Round trips of one byte each over a connection: the next, on request.
fn round_trips(address: std::net::SocketAddr, listener: &TcpListener) -> impl FnMut() {
    let mut client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    move || {
        let mut byte = [0];
        client.write_all(b"x").unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
    }
}

/// In a network namespace of its own, all packets are the test's: rates times time are counts.
#[test]
fn the_figures_of_a_capture_are_those_of_its_traffic() {
    const ROUND_TRIPS: u32 = 50;
    let inside = thread::spawn(|| {
        let is_alone = unshare(CloneFlags::CLONE_NEWNET).is_ok();
        if !testing::require("CAP_SYS_ADMIN, for a network namespace", is_alone) {
            return;
        }
        set_loopback(true);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut next = round_trips(address, &listener);
        let other_port = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut next_of_other = round_trips(other_port.local_addr().unwrap(), &other_port);
        let spec = RecordSpec {
            interfaces: vec!["lo".into()],
            port: address.port(),
            snap_bytes: 100,
            ring_bytes: 64 << 20,
            duration: None,
            bytes_max: None,
            baseline: Duration::from_millis(50),
            application: "test".into(),
            seen: None,
        };
        let (before, during) = (AtomicU32::new(0), AtomicU32::new(0));
        let has_begun = AtomicBool::new(false);
        let traffic = std::sync::Mutex::new(|| {
            next();
            next_of_other();
        });
        // Asked before the capture, too: traffic before and during it, and none after it.
        let stop = || {
            let made = if has_begun.load(Ordering::Relaxed) { &during } else { &before };
            if made.load(Ordering::Relaxed) < ROUND_TRIPS {
                (traffic.lock().unwrap())();
                made.fetch_add(1, Ordering::Relaxed);
            }
            during.load(Ordering::Relaxed) >= ROUND_TRIPS
        };
        let mut file = Vec::new();
        let began = std::time::Instant::now();
        let recorded = record(&spec, &mut file, &|| has_begun.store(true, Ordering::Relaxed), &stop).unwrap();
        let elapsed = began.elapsed().as_secs_f64();
        let made = f64::from(before.load(Ordering::Relaxed));
        let [lo] = &recorded.interfaces[..] else { panic!("{recorded:?}") };
        let (before, during, after) = lo.packets_per_second;
        // Request and response of two connections, leaving and arriving, in less than all the time outside the capture.
        assert!(made > 0.0 && before * (elapsed - recorded.seconds) >= 8.0 * made, "{made}: {recorded:?}");
        // Nothing but a late ACK of each connection, in 50 ms or more.
        assert!(after <= 4.0 / 0.05, "{recorded:?}");
        assert_eq!(lo.cost, None, "no steady traffic");
        // The interface has the packets of both connections, the capture those of one.
        // A late ACK may come between the two.
        let of_both = during * recorded.seconds;
        assert!((of_both - 2.0 * lo.packets as f64).abs() < 8.5, "{of_both}: {recorded:?}");
        // Request and response with data, leaving and arriving; ACKs travel with data.
        assert!(lo.packets >= 4 * u64::from(ROUND_TRIPS) && lo.drops == 0, "{recorded:?}");
        // The capture ends 60 ms after the last packet, at the earliest; the time before it is not counted.
        assert!(recorded.seconds >= 0.06 && recorded.seconds < elapsed - 0.1, "{elapsed}: {recorded:?}");
        assert!(lo.cpu_seconds > 0.0 && lo.cpu_seconds < recorded.seconds, "{recorded:?}");
        assert_eq!(recorded.file_bytes, file.len() as u64);
    });
    inside.join().unwrap();
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
