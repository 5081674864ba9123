//! The record of one request and its response in a capture: names, times by one clock, the op record.

use record::{
    Exchange, Observed, Op, OpKind, Outcome, Passage, Side, StallKind, StallSet, Stamp, Verb, Word,
};

/// The operation that both sides saw, without stamps.
const OP: Op = Op {
    connection: 9,
    tag: 77,
    verb: Verb::Scsi(0x28),
    kind: OpKind::Read,
    outcome: Outcome::Good,
    queue_depth: 2,
    data_bytes: 512,
    request_bytes: 48,
    response_bytes: 560,
    start: Stamp::MISSING,
    c1: Stamp::MISSING,
    s1: Stamp::MISSING,
    s2: Stamp::MISSING,
    c2: Stamp::MISSING,
    finish: Stamp::MISSING,
};

/// An exchange whose request and response passed at these moments.
fn exchange(request_ns: u64, response_ns: u64) -> Exchange {
    let (request, response) = (Passage::begin(request_ns, 1), Passage::begin(response_ns, 2));
    Exchange { op: OP, request, response, ..Exchange::default() }
}

fn client() -> Exchange {
    exchange(1000, 1200)
}

fn server() -> Exchange {
    exchange(1030, 1150)
}

/// Both sides of one read. The request took 30 ns and the response 50 ns, by a clock that both share.
fn both() -> Observed {
    Observed::joined(&client(), &server(), true)
}

#[test]
fn a_message_begins_and_ends_with_its_only_packet() {
    let passage = Passage::begin(1000, 7);
    assert_eq!((passage.began, passage.ended), (Stamp::at(1000), Stamp::at(1000)));
    assert_eq!((passage.first_frame, passage.last_frame), (7, 7));
}

#[test]
fn a_command_has_the_name_of_its_operation_code() {
    // SPC-4 annex D and SBC-3: forms of one command that differ in their length of data alone share a name.
    let named = [
        (0x00, "test unit ready"),
        (0x03, "request sense"),
        (0x08, "read(6)"),
        (0x0a, "write(6)"),
        (0x12, "inquiry"),
        (0x15, "mode select"),
        (0x1a, "mode sense"),
        (0x25, "read capacity(10)"),
        (0x28, "read(10)"),
        (0x2a, "write(10)"),
        (0x2e, "write and verify"),
        (0x2f, "verify"),
        (0x35, "synchronize cache"),
        (0x41, "write same"),
        (0x42, "unmap"),
        (0x55, "mode select"),
        (0x5a, "mode sense"),
        (0x5e, "persistent reserve in"),
        (0x5f, "persistent reserve out"),
        (0x83, "extended copy"),
        (0x88, "read(16)"),
        (0x89, "compare and write"),
        (0x8a, "write(16)"),
        (0x8e, "write and verify"),
        (0x8f, "verify"),
        (0x91, "synchronize cache"),
        (0x93, "write same"),
        (0x9e, "service action in"),
        (0xa0, "report luns"),
        (0xa3, "maintenance in"),
        (0xa8, "read(12)"),
        (0xaa, "write(12)"),
    ];
    for (code, name) in named {
        assert_eq!(Verb::Scsi(code).name(), name, "{code:#04x}");
    }
    for code in (0..=255).filter(|code| named.iter().all(|(known, _)| known != code)) {
        assert_eq!(Verb::Scsi(code).name(), format!("command {code:#04x}"), "no name is made up");
    }
}

#[test]
fn verbs_other_than_commands_have_names() {
    assert_eq!(Verb::Http(Word::new(b"GET")).name(), "GET");
    assert_eq!(Verb::Http(Word::new(b"OPTIONS")).name(), "OPTIONS");
    // A method comes from the wire, so its control characters are not shown.
    assert_eq!(Verb::Http(Word::new(b"GE\x1b[2J")).name(), "GE");
    assert_eq!(Verb::Turn.name(), "turn");
    assert_eq!(Verb::TaskManagement(5).name(), "task management 5");
    assert_eq!(Verb::Nop.name(), "ping");
}

#[test]
fn a_round_trip_ends_with_the_last_byte_and_each_side_has_its_own() {
    let split = both().split();
    assert_eq!(split.outside_ns, Some(200), "C2 - C1");
    assert_eq!(split.server_ns, Some(120), "S2 - S1");
    assert_eq!(split.network_ns, Some(80), "what the server's part leaves of the client's");
    assert_eq!((split.request_path_ns, split.response_path_ns), (Some(30), Some(50)));
    // From the last byte of the request to the last byte of the response.
    let long = Passage { began: Stamp::at(900), ..Passage::begin(1000, 1) };
    let long = Observed::alone(Side::Client, &Exchange { request: long, ..client() });
    assert_eq!(long.split().outside_ns, Some(200));
}

#[test]
fn clocks_of_two_sides_are_not_subtracted() {
    let apart = Observed::joined(&client(), &server(), false).split();
    assert_eq!((apart.request_path_ns, apart.response_path_ns), (None, None));
    assert_eq!(apart.network_ns, Some(80), "differences of either clock may be");
}

#[test]
fn unobserved_parts_are_absent() {
    let split = Observed::alone(Side::Client, &client()).split();
    assert_eq!((split.outside_ns, split.server_ns, split.network_ns), (Some(200), None, None));
    assert_eq!((split.request_path_ns, split.response_path_ns), (None, None));
    let split = Observed::alone(Side::Server, &server()).split();
    assert_eq!((split.outside_ns, split.server_ns, split.network_ns), (None, Some(120), None));
    assert_eq!(both().split().rtt_ns, None, "no capture sees the client's thread");
}

#[test]
fn the_clients_view_comes_first() {
    assert_eq!((both().detail.request, both().detail.response), (client().request, client().response));
    assert_eq!(Observed::alone(Side::Server, &server()).detail, server());
}

#[test]
fn an_op_record_has_the_stamps_of_the_sides_that_saw_it() {
    let (c1, c2, s1, s2) = (Stamp::at(1000), Stamp::at(1200), Stamp::at(1030), Stamp::at(1150));
    assert_eq!(both().op, Op { c1, s1, s2, c2, ..OP });
    assert_eq!(Observed::alone(Side::Client, &client()).op, Op { c1, c2, ..OP });
    assert_eq!(Observed::alone(Side::Server, &server()).op, Op { s1, s2, ..OP });
}

#[test]
fn an_observer_s_own_stamps_are_not_replaced() {
    let (start, c1, late) = (Stamp::at(1), Stamp::at(1000), Stamp::at(5000));
    let own = Op { start, c1, ..OP };
    let other = Op { tag: 1, c1: late, s1: late, s2: late, c2: late, finish: late, ..OP };
    assert_eq!(own.and(&other), Op { start, c1, s1: late, s2: late, c2: late, finish: late, ..OP });
}

#[test]
fn stalls_are_those_that_the_point_of_the_sender_saw() {
    let (mut client, mut server) = (client(), server());
    client.stalls.insert(StallKind::DelayedAck, Side::Client, 5);
    client.stalls.insert(StallKind::CorkedAnswer, Side::Server, 9);
    server.stalls.insert(StallKind::Timeout, Side::Server, 7);
    server.repaired_ns = 7;
    let observed = Observed::joined(&client, &server, true);
    let kinds = [StallKind::DelayedAck, StallKind::Timeout];
    for kind in StallKind::ALL {
        assert_eq!(observed.detail.stalls.contains(kind), kinds.contains(&kind), "{kind:?}");
    }
    assert_eq!(observed.detail.stalls.wait_ns(StallKind::Timeout), 7);
    assert_eq!(observed.detail.repaired_ns, 0, "it is part of the client's time");
    // Sent again long after it had arrived: the client did not wait for it.
    server.stalls = StallSet::default();
    server.stalls.insert(StallKind::Timeout, Side::Server, 1_000_000_000);
    server.repaired_ns = 1_000_000_000;
    let observed = Observed::joined(&client, &server, true);
    let network = observed.split().network_ns.unwrap().unsigned_abs();
    assert_eq!(observed.detail.stalls.wait_ns(StallKind::Timeout), network);
}

#[test]
fn the_whole_ends_when_the_response_was_sent_for_the_last_time() {
    let mut exchange = server();
    let before = Observed::alone(Side::Server, &exchange).whole_ns();
    exchange.repaired_ns = 200;
    assert_eq!(Observed::alone(Side::Server, &exchange).whole_ns(), before + 200);
}
