//! The recorder on this machine's kernel, as root.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use ftrace::{Devices, Recorder};
use record::{KernelEventKind, Side};

/// Every call and packet of exchanges on loopback is recorded, in the order in which they happen, on the clock of packets.
#[test]
fn a_socket_s_calls_and_packets_are_recorded_in_order() {
    let cpus = socket::cpu::allowed().unwrap();
    let devices = Devices { client: "lo".into(), server: "none".into() };
    let mut recorder = match Recorder::open(devices, &cpus, 4 << 20) {
        Ok(recorder) => recorder,
        Err(error) => {
            let _ = testing::require(&format!("tracepoints ({error})"), false);
            return;
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let own = socket::cpu::thread_id();
    let exchange = |client: &mut TcpStream, server: &mut TcpStream| {
        client.write_all(&[7; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
    };
    exchange(&mut client, &mut server);
    let before = socket::clock::realtime_ns();
    recorder.begin().unwrap();
    for _ in 0..100 {
        exchange(&mut client, &mut server);
    }
    recorder.end().unwrap();
    let after = socket::clock::realtime_ns();
    exchange(&mut client, &mut server);
    let recorded = recorder.events().unwrap();
    assert_eq!(recorded.lost, 0);
    assert!(recorded.events.is_sorted_by_key(|event| event.at_ns));
    assert!(recorded.events.iter().all(|event| (before..=after).contains(&event.at_ns)));
    let of = |wanted: &dyn Fn(KernelEventKind) -> bool| -> Vec<u64> {
        let own = recorded.events.iter().filter(|event| event.thread == own && wanted(event.kind));
        own.map(|event| event.at_ns).collect()
    };
    let began = of(&|kind| kind == KernelEventKind::SendBegan);
    let queued = of(&|kind| matches!(kind, KernelEventKind::Queued(Side::Client, bytes) if bytes > 100));
    let arrived = of(&|kind| matches!(kind, KernelEventKind::Arrived(Side::Client, bytes) if bytes > 100));
    let sent = of(&|kind| kind == KernelEventKind::Sent(100));
    let received = of(&|kind| kind == KernelEventKind::Received(100));
    for (name, times) in [("queued", &queued), ("sent", &sent), ("received", &received), ("began", &began)] {
        assert_eq!(times.len(), 100, "{name}");
    }
    // An arrival may be handled by ksoftirqd.
    assert!(arrived.len() <= 100);
    for ((began, queued), (sent, received)) in began.iter().zip(&queued).zip(sent.iter().zip(&received)) {
        assert!(began < queued && queued < sent && sent < received);
    }
}
