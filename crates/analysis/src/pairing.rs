//! Joins the exchanges that two capture points saw of the same connection.
//!
//! A stream's sequence numbers are the same at both sides of a wire, and responses pass both sides in the same
//! order: two queues are merged by the sequence number behind each response. No clocks are compared. An exchange
//! that only one side saw is delivered alone, and counted.
//!
//! Where no message says how long an answer is, a message that the server sends unasked may cross the client's next request: the server's
//! point saw it before that request, as the end of one answer, and the client's point behind it, as the begin of the next. Both views of
//! the operation begin with the same byte of the request, and have different ends. It is one operation, and the client's view of it is
//! delivered alone, because the difference of the two ends is no time on the wire.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use record::{Exchange, Observed, Op, Opened, Side};

/// A capture point, for the join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Its input: points of one input share a clock.
    pub input: u32,
    /// Its side, if the user stated it.
    pub place: Option<Side>,
    /// The stretch of time of its input in which it saw packets: points of different ones saw different packets.
    pub stretch: u32,
}

/// One point's view of a connection.
#[derive(Debug)]
struct Half {
    vantage: u32,
    opened: Opened,
    waiting: VecDeque<Exchange>,
    /// End of the last response that was delivered without waiting for the other point's view: what it sees up to there has been told.
    told: Option<u32>,
    /// The connection has ended at this point.
    is_over: bool,
}

/// A connection.
#[derive(Debug)]
struct Pair {
    halves: [Option<Half>; 2],
    /// Which half is the client's, once known.
    client: Option<usize>,
    /// Taken to be seen by one point only: too much was waiting for the other.
    is_alone: bool,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Pairing {
    points: Vec<Point>,
    /// By their numbers.
    pairs: HashMap<u32, Pair, foldhash::fast::RandomState>,
    numbered: u32,
    /// Connections that have ended at one point and may still appear at the other.
    lingering: VecDeque<u32>,
    by_ends: HashMap<(SocketAddr, SocketAddr), Vec<u32>>,
    /// Connections that one point has seen so far, and some that another has seen since or that are gone; the oldest first.
    alone: VecDeque<u32>,
    /// For each point: the pair and the half of each of its connections.
    places: Vec<HashMap<u32, (u32, usize), foldhash::fast::RandomState>>,
    /// Exchanges that wait for the other side's view, by input and in total.
    waiting: Vec<usize>,
    waiting_all: usize,
    /// Whether a second point may still appear; otherwise every exchange is delivered at once.
    expects_two: bool,
    /// It has not appeared so far.
    is_provisional: bool,
    /// Exchanges that only one of two points saw.
    pub unmatched: u64,
    /// Exchanges that both saw.
    pub matched: u64,
    /// Connections that more than two points saw.
    pub crowded: u64,
    /// For each point: joined exchanges of which it was the client's and the server's.
    joined: Vec<[u64; 2]>,
}

/// Most waiting exchanges of a connection that no other point is known to see: some packets hold thousands of pipelined requests.
const ALONE_MAX: usize = 16_384;
/// Most connections kept after their end at one point.
const LINGERING_MAX: usize = 4096;
/// Most waiting exchanges before a second point has appeared in a file of several interfaces: about a block of a capture's buffer.
const PROVISIONAL_MAX: usize = 256;
/// Most waiting exchanges of all connections.
const WAITING_MAX: usize = 65_536;

impl Pairing {
    /// An empty pairing; with `several_inputs` the other point of a connection may appear late.
    #[must_use]
    pub fn new(several_inputs: bool) -> Self {
        Self { expects_two: several_inputs, ..Self::default() }
    }

    /// Another point of a connection may appear late, although there is one input: its first frames are behind some of this point. Few
    /// exchanges wait for it, since what comes out of its order in time looks like a change at the server.
    pub fn expects_others(&mut self) {
        if !self.expects_two {
            (self.expects_two, self.is_provisional) = (true, true);
        }
    }

    /// No other point has appeared.
    fn expect_no_others(&mut self, emit: &mut impl FnMut(&Observed)) {
        (self.expects_two, self.is_provisional) = (false, false);
        let front = |pair: &Pair| pair.halves[0].as_ref()?.waiting.front().map(|e| e.response.ended.ns());
        let mut waiting: Vec<u32> =
            self.pairs.iter().filter(|(_, pair)| front(pair).is_some()).map(|(&number, _)| number).collect();
        // In their order in time.
        while let Some(next) =
            waiting.iter().copied().min_by_key(|number| self.pairs.get(number).and_then(front))
        {
            self.release_unseen(next, 0, emit);
            waiting.retain(|number| self.pairs.get(number).is_some_and(|pair| front(pair).is_some()));
        }
        for ended in std::mem::take(&mut self.lingering) {
            self.remove(ended, emit);
        }
    }

    /// Adds a capture point and returns its number.
    pub fn add_point(&mut self, point: Point) -> u32 {
        self.points.push(point);
        self.places.push(HashMap::default());
        self.joined.push([0; 2]);
        if self.points.len() > 1 {
            (self.expects_two, self.is_provisional) = (true, false);
        }
        if self.waiting.len() <= point.input as usize {
            self.waiting.resize(point.input as usize + 1, 0);
        }
        self.points.len() as u32 - 1
    }

    /// Exchanges of an input that wait.
    #[must_use]
    pub fn waiting(&self, input: u32) -> usize {
        self.waiting.get(input as usize).copied().unwrap_or(0)
    }

    /// The side of each point, as most of its joined exchanges show it; unknown for a point without them, and for one that
    /// is the client's as often as the server's.
    #[must_use]
    pub fn sides(&self) -> Vec<Option<Side>> {
        let side = |[client, server]: &[u64; 2]| match client.cmp(server) {
            std::cmp::Ordering::Greater => Some(Side::Client),
            std::cmp::Ordering::Less => Some(Side::Server),
            std::cmp::Ordering::Equal => None,
        };
        self.joined.iter().map(side).collect()
    }

    /// The number, over all points, of a point's connection.
    #[must_use]
    pub fn connection(&self, vantage: u32, local: u32) -> Option<u32> {
        self.places.get(vantage as usize)?.get(&local).map(|&(pair, _)| pair)
    }

    /// Adds a connection when a point sees its first data.
    pub fn opened(&mut self, vantage: u32, opened: &Opened) {
        let known = self.by_ends.entry((opened.client, opened.server)).or_default();
        let point = |vantage: u32| self.points.get(vantage as usize).copied().unwrap_or_default();
        let own = point(vantage);
        // The same connection: same ends, same SYN if both saw it, and not yet seen from this point, nor before it did.
        let fits = |pair: &Pair| {
            pair.halves.iter().flatten().all(|half| {
                let other = point(half.vantage);
                half.vantage != vantage
                    && (other.input != own.input || other.stretch == own.stretch)
                    && half.opened.client_syn.zip(opened.client_syn).is_none_or(|(a, b)| a == b)
            })
        };
        let half = Half { vantage, opened: *opened, waiting: VecDeque::new(), told: None, is_over: false };
        let found = known.iter().rev().copied().find(|number| self.pairs.get(number).is_some_and(fits));
        let (number, which) = match found.and_then(|number| Some((number, self.pairs.get_mut(&number)?))) {
            Some((number, pair)) if pair.halves[1].is_none() => {
                pair.halves[1] = Some(half);
                pair.is_alone = false;
                (number, 1)
            }
            Some(_) => {
                self.crowded += 1;
                return;
            }
            None => {
                let number = self.numbered;
                self.numbered = self.numbered.wrapping_add(1);
                self.pairs.insert(number, Pair { halves: [Some(half), None], client: None, is_alone: false });
                if self.expects_two {
                    self.alone.push_back(number);
                    if self.alone.len() > 2 * self.pairs.len() + LINGERING_MAX {
                        let is_alone = |pair: &Pair| pair.halves[1].is_none();
                        self.alone.retain(|number| self.pairs.get(number).is_some_and(is_alone));
                    }
                }
                known.push(number);
                (number, 0)
            }
        };
        if let Some(places) = self.places.get_mut(vantage as usize) {
            places.insert(opened.connection, (number, which));
        }
    }

    /// Ends a connection at a point.
    pub fn closed(&mut self, vantage: u32, local: u32, mut emit: impl FnMut(&Observed)) {
        let Some((number, which)) = self.places.get_mut(vantage as usize).and_then(|p| p.remove(&local))
        else {
            return;
        };
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if let Some(half) = &mut pair.halves[which] {
            half.is_over = true;
        }
        let is_over = pair.halves.iter().flatten().all(|half| half.is_over);
        if is_over && (pair.halves[1].is_some() || !self.expects_two) {
            self.remove(number, &mut emit);
        } else if is_over {
            self.lingering.push_back(number);
            if self.lingering.len() > LINGERING_MAX
                && let Some(oldest) = self.lingering.pop_front()
                && self.pairs.get(&oldest).is_some_and(|p| p.halves.iter().flatten().all(|h| h.is_over))
            {
                self.remove(oldest, &mut emit);
            }
        }
    }

    /// Delivers the waiting exchanges of a pair and removes it.
    fn remove(&mut self, number: u32, emit: &mut impl FnMut(&Observed)) {
        self.merge(number, emit);
        for which in 0..2 {
            while self.waits(number, which) > 0 {
                self.release(number, which, emit);
            }
        }
        if let Some(pair) = self.pairs.remove(&number)
            && let Some(half) = &pair.halves[0]
        {
            let ends = (half.opened.client, half.opened.server);
            if let Some(known) = self.by_ends.get_mut(&ends) {
                known.retain(|&other| other != number);
                if known.is_empty() {
                    self.by_ends.remove(&ends);
                }
            }
        }
    }

    /// Exchanges of a half that wait.
    fn waits(&self, number: u32, which: usize) -> usize {
        self.pairs.get(&number).and_then(|p| p.halves[which].as_ref()).map_or(0, |half| half.waiting.len())
    }

    /// Adds an exchange that a point saw, and delivers joined ones.
    #[inline]
    pub fn exchange(&mut self, vantage: u32, exchange: &Exchange, mut emit: impl FnMut(&Observed)) {
        let Some(&(place, which)) =
            self.places.get(vantage as usize).and_then(|p| p.get(&exchange.op.connection))
        else {
            return;
        };
        let exchange = Exchange { op: Op { connection: place, ..exchange.op }, ..*exchange };
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        if !self.expects_two || pair.is_alone {
            if let Some(half) = &mut pair.halves[which] {
                half.told = Some(exchange.response_end_seq);
            }
            emit(&self.seen_alone(place, which, exchange));
            return;
        }
        let other = pair.halves[1 - which].as_mut();
        let limit = if other.is_some() { WAITING_MAX } else { ALONE_MAX };
        if let Some(told) = other.map(|other| &mut other.told)
            && let Some(until) = *told
        {
            if until.wrapping_sub(exchange.response_end_seq).cast_signed() >= 0 {
                self.unmatched += 1;
                return;
            }
            // All that follows is new: 2 GiB on, the difference of the numbers would say the opposite.
            *told = None;
        }
        if let Some(half) = &mut pair.halves[which] {
            half.waiting.push_back(exchange);
            self.count(vantage, 1);
        }
        if self.is_provisional && self.waiting_all > PROVISIONAL_MAX {
            return self.expect_no_others(&mut emit);
        }
        self.merge(place, &mut emit);
        if limit == ALONE_MAX && self.waits(place, which) > limit {
            self.expect_no_other(place, &mut emit);
        }
        // What one point alone may have seen goes first, to the last of it: then its views wait for nothing any more.
        while self.waiting_all > WAITING_MAX
            && let Some(oldest) = self.alone.pop_front()
        {
            self.expect_no_other(oldest, &mut emit);
        }
        while self.waiting_all > WAITING_MAX && self.waits(place, which) > 0 {
            self.release_unseen(place, which, &mut emit);
        }
    }

    /// Delivers what waits of a connection that no other point has seen, and all that will come until one does.
    fn expect_no_other(&mut self, place: u32, emit: &mut impl FnMut(&Observed)) {
        let Some(pair) = self.pairs.get_mut(&place).filter(|pair| pair.halves[1].is_none()) else { return };
        pair.is_alone = true;
        while self.waits(place, 0) > 0 {
            self.release_unseen(place, 0, emit);
        }
    }

    /// Delivers the front of one half alone, although the other point may still see it.
    fn release_unseen(&mut self, place: u32, which: usize, emit: &mut impl FnMut(&Observed)) {
        if let Some(half) = self.pairs.get_mut(&place).and_then(|pair| pair.halves[which].as_mut())
            && let Some(front) = half.waiting.front()
        {
            half.told = Some(front.response_end_seq);
        }
        self.release(place, which, emit);
    }

    /// Delivers all waiting exchanges at the end.
    pub fn finish(&mut self, mut emit: impl FnMut(&Observed)) {
        let mut numbers: Vec<u32> = self.pairs.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            self.remove(number, &mut emit);
        }
    }

    /// Delivers the exchanges that both halves of a pair have seen.
    fn merge(&mut self, place: u32, emit: &mut impl FnMut(&Observed)) {
        loop {
            let Some([Some(a), Some(b)]) = self.pairs.get(&place).map(|p| &p.halves) else { return };
            let (Some(first), Some(second)) = (a.waiting.front(), b.waiting.front()) else { return };
            let ahead = first.response_end_seq.wrapping_sub(second.response_end_seq).cast_signed();
            let has_one_request =
                first.request_begin_seq.is_some() && first.request_begin_seq == second.request_begin_seq;
            if ahead == 0 || has_one_request {
                self.join(place, emit);
            } else {
                self.release(place, usize::from(ahead > 0), emit);
            }
        }
    }

    /// Delivers the exchange at the front of both halves.
    fn join(&mut self, place: u32, emit: &mut impl FnMut(&Observed)) {
        let client = self.client_half(place, true);
        let mut views = [None, None];
        for (which, view) in views.iter_mut().enumerate() {
            let half = self.pairs.get_mut(&place).and_then(|p| p.halves[which].as_mut());
            if let Some(half) = half {
                *view = half.waiting.pop_front();
                let vantage = half.vantage;
                self.count(vantage, -1);
                let side = if which == client { Side::Client } else { Side::Server };
                self.joined[vantage as usize][side as usize] += 1;
            }
        }
        self.matched += 1;
        let shared_clock = self.shares_clock(place);
        if let (Some(client), Some(server)) = (&views[client], &views[1 - client]) {
            let has_one_end = client.response_end_seq == server.response_end_seq;
            let alone = || Observed { is_partial: true, ..Observed::alone(Side::Client, client) };
            emit(&if has_one_end { Observed::joined(client, server, shared_clock) } else { alone() });
        }
    }

    /// Delivers the front of one half alone.
    fn release(&mut self, place: u32, which: usize, emit: &mut impl FnMut(&Observed)) {
        let Some(pair) = self.pairs.get_mut(&place) else { return };
        let is_pair = pair.halves.iter().all(Option::is_some);
        let Some(half) = &mut pair.halves[which] else { return };
        let Some(exchange) = half.waiting.pop_front() else { return };
        let vantage = half.vantage;
        self.count(vantage, -1);
        self.unmatched += u64::from(is_pair);
        emit(&self.seen_alone(place, which, exchange));
    }

    /// An exchange that one point alone saw, on the point's side.
    fn seen_alone(&mut self, place: u32, which: usize, exchange: Exchange) -> Observed {
        let half = self.pairs.get(&place).and_then(|p| p.halves[which].as_ref().map(|h| (p, h)));
        let is_pair = half.is_some_and(|(pair, _)| pair.halves.iter().all(Option::is_some));
        let side = if is_pair {
            let client = self.client_half(place, false);
            if client == which { Side::Client } else { Side::Server }
        } else {
            half.map_or(Side::Client, |(_, half)| self.side(half))
        };
        Observed { is_partial: is_pair, ..Observed::alone(side, &exchange) }
    }

    /// The side of a single point: as the user stated, else the side with the much shorter
    /// handshake, else the side whose packets have not been routed, else the client's.
    fn side(&self, half: &Half) -> Side {
        if let Some(side) = self.points[half.vantage as usize].place {
            return side;
        }
        if let Some((there, here)) = half.opened.handshake_ns
            && there.max(here) > 50_000
        {
            if here > there.saturating_mul(3) {
                return Side::Server;
            }
            if there > here.saturating_mul(3) {
                return Side::Client;
            }
        }
        let (whose, ttl) = half.opened.ttl;
        let is_fresh = matches!(ttl, 64 | 128 | 255);
        if is_fresh { Side::Client } else { whose.peer() }
    }

    /// The client's half of a pair. Where both fronts are views of one exchange, that of the client begins first by one clock, and the
    /// answer is kept; the fronts of a connection that began at one point earlier tell nothing of each other.
    fn client_half(&mut self, place: u32, are_of_one: bool) -> usize {
        let Some(pair) = self.pairs.get(&place) else { return 0 };
        if let Some(client) = pair.client {
            return client;
        }
        let [Some(a), Some(b)] = &pair.halves else { return 0 };
        let place_of = |half: &Half| self.points[half.vantage as usize].place;
        let there = |half: &Half| half.opened.handshake_ns.map(|(there, _)| there);
        let began = |half: &Half| half.waiting.front().and_then(|e| e.request.ended.ns());
        let client = match (place_of(a), place_of(b)) {
            (Some(Side::Client), _) | (_, Some(Side::Server)) => 0,
            (Some(Side::Server), _) | (_, Some(Side::Client)) => 1,
            // The client waits for the whole network and the server, the server's side for the server alone.
            _ => match (there(a).zip(there(b)), began(a).zip(began(b))) {
                (_, Some((a, b))) if are_of_one && self.shares_clock(place) => usize::from(a > b),
                (Some((a, b)), _) => usize::from(a < b),
                _ => 0,
            },
        };
        if let Some(pair) = self.pairs.get_mut(&place).filter(|_| are_of_one) {
            pair.client = Some(client);
        }
        client
    }

    /// Whether the stamps of both halves come from one clock.
    fn shares_clock(&self, place: u32) -> bool {
        let halves = self.pairs.get(&place).into_iter().flat_map(|pair| pair.halves.iter().flatten());
        let mut inputs = halves.map(|half| self.points[half.vantage as usize].input);
        let first = inputs.next();
        inputs.all(|input| Some(input) == first)
    }

    fn count(&mut self, vantage: u32, change: isize) {
        let input = self.points[vantage as usize].input as usize;
        self.waiting[input] = self.waiting[input].saturating_add_signed(change);
        self.waiting_all = self.waiting_all.saturating_add_signed(change);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use record::{Passage, Stamp};

    use super::*;

    fn opened(connection: u32, there_ns: u64) -> Opened {
        Opened {
            connection,
            client: "10.0.0.1:5000".parse().unwrap(),
            server: "10.0.0.2:3260".parse().unwrap(),
            client_syn: Some(9),
            handshake_ns: Some((there_ns, 10)),
            ttl: (Side::Client, 64),
        }
    }

    fn exchange(connection: u32, seq: u32, ns: u64) -> Exchange {
        let request = Passage { ended: Stamp::at(ns), ..Passage::default() };
        let response = Passage { ended: Stamp::at(ns + 10), ..Passage::default() };
        let op = Op { connection, ..Op::default() };
        Exchange { op, response_end_seq: seq, request, response, ..Exchange::default() }
    }

    proptest! {
        /// Whatever either side misses, and in whatever order the inputs are read: exchanges that both saw are
        /// joined, and every view is delivered once.
        #[test]
        fn every_view_is_handed_on_once(seen in prop::collection::vec((any::<bool>(), any::<bool>()), 1..200), first: u32, server_first: bool, bursts in prop::collection::vec((any::<bool>(), 1_usize..20), 0..60)) {
            let mut pairing = Pairing::new(true);
            // Input 0 is the server's side, as its handshake shows.
            let points = [pairing.add_point(Point::default()), pairing.add_point(Point { input: 1, ..Point::default() })];
            let order = if server_first { [0, 1] } else { [1, 0] };
            for point in order {
                pairing.opened(points[point], &opened(7, if point == 0 { 10 } else { 500 }));
            }
            let seq = |i: usize| first.wrapping_add(i as u32 * 560);
            let mut views: [VecDeque<Exchange>; 2] = Default::default();
            for (i, &(server, client)) in seen.iter().enumerate() {
                if server { views[0].push_back(exchange(7, seq(i), 1_000_000 + i as u64)); }
                if client { views[1].push_back(exchange(7, seq(i), 5 + i as u64)); }
            }
            let mut all: Vec<(bool, bool)> = Vec::new();
            let mut emit = |o: &Observed| {
                assert!(o.op.c1 < Stamp::at(1_000_000));
                assert!(!o.op.s1.is_known() || o.op.s1 >= Stamp::at(1_000_000));
                all.push((o.op.s1.is_known(), o.op.c1.is_known()));
            };
            for (which, count) in bursts.into_iter().chain([(true, 999), (false, 999)]) {
                let which = usize::from(which);
                let count = count.min(views[which].len());
                for e in views[which].drain(..count) {
                    pairing.exchange(points[which], &e, &mut emit);
                }
            }
            pairing.finish(&mut emit);
            let total = |of: fn(&(bool, bool)) -> bool, list: &[(bool, bool)]| list.iter().filter(|x| of(x)).count();
            let both = total(|x| x.0 && x.1, &seen);
            prop_assert_eq!(total(|x| x.0 && x.1, &all), both);
            prop_assert_eq!(total(|x| x.0 != x.1, &all), total(|x| x.0 != x.1, &seen));
            prop_assert_eq!(pairing.waiting_all, 0);
            prop_assert_eq!(pairing.matched as usize, both);
        }
    }

    /// What the server sends unasked crosses the next request, and is a part of another answer at each point.
    #[test]
    fn an_answer_that_ends_elsewhere_at_the_other_point_is_of_one_operation() {
        let mut pairing = Pairing::new(false);
        let points = [pairing.add_point(Point::default()), pairing.add_point(Point::default())];
        for (point, there_ns) in points.into_iter().zip([500, 10]) {
            pairing.opened(point, &opened(7, there_ns));
        }
        let mut seen = Vec::new();
        // Of the answers, at the client and at the server; those of the third come in the other order than they were asked.
        for (began, ends) in
            [(100, [1000, 1000]), (200, [1100, 1150]), (400, [1300, 1300]), (300, [1460, 1400])]
        {
            for ((point, end), ns) in points.into_iter().zip(ends).zip([1_000, 1_000]) {
                let view = Exchange {
                    request_begin_seq: Some(began),
                    ..exchange(7, end, ns + u64::from(began) * 10)
                };
                pairing.exchange(point, &view, |o| seen.push(*o));
            }
        }
        assert_eq!((pairing.matched, pairing.unmatched), (4, 0));
        let told: Vec<_> = seen
            .iter()
            .map(|o| (o.detail.request_begin_seq.unwrap(), o.op.s2.is_known(), o.is_partial))
            .collect();
        assert_eq!(told, [(100, true, false), (200, false, true), (400, true, false), (300, false, true)]);
        assert!(seen.iter().all(|o| o.order() == record::TimeOrder::Forwards), "{seen:#?}");
        pairing.finish(|o| panic!("{o:?}"));
    }

    /// Two points of one connection, of which the second appears after `before` exchanges of the first; both see `count`. Returns how
    /// often each exchange was told.
    fn second_point_appears_after(before: u32, count: u32, others: u32) -> (Pairing, Vec<u32>) {
        let mut pairing = Pairing::new(true);
        let points = [0, 1].map(|input| pairing.add_point(Point { input, ..Point::default() }));
        let mut told = vec![0; count as usize];
        let mut tell = |o: &Observed| {
            if o.detail.response_end_seq > 0 {
                told[o.detail.response_end_seq as usize / 10 - 1] += 1;
            }
        };
        // Connections that one point alone sees, of which much waits.
        for other in 0..others {
            let client = format!("10.1.0.1:{}", 1024 + other).parse().unwrap();
            pairing.opened(points[0], &Opened { client, ..opened(100 + other, 10) });
            for i in 0..1_000 {
                pairing.exchange(points[0], &exchange(100 + other, 0, i), &mut tell);
            }
        }
        let seen = |i: u32| exchange(7, 10 * (i + 1), 1_000_000 + u64::from(i));
        pairing.opened(points[0], &opened(7, 10));
        (0..before).for_each(|i| pairing.exchange(points[0], &seen(i), &mut tell));
        pairing.opened(points[1], &opened(7, 500));
        (0..count).for_each(|i| pairing.exchange(points[1], &seen(i), &mut tell));
        (before..count).for_each(|i| pairing.exchange(points[0], &seen(i), &mut tell));
        pairing.finish(&mut tell);
        (pairing, told)
    }

    #[test]
    fn no_exchange_is_told_twice_however_late_the_second_point_appears() {
        for (before, count, others) in [
            (1_500, 3_000, 0),
            (ALONE_MAX as u32, 20_000, 0),
            (ALONE_MAX as u32 + 1, 20_000, 0),
            (50_000, 60_000, 0),
            (10, 120_000, 0),
            (10, 500, 200),
        ] {
            let (pairing, told) = second_point_appears_after(before, count, others);
            let wrong = told.iter().filter(|&&times| times != 1).count();
            assert_eq!(wrong, 0, "{before} of {count} beside {others}");
            let of_both = if before as usize > ALONE_MAX { count - before } else { count };
            // Of more than waits at most, the ones in front were told when they came.
            let of_both = u64::from(of_both.min(WAITING_MAX as u32 + before));
            assert_eq!((pairing.matched, pairing.waiting_all), (of_both, 0), "{before} of {count}");
        }
    }

    /// Sequence numbers return: what was told is nothing that comes 2 GiB later.
    #[test]
    fn a_long_connection_is_joined_although_its_begin_was_told_alone() {
        const RESPONSE: u32 = 64 << 20;
        let mut pairing = Pairing::new(true);
        let points = [0, 1].map(|input| pairing.add_point(Point { input, ..Point::default() }));
        let mut told = 0;
        let mut tell = |_: &Observed| told += 1;
        pairing.opened(points[0], &opened(7, 10));
        let before = ALONE_MAX as u32 + 1;
        (0..before).for_each(|i| pairing.exchange(points[0], &exchange(7, i, u64::from(i)), &mut tell));
        pairing.opened(points[1], &opened(7, 500));
        for i in 1..200_u32 {
            for (point, ns) in points.into_iter().zip([2_000_000, 1_000_000]) {
                let seen = exchange(7, before.wrapping_add(i.wrapping_mul(RESPONSE)), ns + u64::from(i));
                pairing.exchange(point, &seen, &mut tell);
            }
        }
        pairing.finish(&mut tell);
        assert_eq!((pairing.matched, told), (199, before + 199));
    }

    #[test]
    fn single_point_delivers_at_once_on_the_side_of_its_handshake() {
        for (there, here, side) in [(900_000, 20_000, Side::Client), (20_000, 900_000, Side::Server)] {
            let mut pairing = Pairing::new(false);
            let point = pairing.add_point(Point::default());
            let handshake_ns = Some((there, here));
            pairing.opened(point, &Opened { handshake_ns, ..opened(1, 0) });
            let mut seen = Vec::new();
            pairing.exchange(point, &exchange(1, 5, 5), |o| seen.push(*o));
            assert_eq!(seen[0].op.c1.is_known(), side == Side::Client);
            assert_eq!(seen[0].op.s1.is_known(), side == Side::Server);
        }
    }
}
