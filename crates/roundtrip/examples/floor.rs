//! The floor: what TCP alone can do with the bytes of an iSCSI read or write, no protocol and no disk around it.
//! A server answers every 48 bytes (and the data of a write) with 48 bytes (and the data of a read); a client keeps a
//! number of requests under way. Each sends one by one, or all that it can in one call; either may spin.
//!
//!     floor server [--batch] [--spin]                                   prints its address
//!     floor client ADDRESS --request BYTES --response BYTES --depth N --ms N [--batch] [--spin]

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn has(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn number(name: &str) -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} NUMBER is missing"))
}

/// Receives at least one byte.
fn receive(socket: &mut TcpStream, buffer: &mut [u8], spins: bool) -> usize {
    loop {
        match socket.read(buffer) {
            Ok(count) => return count,
            Err(error) if spins && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return 0,
        }
    }
}

fn send(socket: &mut TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Answers until the client is gone. The first 16 bytes say how long requests and responses are.
fn serve(mut socket: TcpStream, batches: bool, spins: bool) {
    let mut lengths = [0; 16];
    if socket.read_exact(&mut lengths).is_err() {
        return;
    }
    let length = |at: usize| u64::from_le_bytes(lengths[at..at + 8].try_into().unwrap()) as usize;
    let (request, response) = (length(0), length(8));
    socket.set_nonblocking(spins).unwrap();
    let mut buffer = vec![0; (256 << 10).max(2 * request)];
    let answers = vec![1; response * (1 + (1 << 20) / response)];
    let mut left = 0;
    loop {
        let count = receive(&mut socket, &mut buffer, spins);
        if count == 0 {
            return;
        }
        left += count;
        let mut due = left / request;
        left %= request;
        let most = if batches { answers.len() / response } else { 1 };
        while due > 0 {
            let now = due.min(most);
            if !send(&mut socket, &answers[..now * response]) {
                return;
            }
            due -= now;
        }
    }
}

fn main() {
    let (batches, spins) = (has("--batch"), has("--spin"));
    if has("server") {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("{}", listener.local_addr().unwrap());
        std::io::stdout().flush().unwrap();
        for socket in listener.incoming().flatten() {
            socket.set_nodelay(true).unwrap();
            std::thread::spawn(move || serve(socket, batches, spins));
        }
        return;
    }
    let address = std::env::args().skip_while(|argument| argument != "client").nth(1).unwrap();
    let (request, response, depth) = (number("--request"), number("--response"), number("--depth"));
    let runtime = Duration::from_millis(number("--ms") as u64);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let lengths = [(request as u64).to_le_bytes(), (response as u64).to_le_bytes()].concat();
    socket.write_all(&lengths).unwrap();
    socket.set_nonblocking(spins).unwrap();
    let requests = vec![2; request * depth];
    let mut buffer = vec![0; (256 << 10).max(response)];
    send(&mut socket, &requests);
    let (mut begun, mut warm, mut left, mut done) = (Instant::now(), false, 0, 0_u64);
    loop {
        left += receive(&mut socket, &mut buffer, spins);
        let came = left / response;
        left %= response;
        done += came as u64;
        if !warm && begun.elapsed() > runtime / 5 {
            (begun, warm, done) = (Instant::now(), true, 0);
        }
        if warm && begun.elapsed() > runtime {
            break;
        }
        if batches {
            send(&mut socket, &requests[..came * request]);
        } else {
            (0..came).for_each(|_| {
                send(&mut socket, &requests[..request]);
            });
        }
    }
    println!("{:.0}", done as f64 / begun.elapsed().as_secs_f64());
}
