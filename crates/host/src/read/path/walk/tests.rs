use proptest::prelude::*;

use super::*;

/// A path in memory: routers with the MTU of their next link.
#[derive(Clone, Debug)]
struct Path {
    /// MTU of each link, beginning with this host's.
    links: Vec<u32>,
    /// Whether each node (routers, then the peer) sends ICMP.
    answers: Vec<bool>,
    /// Whether routers state the MTU that a packet exceeds, or nothing, or 0.
    announce: Announce,
    /// Answers that the peer may send at once; they grow with time, one in a second. `None`: it does not limit them.
    tokens: Option<f64>,
    probes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Announce {
    Mtu,
    Zero,
    Nothing,
}

impl Path {
    fn new(links: &[u32], announce: Announce) -> Self {
        let answers = vec![true; links.len()];
        Self { links: links.to_vec(), answers, announce, tokens: None, probes: 0 }
    }
}

fn node(index: usize) -> Option<IpAddr> {
    Some(IpAddr::from([10, 0, 0, index as u8]))
}

impl Network for Path {
    fn probe(&mut self, ttl: u8, packet_bytes: u32) -> Answer {
        self.probes += 1;
        for (index, mtu) in self.links.iter().enumerate() {
            if packet_bytes > *mtu {
                let speaks = index > 0 && self.answers[index - 1];
                return match self.announce {
                    Announce::Mtu if speaks => Answer::TooBig { from: node(index), mtu_bytes: *mtu },
                    Announce::Zero if speaks => Answer::TooBig { from: node(index), mtu_bytes: 0 },
                    _ => Answer::Silence,
                };
            }
            let is_peer = index + 1 == self.links.len();
            if is_peer || usize::from(ttl) == index + 1 {
                if !self.answers[index] {
                    return Answer::Silence;
                }
                if let Some(tokens) = self.tokens.as_mut().filter(|_| is_peer) {
                    if *tokens < 1.0 {
                        // Meanwhile the prober waits.
                        *tokens += 0.4;
                        return Answer::Silence;
                    }
                    *tokens -= 1.0;
                }
                let from = node(index + 1);
                return if is_peer {
                    Answer::Arrived { from, rtt_us: 100.0 }
                } else {
                    Answer::TimeExceeded { from, rtt_us: 50.0 }
                };
            }
        }
        Answer::Silence
    }

    fn pause(&mut self) {
        self.tokens = self.tokens.map(|tokens| (tokens + 1.0).min(6.0));
    }
}

#[test]
fn announced_mtus_belong_to_the_router_that_announced_them() {
    let found = walk(&mut Path::new(&[9000, 1500, 1280], Announce::Mtu), 9000);
    let hops: Vec<_> =
        found.hops.iter().map(|h| (h.ttl, h.announced_mtu_bytes, h.largest_answered_bytes)).collect();
    assert_eq!(hops, [(1, Some(1500), Some(9000)), (2, Some(1280), Some(1500)), (3, None, Some(1280))]);
    assert!(found.hops[2].is_peer && found.hops[2].rtt_us == Some(100.0));
    assert_eq!(found.datagrams.largest_answered_bytes, Some(1280));
    assert_eq!(
        (found.datagrams.announced_mtu_bytes, found.datagrams.smallest_lost_bytes),
        (Some(1280), None)
    );
}

#[test]
fn packets_that_vanish_without_a_word_are_located() {
    let found = walk(&mut Path::new(&[1500, 1500, 1399, 1500], Announce::Nothing), 1500);
    let lost: Vec<_> = found.hops.iter().map(|h| (h.ttl, h.smallest_lost_bytes)).collect();
    assert_eq!(lost, [(1, None), (2, None), (3, Some(1400)), (4, None)]);
    assert_eq!(found.datagrams.largest_answered_bytes, Some(1399));
    assert_eq!(found.datagrams.smallest_lost_bytes, Some(1400));
}

#[test]
fn a_peer_that_limits_its_answers_has_no_black_hole() {
    for tenths in 0..60 {
        let tokens = f64::from(tenths) / 10.0;
        let mut path = Path { tokens: Some(tokens), ..Path::new(&[1500, 1500], Announce::Mtu) };
        let found = walk(&mut path, 1500);
        assert_eq!(found.datagrams.smallest_lost_bytes, None, "{tokens}: {found:?}");
    }
}

#[test]
fn a_peer_that_limits_its_answers_still_shows_its_black_hole() {
    for tenths in 0..60 {
        for mtu in [1280, 1281, 1399, 1411, 1499] {
            let mut path =
                Path { tokens: Some(f64::from(tenths) / 10.0), ..Path::new(&[1500, mtu], Announce::Nothing) };
            let found = walk(&mut path, 1500).datagrams;
            assert_eq!(
                (found.largest_answered_bytes, found.smallest_lost_bytes),
                (Some(mtu), Some(mtu + 1)),
                "{tenths}"
            );
        }
    }
}

#[test]
fn routers_that_state_no_mtu_lower_it_by_plateaus() {
    let found = walk(&mut Path::new(&[9000, 1400, 1500], Announce::Zero), 9000);
    assert_eq!(found.datagrams.largest_answered_bytes, Some(1400));
    assert_eq!((found.datagrams.announced_mtu_bytes, found.datagrams.smallest_lost_bytes), (None, None));
}

#[test]
fn silent_routers_do_not_hide_the_peer() {
    let mut path = Path::new(&[1500; 9], Announce::Mtu);
    path.answers[..8].fill(false);
    let found = walk(&mut path, 1500);
    assert_eq!(found.datagrams.largest_answered_bytes, Some(1500));
    assert!(found.hops.iter().all(|hop| hop.address.is_none()));
}

#[test]
fn a_silent_peer_ends_the_walk() {
    let mut path = Path::new(&[1500; 2], Announce::Mtu);
    path.answers.fill(false);
    let found = walk(&mut path, 1500);
    assert_eq!(found.datagrams, DatagramFacts::default());
    assert!(path.probes < 50, "{}", path.probes);
}

/// A network that answers anything.
struct Hostile {
    answers: Vec<Answer>,
    at: usize,
}

impl Network for Hostile {
    fn probe(&mut self, _: u8, _: u32) -> Answer {
        self.at += 1;
        self.answers.get(self.at % self.answers.len().max(1)).copied().unwrap_or(Answer::Silence)
    }

    fn pause(&mut self) {}
}

fn answer() -> impl Strategy<Value = Answer> {
    let from = || prop::option::of((0_u8..4).prop_map(|last| IpAddr::from([10, 0, 0, last])));
    prop_oneof![
        from().prop_map(|from| Answer::Arrived { from, rtt_us: 1.0 }),
        from().prop_map(|from| Answer::TimeExceeded { from, rtt_us: 1.0 }),
        (from(), any::<u32>()).prop_map(|(from, mtu_bytes)| Answer::TooBig { from, mtu_bytes }),
        (from(), 0_u32..1600).prop_map(|(from, mtu_bytes)| Answer::TooBig { from, mtu_bytes }),
        from().prop_map(|from| Answer::Rejected { from }),
        Just(Answer::Silence),
        Just(Answer::Over),
    ]
}

proptest! {
    #[test]
    fn any_path_is_measured_to_the_byte(
        links in prop::collection::vec(576_u32..9001, 1..7),
        nothing in any::<bool>(),
        start in 576_u32..9001,
    ) {
        let announce = if nothing { Announce::Nothing } else { Announce::Mtu };
        let start = start.min(links[0]);
        let least = links.iter().copied().min().unwrap_or(0).min(start);
        let found = walk(&mut Path::new(&links, announce), start);
        prop_assert_eq!(found.datagrams.largest_answered_bytes, Some(least));
        prop_assert_eq!(found.datagrams.smallest_lost_bytes.is_some(), nothing && least < start);
        if let Some(lost) = found.datagrams.smallest_lost_bytes {
            prop_assert_eq!(lost, least + 1);
        }
    }

    #[test]
    fn no_answers_make_the_walk_endless(answers in prop::collection::vec(answer(), 1..40)) {
        let mut hostile = Hostile { answers, at: 0 };
        let found = walk(&mut hostile, 1500);
        prop_assert!(hostile.at < 3000, "{}", hostile.at);
        prop_assert!(found.hops.len() <= usize::from(HOPS));
    }
}
