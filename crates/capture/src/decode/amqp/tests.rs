//! Conversations of AMQP.

use super::*;
use crate::decode::play::{Play, Told};

use Side::{Client, Server};

const TUNE: Method = (10, 30);
const CONSUME: Method = (60, 20);

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let (channel, size) = (channel.to_be_bytes(), (payload.len() as u32).to_be_bytes());
    [&[kind][..], &channel, &size, payload, &[0xce]].concat()
}

fn method(channel: u16, (class, number): Method, arguments: &[u8]) -> Vec<u8> {
    frame(1, channel, &[&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat())
}

fn short(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// Head and body of a message, in frames of some bytes.
fn content(channel: u16, bytes: usize, each: usize) -> Vec<u8> {
    let head = [&[0, 60, 0, 0][..], &(bytes as u64).to_be_bytes(), &[0, 0]].concat();
    let mut all = frame(2, channel, &head);
    for part in vec![b'm'; bytes].chunks(each) {
        all.extend(frame(3, channel, part));
    }
    all
}

fn publish(channel: u16, exchange: &str, key: &str, bytes: usize) -> Vec<u8> {
    let arguments = [&[0, 0][..], &short(exchange), &short(key), &[0]].concat();
    [method(channel, method::PUBLISH, &arguments), content(channel, bytes, 1000)].concat()
}

fn ack(channel: u16, tag: u64, is_multiple: bool) -> Vec<u8> {
    method(channel, method::ACK, &[&tag.to_be_bytes()[..], &[u8::from(is_multiple)]].concat())
}

fn acks(channel: u16, tags: impl IntoIterator<Item = u64>) -> Vec<u8> {
    tags.into_iter().flat_map(|tag| ack(channel, tag, false)).collect()
}

/// A Queue.Declare, with its flags.
fn declare(channel: u16, queue: &str, flags: u8) -> Vec<u8> {
    method(channel, (50, 10), &[&[0, 0][..], &short(queue), &[flags, 0, 0, 0, 0]].concat())
}

fn declared(channel: u16) -> Vec<u8> {
    method(channel, (50, 11), &[&short("some")[..], &[0; 8]].concat())
}

fn get(channel: u16, queue: &str) -> Vec<u8> {
    method(channel, method::GET, &[&[0, 0][..], &short(queue), &[1]].concat())
}

fn close(channel: u16, number: Method, code: u16, of: Method) -> Vec<u8> {
    let (class, method_of) = of;
    let rest = [&short("text")[..], &class.to_be_bytes(), &method_of.to_be_bytes()].concat();
    method(channel, number, &[&code.to_be_bytes()[..], &rest].concat())
}

/// A connection with a channel.
fn opened(play: &mut Play) {
    play.say(Client, frame::PREAMBLE).say(Server, method(0, method::START, &[0, 9, 0, 0, 0, 0]));
    play.say(Client, method(0, (10, 11), &[0; 20])).say(Server, method(0, TUNE, &[0; 8]));
    play.say(Client, [method(0, (10, 31), &[0; 8]), method(0, (10, 40), b"\x01/\0\0")].concat());
    play.say(Server, method(0, (10, 41), &[0]));
    play.say(Client, method(1, method::CHANNEL_OPEN, &[0])).say(Server, method(1, (20, 11), &[0; 4]));
}

/// The same, with confirms.
fn confirming() -> Play {
    let mut play = Play::new(&ENTRY);
    opened(&mut play);
    play.say(Client, method(1, method::CONFIRM_SELECT, &[0])).say(Server, method(1, (85, 11), &[]));
    play
}

/// What is told behind the set-up.
fn lines(told: &Told, behind: usize) -> Vec<String> {
    let lines = told.lines();
    assert_eq!(lines[..3], ["login  ok", "Conn.Open / ok", "Channel.Open  ok"]);
    lines[behind..].to_vec()
}

#[test]
fn methods_are_answered_in_order_on_each_channel() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        opened(&mut play);
        play.say(Client, method(2, method::CHANNEL_OPEN, &[0])).say(Server, method(2, (20, 11), &[0; 4]));
        // Both channels ask, and the second one is answered first. The third declaration wants no answer.
        let all = [declare(1, "orders.17", 2), declare(2, "b", 2), declare(1, "quiet", 0x12), get(2, "jobs")];
        play.say(Client, all.concat());
        let delivered = method(1, method::DELIVER, &[0; 12]);
        play.say(Server, [declared(2), delivered, content(1, 5, 5), declared(1)].concat());
        let got = [method(2, method::GET_OK, &[0; 15]), content(2, 2500, 1000)].concat();
        play.say(Server, frame(8, 0, &[])).say(Server, got);
        play.say(Client, get(2, "jobs")).say(Server, method(2, method::GET_EMPTY, &[0]));
        // Without confirms no message is acknowledged.
        play.say(Client, publish(1, "", "quiet", 20));
        play.say(Client, method(2, CONSUME, &[&[0, 0][..], &short("q"), &short("me"), &[0; 5]].concat()));
        play.say(Server, method(2, (60, 21), &short("me")));
        play.say(Client, close(0, method::CONNECTION_CLOSE, 200, (0, 0)));
        play.say(Server, method(0, method::CONNECTION_CLOSE_OK, &[]));
        let told = play.end();
        let expected = [
            "Channel.Open  ok",
            "Queue.Declare b ok",
            "Queue.Declare orders.:n ok",
            "Basic.Get jobs ok",
            "Basic.Get jobs ok",
            "Basic.Consume q ok",
            "Conn.Close  ok",
        ];
        assert_eq!(lines(&told, 3), expected, "{segment}");
        let streams: Vec<u32> = told.exchanges[3..].iter().map(|e| e.stream).collect();
        assert_eq!(streams, [2, 2, 1, 2, 2, 2, 0]);
        assert_eq!(told.exchanges[6].op.response_bytes, 27 + 22 + 2500 + 3 * 8);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn published_messages_are_acknowledged_by_their_tags() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        opened(&mut play);
        play.say(Client, method(1, method::CONFIRM_SELECT, &[0])).say(Server, method(1, (85, 11), &[]));
        let keys = ["a", "b", "c", "d", "e"];
        play.say(Client, keys.iter().flat_map(|key| publish(1, "logs", key, 2500)).collect::<Vec<_>>());
        // The second one, then the first and third, then a refusal of all that are left.
        play.say(Server, [ack(1, 2, false), ack(1, 3, true)].concat());
        let nack = [&5_u64.to_be_bytes()[..], &[1]].concat();
        play.say(Server, method(1, method::NACK, &nack));
        play.say(Client, publish(1, "", "jobs.17", 0)).say(Server, ack(1, 6, false));
        let told = play.end();
        let published = ["logs/b ok", "logs/a ok", "logs/c ok", "logs/d NACK", "logs/e NACK", "jobs.:n ok"];
        assert_eq!(lines(&told, 4), published.map(|rest| format!("Basic.Publish {rest}")), "{segment}");
        assert_eq!(told.exchanges[4].op.request_bytes, 22 + 22 + 2500 + 3 * 8);
        assert!(told.exchanges[7].error.is_some() && told.exchanges[9].error.is_none());
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_close_of_the_broker_ends_what_is_open() {
    let mut play = confirming();
    play.say(Client, [publish(1, "none", "a", 5), declare(1, "a", 0)].concat());
    play.say(Server, close(1, method::CHANNEL_CLOSE, 404, method::PUBLISH));
    play.say(Client, method(1, method::CHANNEL_CLOSE_OK, &[]));
    // The channel is opened anew, and tags begin anew.
    play.say(Client, method(1, method::CHANNEL_OPEN, &[0])).say(Server, method(1, (20, 11), &[0; 4]));
    play.say(Client, method(1, method::CONFIRM_SELECT, &[0])).say(Server, method(1, (85, 11), &[]));
    play.say(Client, publish(1, "", "q", 5)).say(Server, ack(1, 1, false));
    play.say(Client, [publish(1, "", "q", 5), declare(1, "a", 0)].concat());
    play.say(Server, close(0, method::CONNECTION_CLOSE, 320, (0, 0)));
    let told = play.end();
    let expected = [
        "Queue.Declare a NOT_FOUND",
        "Basic.Publish none/a NOT_FOUND",
        "Channel.Open  ok",
        "Confirm.Select  ok",
        "Basic.Publish q ok",
        "Queue.Declare a FORCED",
        "Basic.Publish q FORCED",
    ];
    assert_eq!(lines(&told, 4), expected);
    let failed: Vec<bool> = told.exchanges[4..].iter().map(|e| e.error.is_some()).collect();
    assert_eq!(failed, [false, false, false, false, false, true, true], "what the broker failed to do");
    // A log-in that is refused.
    let mut play = Play::new(&ENTRY);
    play.say(Client, frame::PREAMBLE).say(Server, method(0, method::START, &[0, 9, 0, 0, 0, 0]));
    play.say(Client, method(0, (10, 11), &[0; 20]));
    play.say(Server, close(0, method::CONNECTION_CLOSE, 403, (0, 0)));
    assert_eq!(play.end().lines(), ["login  ACCESS_REFUSED"]);
}

/// An acknowledgement is in a hole: a later one of all messages up to its tag is not that of what was acknowledged in the hole.
#[test]
fn a_hole_of_the_broker_costs_what_it_may_have_acknowledged() {
    let messages = |count: usize| publish(1, "", "q", 5).repeat(count);
    let length = ack(1, 1, false).len() as u64;
    let mut play = confirming();
    play.say(Client, messages(4)).say(Server, ack(1, 1, false)).lose(Server, length);
    play.say(Client, messages(2)).say(Server, acks(1, [3])).pause(1_000_000).say(Server, ack(1, 6, true));
    play.say(Client, messages(3)).say(Server, acks(1, [7, 9, 8]));
    let told = play.end();
    // 1, 3, 5 and 6, 7 to 9: the second and the fourth may have been acknowledged in the hole.
    assert_eq!(lines(&told, 4).len(), 1 + 1 + 2 + 3);
    assert_eq!((told.unanswered.len(), told.counted.abandoned), (0, 0));
}

/// The broker closes the channel behind a hole: what it may have answered in the hole had a status of its own.
#[test]
fn a_close_behind_a_hole_fails_nothing_from_before_it() {
    let mut play = confirming();
    play.say(Client, publish(1, "", "q", 5)).lose(Server, ack(1, 1, false).len() as u64);
    play.say(Client, publish(1, "none", "q", 5));
    play.say(Server, close(1, method::CHANNEL_CLOSE, 404, method::PUBLISH));
    assert_eq!(lines(&play.end(), 4), ["Basic.Publish none/q NOT_FOUND"]);
    let mut play = confirming();
    play.say(Client, declare(1, "a", 0)).lose(Server, declared(1).len() as u64);
    play.say(Server, close(1, method::CHANNEL_CLOSE, 406, method::ACK));
    assert!(lines(&play.end(), 4).is_empty());
}

/// Messages are in a hole, so that the tags of the next ones are not known.
#[test]
fn a_hole_of_the_client_costs_what_shows_no_tag() {
    let message = publish(1, "", "q", 5);
    let length = message.len() as u64;
    // A client that waits shows it at the next message.
    let mut play = confirming();
    play.say(Client, &message).say(Server, ack(1, 1, false));
    play.lose(Client, length).say(Server, ack(1, 2, false));
    for tag in 3..10 {
        play.say(Client, &message).say(Server, ack(1, tag, false));
    }
    let told = play.end();
    assert_eq!(lines(&told, 4).len(), 1 + 7);
    assert!(told.longest_ns(4) <= 1000 && told.unanswered.is_empty());
    // Only its next message shows that the end of the one before was missing, which has been acknowledged.
    let mut play = confirming();
    play.say(Client, &message).say(Server, ack(1, 1, false));
    play.say(Client, &message[..40]).lose_unnoticed(Client, length - 40).say(Server, ack(1, 2, false));
    for tag in 3..6 {
        play.say(Client, &message).say(Server, ack(1, tag, false));
    }
    let told = play.end();
    assert_eq!(lines(&told, 4).len(), 1 + 3);
    assert!(told.longest_ns(4) <= 1000 && told.unanswered.is_empty());
    // One that does not shows it when it is silent for long, twice.
    let mut play = confirming();
    play.say(Client, message.repeat(3)).lose(Client, 2 * length).say(Server, acks(1, 1..=5));
    let mut tag = 6;
    for _ in 0..4 {
        play.pause(2_000_000_000);
        for _ in 0..2 {
            play.say(Client, message.repeat(3)).say(Server, acks(1, tag..tag + 3));
            tag += 3;
        }
    }
    let told = play.end();
    // The three before the hole, and all from the second moment on.
    assert_eq!(lines(&told, 4).len(), 3 + 3 * 6);
    assert!(told.longest_ns(4) <= 2000 && told.unanswered.is_empty());
}

/// Acknowledgements that come each 400 ms to a client that never waits show no tag.
#[test]
fn a_client_that_never_waits_invents_no_times() {
    let message = publish(1, "", "q", 5);
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    for tag in 1..50 {
        play.say(Client, &message).pause(400_000_000).say(Server, ack(1, tag, false));
    }
    let told = play.end();
    assert!(told.exchanges.is_empty());
}

/// What looked like a silent client was none: the acknowledgement of a message that has not come says so.
#[test]
fn tags_that_prove_wrong_are_given_up() {
    let message = publish(1, "", "q", 5);
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    // Two in flight, all the time.
    play.say(Client, [&message[..], &message].concat());
    for tag in 1..4 {
        play.say(Server, ack(1, tag, false)).pause(1_500_000_000).say(Client, &message);
    }
    // The next one leaves before the message that would have its tag.
    play.say_behind(Server, ack(1, 4, false)).say(Server, acks(1, 5..9));
    let told = play.end();
    assert!(told.lines().len() <= 1, "{:?}", told.lines());
    assert!(told.unanswered.is_empty());
}

#[test]
fn a_hole_costs_the_methods_that_it_touches() {
    let answer = declared(1).len() as u64;
    let mut play = confirming();
    // An answer is missing: the client asks again, so it has had one.
    play.say(Client, declare(1, "a", 0)).lose(Server, answer);
    play.say(Client, declare(1, "b", 0)).say(Server, declared(1));
    // A hole in what belongs to no answer.
    play.say(Client, declare(1, "c", 0)).lose(Server, 40).say(Server, declared(1));
    // A request is missing: its answer is none of the next one.
    play.lose(Client, 25).say(Server, declared(1)).say(Client, declare(1, "d", 0)).say(Server, declared(1));
    // An answer and the next request are missing, in either order.
    for client_first in [false, true] {
        play.say(Client, declare(1, "e", 0)).pause(1_000_000);
        if client_first {
            play.lose(Client, 25).lose(Server, answer);
        } else {
            play.lose(Server, answer).lose(Client, 25);
        }
        play.say(Server, declared(1));
    }
    // What left before a request came answers one that is missing, and may have left together with the next one, which is left out.
    play.lose(Client, 25).say(Client, declare(1, "f", 0)).say_behind(Server, declared(1)).pause(1_000_000);
    play.say(Server, declared(1));
    // Half of a message that is got.
    let got = [method(1, method::GET_OK, &[0; 15]), content(1, 2500, 1000)].concat();
    play.say(Client, get(1, "g")).say(Server, &got[..1000]).lose(Server, got.len() as u64 - 1000);
    play.say(Client, get(1, "h")).say(Server, &got);
    let told = play.end();
    let expected = ["Queue.Declare b ok", "Queue.Declare c ok", "Queue.Declare d ok", "Basic.Get h ok"];
    assert_eq!(lines(&told, 4), expected);
    let took = |e: &record::Exchange| e.response.ended.since(e.request.ended).unwrap();
    let times: Vec<bool> = told.exchanges[4..].iter().map(|e| took(e) > 1_000_000).collect();
    assert_eq!(times, [false; 4]);
    assert!(told.unanswered.is_empty());
}

#[test]
fn a_capture_that_begins_in_the_middle_shows_what_follows() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Client, vec![b'm'; 90]).say(Server, declared(3));
    play.say(Client, declare(3, "orders.17", 0)).say(Server, declared(3));
    let message = publish(3, "", "q", 5);
    play.say(Client, &message).say(Server, ack(3, 701, false));
    let told = play.end();
    assert_eq!(told.lines(), ["Queue.Declare orders.17 ok"]);
    assert!(told.unanswered.is_empty());
}

/// A channel whose Open was not captured, and its first Confirm.Select.
#[test]
fn confirms_are_counted_from_select_whatever_came_before() {
    let mut play = Play::new(&ENTRY);
    opened(&mut play);
    let open = method(7, method::CHANNEL_OPEN, &[0]);
    play.lose(Client, open.len() as u64).say(Server, method(7, (20, 11), &[0; 4]));
    play.say(Client, method(7, method::CONFIRM_SELECT, &[0])).say(Server, method(7, (85, 11), &[]));
    for tag in 1..=20 {
        play.say(Client, publish(7, "", "q", 5)).say(Server, ack(7, tag, false));
    }
    let told = play.end();
    let published = told.lines().iter().filter(|line| line.starts_with("Basic.Publish")).count();
    assert_eq!((published, told.unanswered.len()), (20, 0), "{:?}", told.lines());
}

fn is_begun(side: Side, bytes: &[u8], port: u16) -> bool {
    begins(&Start::new(side, bytes, port, false))
}

#[test]
fn its_first_bytes_and_its_methods_show_it_on_any_port() {
    assert!(is_begun(Client, frame::PREAMBLE, 40_000));
    assert!(!is_begun(Client, b"AMQP\x03\x01\0\0", PORT) && !is_begun(Client, b"AMQP\0\x01\0\0", PORT));
    assert!(!is_begun(Server, frame::PREAMBLE, PORT));
    assert!(is_begun(Client, &declare(1, "a", 0), 40_000) && is_begun(Server, &declared(1), 40_000));
    assert!(!is_begun(Server, &declare(1, "a", 0), PORT) && !is_begun(Client, &declared(1), PORT));
    assert!(is_begun(Client, &publish(1, "", "a", 5000)[..1400], 40_000));
    // A heartbeat, and a part of a message.
    let weak = frame(8, 0, &[]);
    assert!(is_begun(Client, &weak, PORT) && !is_begun(Client, &weak, 40_000));
    assert!(!is_begun(Client, &content(1, 5000, 5000)[22..1000], PORT));
    for other in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        &[0; 40],
        b"\x01\0\0\0\0\0\x05hello\xce",
        b"",
    ] {
        for side in [Client, Server] {
            assert!(!is_begun(side, other, PORT), "{}", other.escape_ascii());
        }
    }
}

#[test]
fn what_is_no_frame_contradicts() {
    let mut play = confirming();
    for _ in 0..4 {
        play.say(Client, declare(1, "a", 0)).say(Server, declared(1)).say(Server, "hello, world");
        play.say(Client, &declare(1, "a", 0)[1..]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    for hostile in
        [frame(1, 0, &[0, 10]), vec![3, 0, 1, 0xff, 0xff, 0xff, 0xff, 0], frame(8, 1, &[]), frame(3, 0, b"a")]
    {
        assert_eq!(frame::read(&hostile).err(), Some(Length::Invalid), "{hostile:?}");
    }
    let mut unended = declare(1, "a", 0);
    *unended.last_mut().unwrap() = 0;
    assert_eq!(frame::read(&unended).err(), Some(Length::Invalid));
    let mut play = confirming();
    play.say(Client, publish(1, "", "q", 0).repeat(5000)).say(Server, ack(1, 5000, true));
    let told = play.end();
    assert_eq!((lines(&told, 4).len(), told.counted.abandoned), (4000, 1000));
    let mut play = confirming();
    for number in 0..5000_u16 {
        play.say(Client, [declare(number, "a", 0), publish(1, "", "q", 0)].concat());
    }
    play.say(Client, get(1, "last")).say(Server, method(1, method::GET_EMPTY, &[0]));
    play.say(Server, ack(1, u64::MAX, true))
        .say(Server, ack(1, (1 << 46) + 1, true))
        .say(Server, ack(1, 0, true));
    play.say(Client, publish(1, "", "q", 0)).say(Server, ack(1, 5001, false));
    let told = play.end();
    assert!(told.counted.abandoned >= 1000, "messages beyond the limit are counted: {:?}", told.counted);
    assert!(told.lines().contains(&"Basic.Get last ok".to_owned()));
}

#[test]
fn a_hole_shifts_no_answers() {
    let begun = || {
        let mut play = Play::new(&ENTRY);
        opened(&mut play);
        play
    };
    Play::assert_no_shift(begun, &declare(1, "orders", 0), &declared(1));
    Play::assert_no_shift_in_batches(begun, &declare(1, "orders", 0), &declared(1));
    let got = method(1, method::GET_EMPTY, &[0]);
    Play::assert_no_shift(begun, &get(1, "orders"), &got);
    Play::assert_no_shift_in_batches(begun, &get(1, "orders"), &got);
}
