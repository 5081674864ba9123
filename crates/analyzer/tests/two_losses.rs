//! Captures that lack two packets: whatever they were, no operation has the answer of another one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{HashSet, VecDeque};

use common::{ACK, Capture, ONE, operations};

/// A packet with data: whose, and its bytes.
type Packet = (usize, Vec<u8>);

/// When the request began and its answer ended.
type Pair = (u64, u64);

/// A connection of packets, without some of them, and all its pairs of request and answer.
fn captured(packets: &[Packet], is_lost: impl Fn(usize) -> bool) -> (Vec<u8>, HashSet<Pair>) {
    let mut capture = Capture::of(80, &["a"]);
    capture.step_ns = 100_000;
    capture.open(&ONE);
    let (mut pairs, mut asked) = (HashSet::new(), VecDeque::new());
    for (place, (who, bytes)) in packets.iter().enumerate() {
        // The server takes its time, a different one for each answer.
        capture.ns += if *who == 1 { 1_000_000 + place as u64 * 7_001 } else { 0 };
        if *who == 0 {
            asked.push_back(capture.ns);
        } else {
            pairs.insert((asked.pop_front().unwrap(), capture.ns));
        }
        if is_lost(place) {
            capture.next[*who] = capture.next[*who].wrapping_add(bytes.len() as u32);
            capture.ns += capture.step_ns;
        } else {
            capture.send(*who, ACK, bytes, &ONE);
        }
        if *who == 1 {
            capture.send(0, ACK, b"", &ONE);
        }
    }
    (capture.bytes(), pairs)
}

/// The operations' pairs.
fn told(file: Vec<u8>) -> Vec<Pair> {
    let ends = |observed: &record::Observed| {
        let op = &observed.op;
        (op.c1.ns().or(op.s1.ns()).unwrap(), op.c2.ns().or(op.s2.ns()).unwrap())
    };
    operations(file).iter().map(ends).collect()
}

/// Loses each two of the packets from a place on, which may cost so many operations.
fn assert_own_answers(name: &str, packets: &[Packet], from: usize, costs: usize) {
    let to = (from + 16).min(packets.len() - 4);
    let (whole, truth) = captured(packets, |_| false);
    assert_eq!(told(whole).len(), truth.len(), "{name}");
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (first, second) in (from..to).flat_map(|first| (first + 1..to).map(move |second| (first, second))) {
        let (file, truth) = captured(packets, |place| place == first || place == second);
        let told = told(file);
        all += 1;
        if told.iter().any(|pair| !truth.contains(pair)) {
            wrong.push((first, second));
        }
        assert!(
            told.len() + costs >= truth.len(),
            "{name} {first} {second}: {} of {}",
            told.len(),
            truth.len()
        );
    }
    assert!(wrong.is_empty(), "{name}: {} of {all}: {wrong:?}", wrong.len());
}

fn text(text: String) -> Vec<u8> {
    text.into_bytes()
}

fn http(n: usize) -> [Packet; 2] {
    let request = format!("GET /p{n} HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = "x".repeat(20 + n % 7);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    [(0, text(request)), (1, text(answer))]
}

fn redis(n: usize) -> [Packet; 2] {
    let value = "x".repeat(10 + n % 7);
    let request = format!("*2\r\n$3\r\nGET\r\n$2\r\nk{}\r\n", n % 10);
    [(0, text(request)), (1, text(format!("${}\r\n{value}\r\n", value.len())))]
}

/// Batches of requests, each in a packet of its own, before their answers.
fn batches(size: usize, one: impl Fn(usize) -> [Packet; 2]) -> Vec<Packet> {
    let batch = |n: usize| {
        let all: Vec<_> = (0..size).map(|place| one(n * size + place)).collect();
        [0, 1].into_iter().flat_map(move |side| all.clone().into_iter().map(move |pair| pair[side].clone()))
    };
    (0..60 / size).flat_map(batch).collect()
}

#[test]
fn one_request_at_a_time() {
    for from in [2, 40] {
        assert_own_answers("http", &batches(1, http), from, 6);
        assert_own_answers("redis", &batches(1, redis), from, 6);
    }
}

/// A client that does not wait for each answer shows only after many that none is in flight.
#[test]
fn batches_of_requests() {
    for (size, from) in [2, 3].into_iter().flat_map(|size| [12, 48].map(|from| (size, from))) {
        assert_own_answers(&format!("http {size} from {from}"), &batches(size, http), from, 40);
        assert_own_answers(&format!("redis {size} from {from}"), &batches(size, redis), from, 40);
    }
}
