//! Scenarios: what one end sends, and when, in response to writes, reads and segments. Those of Linux follow the kernel's
//! own tests of Nagle's algorithm, MSG_MORE, TCP_CORK and delayed acknowledgements, with other numbers.

use super::*;
use crate::Ns;
use crate::profile::Profile;

const US: Ns = 1_000;
const MS: Ns = 1_000_000;
const MSS: u32 = 1000;

/// One end under test. Time advances only by calls, and timers fire on the way.
struct Scene {
    end: Endpoint,
    now: Ns,
    out: Vec<Segment>,
    /// The peer's sent bytes, and the window that it offers.
    peer_sent: u64,
    window: u64,
    /// When each segment was sent.
    at: Vec<Ns>,
}

impl Scene {
    fn new(profile: Profile) -> Self {
        let options = Options { mss_bytes: MSS, ..Options::default() };
        let (end, window) = (Endpoint::new(profile, options), options.receive_buffer_bytes);
        Self { end, now: 0, out: Vec::new(), peer_sent: 0, window, at: Vec::new() }
    }

    fn linux() -> Self {
        Self::new(Profile::LINUX)
    }

    /// Advances to `until`; timers fire at their times.
    fn until(&mut self, until: Ns) -> &mut Self {
        while self.end.due() <= until {
            self.now = self.end.due().max(self.now);
            self.end.fire(self.now, &mut self.out);
            self.stamp();
        }
        self.now = until;
        self
    }

    fn after(&mut self, time: Ns) -> &mut Self {
        self.until(self.now + time)
    }

    fn stamp(&mut self) {
        let now = self.now;
        self.at.resize(self.out.len(), now);
        // The device takes no time here.
        self.end.handed_to_device(now, 0);
    }

    fn write(&mut self, bytes: u64) -> &mut Self {
        self.write_with(bytes, More::Done)
    }

    fn write_with(&mut self, bytes: u64, more: More) -> &mut Self {
        assert_eq!(self.end.write(self.now, bytes, more, &mut self.out), bytes);
        self.stamp();
        self
    }

    /// The peer acknowledges everything up to `ack`.
    fn ack(&mut self, ack: u64) -> &mut Self {
        self.segment(0, ack)
    }

    /// The peer sends data, and acknowledges nothing new.
    fn data(&mut self, bytes: u32) -> &mut Self {
        let ack = self.end.sent().acknowledged;
        self.segment(bytes, ack)
    }

    fn segment(&mut self, bytes: u32, ack: u64) -> &mut Self {
        let segment = Segment {
            seq: self.peer_sent,
            bytes,
            ack,
            edge: ack + self.window,
            push: bytes > 0,
            retransmitted: false,
        };
        self.peer_sent += u64::from(bytes);
        self.end.receive(self.now, &segment, &mut self.out);
        self.stamp();
        self
    }

    fn read(&mut self, bytes: u64) -> &mut Self {
        self.end.read(bytes, &mut self.out);
        self.stamp();
        self
    }

    /// Sequence and length of the segments with data so far.
    fn sent(&self) -> Vec<(u64, u32)> {
        self.out.iter().filter(|s| s.bytes > 0).map(|s| (s.seq, s.bytes)).collect()
    }

    /// When acknowledgements without data were sent, and what they acknowledge.
    fn acks(&self) -> Vec<(Ns, u64)> {
        self.out.iter().zip(&self.at).filter(|(s, _)| s.bytes == 0).map(|(s, at)| (*at, s.ack)).collect()
    }

    /// A connection whose first quick acknowledgements are used up.
    fn settled(profile: Profile) -> Self {
        let mut scene = Self::new(profile);
        for _ in 0..20 {
            scene.data(100).read(100).after(US);
            scene.write(10).after(US);
            let end = scene.end.sent().written;
            scene.ack(end);
            scene.after(US);
        }
        scene.after(500 * MS);
        scene.out.clear();
        scene.at.clear();
        scene
    }
}

#[test]
fn nagle_holds_small_segment_behind_small_one() {
    let mut scene = Scene::linux();
    scene.write(100);
    assert_eq!(scene.sent(), [(0, 100)], "the first leaves: nothing is in flight");
    scene.write(100).write(100);
    assert_eq!((scene.sent().len(), scene.end.hold()), (1, Some(Hold::Nagle)));
    scene.after(10 * US).ack(100);
    assert_eq!(scene.sent(), [(0, 100), (100, 200)], "what was held leaves together");
    scene.write(850);
    assert_eq!(scene.sent().len(), 2, "850 more are no full segment");
    scene.write(150);
    assert_eq!(scene.sent()[2], (300, 1000), "a full one does not wait");
}

#[test]
fn minshall_sends_small_segment_behind_full_ones_and_rfc_896_does_not() {
    let mut linux = Scene::linux();
    linux.write(2500);
    assert_eq!(linux.sent(), [(0, 1000), (1000, 1000), (2000, 500)]);
    linux.write(100);
    assert_eq!(linux.sent().len(), 3, "the 500 B before it are small");
    let mut windows = Scene::new(Profile::WINDOWS);
    windows.write(2500);
    assert_eq!(windows.sent(), [(0, 1000), (1000, 1000)]);
    windows.ack(1000);
    assert_eq!(windows.sent().len(), 2, "a full one is still in flight");
    windows.ack(2000);
    assert_eq!(windows.sent()[2], (2000, 500));
}

#[test]
fn nodelay_sends_without_delay_and_setting_it_flushes() {
    let mut scene = Scene::linux();
    scene.write(100).write(100);
    assert_eq!(scene.sent().len(), 1);
    scene.end.set_nodelay(0, true, &mut scene.out);
    assert_eq!(scene.sent(), [(0, 100), (100, 100)]);
    scene.at.resize(2, 0);
    scene.write(100).write(100);
    assert_eq!(scene.sent().len(), 4);
    scene.end.set_nodelay(0, false, &mut scene.out);
    scene.write(100);
    assert_eq!(scene.sent().len(), 4, "off again");
}

#[test]
fn flush_sends_held_data_and_leaves_nagle_on() {
    let mut scene = Scene::linux();
    scene.write(100).write(100);
    scene.end.flush(0, &mut scene.out);
    assert_eq!(scene.sent(), [(0, 100), (100, 100)]);
    assert!(!scene.end.is_nodelay());
    scene.stamp();
    scene.write(100);
    assert_eq!(scene.sent().len(), 2);
}

#[test]
fn msg_more_holds_small_segment_until_the_rest_is_written() {
    let mut scene = Scene::linux();
    scene.end.set_nodelay(0, true, &mut scene.out);
    scene.write_with(48, More::Follows);
    assert_eq!((scene.sent(), scene.end.hold()), (vec![], Some(Hold::Cork)));
    scene.write(512);
    assert_eq!(scene.sent(), [(0, 560)]);
    // Full segments do not wait for what was promised.
    scene.write_with(1200, More::Follows);
    assert_eq!(scene.sent()[1], (560, 1000));
}

#[test]
fn acknowledgement_releases_msg_more_with_data_in_flight() {
    let mut scene = Scene::linux();
    scene.end.set_nodelay(0, true, &mut scene.out);
    scene.write(100).write_with(100, More::Follows);
    assert_eq!(scene.sent(), [(0, 100)]);
    scene.after(50 * US).ack(100);
    assert_eq!(scene.sent(), [(0, 100), (100, 100)], "MSG_MORE holds for the push it came with");
}

#[test]
fn acknowledgement_does_not_release_cork() {
    let mut scene = Scene::linux();
    scene.write(100);
    scene.end.set_cork(0, true, &mut scene.out);
    scene.write(100).after(50 * US).ack(100);
    assert_eq!((scene.sent().len(), scene.end.hold()), (1, Some(Hold::Cork)));
    let now = scene.now;
    scene.end.set_cork(now, false, &mut scene.out);
    assert_eq!(scene.sent(), [(0, 100), (100, 100)], "lifting it is what sends");
}

#[test]
fn probe_timer_sends_corked_data_with_nothing_in_flight() {
    for cork in [true, false] {
        let mut scene = Scene::linux();
        // A round trip is known: the time-out is 200 ms and that, rounded up to ticks of 4 ms.
        scene.write(10).after(60 * US).ack(10);
        let begun = scene.now;
        if cork {
            scene.end.set_cork(begun, true, &mut scene.out);
        }
        scene.write_with(100, if cork { More::Done } else { More::Follows }).after(190 * MS);
        assert_eq!(scene.sent().len(), 1);
        scene.after(30 * MS);
        assert_eq!(scene.sent()[1], (10, 100));
        assert_eq!(scene.at[1], 208 * MS);
    }
}

#[test]
fn first_segments_are_acknowledged_without_delay() {
    let mut scene = Scene::linux();
    for count in 1..=16 {
        scene.data(100).after(100 * US);
        assert_eq!(scene.acks().len(), count, "quick acknowledgement {count}");
    }
    scene.data(100);
    assert_eq!(scene.acks().len(), 16, "the budget is used up");
}

#[test]
fn conversation_ends_quick_acknowledgements_and_delays_them_40_ms_in_ticks() {
    let mut scene = Scene::linux();
    scene.data(100).read(100).write(50);
    assert!(scene.end.is_pingpong(), "one reply within the delay");
    let end = scene.end.sent().written;
    scene.after(US).ack(end);
    let sent = scene.out.len();
    scene.after(MS).data(100).read(100);
    assert_eq!(scene.out.len(), sent, "no acknowledgement of its own");
    scene.after(60 * MS);
    let (at, ack) = scene.acks()[scene.acks().len() - 1];
    assert_eq!((at, ack), (44 * MS, 200), "40 ms are ten ticks, after the present one");
}

#[test]
fn owed_acknowledgement_is_sent_with_data() {
    let mut scene = Scene::settled(Profile::LINUX);
    scene.data(100).read(100).after(US).write(500);
    let reply = scene.out.iter().find(|s| s.bytes > 0).unwrap();
    assert_eq!(reply.ack, scene.peer_sent);
    scene.after(500 * MS);
    assert!(scene.acks().is_empty());
}

#[test]
fn more_than_an_estimated_segment_is_acknowledged_without_delay() {
    let mut scene = Scene::settled(Profile::LINUX);
    // Requests of 48 B: the estimate stays at 536.
    for _ in 0..11 {
        scene.data(48);
    }
    assert!(scene.acks().is_empty(), "528 B are not more");
    scene.data(48);
    assert_eq!(scene.acks().len(), 1, "576 B are");
    // Two segments of one size are the new estimate: from then on one of two is acknowledged.
    let mut scene = Scene::settled(Profile::LINUX);
    for _ in 0..20 {
        scene.data(560).after(US);
    }
    assert!((9..=11).contains(&scene.acks().len()), "{:?}", scene.acks());
}

#[test]
fn other_profiles_acknowledge_every_second_segment_without_ticks() {
    for profile in [Profile::WINDOWS, Profile::FREEBSD, Profile::MACOS] {
        let mut scene = Scene::new(profile);
        scene.after(MS).data(100);
        assert!(scene.acks().is_empty(), "{}: no quick ones", profile.name);
        scene.after(US).data(100);
        assert_eq!(scene.acks().len(), 1, "{}", profile.name);
        let begun = scene.now;
        scene.data(100).after(500 * MS);
        assert_eq!(scene.acks()[1].0, begun + profile.delay_min_ns, "{}", profile.name);
    }
}

#[test]
fn reading_pushed_data_acknowledges_outside_a_conversation() {
    let mut scene = Scene::linux();
    (0..16).for_each(|_| {
        scene.data(100).read(100);
    });
    let before = scene.acks().len();
    scene.data(100);
    assert_eq!(scene.acks().len(), before);
    scene.read(100);
    assert_eq!(scene.acks().len(), before + 1, "the last byte was taken, and it was the end of a message");
}

#[test]
fn autocork_holds_small_write_while_the_device_is_busy() {
    let mut scene = Scene::linux();
    scene.end.set_nodelay(0, true, &mut scene.out);
    assert_eq!(scene.end.write(0, 100, More::Done, &mut scene.out), 100);
    scene.end.handed_to_device(30 * US, 100);
    assert_eq!(scene.end.write(10 * US, 100, More::Done, &mut scene.out), 100);
    assert_eq!((scene.out.len(), scene.end.hold()), (1, Some(Hold::Device)));
    assert_eq!(scene.end.due(), 30 * US, "when the device is done");
    scene.end.fire(30 * US, &mut scene.out);
    assert_eq!(scene.sent(), [(0, 100), (100, 100)]);
    // With nothing in flight there is nothing to wait for.
    let mut scene = Scene::new(Profile { autocork: false, ..Profile::LINUX });
    scene.end.set_nodelay(0, true, &mut scene.out);
    scene.write(100).write(100);
    assert_eq!(scene.sent().len(), 2);
}

#[test]
fn congestion_and_receive_window_hold_data() {
    let mut scene = Scene::linux();
    scene.write(20_000);
    assert_eq!((scene.sent().len(), scene.end.hold()), (10, Some(Hold::Congestion)), "ten segments at first");
    scene.after(US).ack(10_000);
    assert_eq!(scene.sent().len(), 20, "and twice as many after a round trip");
    let mut scene = Scene::linux();
    scene.window = 3500;
    scene.end.set_peer_buffer(3500);
    scene.write(6000);
    assert_eq!(
        (scene.sent().len(), scene.end.hold()),
        (3, Some(Hold::Window)),
        "no part of a segment into 500 B"
    );
    scene.after(US).ack(3000);
    assert_eq!(scene.sent().len(), 6);
}

#[test]
fn three_duplicates_or_a_time_out_retransmit() {
    let mut scene = Scene::linux();
    scene.write(5000).after(US);
    (0..3).for_each(|_| {
        scene.ack(0);
    });
    assert_eq!(scene.sent()[5], (0, 1000));
    assert!(scene.out[5].retransmitted);
    scene.after(US).ack(5000);
    assert_eq!(scene.sent().len(), 6, "only that one was missing");
    let mut scene = Scene::linux();
    scene.write(300).after(199 * MS);
    assert_eq!(scene.sent().len(), 1);
    scene.after(10 * MS);
    assert_eq!(scene.sent(), [(0, 300), (0, 300)]);
    scene.after(300 * MS);
    assert_eq!(scene.sent().len(), 2, "the next wait is twice as long");
    scene.after(200 * MS);
    assert_eq!(scene.sent().len(), 3);
}

#[test]
fn out_of_order_data_is_kept_and_acknowledged_without_delay() {
    let mut scene = Scene::settled(Profile::LINUX);
    let at = scene.peer_sent;
    scene.peer_sent = at + 100;
    scene.data(100);
    assert_eq!(scene.acks().len(), 1, "at once");
    assert_eq!(scene.acks()[0].1, at);
    scene.peer_sent = at;
    scene.data(100);
    assert_eq!(scene.end.received().in_order, at + 200, "both are there");
}

#[test]
fn closed_window_is_probed_and_probe_is_answered() {
    let mut scene = Scene::linux();
    scene.window = 0;
    scene.end.set_peer_buffer(1000);
    scene.write(2000).after(US).ack(1000);
    assert_eq!((scene.sent().len(), scene.end.hold()), (1, Some(Hold::Window)));
    scene.after(250 * MS);
    assert!(scene.out[1].bytes == 0 && scene.out[1].retransmitted, "{:?}", scene.out);
    scene.after(450 * MS);
    assert_eq!(scene.out.len(), 3, "twice as long after it");
    let mut peer = Scene::linux();
    let probe = scene.out[1];
    peer.end.receive(0, &probe, &mut peer.out);
    assert_eq!(peer.out.len(), 1, "it is answered");
}

#[test]
fn reading_announces_an_opened_window() {
    let mut scene = Scene::settled(Profile::LINUX);
    let most = Options::default().receive_buffer_bytes;
    let mut filled = scene.peer_sent;
    while filled < most + scene.end.received().read - 1000 {
        scene.data(1000);
        filled += 1000;
    }
    scene.after(500 * MS);
    let before = scene.out.len();
    scene.read(most);
    assert_eq!(scene.out.len(), before + 1);
    assert!(scene.out[before].edge > scene.out[before - 1].edge + most / 2);
}
