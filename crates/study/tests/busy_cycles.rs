//! The paper's table of busy cycles, simulated from one set of parameters (the preset seed-512).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use policy::{SendPolicy, Sending};
use study::Plan;
use study::busy_cycles::{self, BusyCycles, OPERATIONS, Row, SEEDS};
use tcpsim::preset::Preset;
use tcpsim::{Setup, simulate};

const NODELAY: Sending = Sending { policy: SendPolicy::Nodelay, client_nagle: false };
const UNFLUSHED: Sending = Sending { policy: SendPolicy::NAGLE_UNFLUSHED, client_nagle: false };
const BOTH: Sending = Sending { policy: SendPolicy::Nagle, client_nagle: true };
const FLUSHED: Sending = Sending { policy: SendPolicy::Nagle, client_nagle: false };

static TABLE: LazyLock<BusyCycles> = LazyLock::new(|| {
    let plan = Plan::paper();
    let setups = busy_cycles::setups(&plan, OPERATIONS, &[]).unwrap();
    let runs: Vec<_> = tcpsim::sweep::sweep(&setups, &|_| (), &|| false).into_iter().flatten().collect();
    BusyCycles::of(&plan, OPERATIONS, &runs)
});

fn row(sending: Sending, queue_depth: u32) -> &'static Row {
    TABLE.rows.iter().find(|row| row.sending == sending && row.queue_depth == queue_depth).unwrap()
}

#[track_caller]
fn near(sending: Sending, queue_depth: u32, points: f64) {
    let row = row(sending, queue_depth);
    for (own, theirs) in row.mean_percent.iter().zip(&row.published_percent) {
        assert!((own - theirs).abs() <= points, "{row:.0?}");
    }
}

/// Both halves of the published table, in percent.
#[test]
fn published_values_are_those_of_the_paper() {
    let nodelay: [&[f64]; 5] = [
        &[100.0],
        &[0.0, 100.0],
        &[0.0, 0.0, 100.0],
        &[8.0, 8.0, 8.0, 76.0],
        &[15.0, 12.0, 12.0, 15.0, 46.0],
    ];
    let nagle: [&[f64]; 5] =
        [&[100.0], &[100.0, 0.0], &[50.0, 50.0, 0.0], &[30.0, 40.0, 30.0, 0.0], &[43.0, 7.0, 7.0, 43.0, 0.0]];
    for (sending, half) in [(NODELAY, nodelay), (UNFLUSHED, nagle), (BOTH, nagle), (FLUSHED, nagle)] {
        for (published, depth) in half.into_iter().zip(1..) {
            assert_eq!(row(sending, depth).published_percent, published, "{sending} {depth}");
        }
    }
    assert_eq!(TABLE.rows.len(), 20);
}

#[test]
fn nodelay_keeps_groups_together_as_published() {
    near(NODELAY, 1, 1.0);
    for depth in 2..=5 {
        near(NODELAY, depth, 10.0);
    }
}

/// An unflushed server has the published classes at every depth; at depth 5 it is in the cycle of 2 and 3 too often.
#[test]
fn a_server_that_does_not_flush_explains_depths_up_to_four() {
    for depth in 1..=3 {
        near(UNFLUSHED, depth, 2.0);
    }
    near(UNFLUSHED, 4, 10.0);
    let five = row(UNFLUSHED, 5);
    assert!(
        five.mean_percent[0] > five.mean_percent[1] && five.mean_percent[3] > five.mean_percent[2],
        "{five:.0?}"
    );
    assert!(five.mean_percent[4] < 2.0 && five.misplaced_percent > 20.0, "{five:.0?}");
}

/// A server that flushes with a client that has Nagle on has the published classes too, and is nearer at depth 5 and farther at 4.
#[test]
fn a_client_with_nagle_explains_depth_five_better() {
    for depth in 1..=3 {
        near(BOTH, depth, 2.0);
    }
    let better = |depth| row(BOTH, depth).misplaced_percent - row(UNFLUSHED, depth).misplaced_percent;
    assert!(better(5) < -5.0, "{:.1}", better(5));
    assert!(better(4) > 5.0, "{:.1}", better(4));
    near(BOTH, 5, 12.0);
}

/// A flush alone, with a client without Nagle, leaves the groups whole: it explains nothing of the Nagle half.
#[test]
fn a_flush_alone_explains_nothing() {
    for depth in 2..=5 {
        let row = row(FLUSHED, depth);
        assert!(row.mean_percent[depth as usize - 1] > 40.0 && row.misplaced_percent > 40.0, "{row:.0?}");
    }
    let misplaced = |sending| TABLE.explanation(sending).unwrap().misplaced_percent;
    assert!(misplaced(FLUSHED) > 3.0 * misplaced(UNFLUSHED).max(misplaced(BOTH)), "{:?}", TABLE.explanations);
}

/// The figures of a row are those of its runs, computed here by other means.
#[test]
fn a_row_sums_up_its_runs() {
    let base = Setup::read(Preset::named("seed-512").unwrap().text).unwrap();
    let runs: Vec<[f64; 4]> = (1..=SEEDS)
        .map(|seed| {
            let setup = Setup { seed, queue_depth: 4, operations: OPERATIONS, ..base.clone() };
            let mut setup = Setup { policy: SendPolicy::Nagle, ..setup };
            setup.load.nagle = true;
            let shares = simulate(&setup, &mut ()).busy_count_share;
            [1, 2, 3, 4].map(|count| 100.0 * shares.get(&count).copied().unwrap_or(0.0))
        })
        .collect();
    let row = row(BOTH, 4);
    let published = [30.0, 40.0, 30.0, 0.0];
    for (class, theirs) in published.iter().enumerate() {
        let of_runs: Vec<f64> = runs.iter().map(|run| run[class]).collect();
        let mean = of_runs.iter().sum::<f64>() / 5.0;
        assert!((row.mean_percent[class] - mean).abs() < 1e-9 && row.published_percent[class] == *theirs);
        assert!(
            of_runs
                .iter()
                .all(|share| row.least_percent[class] <= *share && *share <= row.greatest_percent[class])
        );
        assert!(
            of_runs.contains(&row.least_percent[class]) && of_runs.contains(&row.greatest_percent[class])
        );
    }
    let apart = |shares: &[f64]| shares.iter().zip(published).map(|(a, b)| (a - b).abs() / 2.0).sum::<f64>();
    assert!((row.misplaced_percent - apart(&row.mean_percent)).abs() < 0.1, "{row:?}");
    let mut all: Vec<f64> = runs.iter().map(|run| apart(run)).collect();
    all.sort_by(f64::total_cmp);
    assert!(
        (row.misplaced_least_percent - all[0]).abs() < 0.1
            && (row.misplaced_greatest_percent - all[4]).abs() < 0.1
    );
    let mean = (2..=5).map(|depth| self::row(BOTH, depth).misplaced_percent).sum::<f64>() / 4.0;
    assert!((TABLE.explanation(BOTH).unwrap().misplaced_percent - mean).abs() < 1e-9);
}

/// The preset of the Nagle half is the unflushed policy, and runs of both presets have their published shares beside them.
#[test]
fn presets_have_their_published_shares() {
    let plan = Plan::paper();
    let of = |preset: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let setup = Setup::read_with(Preset::named(preset).unwrap().text, &settings).unwrap();
        busy_cycles::published(&plan, &setup).map(<[f64]>::to_vec)
    };
    let four = Some(vec![30.0, 40.0, 30.0, 0.0]);
    assert_eq!(of("seed-512-nagle", &["queue-depth=4"]), four);
    assert_eq!(of("seed-512", &["queue-depth=4", "policy=nagle", "flush=false"]), four);
    assert_eq!(of("seed-512", &["queue-depth=4", "policy=nagle", "load.nagle=true"]), four);
    assert_eq!(of("seed-512", &["queue-depth=4", "policy=nagle"]), None, "the flush alone was not published");
    assert_eq!(of("seed-512", &["queue-depth=4"]), Some(vec![8.0, 8.0, 8.0, 76.0]));
    assert_eq!(of("seed-512", &["queue-depth=6"]), None);
    assert_eq!(of("seed-512", &["response.data=4096"]), None);
}

/// The table of docs/simulate.md: the share of the cycles that serve the whole depth, with one property of the ring changed.
#[test]
fn the_published_table_of_whole_groups_is_what_is_simulated() {
    let text = include_str!("../../../docs/simulate.md");
    let lines = text.lines().skip_while(|line| !line.starts_with("| what changes | `--set` |")).skip(2);
    let preset = Preset::named("seed-512").unwrap().text;
    let mut rows = Vec::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let settings: Vec<String> =
            cells[1].trim_matches('`').split_whitespace().map(str::to_owned).collect();
        let base = Setup { operations: 40_000, ..Setup::read_with(preset, &settings).unwrap() };
        rows.push(([cells[2], cells[3]].map(str::to_owned), settings, base));
    }
    assert!(rows.len() > 20, "{} rows", rows.len());
    let setups: Vec<Setup> = rows
        .iter()
        .flat_map(|(_, _, base)| [4, 5].map(|queue_depth| Setup { queue_depth, ..base.clone() }))
        .collect();
    let runs: Vec<_> = tcpsim::sweep::sweep(&setups, &|_| (), &|| false).into_iter().flatten().collect();
    for ((published, settings, _), runs) in rows.iter().zip(runs.chunks(2)) {
        let whole = [0, 1].map(|of| format!("{:.0}", runs[of].busy_percent(runs[of].queue_depth)));
        assert_eq!(*published, whole, "{settings:?}");
    }
}
