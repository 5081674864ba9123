//! Captures that lack two packets: whatever they were, no operation has the answer of another one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{HashSet, VecDeque};

use common::{ACK, Capture, ONE, operations};

/// A packet with data: whose, and its bytes.
type Packet = (usize, Vec<u8>);

/// When the request began and its answer ended.
type Pair = (u64, u64);

const FIN: u8 = 1;

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

/// The last answers are missing, as the client's FIN shows, behind a hole that has taken one before: how many are, nothing says.
#[test]
fn what_a_fin_acknowledges_may_be_missing() {
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    for last in [0, 1, 2] {
        let mut capture = Capture::of(6379, &["a"]);
        capture.step_ns = 100_000;
        capture.open(&ONE);
        let (mut truth, mut asked) = (HashSet::new(), VecDeque::new());
        // Three in flight, from the third on; answer 30 is missing, and the last ones.
        for round in 0..60 {
            if round < 57 {
                asked.push_back(capture.ns);
                capture.send(0, ACK, get, &ONE);
            }
            if round >= 3 {
                let answer = format!("$3\r\n{:03}\r\n", round - 3);
                truth.insert((asked.pop_front().unwrap(), capture.ns));
                if round == 33 || round + last >= 60 {
                    capture.next[1] = capture.next[1].wrapping_add(answer.len() as u32);
                    capture.ns += capture.step_ns;
                } else {
                    capture.send(1, ACK, answer.as_bytes(), &ONE);
                }
            }
        }
        capture.send(0, ACK | FIN, b"", &ONE);
        let told = told(capture.bytes());
        assert!(told.len() >= 25 && told.iter().all(|pair| truth.contains(pair)), "{last}: {}", told.len());
    }
}
