//! Conversations of Kafka.

use super::*;
use crate::decode::play::Play;

use Side::{Client, Server};

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const METADATA: i16 = 3;
const JOIN_GROUP: i16 = 11;
const HEARTBEAT: i16 = 12;
const API_VERSIONS: i16 = 18;
const CREATE_TOPICS: i16 = 19;

fn sized(parts: &[&[u8]]) -> Vec<u8> {
    let bytes = parts.concat();
    [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat()
}

/// A request of a client `app`.
fn asked(key: i16, version: i16, correlation: u32, body: &[u8]) -> Vec<u8> {
    let tags = if version >= apis::of(key).unwrap().flexible_from { &[0][..] } else { &[] };
    sized(&[&key.to_be_bytes(), &version.to_be_bytes(), &correlation.to_be_bytes(), b"\0\x03app", tags, body])
}

fn answer(correlation: u32, body: &[u8]) -> Vec<u8> {
    sized(&[&correlation.to_be_bytes(), body])
}

/// A string, and a compact one.
fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn compact(text: &str) -> Vec<u8> {
    [&[text.len() as u8 + 1][..], text.as_bytes()].concat()
}

/// Version 7, and version 9 with compact fields.
fn produce(correlation: u32, acks: i16, topic: &str, is_compact: bool) -> Vec<u8> {
    let [acks, timeout] = [&acks.to_be_bytes()[..], &[0, 0, 0x75, 0x30]];
    if is_compact {
        let topic = compact(topic);
        return asked(
            PRODUCE,
            9,
            correlation,
            &[&[0], acks, timeout, &[2], &topic, &[2, 0, 0, 0, 0, 4, 1, 2, 3]].concat(),
        );
    }
    let data = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3];
    asked(
        PRODUCE,
        7,
        correlation,
        &[&[0xff, 0xff], acks, timeout, &[0, 0, 0, 1], &string(topic), &data].concat(),
    )
}

fn produced(correlation: u32, topic: &str, error: i16, is_compact: bool) -> Vec<u8> {
    let error = error.to_be_bytes();
    if is_compact {
        return answer(
            correlation,
            &[&[0, 2][..], &compact(topic), &[2, 0, 0, 0, 0], &error, &[0; 24]].concat(),
        );
    }
    answer(
        correlation,
        &[&[0, 0, 0, 1][..], &string(topic), &[0, 0, 0, 1, 0, 0, 0, 0], &error, &[0; 24]].concat(),
    )
}

/// Version 4.
fn fetch(correlation: u32) -> Vec<u8> {
    let limits = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x10, 0, 0, 0, 0, 0, 0, 1];
    asked(FETCH, 4, correlation, &[&limits[..], &string("orders-17"), &[0; 24]].concat())
}

/// An answer to Fetch: of each partition its error and its records.
fn fetched(correlation: u32, partitions: &[(i16, &[u8])]) -> Vec<u8> {
    let count = (partitions.len() as u32).to_be_bytes();
    let mut body = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &string("orders-17"), &count].concat();
    for (error, records) in partitions {
        let bytes = (records.len() as u32).to_be_bytes();
        body.extend([&[0; 4][..], &error.to_be_bytes(), &[0; 16], &[0xff; 4], &bytes, records].concat());
    }
    answer(correlation, &body)
}

fn heartbeat(correlation: u32) -> Vec<u8> {
    asked(
        HEARTBEAT,
        3,
        correlation,
        &[&string("billing")[..], &[0, 0, 0, 7], &string("m"), &[0xff, 0xff]].concat(),
    )
}

fn beaten(correlation: u32, error: i16) -> Vec<u8> {
    answer(correlation, &[&[0; 4][..], &error.to_be_bytes()].concat())
}

#[test]
fn requests_are_paired_by_their_correlation_ids() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let software = [&compact("java")[..], &compact("4.1"), &[0]].concat();
        play.say(Client, asked(API_VERSIONS, 3, 0, &software));
        // Its header has no tagged fields.
        play.say(Server, answer(0, &[0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
        let requests = [
            produce(1, 1, "orders-17", false),
            produce(2, -1, "orders.eu_v2", true),
            heartbeat(3),
            asked(METADATA, 9, 4, &[&[2][..], &compact("nowhere"), &[0, 1, 0, 0]].concat()),
        ];
        play.say(Client, requests.concat());
        let broker = [&[0, 0, 0, 1][..], &compact("localhost"), &[0, 0, 0x23, 0x84, 0, 0]].concat();
        let topic = [&[0, 3][..], &compact("nowhere"), &[0, 1, 0, 0, 0]].concat();
        let brokers = [&[0, 0, 0, 0, 0, 2][..], &broker, &[0, 0, 0, 0, 1, 2], &topic].concat();
        let answers = [
            produced(1, "orders-17", 0, false),
            produced(2, "orders.eu_v2", 19, true),
            beaten(3, 27),
            answer(4, &brokers),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let expected = [
            "ApiVersions  ok",
            "Produce orders-* ok",
            "Produce orders.eu_* FEW_REPLICAS",
            "Heartbeat billing REBALANCING",
            "Metadata nowhere UNKNOWN_TOPIC",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!(told.exchanges[1].op.request_bytes as usize, requests[0].len());
        assert_eq!(told.exchanges[1].op.response_bytes as usize, answers[0].len());
        let failed: Vec<_> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
        assert_eq!(failed, [false, false, true, false, false]);
        assert_eq!(told.exchanges.iter().map(|e| e.op.queue_depth).collect::<Vec<_>>(), [1, 1, 2, 3, 4]);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn what_wants_no_acknowledgement_has_no_answer() {
    for is_compact in [false, true] {
        let mut play = Play::new(&ENTRY);
        play.say(
            Client,
            [produce(1, 0, "a", is_compact), produce(2, 0, "a", is_compact), heartbeat(3)].concat(),
        );
        play.say(Server, beaten(3, 0));
        let told = play.end();
        assert_eq!(told.lines(), ["Heartbeat billing ok"]);
        assert_eq!((told.exchanges[0].op.queue_depth, told.unanswered.len()), (1, 0));
    }
}

/// The error and the records of a partition.
type Partition = (i16, &'static [u8]);

#[test]
fn fetches_that_bring_nothing_have_waited() {
    let answers: [(&[Partition], bool); 10] = [
        (&[], true),
        (&[(0, &[])], true),
        (&[(0, &[]), (0, &[])], true),
        (&[(0, &[1; 90])], false),
        (&[(0, &[]), (0, &[1; 9000])], false),
        (&[(1, &[])], false),
        (&[(0, &[]), (6, &[])], false),
        (&[(1, &[]), (6, &[])], false),
        (&[(1, &[]), (0, &[1; 9])], false),
        (&[(0, &[]), (6, &[]), (0, &[1; 9])], false),
    ];
    for segment in [usize::MAX, 1, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        for (number, (partitions, _)) in answers.iter().enumerate() {
            play.say(Client, fetch(number as u32)).say(Server, fetched(number as u32, partitions));
        }
        let told = play.end();
        let waited: Vec<_> = told.exchanges.iter().map(|e| e.awaits_event).collect();
        assert_eq!(waited, answers.map(|(_, waited)| waited), "{segment}");
        let errors = [
            "ok",
            "ok",
            "ok",
            "ok",
            "ok",
            "OUT_OF_RANGE",
            "NOT_LEADER",
            "OUT_OF_RANGE",
            "OUT_OF_RANGE",
            "NOT_LEADER",
        ];
        assert_eq!(told.lines(), errors.map(|error| format!("Fetch orders-* {error}")));
    }
}

/// A broker may hold what states a time and bytes to wait for, whatever it brings then.
#[test]
fn a_fetch_that_may_be_held_awaits_an_event() {
    for (version, longest_ms, least_bytes, is_held) in [
        (4, 500_u32, 1_u32, true),
        (4, 0, 1, false),
        (4, 500, 0, false),
        (17, 500, 1, true),
        (17, 0, 1, false),
    ] {
        let replica = if version < 15 { &[0xff; 4][..] } else { &[] };
        let head = [replica, &longest_ms.to_be_bytes(), &least_bytes.to_be_bytes(), &[0; 40]].concat();
        let mut play = Play::new(&ENTRY);
        play.say(Client, asked(FETCH, version, 1, &head)).say(Server, answer(1, &[1; 90]));
        let told = play.end();
        assert_eq!(told.exchanges[0].awaits_event, is_held, "{version} {longest_ms} {least_bytes}");
    }
}

/// With a session: an error of its own, and topics only where something has changed.
#[test]
fn fetches_of_sessions_have_an_error_of_their_own() {
    let mut play = Play::new(&ENTRY);
    let topic = [&[2][..], &[9; 16], &[2, 0, 0, 0, 0, 0, 6], &[0; 24], &[0, 0, 0, 0, 0, 1, 0, 0, 0]].concat();
    let records = [&[2][..], &[9; 16], &[2, 0, 0, 0, 0, 0, 0], &[0; 24], &[1, 0, 0, 0, 0, 3, 1, 2]].concat();
    let tail = [0; 20];
    let mut fetched = |number: u32, error: i16, topics: &[u8]| {
        play.say(Client, asked(FETCH, 17, number, &tail));
        let head = [&[0; 5][..], &error.to_be_bytes(), &[0, 0, 0, 5]].concat();
        play.say(Server, answer(number, &[&head[..], topics].concat()));
    };
    fetched(1, 0, &[1, 0]);
    fetched(2, 70, &[1, 0]);
    fetched(3, 0, &topic);
    fetched(4, 0, &records);
    let told = play.end();
    assert_eq!(told.lines(), ["Fetch  ok", "Fetch  NO_SESSION", "Fetch  NOT_LEADER", "Fetch  ok"]);
    assert_eq!(
        told.exchanges.iter().map(|e| e.awaits_event).collect::<Vec<_>>(),
        [true, false, false, false]
    );
}

#[test]
fn groups_wait_for_their_members() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, asked(JOIN_GROUP, 5, 1, &[&string("billing-3")[..], &[0; 30]].concat()));
    play.say(Server, answer(1, &[0, 0, 0, 0, 0, 79, 0, 0]));
    play.say(Client, heartbeat(2)).say(Server, beaten(2, 0));
    let told = play.end();
    assert_eq!(told.lines(), ["JoinGroup billing-* MEMBER_ID", "Heartbeat billing ok"]);
    assert_eq!(told.exchanges.iter().map(|e| e.awaits_event).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn names_are_shown_without_their_numbers() {
    for (name, shown) in [
        ("orders", "orders"),
        ("__consumer_offsets", "__consumer_offsets"),
        ("reply-3f2a9b-7c.eu", "reply-*-*.eu"),
        ("caf\u{e9}", "*"),
        ("", ""),
    ] {
        assert_eq!(named(name.as_bytes(), Shown::default()), shown, "{name}");
    }
    assert_eq!(named(b"orders-17\n", Shown { verbatim: true }), "orders-17\\n");
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [heartbeat(1), heartbeat(2), heartbeat(3)].concat());
    play.lose(Server, beaten(1, 0).len() as u64).say(Server, [beaten(2, 1), beaten(3, 2)].concat());
    play.say(Client, &heartbeat(4)[..6])
        .lose(Client, heartbeat(4).len() as u64 - 6)
        .say(Server, beaten(4, 0));
    play.say(Client, heartbeat(5)).say(Server, beaten(5, 5));
    let told = play.end();
    let expected =
        ["OUT_OF_RANGE", "CORRUPT_MESSAGE", "NO_LEADER"].map(|error| format!("Heartbeat billing {error}"));
    assert_eq!(told.lines(), expected);
    assert_eq!((told.unanswered.len(), told.exchanges[2].op.queue_depth), (0, 1));
    // What is in flight when the capture ends may have been answered in a hole.
    let mut play = Play::new(&ENTRY);
    play.say(Client, [heartbeat(1), heartbeat(2)].concat()).lose(Server, beaten(1, 0).len() as u64 + 9);
    assert!(play.end().unanswered.is_empty());
    // An answer that never comes, though later ones do.
    let mut play = Play::new(&ENTRY);
    play.say(Client, [heartbeat(1), heartbeat(2)].concat()).say(Server, beaten(2, 0));
    play.say(Client, heartbeat(3)).say(Server, beaten(3, 0));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len(), told.exchanges[1].op.queue_depth), (2, 0, 1));
}

#[test]
fn in_the_middle_answers_without_their_requests_are_none() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Server, &beaten(7, 0)[3..]).say(Server, beaten(8, 0));
    play.say(Client, [heartbeat(9), heartbeat(10)].concat());
    play.say(Server, &beaten(8, 0)[2..]).say(Server, [beaten(9, 0), beaten(10, 0)].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["Heartbeat billing ok"; 2]);
    assert_eq!(told.longest_ns(0), 2000);
}

#[test]
fn a_table_of_open_requests_is_bounded() {
    let mut play = Play::new(&ENTRY);
    let count = OPEN_MAX as u32 + 10;
    for number in 0..count {
        play.say(Client, heartbeat(number));
    }
    play.say(Server, (0..count).flat_map(|number| beaten(number, 0)).collect::<Vec<_>>());
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.counted.unmatched), (OPEN_MAX, 10));
}

fn is_begun(side: Side, bytes: &[u8], port: u16, is_first: bool) -> bool {
    begins(&Start::new(side, bytes, port, is_first))
}

#[test]
fn requests_with_a_client_show_the_protocol() {
    let versions = asked(API_VERSIONS, 0, 1, &[]);
    let metadata = asked(METADATA, 1, 1, &[0xff; 4]);
    for bytes in [versions.clone(), metadata.clone(), produce(1, 1, "a", true)] {
        assert!(
            is_begun(Client, &bytes, 40_000, true) && !is_begun(Server, &bytes, 40_000, true),
            "{bytes:?}"
        );
        assert!(!is_begun(Client, &bytes[..bytes.len() - 1], 40_000, true));
    }
    // What goes on, and what is in the middle.
    assert!(
        is_begun(Client, &heartbeat(1)[..30], PORT, true) && is_begun(Client, &heartbeat(1), 40_000, false)
    );
    assert!(!is_begun(Client, &heartbeat(1), 40_000, true));
    // Without a name, on the port.
    let unnamed = sized(&[&[0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff]]);
    assert!(is_begun(Client, &unnamed, PORT, true) && !is_begun(Client, &unnamed, 40_000, true));
    let mut no_name = versions.clone();
    no_name[14] = 7;
    let mut long_name = versions.clone();
    long_name[13] = 9;
    let mut no_version = metadata;
    no_version[6] = 1;
    let mut too_short = versions;
    too_short[3] = 8;
    for none in [
        too_short,
        heartbeat(u32::MAX - 1),
        no_name,
        long_name,
        no_version,
        asked(CREATE_TOPICS, 2, 1, &[0; 4])[4..].to_vec(),
        sized(&[&[0, 99, 0, 1, 0, 0, 0, 1, 0, 1, b'a']]),
        vec![0; 40],
        b"\0\0\0\x2f\xfeSMB@\0\x01\0\0\0\0\0\0\0".to_vec(),
        b"\0\0\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x75\x30\0\0\0\0\0\0\0\0\0\0\0\x10".to_vec(),
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
    ] {
        assert!(!is_begun(Client, &none, PORT, true) && !is_begun(Client, &none, PORT, false), "{none:?}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for hostile in [&[0_u8, 0, 0, 3, 1, 2, 3][..], &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1], &[0, 0, 0, 0, 0]] {
        let mut play = Play::new(&ENTRY);
        for number in 1..4 {
            play.say(Client, heartbeat(number)).say(Server, hostile).say(Server, beaten(number, 0));
            play.say(Client, heartbeat(number)).say(Client, [hostile, &[0; 12]].concat());
        }
        assert!(play.is_contradicted(), "{hostile:?}");
    }
    // Counts of more than there is.
    let mut play = Play::new(&ENTRY);
    for (number, api) in [(1, PRODUCE), (2, FETCH), (3, METADATA)] {
        play.say(Client, asked(api, 12, number, &[0xff; 30])).say(Server, answer(number, &[0xff; 30]));
        play.say(Client, asked(api, 0, number + 3, &[0x7f; 30])).say(Server, answer(number + 3, &[0x7f; 30]));
    }
    assert_eq!(play.end().exchanges.len(), 6);
}

/// Version 11 names a replica to read from.
#[test]
fn fetches_of_other_versions_may_bring_nothing() {
    let mut play = Play::new(&ENTRY);
    play.segment = 50;
    let partition = [&[0; 10 + 20][..], &[0xff; 4], &[0, 0, 0, 1], &[0; 4]].concat();
    let topic = [&[0, 0, 0, 1][..], &string("a"), &[0, 0, 0, 1], &partition].concat();
    play.say(Client, asked(FETCH, 11, 1, &[0; 40])).say(Server, answer(1, &[&[0; 10][..], &topic].concat()));
    // More partitions than are kept: the error of the first is known, and not whether there are data.
    let partition = |error: u8| [&[0, 0, 0, 0, 0, error][..], &[0; 24], &[0, 0, 0, 0, 1, 0, 0]].concat();
    let topic = [&[2][..], &[9; 16], &[0xc9, 1], &partition(6), &partition(0).repeat(199), &[0, 0]].concat();
    play.say(Client, asked(FETCH, 17, 2, &[0; 40])).say(Server, answer(2, &[&[0; 11][..], &topic].concat()));
    let told = play.end();
    assert_eq!(told.exchanges.iter().map(|e| e.awaits_event).collect::<Vec<_>>(), [true, false]);
    assert_eq!(told.lines()[1], "Fetch  NOT_LEADER");
}

#[test]
fn compact_counts_have_seven_bits_in_a_byte() {
    let count = |bytes: &[u8]| Fields::new(bytes, true).array();
    assert_eq!([count(&[0]), count(&[1]), count(&[0x81, 1])], [Some(0), Some(0), Some(128)]);
    assert_eq!([count(&[0x81]), count(&[0xff; 6])], [None, None]);
}

#[test]
fn errors_have_names() {
    let texts = [-1, 0, 19, 20, 200].map(|code| errors::status(code).text());
    assert_eq!(texts, ["SERVER_ERROR", "ok", "FEW_REPLICAS", "FEW_REPLICAS", "ERROR_200"]);
    // A protocol that looks like Kafka's has not failed.
    assert_eq!([28_015, -2].map(errors::status), [Status::Unknown; 2]);
}

/// The table's places are its keys, and its ways have only steps that are known.
#[test]
fn the_table_of_requests_is_sound() {
    let mut key = 0;
    while let Some(api) = apis::of(key) {
        assert_eq!(api.operation().as_str().len(), api.name_length(), "{api:?}");
        assert!(api.has_sound_ways(), "{api:?}");
        key += 1;
    }
    assert_eq!(key, 93);
}

/// Messages of all kinds and versions, by Apache Kafka's own classes (`tests/Messages.java`): strings are the names of their fields, and
/// errors are 42.
#[test]
fn fields_are_where_the_broker_has_them() {
    let bytes = |hex: &str| -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    };
    let (mut named, mut count) = (0, 0);
    for line in include_str!("tests/messages.txt").lines() {
        let [key, version, request, answer] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let (key, version) = (key.parse().unwrap(), version.parse().unwrap());
        let header = Header { api: apis::of(key).unwrap(), version, correlation: 1 };
        let name =
            apis::name(&header, Fields::new(&bytes(request), header.is_flexible())).map(<[u8]>::to_vec);
        if let Some(name) = name {
            let name = String::from_utf8(name).unwrap();
            let of_topic_or_group = [
                "name",
                "topic",
                "topics",
                "topic_names",
                "group_id",
                "group_ids",
                "groups",
                "groups_names",
                "key",
                "coordinator_keys",
            ];
            assert!(of_topic_or_group.contains(&&*name), "{key} {version}: {name}");
            named += 1;
        }
        let said = apis::answer(&header, Fields::new(&bytes(answer), header.is_flexible()));
        // What is wrapped, and offsets of shared groups, are not looked into.
        let expected = if matches!(key, 58 | 90) { None } else { Some(42) };
        assert_eq!(said, apis::Answer { error: expected, is_empty: false }, "{key} {version}");
        assert!(!apis::wants_no_answer(&header, Fields::new(&bytes(request), header.is_flexible())), "{key}");
        count += 1;
    }
    assert_eq!((count, named), (292, 156));
}
