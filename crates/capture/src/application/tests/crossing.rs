//! What the server says before it has the request that waits for its answer.

use super::*;

const TIMEOUT: &str = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A connection that has answered some requests; then the server's notice and the next request cross on the way.
fn crossed(port: u16, [asked, answer, notice]: [&str; 3]) -> (Vec<Exchange>, Counted, u64) {
    let mut play = Play::new(port, From::Syn);
    for _ in 0..3 {
        play.say(Client, asked).say(Server, answer);
    }
    play.acknowledged(Client).say(Client, asked).say_behind(Server, notice);
    let (_, exchanges, counted) = play.end();
    let failed = exchanges.iter().filter(|e| e.op.outcome == Outcome::Failed).count() as u64;
    (exchanges, counted, failed)
}

/// nginx, HAProxy and others end a connection without requests so: the request that comes then is not answered, and has not failed
/// in a microsecond.
#[test]
fn a_notice_of_a_server_that_closes_is_no_answer_to_a_request_it_has_not_received() {
    let redis = ["get k:1\r\n", "VALUE k:1 0 1\r\na\r\nEND\r\n", "SERVER_ERROR idle\r\n"];
    for (port, texts) in [(80, [GET, OK, TIMEOUT]), (11211, redis)] {
        let (exchanges, counted, failed) = crossed(port, texts);
        let found = (exchanges.len(), failed, counted.unanswered, counted.unmatched);
        assert_eq!(found, (3, 0, 1, 1), "{port}");
    }
    // One that the server had is answered so.
    let mut play = Play::new(80, From::Syn);
    play.say(Client, GET).say(Server, OK).say(Client, GET).say(Server, TIMEOUT);
    let (_, exchanges, counted) = play.end();
    assert_eq!((exchanges.len(), exchanges[1].op.outcome, counted.unmatched), (2, Outcome::Failed, 0));
}

/// The answer to a HEAD has no body, and the notice that crosses it has one.
#[test]
fn a_notice_that_crosses_a_head_keeps_its_body() {
    let notice = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nlate.";
    let mut play = Play::new(80, From::Syn);
    play.say(Client, GET).say(Server, OK).acknowledged(Client);
    play.say(Client, "HEAD / HTTP/1.1\r\n\r\n").say_behind(Server, notice).say(Server, OK);
    let (_, exchanges, counted) = play.end();
    assert_eq!((exchanges.len(), counted.unmatched, counted.boundaries_lost), (2, 1, 0));
}

/// A client that sends two requests at a time. What the server says before the hole of the second pair tells nothing of that.
#[test]
fn an_answer_from_before_a_hole_does_not_settle_the_requests_in_it() {
    let mut play = Play::new(80, From::Syn);
    for _ in 0..10 {
        play.say(Client, GET.repeat(2)).say(Server, OK.repeat(2));
    }
    // One pair and the first of the next one are missing, of which the answers to the pair show nothing.
    let missing = GET.len() * 3;
    play.next[Client as usize] += 2 * GET.len() as u32;
    play.say(Server, OK.repeat(2));
    play.next[Client as usize] += GET.len() as u32;
    let at = At { ns: play.ns, frame: 0 };
    play.application.packet(Client, play.next[Client as usize], play.next[Server as usize]);
    play.application.missing(Client, Absent::Lost, missing as u64, at, &mut play.seen);
    play.say(Client, GET);
    let asked = play.ns;
    play.say(Server, OK);
    let first = play.ns;
    play.say(Server, OK);
    let own = play.ns;
    let (_, exchanges, _) = play.end();
    let shown: Vec<u64> = exchanges
        .iter()
        .filter(|e| e.request.began.ns() == Some(asked))
        .filter_map(|e| e.response.ended.ns())
        .collect();
    assert!(!shown.contains(&first), "{shown:?}, its own is at {own}");
    assert!(exchanges.len() >= 20, "{}", exchanges.len());
}
