//! Conversations of batches whose packets cut their requests, of which each packet, or each of two, is missing in turn.

use std::collections::{BTreeSet, VecDeque};

use record::{Exchange, Side};

use super::Play;

/// Batches of a conversation.
const BATCHES: usize = 12;
/// Ways in which the server's answers come between a batch's packets.
const WAYS: u64 = 24;
/// Clients with a window.
const WINDOWS: u64 = 8;

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
        let is_early = !way.is_multiple_of(3) && dice.throw(3) > 0 && batch >= way as usize % 5;
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

/// A client with a window of four requests, each in a packet of its own, as its answers are. For a while it is now and then without one in
/// flight, and then never, until it ends.
fn window(requests: &[(&[u8], &[u8])], way: u64) -> (Vec<Packet>, Pairs) {
    const WINDOW: usize = 4;
    const ASKED: usize = 300;
    let (mut packets, mut pairs, mut in_flight) = (Vec::new(), Pairs::new(), VecDeque::new());
    let mut dice = Dice(way);
    let until = 30 + dice.throw(120) as usize;
    let mut asked = 0;
    while asked < ASKED || !in_flight.is_empty() {
        let least = if asked < until || asked == ASKED { 0 } else { 1 };
        let may_answer = in_flight.len() > least;
        let asks = asked < ASKED && in_flight.len() < WINDOW && (!may_answer || dice.throw(2) == 0);
        let (side, is_first) = (if asks { Side::Client } else { Side::Server }, packets.is_empty());
        let n = if asks { asked } else { pairs.len() } % requests.len();
        let bytes = if asks { requests[n].0 } else { requests[n].1 }.to_vec();
        if asks {
            in_flight.push_back(packets.len());
            asked += 1;
        } else {
            pairs.push((in_flight.pop_front().unwrap(), packets.len()));
        }
        packets.push(Packet { side, bytes, is_behind: false, batch: asked / 50, is_first });
    }
    (packets, pairs)
}

/// What can be played a conversation.
pub(crate) trait Stage {
    /// Time passes, nanoseconds.
    fn wait(&mut self, ns: u64);
    /// A packet, which may have been sent before the other side's last one had come.
    fn packet(&mut self, side: Side, bytes: &[u8], is_behind: bool);
    /// A packet that was not captured, as shows at once or with the side's next one.
    fn lost(&mut self, side: Side, bytes: &[u8], is_noticed: bool);
    /// When the last packet passed.
    fn now_ns(&self) -> u64;
    /// The exchanges that it has told.
    fn told(self) -> Vec<Exchange>;
}

/// The operations of a conversation without some of its packets, by the packets in which they begin and end.
fn told(
    mut stage: impl Stage,
    packets: &[Packet],
    lost: &[usize],
    is_noticed: bool,
) -> Vec<Option<(usize, usize)>> {
    let mut at_ns = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        stage.wait(if packet.is_first { 1_000_000_000 } else { 50_000 });
        match lost.contains(&number) {
            true => stage.lost(packet.side, &packet.bytes, is_noticed),
            false => stage.packet(packet.side, &packet.bytes, packet.is_behind),
        }
        at_ns.push(stage.now_ns());
    }
    let place = |ns: Option<u64>| at_ns.iter().position(|&at| Some(at) == ns);
    let of = |e: &Exchange| Some((place(e.request.began.ns())?, place(e.response.ended.ns())?));
    // Without those that begin the connection.
    let is_own = |e: &&Exchange| e.request.began.ns() > Some(1_000_000_000);
    stage.told().iter().filter(is_own).map(of).collect()
}

/// What packets cost that are missing.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// The first batch in which some are.
    pub(crate) from: usize,
    /// How many are, at most: 1 or 2.
    pub(crate) most: usize,
    /// Runs in which an operation has the answer of another, as is known.
    pub(crate) wrong: usize,
    /// Nothing but the batch that a single one of them is of, behind the first batch: that shows little of how the client asks.
    pub(crate) is_one_batch: bool,
}

/// Checks that no operation of a connection whose requests are answered in order has another's answer where packets are missing, and what
/// they cost: batches of requests with their answers.
pub(crate) fn assert_each_packet_lost<S: Stage>(
    begun: impl Fn() -> S,
    requests: &[(&[u8], &[u8])],
    cost: Cost,
) {
    assert_own_answers(begun, 0..WAYS, &|way| conversation(requests, way), cost);
}

/// The same of a client with a window, behind its first requests: they may cost all others.
pub(crate) fn assert_each_packet_of_a_window_lost<S: Stage>(
    begun: impl Fn() -> S,
    requests: &[(&[u8], &[u8])],
) {
    let cost = Cost { from: 1, most: 1, wrong: 0, is_one_batch: false };
    assert_own_answers(begun, 0..WINDOWS, &|way| window(requests, way), cost);
}

fn assert_own_answers<S: Stage>(
    begun: impl Fn() -> S,
    ways: std::ops::Range<u64>,
    conversation: &dyn Fn(u64) -> (Vec<Packet>, Pairs),
    cost: Cost,
) {
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for way in ways {
        let (packets, pairs) = conversation(way);
        let whole: BTreeSet<_> = pairs.iter().copied().map(Some).collect();
        let found: BTreeSet<_> = told(begun(), &packets, &[], true).into_iter().collect();
        assert_eq!(whole, found, "way {way}");
        let mut dice = Dice(way);
        let mut two =
            |first: usize| vec![first, (first + 1 + dice.throw(20) as usize).min(packets.len() - 1)];
        let first = packets.iter().position(|packet| packet.batch == cost.from).unwrap_or(0);
        let lost: Vec<_> = (first..packets.len()).flat_map(|number| [vec![number], two(number)]).collect();
        let lost: Vec<_> = lost.into_iter().filter(|lost| lost.len() <= cost.most).collect();
        for (lost, is_noticed) in
            lost.iter().flat_map(|lost| [true, false].map(|is_noticed| (lost, is_noticed)))
        {
            runs += 1;
            let touched: Vec<usize> = lost.iter().map(|&number| packets[number].batch).collect();
            let found = told(begun(), &packets, lost, is_noticed);
            // What ends or begins in a missing packet has the time at which that showed.
            let is_cut = |pair: &(usize, usize)| lost.contains(&pair.0) || lost.contains(&pair.1);
            let is_own = |pair: &&Option<(usize, usize)>| {
                pair.is_some_and(|pair| is_cut(&pair) || pairs.contains(&pair))
            };
            let invented: Vec<_> = found.iter().filter(|pair| !is_own(pair)).collect();
            let others = pairs.iter().filter(|pair| !touched.contains(&packets[pair.0].batch));
            let missed = others.filter(|pair| !found.contains(&Some(**pair))).count();
            let may_miss = !cost.is_one_batch || lost.len() > 1 || touched.contains(&0);
            if !invented.is_empty() || missed > 0 && !may_miss {
                let sides: Vec<_> = lost.iter().map(|&number| packets[number].side).collect();
                wrong.push(format!(
                    "way {way}, {lost:?} of batches {touched:?} and {sides:?}, {is_noticed}: {missed} missed, invented {invented:?}"
                ));
            }
        }
    }
    assert_eq!(wrong.len(), cost.wrong, "of {runs}:\n{}", wrong.join("\n"));
}

impl Stage for Play {
    fn wait(&mut self, ns: u64) {
        self.pause(ns);
    }

    fn packet(&mut self, side: Side, bytes: &[u8], is_behind: bool) {
        if is_behind {
            self.say_behind(side, bytes)
        } else {
            self.say(side, bytes)
        };
    }

    fn lost(&mut self, side: Side, bytes: &[u8], is_noticed: bool) {
        let count = bytes.len() as u64;
        if is_noticed {
            self.lose(side, count)
        } else {
            self.lose_unnoticed(side, count)
        };
    }

    fn now_ns(&self) -> u64 {
        self.ns
    }

    fn told(self) -> Vec<Exchange> {
        self.end().exchanges
    }
}
