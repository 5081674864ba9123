//! What a capture says of one request and its response: names, times by one clock, the op record.

use record::{Exchange, Observed, Op, OpKind, Outcome, Passage, Side, StallKind, Stamp, Verb};

/// An exchange whose request and response passed at these moments.
fn exchange(request_ns: u64, response_ns: u64) -> Exchange {
    Exchange {
        connection: 3,
        tag: 77,
        kind: OpKind::Read,
        outcome: Outcome::Good,
        data_bytes: 512,
        request_bytes: 48,
        response_bytes: 560,
        request: Passage::begin(request_ns, 1),
        response: Passage::begin(response_ns, 2),
        ..Exchange::default()
    }
}

/// Both sides of one read. The request took 30 ns and the response 50 ns, by a clock that both share.
fn both() -> Observed {
    let (client, server) = (exchange(1000, 1200), exchange(1030, 1150));
    Observed { connection: 9, client: Some(client), server: Some(server), shared_clock: true }
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
fn what_is_no_command_has_a_name_too() {
    assert_eq!(Verb::Http(*b"GET\0\0\0\0").name(), "GET");
    assert_eq!(Verb::Http(*b"OPTIONS").name(), "OPTIONS");
    // A method comes from the wire: nothing of it that could move a terminal's cursor is shown.
    assert_eq!(Verb::Http(*b"GE\x1b[2J\0").name(), "GE");
    assert_eq!(Verb::Turn.name(), "turn");
    assert_eq!(Verb::TaskManagement(5).name(), "task management 5");
    assert_eq!(Verb::Nop.name(), "ping");
}

#[test]
fn a_round_trip_ends_with_the_last_byte_and_each_side_has_its_own() {
    let observed = both();
    assert_eq!(observed.round_trip_ns(), Some(200), "C2 - C1");
    assert_eq!(observed.server_ns(), Some(120), "S2 - S1");
    assert_eq!(observed.network_ns(), Some(80), "what the server's part leaves of the client's");
    assert_eq!((observed.request_path_ns(), observed.response_path_ns()), (Some(30), Some(50)));
    // From the last byte of the request to the last byte of the response.
    let long = Passage { began: Stamp::at(900), ..Passage::begin(1000, 1) };
    assert_eq!(Exchange { request: long, ..exchange(1000, 1200) }.round_trip_ns(), Some(200));
}

#[test]
fn clocks_of_two_sides_are_not_subtracted() {
    let apart = Observed { shared_clock: false, ..both() };
    assert_eq!((apart.request_path_ns(), apart.response_path_ns()), (None, None));
    assert_eq!(apart.network_ns(), Some(80), "differences of either clock may be");
}

#[test]
fn what_one_side_did_not_see_is_not_claimed() {
    let client = Observed { server: None, ..both() };
    assert_eq!((client.round_trip_ns(), client.server_ns(), client.network_ns()), (Some(200), None, None));
    assert_eq!((client.request_path_ns(), client.response_path_ns()), (None, None));
    let server = Observed { client: None, ..both() };
    assert_eq!((server.round_trip_ns(), server.server_ns(), server.network_ns()), (None, Some(120), None));
    let neither = Observed { client: None, server: None, ..both() };
    assert_eq!((neither.main(), neither.op()), (None, None));
}

#[test]
fn the_clients_view_comes_first() {
    let observed = both();
    assert_eq!(observed.main(), observed.client.as_ref());
    let server = Observed { client: None, ..both() };
    assert_eq!(server.main(), server.server.as_ref());
}

#[test]
fn an_op_record_has_the_stamps_of_the_sides_that_saw_it() {
    // The number of the connection is the one that both sides agreed on.
    let common = Op {
        connection: 9,
        tag: 77,
        kind: OpKind::Read,
        data_bytes: 512,
        request_bytes: 48,
        response_bytes: 560,
        ..Op::default()
    };
    let (c1, c2, s1, s2) = (Stamp::at(1000), Stamp::at(1200), Stamp::at(1030), Stamp::at(1150));
    assert_eq!(both().op(), Some(Op { c1, s1, s2, c2, ..common }));
    assert_eq!(Observed { server: None, ..both() }.op(), Some(Op { c1, c2, ..common }));
    assert_eq!(Observed { client: None, ..both() }.op(), Some(Op { s1, s2, ..common }));
    assert_eq!(exchange(1000, 1200).op(Side::Client), Op { connection: 3, c1, c2, ..common });
    assert_eq!(exchange(1030, 1150).op(Side::Server), Op { connection: 3, s1, s2, ..common });
}

#[test]
fn stalls_are_those_that_either_side_saw() {
    let mut observed = both();
    let kinds = [StallKind::DelayedAck, StallKind::Timeout];
    observed.client.iter_mut().for_each(|e| e.stalls.insert(kinds[0]));
    observed.server.iter_mut().for_each(|e| e.stalls.insert(kinds[1]));
    for kind in StallKind::ALL {
        assert_eq!(observed.stalls().contains(kind), kinds.contains(&kind), "{kind:?}");
    }
}
