//! The floor: the performance of TCP alone with the bytes of an iSCSI read or write, without a protocol or a disk.
//! A server answers every 48 bytes (and the data of a write) with 48 bytes (and the data of a read); a client keeps a
//! number of requests in flight on each of its connections. Each side sends messages singly, or all that are due in one call;
//! either may spin.

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

mod engine;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use engine::{Engine, Memory, receive, send};

#[derive(Parser)]
enum Floor {
    /// Prints its address, and serves
    Server {
        /// Address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// How it waits and sends
        #[arg(long, default_value = "threads")]
        engine: Engine,
        /// All that is due in one send
        #[arg(long)]
        batch: bool,
        /// Never sleep
        #[arg(long)]
        spin: bool,
        /// MiB that reads take their data from and writes put theirs into, at random places (reactor); 0: the same bytes always
        #[arg(long, default_value_t = 0)]
        memory: usize,
    },
    /// Prints the operations a second
    Client(Client),
}

#[derive(Parser)]
struct Client {
    address: SocketAddr,
    /// Bytes of a request
    #[arg(long)]
    request: usize,
    /// Bytes of a response
    #[arg(long)]
    response: usize,
    /// Requests under way on each connection
    #[arg(long)]
    depth: usize,
    /// Connections, each with a thread
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Length of the run, ms
    #[arg(long)]
    ms: u64,
    /// All that is due in one send
    #[arg(long)]
    batch: bool,
    /// Never sleep
    #[arg(long)]
    spin: bool,
}

impl Client {
    /// Keeps one connection busy until it is over, and counts.
    fn run(&self, barrier: &Barrier, done: &AtomicU64, is_over: &AtomicBool) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        let lengths = [(self.request as u64).to_le_bytes(), (self.response as u64).to_le_bytes()].concat();
        socket.write_all(&lengths).unwrap();
        socket.set_nonblocking(self.spin).unwrap();
        let requests = vec![2; self.request * self.depth];
        let mut buffer = vec![0; (256 << 10).max(self.response)];
        barrier.wait();
        send(&mut socket, &requests);
        let mut left = 0;
        while !is_over.load(Ordering::Relaxed) {
            left += receive(&mut socket, &mut buffer, self.spin);
            let came = left / self.response;
            left %= self.response;
            done.fetch_add(came as u64, Ordering::Relaxed);
            if self.batch {
                send(&mut socket, &requests[..came * self.request]);
            } else {
                (0..came).for_each(|_| {
                    send(&mut socket, &requests[..self.request]);
                });
            }
        }
    }
}

fn main() {
    match Floor::parse() {
        Floor::Server { listen, engine, batch, spin, memory } => {
            let listener = TcpListener::bind(listen).unwrap();
            println!("{}", listener.local_addr().unwrap());
            std::io::stdout().flush().unwrap();
            let memory = (memory > 0).then(|| Memory::new(memory << 20));
            engine::serve(&listener, engine, batch, spin, memory);
        }
        Floor::Client(client) => {
            // One window for all: of each connection's own, the sum would count what others do in turn as done at once.
            let (barrier, done, is_over) =
                (Barrier::new(client.connections + 1), AtomicU64::new(0), AtomicBool::new(false));
            let runtime = Duration::from_millis(client.ms);
            let rate = std::thread::scope(|scope| {
                for _ in 0..client.connections {
                    scope.spawn(|| client.run(&barrier, &done, &is_over));
                }
                barrier.wait();
                std::thread::sleep(runtime / 5);
                let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
                std::thread::sleep(runtime);
                let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
                is_over.store(true, Ordering::Relaxed);
                rate
            });
            println!("{rate:.0}");
        }
    }
}
