//! Steps of the capturing clock.

use super::*;

/// A connection whose hosts' clocks tick each millisecond. In the middle of an operation the capturing clock jumps by `by_ms`,
/// and those of these hosts do not.
fn jumped(by_ms: i64, steady: [bool; 2]) -> Seen {
    jumped_at(30, by_ms, steady)
}

/// The same in this operation; each takes 10 ms.
fn jumped_at(at: u32, by_ms: i64, steady: [bool; 2]) -> Seen {
    let mut talk = Talk::begin();
    let origin = talk.ns;
    let say = |talk: &mut Talk, who: Who, payload: &[u8], moved_ms: i64| {
        let elapsed_ms = (talk.ns as i64 - origin as i64) / MS as i64;
        let less_ms = if steady[who as usize] { moved_ms } else { 0 };
        let value = [5_000_u32, 900_000][who as usize].wrapping_add((elapsed_ms - less_ms) as u32);
        let options = [&[1, 1, 8, 10][..], &value.to_be_bytes(), &0_u32.to_be_bytes()].concat();
        let (seq, ack) = (talk.next[who as usize], talk.next[1 - who as usize]);
        talk.next[who as usize] += payload.len() as u32;
        talk.raw(who, seq, ack, Segment::ACK, &options, payload);
    };
    let mut moved_ms = 0;
    for turn in 0..60 {
        say(&mut talk, Client, &post(10), moved_ms);
        talk.after(5 * MS);
        if turn == at {
            talk.ns = talk.ns.saturating_add_signed(by_ms * MS as i64);
            moved_ms = by_ms;
        }
        say(&mut talk, Server, OK, moved_ms);
        say(&mut talk, Client, b"", moved_ms);
        talk.after(5 * MS);
    }
    talk.end()
}

#[test]
fn a_step_that_both_hosts_clocks_lack_is_the_capturing_clocks() {
    for by_ms in [3_600_000, 700, -600, -900] {
        let seen = jumped(by_ms, [true; 2]);
        let [step] = &seen.steps[..] else { panic!("{by_ms}: {:?}", seen.steps) };
        let by = step.by_ns as f64 / 1e6;
        assert!((by - by_ms as f64).abs() <= 5.0 + by_ms.abs() as f64 / 100.0, "{by_ms}: {by}");
        assert_eq!(seen.facts[0].exchanges, seen.exchanges.len() as u64, "{by_ms}: told once each");
        // The operation across it is left out, or has no time.
        let long = seen.exchanges.iter().filter(|e| {
            let took = e.response.ended.since(e.request.began).unwrap_or(0);
            took > 50 * MS as i64
        });
        assert_eq!(long.count(), 0, "{by_ms}");
        assert!(seen.exchanges.iter().all(|e| e.thought_ns.is_none_or(|ns| ns < 50 * MS)), "{by_ms}");
    }
}

#[test]
fn an_idle_time_or_a_suspended_host_is_no_step() {
    // The hosts' clocks go on in an idle time, and only its own stops on a suspended host.
    for steady in [[false, false], [true, false], [false, true]] {
        assert_eq!(jumped(3_000, steady).steps, [], "{steady:?}");
    }
    assert_eq!(jumped(0, [true; 2]).steps, []);
}

/// Before the length of a tick is known, no tick is longer than a second, and none makes a clock go back.
#[test]
fn on_a_young_connection_a_step_is_longer_than_any_tick_or_goes_back() {
    for (by_ms, is_found) in [(3_600_000, true), (-600, true), (700, false), (-50, false)] {
        assert_eq!(jumped_at(5, by_ms, [true; 2]).steps.len(), usize::from(is_found), "{by_ms}");
    }
    for steady in [[false, false], [true, false], [false, true]] {
        assert_eq!(jumped_at(5, 3_000, steady).steps, [], "{steady:?}");
    }
}
