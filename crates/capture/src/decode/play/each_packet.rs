//! Conversations of batches whose packets cut their requests, of which each packet, or each of two, is missing in turn.

use std::collections::BTreeSet;

use record::{Exchange, Side};

use super::Play;

/// Batches of a conversation, and the first in which packets are missing: it takes some to know how a client asks.
const BATCHES: usize = 12;
const FIRST: usize = 3;
/// Ways in which the server's answers come between a batch's packets.
const WAYS: u64 = 24;

/// A packet.
struct Packet {
    side: Side,
    bytes: Vec<u8>,
    /// It was sent before the other side's last one had come.
    is_behind: bool,
    batch: usize,
    is_first: bool,
}

/// In which packets each request begins and its answer ends, by their numbers.
type Pairs = Vec<(usize, usize)>;

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A client that sends each batch in packets of some bytes. Its server answers at once behind some packets, in some of the batches, and
/// otherwise when the batch is complete.
fn conversation(requests: &[(&[u8], &[u8])], way: u64) -> (Vec<Packet>, Pairs) {
    let (mut packets, mut pairs) = (Vec::new(), Pairs::new());
    let mut dice = Dice(way);
    let piece = 20 + dice.throw(50) as usize;
    let all = requests.iter().flat_map(|(asked, _)| asked.iter().copied()).collect::<Vec<u8>>();
    let ends = requests.iter().scan(0, |end, (asked, _)| {
        *end += asked.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    for batch in 0..BATCHES {
        let is_early = way % 3 != 0 && dice.throw(3) > 0 && batch >= way as usize % 5;
        let (begin, mut answered) = (packets.len(), 0);
        let mut began = Vec::new();
        for (number, bytes) in all.chunks(piece).enumerate() {
            let from = number * piece;
            let sent = from + bytes.len();
            let begins = |n: usize| if n == 0 { 0 } else { ends[n - 1] };
            let number = packets.len();
            began.extend((0..ends.len()).filter(|&n| (from..sent).contains(&begins(n))).map(|_| number));
            let is_behind =
                number > begin && packets.last().is_some_and(|last: &Packet| last.side == Side::Server);
            let is_behind = is_behind && dice.throw(2) == 0;
            packets.push(Packet {
                side: Side::Client,
                bytes: bytes.to_vec(),
                is_behind,
                batch,
                is_first: number == begin,
            });
            let complete = ends.iter().filter(|&&end| end <= sent).count();
            let is_answered = sent == all.len() || is_early && dice.throw(2) == 0;
            if !is_answered || complete == answered {
                continue;
            }
            let answers = |range: std::ops::Range<usize>| -> Vec<u8> {
                range.flat_map(|n| requests[n].1.iter().copied()).collect()
            };
            // In one packet, or in two.
            let middle = answered + (complete - answered) / (1 + dice.throw(2) as usize);
            for range in [answered..middle, middle..complete] {
                let number = packets.len();
                if !range.is_empty() {
                    pairs.extend(range.clone().map(|n| (began[n], number)));
                    let bytes = answers(range);
                    packets.push(Packet {
                        side: Side::Server,
                        bytes,
                        is_behind: false,
                        batch,
                        is_first: false,
                    });
                }
            }
            answered = complete;
        }
    }
    (packets, pairs)
}

/// The operations of a conversation without some of its packets, by the packets in which they begin and end.
fn told(mut play: Play, packets: &[Packet], lost: &[usize], is_noticed: bool) -> Vec<Option<(usize, usize)>> {
    let mut at_ns = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        play.pause(if packet.is_first { 1_000_000_000 } else { 50_000 });
        let (side, length) = (packet.side, packet.bytes.len() as u64);
        match (lost.contains(&number), is_noticed) {
            (false, _) if packet.is_behind => _ = play.say_behind(side, &packet.bytes),
            (false, _) => _ = play.say(side, &packet.bytes),
            (true, true) => _ = play.lose(side, length),
            (true, false) => _ = play.lose_unnoticed(side, length),
        }
        at_ns.push(play.ns);
    }
    let place = |ns: Option<u64>| at_ns.iter().position(|&at| Some(at) == ns);
    let of = |e: &Exchange| Some((place(e.request.began.ns())?, place(e.response.ended.ns())?));
    play.end().exchanges.iter().map(of).collect()
}

impl Play {
    /// Checks that packets of a connection whose requests are answered in order change nothing, if they are missing, but the batch that
    /// they are of: batches of requests with their answers.
    pub(crate) fn assert_each_packet_lost(begun: impl Fn() -> Self, requests: &[(&[u8], &[u8])]) {
        let mut wrong = Vec::new();
        let mut runs = 0;
        for way in 0..WAYS {
            let (packets, pairs) = conversation(requests, way);
            let whole: BTreeSet<_> = pairs.iter().copied().map(Some).collect();
            let found: BTreeSet<_> = told(begun(), &packets, &[], true).into_iter().collect();
            assert_eq!(whole, found, "way {way}");
            let first = packets.iter().position(|packet| packet.batch == FIRST).unwrap_or(0);
            let mut dice = Dice(way);
            let single = (first..packets.len()).map(|number| vec![number]);
            let double = (first..packets.len())
                .map(|number| vec![number, (number + 1 + dice.throw(20) as usize).min(packets.len() - 1)]);
            for lost in single.chain(double.collect::<Vec<_>>()) {
                for is_noticed in [true, false] {
                    runs += 1;
                    let touched: Vec<usize> = lost.iter().map(|&number| packets[number].batch).collect();
                    let found = told(begun(), &packets, &lost, is_noticed);
                    let is_cut = |pair: &(usize, usize)| lost.contains(&pair.0) || lost.contains(&pair.1);
                    // What ends or begins in a missing packet has the time at which that showed.
                    let invented: Vec<_> = found
                        .iter()
                        .filter(|pair| pair.is_none_or(|pair| !is_cut(&pair) && !pairs.contains(&pair)))
                        .collect();
                    let missed = pairs.iter().filter(|pair| !touched.contains(&packets[pair.0].batch));
                    let missed = missed.filter(|pair| !found.contains(&Some(**pair))).count();
                    // Two holes may cost what is between them.
                    if !invented.is_empty() || missed > 0 && lost.len() == 1 {
                        let sides: Vec<_> = lost.iter().map(|&number| packets[number].side).collect();
                        wrong.push(format!(
                            "way {way}, {lost:?} of batches {touched:?} and {sides:?}, {is_noticed}: {missed} missed, invented {invented:?}"
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {runs}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
