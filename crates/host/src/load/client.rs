//! The tester's side: three runs, one after another.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket::options::TcpOptions;

use super::counted::{LinkWatch, ProcessorWatch, Watch};
use super::stream::{self, Part};
use super::wire::{BUSY, Direction, FULL, READY, RECEIVED, REPORT_BYTES, Report, Request};
use super::{LoadSpec, SILENCE};
use crate::facts::load::{LoadFacts, LoadRun, StreamFacts};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs each direction alone and then both together. A run that fails ends the test; the earlier ones are kept.
pub fn test(peer: &str, address: SocketAddr, spec: &LoadSpec) -> (LoadFacts, Result<(), String>) {
    let mut facts = LoadFacts {
        peer: peer.to_owned(),
        address: address.to_string(),
        asked_seconds: spec.time.as_secs_f64(),
        ..LoadFacts::default()
    };
    let outcome = run_all(address, spec, &mut facts);
    (facts, outcome.map_err(|error| format!("{address}: {}", explained(&error))))
}

fn run_all(address: SocketAddr, spec: &LoadSpec, facts: &mut LoadFacts) -> io::Result<()> {
    facts.to_peer = Some(run(address, spec, Direction::ToServer)?);
    facts.from_peer = Some(run(address, spec, Direction::FromServer)?);
    facts.together = Some(run(address, spec, Direction::Both)?);
    Ok(())
}

/// Why a run failed, and what to do.
fn explained(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("{error}; run `roundtrip host serve` on the peer, or name its port with --load-port")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("no answer in time ({error}); a firewall may drop this port, or the path died under load")
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the connection was closed; is this port that of `roundtrip host serve` of the same version?"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

fn run(address: SocketAddr, spec: &LoadSpec, direction: Direction) -> io::Result<LoadRun> {
    let stream = TcpOptions { nodelay: true, ..TcpOptions::default() }.connect(&address, PATIENCE)?;
    let mut way = &stream;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let link = LinkWatch::begin(&stream);
    let mut watch = Watch::new(&stream)?;
    way.write_all(Request { direction, time: spec.time, bytes: spec.bytes }.line().as_bytes())?;
    read_answer(&stream)?;
    let processors = ProcessorWatch::begin();
    let part = Part {
        sends: direction.tester_sends(),
        receives: direction.server_sends(),
        time: spec.time,
        bytes: spec.bytes,
    };
    let traffic = stream::run(&stream, part, &mut watch)?;
    let processors_here = processors.end();
    way.write_all(&[RECEIVED])?;
    let line = read_line(&stream, traffic.rest, REPORT_BYTES)?;
    let bad = |why| io::Error::other(format!("its report cannot be used: {why}"));
    let report = Report::parse(&line).map_err(bad)?;
    if report.received.is_some() != part.sends {
        return Err(bad("it does not say what it received".to_owned()));
    }
    let to_peer = report.received.map(|received| StreamFacts { received, sender: watch.sent() });
    let from_peer = traffic.received.map(|received| StreamFacts { received, sender: report.sent });
    Ok(LoadRun {
        to_peer,
        from_peer,
        here: link.and_then(LinkWatch::end),
        there: report.link,
        processors_here,
        processors_there: report.processors,
    })
}

/// Reads the answer to a request. The server sends data directly behind it.
fn read_answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut answer = Vec::new();
    let mut byte = [0];
    while answer.len() < READY.len().max(BUSY.len()) && answer.last() != Some(&b'\n') {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    match answer.as_slice() {
        answer if answer == READY.as_bytes() => Ok(()),
        answer if answer == BUSY.as_bytes() => {
            Err(io::Error::other("the server is busy with another test; try again when it has ended"))
        }
        answer if answer == FULL.as_bytes() => Err(io::Error::other(
            "the server is full: others hold all of its connections; see `ss -tn` there for whose they are, and try again",
        )),
        _ => Err(io::Error::other(
            "it is no server of load tests; name the port of `roundtrip host serve` with --load-port",
        )),
    }
}

/// Reads up to the end of a line, which is the end of the connection's data.
fn read_line(mut stream: &TcpStream, mut line: Vec<u8>, limit: usize) -> io::Result<Vec<u8>> {
    let mut piece = [0; 1024];
    loop {
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(line);
        }
        if line.len() > limit {
            return Err(io::Error::other("its report is too long"));
        }
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&piece[..count]);
    }
}
