//! A conversation for the tests of decoders.

pub(crate) mod each_packet;
mod seed;

use record::{Exchange, Key, Side, Stall};

use super::{Frames, ProtocolEntry, Shown};
use crate::http::Mark;
use crate::in_flight::Pace;
use crate::observer::Counted;
use crate::observer::seen::Seen;
use crate::packet::At;
use crate::stream::Absent;

/// A connection that is decoded; each segment passes a microsecond after the one before.
pub(crate) struct Play {
    frames: Frames,
    seen: Seen,
    ns: u64,
    /// The sequence number behind each side's bytes.
    next: [u32; 2],
    /// The same before its last bytes.
    before: [u32; 2],
    /// Bytes of each side that are missing, and that nothing has shown so far.
    unnoticed: [u64; 2],
    /// Largest segment.
    pub(crate) segment: usize,
    seed: Option<seed::Seed>,
}

/// What a conversation has shown.
pub(crate) struct Told {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) unanswered: Vec<Exchange>,
    pub(crate) counted: Counted,
    names: Vec<(Key, String)>,
}

impl Play {
    pub(crate) fn new(entry: &'static ProtocolEntry) -> Self {
        Self::of(entry, Shown::default(), false)
    }

    pub(crate) fn of(entry: &'static ProtocolEntry, shown: Shown, in_the_middle: bool) -> Self {
        let mut frames = Frames::new(1, entry, shown, Pace::default(), in_the_middle);
        frames.responses_begin_at(5000);
        Self {
            frames,
            seen: Seen::default(),
            ns: 0,
            next: [1000, 5000],
            before: [1000, 5000],
            unnoticed: [0; 2],
            segment: usize::MAX,
            seed: seed::Seed::new(entry),
        }
    }

    /// When the last packet passed.
    pub(crate) fn now_ns(&self) -> u64 {
        self.ns
    }

    /// The client ends the handshake.
    pub(crate) fn connect(&mut self) -> &mut Self {
        self.ns += 1000;
        let at = At { ns: self.ns, frame: self.ns / 1000 };
        self.frames.connected(at, Mark { seq: self.next[0], ack: self.next[1] });
        self
    }

    /// Sends bytes, in segments.
    pub(crate) fn say(&mut self, side: Side, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.say_with(side, bytes.as_ref(), self.next[side.peer() as usize])
    }

    /// Sends bytes before the other side's last ones have come.
    pub(crate) fn say_behind(&mut self, side: Side, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.say_with(side, bytes.as_ref(), self.before[side.peer() as usize])
    }

    fn say_with(&mut self, side: Side, bytes: &[u8], ack: u32) -> &mut Self {
        let missing = std::mem::take(&mut self.unnoticed[side as usize]);
        if missing > 0 {
            self.frames.missing(side, Absent::Lost, missing, At { ns: self.ns, frame: 0 }, &mut self.seen);
        }
        self.before[side as usize] = self.next[side as usize];
        for bytes in bytes.chunks(self.segment) {
            self.ns += 1000;
            let at = At { ns: self.ns, frame: self.ns / 1000 };
            let mark = Mark { seq: self.next[side as usize], ack };
            self.seed.iter_mut().for_each(|seed| seed.segment(side, bytes));
            self.frames.packet(side, mark);
            self.next[side as usize] += bytes.len() as u32;
            self.frames.bytes(side, bytes, at, &mut self.seen);
        }
        self
    }

    /// Sends bytes that the capture does not have.
    pub(crate) fn lose(&mut self, side: Side, count: u64) -> &mut Self {
        self.miss(side, Absent::Lost, count)
    }

    /// Sends the rest of a packet, which a snap length cuts off.
    pub(crate) fn cut(&mut self, side: Side, count: u64) -> &mut Self {
        self.miss(side, Absent::Uncaptured, count)
    }

    fn miss(&mut self, side: Side, absent: Absent, count: u64) -> &mut Self {
        self.ns += 1000;
        self.before[side as usize] = self.next[side as usize];
        self.next[side as usize] += count as u32;
        self.seed.iter_mut().for_each(|seed| seed.lose(side, count));
        self.frames.missing(side, absent, count, At { ns: self.ns, frame: 0 }, &mut self.seen);
        self
    }

    /// The same, which only the side's next bytes show.
    pub(crate) fn lose_unnoticed(&mut self, side: Side, count: u64) -> &mut Self {
        self.before[side as usize] = self.next[side as usize];
        self.next[side as usize] += count as u32;
        self.unnoticed[side as usize] += count;
        self.seed.iter_mut().for_each(|seed| seed.lose(side, count));
        self
    }

    /// Whether the stream has shown that it is of another protocol.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.frames.is_contradicted()
    }

    /// TCP has held what the side sends next, because data before was not acknowledged, nanoseconds.
    pub(crate) fn hold(&mut self, side: Side, wait_ns: u64) -> &mut Self {
        self.ns += wait_ns;
        let stall = Stall {
            connection: 1,
            kind: record::StallKind::NagleBetweenMessages,
            sender: side,
            wait_ns,
            time_ns: self.ns,
            frames: [0; 3],
            segment_bytes: 4,
            seq: self.next[side as usize],
        };
        self.frames.stalled(&stall);
        self.frames.pace_mut().released(&stall);
        self
    }

    /// A request and its answer, which is captured before it.
    pub(crate) fn swap(&mut self, asked: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) -> &mut Self {
        let (asked, answer) = (asked.as_ref(), answer.as_ref());
        self.say_with(Side::Server, answer, self.next[Side::Client as usize] + asked.len() as u32);
        self.say_with(Side::Client, asked, self.before[Side::Server as usize])
    }

    /// Checks that a hole never shifts the answers of a connection whose requests are answered in order: bursts of requests in packets
    /// of their own, of which one loses answers or a request, and then one request at a time, each a second behind the one before.
    /// Nor do a request and its answer that are captured in the wrong order.
    pub(crate) fn assert_no_shift(begun: impl Fn() -> Self, asked: &[u8], answer: &[u8]) {
        const BURST: usize = 4;
        const SINGLE: usize = 60;
        for (lost, side) in [(1, Side::Server), (3, Side::Server), (1, Side::Client), (2, Side::Client)] {
            let mut play = begun();
            let before = play.seen.exchanges.len();
            for round in 0..4 {
                let lost = |of| if round == 3 && of == side { lost } else { 0 };
                for number in 0..BURST {
                    match number < lost(Side::Client) {
                        true => play.lose(Side::Client, asked.len() as u64),
                        false => play.say(Side::Client, asked),
                    };
                }
                if lost(Side::Server) > 0 {
                    play.lose(Side::Server, (lost(Side::Server) * answer.len()) as u64);
                }
                for _ in lost(Side::Server)..BURST {
                    play.say(Side::Server, answer);
                }
            }
            for _ in 0..SINGLE {
                play.pause(1_000_000_000).say(Side::Client, asked).say(Side::Server, answer);
            }
            let told = play.end();
            let count = told.exchanges.len() - before;
            assert!(told.longest_ns(0) < 1_000_000, "{side:?} {lost}: {} ns", told.longest_ns(0));
            assert!((3 * BURST + SINGLE - 30..=4 * BURST + SINGLE - lost).contains(&count), "{count}");
        }
        let mut play = begun();
        let before = play.seen.exchanges.len();
        for number in 0..SINGLE {
            play.pause(1_000_000_000);
            match number {
                10 | 30 => play.swap(asked, answer),
                _ => play.say(Side::Client, asked).say(Side::Server, answer),
            };
        }
        let told = play.end();
        assert!(told.longest_ns(0) < 1_000_000, "swapped: {} ns", told.longest_ns(0));
        assert_eq!((told.exchanges.len() - before, told.unanswered.len()), (SINGLE - 2, 0));
    }

    /// Checks that a lost answer costs its own request where answers have numbers, of many that are in flight, in whatever order the
    /// others are answered. Numbers begin at 100.
    pub(crate) fn assert_a_lost_answer_costs_one(
        begun: impl Fn() -> Self,
        ask: impl Fn(u16) -> Vec<u8>,
        answer: impl Fn(u16) -> Vec<u8>,
    ) {
        const IN_FLIGHT: u16 = 60;
        for (order, lost) in
            [1, 7, IN_FLIGHT - 1].into_iter().flat_map(|order| [1, 21, 40, 59].map(|lost| (order, lost)))
        {
            let mut play = begun();
            let before = play.seen.exchanges.len();
            play.say(Side::Client, (1..=IN_FLIGHT).flat_map(|id| ask(100 + id)).collect::<Vec<u8>>());
            for id in (1..=IN_FLIGHT).map(|place| place * order % (IN_FLIGHT + 1)) {
                let answer = answer(100 + id);
                match id == lost {
                    true => play.lose(Side::Server, answer.len() as u64),
                    false => play.say(Side::Server, answer),
                };
            }
            // The connection goes on, with one request at a time.
            for id in 200..203 {
                play.say(Side::Client, ask(id)).say(Side::Server, answer(id));
            }
            let told = play.end();
            let counts = (told.exchanges.len() - before, told.counted.unmatched, told.counted.abandoned);
            assert_eq!(counts, (usize::from(IN_FLIGHT) + 2, 0, 1), "order {order}, lost {lost}");
            assert_eq!(told.exchanges.last().unwrap().op.queue_depth, 1, "order {order}, lost {lost}");
        }
        // An answer and the next request, which has the same number, are in holes that the next answer shows.
        for is_noticed in [true, false] {
            let mut play = begun();
            let before = play.seen.exchanges.len();
            play.say(Side::Client, ask(100));
            let lost = [(Side::Server, answer(100).len()), (Side::Client, ask(100).len())];
            for (side, count) in lost {
                match is_noticed {
                    true => play.lose(side, count as u64),
                    false => play.lose_unnoticed(side, count as u64),
                };
            }
            play.pause(1_000_000_000).say(Side::Server, answer(100));
            play.say(Side::Client, ask(100)).say(Side::Server, answer(100));
            let told = play.end();
            assert_eq!(told.exchanges.len() - before, 1, "noticed {is_noticed}");
            assert!(told.longest_ns(before) < 1_000_000, "noticed {is_noticed}");
        }
    }

    /// The same of a client that sends some requests in one packet, and waits for all of their answers, each in a packet. Holes take
    /// some answers of a batch, or the rest of them and the next batch.
    pub(crate) fn assert_no_shift_in_batches(begun: impl Fn() -> Self, asked: &[u8], answer: &[u8]) {
        for is_noticed in [true, false] {
            Self::assert_own_answers_in_batches(&begun, asked, answer, is_noticed);
            Self::assert_own_answers_behind_lost_requests(&begun, asked, answer, is_noticed);
        }
    }

    /// A client that keeps some requests in flight: it asks again with each answer, which it has received when it asks or has not yet, and
    /// stops at the end; or it is idle behind each burst. Holes take some answers, or requests, in the middle.
    pub(crate) fn assert_no_shift_in_flight(
        begun: impl Fn() -> Self,
        asked: &[u8],
        answer: &[u8],
        by_request: bool,
    ) {
        const ROUNDS: usize = 400;
        const BURSTS: usize = 40;
        use Side::{Client, Server};
        let steady = [Client, Server].into_iter().cycle().skip(1).take(2 * (ROUNDS - 4));
        let steady: Vec<Side> = [Client; 4].into_iter().chain(steady).chain([Server; 4]).collect();
        let burst = [[Client; 4].as_slice(), &[Server; 2], &[Client; 2], &[Server; 4]].concat();
        let bursts = burst.repeat(BURSTS);
        // What is counted by its requests is told from the next moment on without any in flight, or from the second (the rest of a burst
        // that began before the hole showed itself). The others are told again behind three times as many answers, and 16.
        let recovered = if by_request { (BURSTS - 2) * 6 } else { (BURSTS - 8) * 6 - 3 * 6 - 16 };
        for (sides, pause, least) in [(&steady, None, 12), (&bursts, Some(burst.len()), recovered)] {
            let holes = [Client, Server].into_iter().flat_map(|side| [1, 2, 3].map(|lost| (side, lost)));
            let ways = [(true, false), (true, true), (false, false), (false, true)];
            let holes = holes.flat_map(|hole| ways.map(|way| (hole, way)));
            // The first burst shows little of the client: one lost request in it, but not lost answers, or most of it.
            let places = [28, 1, 2, 5].map(|first| (first, if first < 28 { 0 } else { least }));
            let cases = holes.flat_map(|hole| places.map(|place| (hole, place)));
            let cases =
                cases.filter(|(((side, lost), _), (first, _))| (*side, *lost) == (Client, 1) || *first == 28);
            for (((side, lost), (is_noticed, is_behind)), (first, least)) in cases {
                let mut play = begun();
                let before = play.seen.exchanges.len();
                let (mut said, mut in_flight) = ([0; 2], std::collections::VecDeque::new());
                let mut pairs = Vec::new();
                for (place, &of) in sides.iter().enumerate() {
                    let is_first = pause.is_some_and(|length| place % length == 0);
                    play.pause(if is_first { 1_000_000_000 } else { 50_000 });
                    let (bytes, number) = (if of == Client { asked } else { answer }, said[of as usize]);
                    said[of as usize] += 1;
                    match (of == side && (first..first + lost).contains(&number), is_noticed) {
                        (false, _) if is_behind && of == Client && !is_first => {
                            _ = play.say_behind(of, bytes);
                        }
                        (false, _) => _ = play.say(of, bytes),
                        (true, true) => _ = play.lose(of, bytes.len() as u64),
                        (true, false) => _ = play.lose_unnoticed(of, bytes.len() as u64),
                    }
                    match of {
                        Client => in_flight.push_back(play.ns),
                        Server => pairs.push((in_flight.pop_front().unwrap(), play.ns)),
                    }
                }
                let told = play.end();
                let context = format!("{pause:?} {side:?} {lost} from {first} {is_noticed} {is_behind}");
                for exchange in &told.exchanges[before..] {
                    let pair = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
                    assert!(pairs.contains(&pair), "{context}: {pair:?}");
                }
                let count = told.exchanges.len() - before;
                assert!((least..=pairs.len() - lost).contains(&count), "{context}: {count}");
            }
        }
    }

    /// Bursts of requests in packets of their own, of which a hole takes the first ones, or some in the middle.
    fn assert_own_answers_behind_lost_requests(
        begun: &impl Fn() -> Self,
        asked: &[u8],
        answer: &[u8],
        is_noticed: bool,
    ) {
        const ROUNDS: usize = 12;
        const SIZE: usize = 4;
        // Each request in a packet of its own, or those behind the hole in one.
        let holes = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1)];
        for ((first, lost), are_together) in holes.into_iter().flat_map(|hole| [(hole, false), (hole, true)])
        {
            let mut play = begun();
            // When each request was asked and answered.
            let (before, mut pairs) = (play.seen.exchanges.len(), Vec::new());
            for round in 0..ROUNDS {
                play.pause(1_000_000_000);
                let (first, lost) = if round == 5 { (first, lost) } else { (0, 0) };
                let mut asked_at = [0; SIZE];
                let mut say = |play: &mut Self, numbers: std::ops::Range<usize>| {
                    let together = if are_together { numbers.len().max(1) } else { 1 };
                    for number in numbers.clone().step_by(together) {
                        play.say(Side::Client, asked.repeat(together));
                        asked_at[number..number + together].fill(play.ns);
                    }
                };
                say(&mut play, 0..first);
                let lost_bytes = (asked.len() * lost) as u64;
                match (lost, is_noticed) {
                    (0, _) => {}
                    (_, true) => _ = play.lose(Side::Client, lost_bytes),
                    (_, false) => _ = play.lose_unnoticed(Side::Client, lost_bytes),
                }
                say(&mut play, first + lost..SIZE);
                for asked_at in asked_at {
                    play.say(Side::Server, answer);
                    pairs.push((asked_at, play.ns));
                }
            }
            let told = play.end();
            let exchanges = &told.exchanges[before..];
            for exchange in exchanges {
                let [asked, answered] = [exchange.request.began, exchange.response.ended];
                let pair = (asked.ns().unwrap(), answered.ns().unwrap());
                let context = format!("{first} {lost} {are_together} {is_noticed}: {pair:?}");
                assert!(pairs.contains(&pair), "{context}");
                assert_eq!(exchange.request.ended, asked, "{context}: one packet");
            }
            // A client that sends on without waiting takes some rounds to show that none is in flight.
            assert!(exchanges.len() + 4 * SIZE >= pairs.len(), "{first} {lost}: {}", exchanges.len());
        }
    }

    fn assert_own_answers_in_batches(
        begun: &impl Fn() -> Self,
        asked: &[u8],
        answer: &[u8],
        is_noticed: bool,
    ) {
        const ROUNDS: usize = 12;
        // The size of the batches, the answers that are lost in one, and whether the next one's requests are.
        let holes: [(usize, &[usize], bool); 12] = [
            (4, &[0], false),
            (4, &[1], false),
            (4, &[1, 2], false),
            (4, &[3], false),
            (4, &[0, 1, 2, 3], true),
            (4, &[2, 3], true),
            (1, &[0], false),
            (1, &[0], true),
            (4, &[0, 2], false),
            (4, &[0, 3], false),
            (4, &[1, 3], false),
            (4, &[1, 3], true),
        ];
        for (size, lost, is_next_lost) in holes {
            let mut play = begun();
            let lose = |play: &mut Self, side: Side, count: usize| {
                if is_noticed {
                    play.lose(side, count as u64);
                } else {
                    play.lose_unnoticed(side, count as u64);
                }
            };
            // The times of each request and its answer, as the numbers of requests tell them.
            let (before, mut answers) = (play.seen.exchanges.len(), Vec::new());
            for round in 0..ROUNDS {
                play.pause(1_000_000_000);
                if round == 6 && is_next_lost {
                    lose(&mut play, Side::Client, asked.len() * size);
                } else {
                    play.say(Side::Client, asked.repeat(size));
                }
                for number in 0..size {
                    let is_lost = round == 5 && lost.contains(&number);
                    if is_lost {
                        lose(&mut play, Side::Server, answer.len());
                    } else {
                        play.say(Side::Server, answer);
                    }
                    if round != 6 || !is_next_lost {
                        answers.push((!is_lost).then_some(play.ns));
                    }
                }
            }
            let told = play.end();
            let exchanges = &told.exchanges[before..];
            let begin = exchanges[0].op.tag;
            for exchange in exchanges {
                let own = answers[(exchange.op.tag - begin) as usize];
                let context = format!("{size} {lost:?} {is_next_lost} {is_noticed}: {}", exchange.op.tag);
                assert_eq!(exchange.response.ended.ns(), own, "{context}");
            }
            assert!(exchanges.len() + 3 * size >= answers.len(), "{size} {lost:?}: {}", exchanges.len());
        }
    }

    /// Checks that operations of a client that keeps some requests in flight say that their times may be others' where the capture begins
    /// in the middle, until none is in flight.
    pub(crate) fn assert_unsure_in_flight_from_the_middle(
        entry: &'static ProtocolEntry,
        asked: &[u8],
        answer: &[u8],
    ) {
        let mut play = Self::of(entry, Shown::default(), true);
        let mut asked_at = std::collections::VecDeque::from([None; 4]);
        let mut pairs = Vec::new();
        let mut turn = |play: &mut Self, is_asking: bool, is_answering: bool| {
            if is_asking {
                play.pause(50_000).say(Side::Client, asked);
                asked_at.push_back(Some(play.ns));
            }
            if is_answering {
                play.pause(50_000).say(Side::Server, answer);
                let asked_at = asked_at.pop_front().flatten();
                pairs.extend(asked_at.map(|asked_at| (asked_at, play.ns)));
            }
        };
        (0..2).for_each(|_| turn(&mut play, true, false));
        (0..300).for_each(|_| turn(&mut play, true, true));
        (0..6).for_each(|_| turn(&mut play, false, true));
        (0..80).for_each(|_| turn(&mut play, true, true));
        let told = play.end();
        let is_sure = |exchange: &&Exchange| !exchange.overlaps;
        for exchange in told.exchanges.iter().filter(is_sure) {
            let pair = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
            assert!(pairs.contains(&pair), "{pair:?}");
        }
        let sure = told.exchanges.iter().filter(is_sure).count();
        assert!((70..=80).contains(&sure) && told.exchanges.len() > 200, "{sure}");
    }

    /// Checks that operations have their own answers where a capture begins within a burst of requests, of which it has not the first
    /// ones, or some of the answers neither, and that most of [`Self::IN_BURSTS`] operations are told.
    pub(crate) fn assert_own_answers_from_the_middle(
        entry: &'static ProtocolEntry,
        asked: &[u8],
        answer: &[u8],
    ) {
        let mut least = Self::IN_BURSTS;
        let mut wrong = Vec::new();
        for (unseen, unseen_answers) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 3)] {
            let (told, others) =
                Self::own_answers_from_the_middle(entry, asked, answer, [unseen, unseen_answers]);
            if others > 0 {
                wrong.push((unseen, unseen_answers, others));
            }
            least = least.min(told);
        }
        assert!(wrong.is_empty() && least > Self::IN_BURSTS / 2, "{}: {wrong:?}, {least} told", entry.name);
    }

    /// Operations told, and those of them that have another's answer.
    fn own_answers_from_the_middle(
        entry: &'static ProtocolEntry,
        asked: &[u8],
        answer: &[u8],
        [unseen, unseen_answers]: [usize; 2],
    ) -> (usize, usize) {
        let mut wrong = 0;
        let mut play = Self::of(entry, Shown::default(), true);
        let mut pairs = std::collections::HashSet::new();
        for burst in 0..Self::IN_BURSTS / 4 {
            let mut asked_at = [0; 4];
            for (number, at) in asked_at.iter_mut().enumerate() {
                if burst > 0 || number >= unseen {
                    play.say(Side::Client, asked);
                    *at = play.ns;
                }
            }
            for (number, at) in asked_at.into_iter().enumerate() {
                play.pause(10_000_000);
                if burst > 0 || number >= unseen_answers {
                    play.say(Side::Server, answer);
                    pairs.insert((at, play.ns));
                }
            }
            play.pause(1_000_000_000);
        }
        let told = play.end();
        for exchange in &told.exchanges {
            let ns = |passage: &record::Passage| passage.ended.ns().unwrap_or(0);
            let pair = (ns(&exchange.request), ns(&exchange.response));
            wrong += usize::from(!pairs.contains(&pair));
        }
        (told.exchanges.len(), wrong)
    }

    /// Operations asked, in bursts of four.
    const IN_BURSTS: usize = 160;

    /// Lets time pass, nanoseconds.
    pub(crate) fn pause(&mut self, ns: u64) -> &mut Self {
        self.ns += ns;
        self.seed.iter_mut().for_each(|seed| seed.pause(ns));
        self
    }

    pub(crate) fn end(self) -> Told {
        self.end_with_stalls().0
    }

    /// What it has shown, and the waits of the protocol's own.
    pub(crate) fn end_with_stalls(mut self) -> (Told, Vec<Stall>) {
        self.seed.take().iter().for_each(seed::Seed::write);
        for side in [Side::Client, Side::Server] {
            let mark = Mark { seq: self.next[side as usize], ack: self.next[side.peer() as usize] };
            self.frames.packet(side, mark);
            self.frames.closed(side, &mut self.seen);
        }
        let counted = self.frames.finish(&mut self.seen);
        let ended = self.frames.pace().ended;
        assert_eq!(ended, self.seen.exchanges.len() as u64, "every exchange is told once");
        assert_eq!(
            counted.unanswered,
            self.seen.unanswered.len() as u64,
            "and every request without an answer"
        );
        let Seen { exchanges, unanswered, names, stalls, .. } = self.seen;
        (Told { exchanges, unanswered, counted, names }, stalls)
    }
}

impl Told {
    /// Operation, key and status of each exchange.
    pub(crate) fn lines(&self) -> Vec<String> {
        let name = |key: Key| self.names.iter().find(|(known, _)| *known == key).map_or("", |(_, name)| name);
        let line = |e: &Exchange| {
            format!("{} {} {}", e.op.verb.name(), name(e.key), e.status.text()).trim_end().to_owned()
        };
        self.exchanges.iter().map(line).collect()
    }

    /// The longest time from the end of a request to that of its answer, of the exchanges from this one on.
    pub(crate) fn longest_ns(&self, from: usize) -> i64 {
        let ns = |e: &Exchange| e.response.ended.since(e.request.ended).unwrap_or(i64::MAX);
        self.exchanges.iter().skip(from).map(ns).max().unwrap_or(i64::MAX)
    }
}
