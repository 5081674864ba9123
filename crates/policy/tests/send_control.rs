//! What a connection is told by its policy, and what is counted of it.

use policy::control::{FULL_BYTES, Shares};
use policy::{Adaptive, BusyCount, SendControl, SendMode, SendPolicy, ThreadControl};

const MS: u64 = 1_000_000;

#[test]
fn each_policy_is_asked_for_by_its_name() {
    let names = SendPolicy::ALL.map(SendPolicy::name);
    assert_eq!(names, ["auto", "nodelay", "nagle", "adaptive", "batch"]);
    for policy in SendPolicy::ALL {
        assert_eq!(SendControl::new(policy).policy(), policy);
        assert_eq!(policy.is_nodelay(), policy.name() == "nodelay");
    }
    let wrong = "quick".parse::<SendPolicy>().unwrap_err();
    assert!(wrong.contains("'quick'") && names.iter().all(|name| wrong.contains(name)), "{wrong}");
}

#[test]
fn each_policy_begins_in_its_mode() {
    let mode = |policy| SendControl::new(policy).mode();
    assert_eq!(mode(SendPolicy::Nodelay), SendMode::NODELAY);
    assert_eq!(mode(SendPolicy::Nagle), SendMode::NAGLE);
    assert_eq!(mode(SendPolicy::Batch), SendMode::BATCH);
    assert_eq!(mode(SendPolicy::Auto), SendMode::NODELAY, "one by one, until the load is known");
    assert_eq!(mode(SendPolicy::Adaptive(Adaptive::DEFAULT)), SendMode::NODELAY);
    let always = Adaptive { threshold: 0, margin: 0 };
    assert_eq!(mode(SendPolicy::Adaptive(always)), SendMode::NAGLE, "from the first request on");
}

#[test]
fn a_full_batch_leaves_at_its_last_byte() {
    let mut batch = SendControl::new(SendPolicy::Batch);
    assert!(!batch.served(FULL_BYTES - 1) && batch.served(FULL_BYTES));
    assert!(!batch.chunk_ended(), "it waits until nothing more can be received");
    let mut nodelay = SendControl::new(SendPolicy::Nodelay);
    assert!(nodelay.served(0) && nodelay.chunk_ended());
}

#[test]
fn adaptive_turns_nagle_on_and_flushes_when_idle() {
    let mut control = SendControl::new(SendPolicy::Adaptive(Adaptive { threshold: 4, margin: 0 }));
    (0..7).for_each(|_| assert!(control.served(0), "nothing is held here: the kernel holds"));
    assert!(!control.mode().nagle && !control.idle(), "nothing to flush");
    // Four in this cycle, and seven in the one before: eleven in four cycles are more than half of four in each.
    (0..4).for_each(|_| assert!(control.served(0)));
    assert!(control.mode().nagle && control.served(0));
    assert!(control.idle(), "what Nagle holds back is flushed");
    assert!(control.mode().nagle, "cycles of four and more have been seen of late");
    assert!(control.idle() && control.idle() && control.mode().nagle, "in this one or the two before it");
    assert!(control.idle());
    assert!(!control.mode().nagle && !control.idle(), "and now they have not");
    let Shares { nodelay, nagle, batch } = control.shares();
    assert!(nodelay >= 10 && nagle >= 1 && nodelay + nagle == 12 && batch == 0);
}

/// A connection with `auto` that holds a quarter of what the peer has under way.
fn holding(under_way: u32) -> SendControl {
    let (mut thread, mut control) = (ThreadControl::default(), SendControl::new(SendPolicy::Auto));
    let mut now_ns = 0;
    while control.mode() == SendMode::NODELAY {
        for _ in 0..16 {
            control.requested(under_way);
            let _ = control.served(0);
            now_ns += 10_000;
        }
        control.sent();
        control.idle();
        control.end_turn(&mut thread);
        thread.idle();
        thread.begin_round(1, now_ns);
        control.begin_turn(&thread);
        assert!(now_ns < 10 * MS, "it holds nothing");
    }
    assert_eq!(control.mode(), SendMode::part(4));
    control
}

#[test]
fn a_part_leaves_when_it_is_whole() {
    // A quarter of 32 is 8; of 33 it is 9, for no more than four sends are to go round.
    for (under_way, part) in [(32, 8), (33, 9)] {
        let mut control = holding(under_way);
        for _ in 0..2 {
            for n in 1..=part {
                assert_eq!(control.served(100), n == part, "{n} of {part}");
            }
            control.sent();
        }
        assert!(control.served(FULL_BYTES), "or when it is large");
        assert!(control.chunk_ended(), "or when what was received is used up");
        assert!(control.shares().batch > 0);
        assert!(!control.idle(), "nothing is held by the kernel");
    }
}

#[test]
fn the_depth_is_the_most_of_the_last_few_hundred_requests() {
    // One deep moment is remembered for 256 requests at the least, and for twice as many at the most.
    let mut control = holding(32);
    control.requested(64);
    for n in 0..800 {
        control.requested(32);
        let mut asked = control.clone();
        let part = (1..).find(|_| asked.served(0)).unwrap_or(0);
        match n {
            0..255 => assert_eq!(part, 16, "{n}"),
            512.. => assert_eq!(part, 8, "{n}"),
            _ => assert!(part == 16 || part == 8, "{n}"),
        }
    }
}

#[test]
fn other_policies_have_no_use_for_the_time() {
    for policy in [SendPolicy::Nodelay, SendPolicy::Nagle, SendPolicy::Batch] {
        let (mut thread, mut control) = (ThreadControl::default(), SendControl::new(policy));
        let before = control.mode();
        for n in 1..1000 {
            thread.begin_round(3, n * MS);
            control.begin_turn(&thread);
            control.requested(32);
            let _ = control.served(0);
            control.sent();
            assert_eq!(control.idle(), policy == SendPolicy::Nagle, "only Nagle holds something back");
            control.end_turn(&mut thread);
            assert_eq!(control.mode(), before);
        }
    }
}

/// A connection with `auto` and sixteen requests to a cycle, all of them with a send each but in batches, which leave in
/// `sends` sends. Which mode it settles in.
fn settled(sends: u32, sent_when_nothing_waits: bool) -> SendMode {
    let (mut thread, mut control) = (ThreadControl::default(), SendControl::new(SendPolicy::Auto));
    let mut now_ns = 0;
    while now_ns < 400 * MS {
        thread.begin_round(1, now_ns);
        control.begin_turn(&thread);
        let in_batches = control.mode() == SendMode::BATCH;
        for n in 1..=16 {
            control.requested(16);
            now_ns += 10_000;
            let _ = control.served(100);
            if !in_batches || n % (16 / sends) == 0 {
                control.sent();
            }
        }
        if sent_when_nothing_waits {
            (0..100).for_each(|_| control.sent());
        }
        control.idle();
        control.end_turn(&mut thread);
        thread.idle();
    }
    control.mode()
}

#[test]
fn auto_counts_sends_only() {
    // At the same speed fewer sends are better, and as many are not.
    assert_eq!(settled(4, false), SendMode::BATCH);
    assert_ne!(settled(16, false), SendMode::BATCH);
    // Whoever serves may say that it has sent when nothing waited: that was no send, in any mode.
    assert_eq!(settled(4, true), SendMode::BATCH);
}

#[test]
fn percentages_are_of_all_responses() {
    let shares = Shares { nodelay: 50, nagle: 30, batch: 20 };
    assert_eq!([50, 30, 20].map(|count| shares.percent(count)), [50.0, 30.0, 20.0]);
    let shares = Shares { nodelay: 1, nagle: 0, batch: 7 };
    assert_eq!(shares.percent(1), 12.5);
}

#[test]
fn cycles_of_two_sessions_add_up() {
    let cycles = |of: &[u64]| {
        let mut count = BusyCount::default();
        for &requests in of {
            (0..requests).for_each(|_| count.request());
            count.idle();
        }
        count
    };
    let (mut first, second) = (cycles(&[1, 2, 2]), cycles(&[2, 300]));
    first.add(&second);
    assert_eq!(first, cycles(&[1, 2, 2, 2, 300]));
    let mut second = second;
    second.add(&cycles(&[5]));
    assert_eq!((second.max_busy, second.share(5), second.share(9999)), (300, 1.0 / 3.0, 0.0));
    let none = BusyCount::default();
    assert_eq!((none.avg_busy(), none.share(0)), (0.0, 0.0));
}

#[test]
fn a_policy_is_stored_as_it_is_written() {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    let set = SendPolicy::Adaptive(Adaptive { threshold: 10, margin: 3 });
    for policy in SendPolicy::ALL.into_iter().chain([set]) {
        let text = policy.to_string();
        let stored: StrDeserializer<'_, Error> = text.as_str().into_deserializer();
        assert_eq!(SendPolicy::deserialize(stored), Ok(policy));
    }
    // Its settings are written where they are not the paper's.
    assert_eq!(SendPolicy::Adaptive(Adaptive::DEFAULT).to_string(), "adaptive");
    let wrong: StrDeserializer<'_, Error> = "quick".into_deserializer();
    assert!(SendPolicy::deserialize(wrong).is_err());
}
