//! Pages, read back from their SVG.

use std::collections::BTreeMap;

use record::{Exchange, Passage, Side, Stamp};

use super::*;
use crate::scene::{Scene, png, svg};

/// 2017, nanoseconds.
const BEGIN: u64 = 1_483_228_800_000_000_000;
/// As [`Run::new`] in a study.
const KEPT: usize = 1 << 20;

fn subject() -> Subject {
    Subject {
        title: "512 B reads, nodelay, queue depth 1".into(),
        notes: Vec::new(),
        origin: Origin::Ring,
        clocks: Clocks::Shared,
    }
}

/// An operation whose network and client times are given, the request's path a third of the network's.
fn timed(at_ns: u64, network_ns: i64, client_ns: i64) -> Timed {
    let (server_ns, request_ns) = (30_000, network_ns / 3);
    let values =
        [network_ns + server_ns, server_ns, network_ns, client_ns, request_ns, network_ns - request_ns];
    Timed::new(BEGIN + at_ns, values.map(Some))
}

fn drawn(subject: &Subject, operations: impl IntoIterator<Item = Timed>) -> (Scene, String) {
    let mut run = Run::new(KEPT);
    operations.into_iter().for_each(|timed| run.add(&timed));
    let scene = page(subject, &run).unwrap();
    let text = svg(&scene);
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
    assert!(!text.contains("NaN") && !text.contains("inf"), "coordinates are numbers");
    (scene, text)
}

/// A panel as the picture has it: its scales, and the points of each quantity in nanoseconds since the begin and microseconds.
#[derive(Debug, Default)]
struct Seen {
    data: BTreeMap<String, String>,
    points: BTreeMap<String, Vec<Spot>>,
    beyond: Vec<String>,
}

/// What a mark of a picture covers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spot {
    at_ns: f64,
    low_us: f64,
    high_us: f64,
}

impl Seen {
    fn number(&self, name: &str) -> f64 {
        self.data[name].parse().unwrap()
    }

    /// Adds the marks of a path.
    fn add(&mut self, quantity: &str, path: &str) {
        let (x, y) = (self.number("x"), self.number("y"));
        let (width, height) = (self.number("width"), self.number("height"));
        let (low, high) = (self.number("low-us"), self.number("high-us"));
        let (from, to) = (self.number("from-ns"), self.number("to-ns"));
        let us = |pixel: f64| high - (pixel - y) / height * (high - low);
        for [left, top, length] in strokes(path) {
            assert!(left >= x - 0.1 && left <= x + width + 0.1, "beside the axes: {left} in {:?}", self.data);
            assert!(
                top >= y - 0.1 && top + length <= y + height + 0.1,
                "outside the axes: {top} {:?}",
                self.data
            );
            let at_ns = from + (left - x) / width * (to - from);
            let spot = Spot { at_ns, low_us: us(top + length), high_us: us(top) };
            self.points.entry(quantity.into()).or_default().push(spot);
        }
    }

    /// Whether a value is drawn at a time: within a cell or the width of a dot, pixels.
    fn shows(&self, quantity: Quantity, at_ns: f64, us: f64) -> bool {
        let per_x = (self.number("to-ns") - self.number("from-ns")) / self.number("width");
        let per_y = (self.number("high-us") - self.number("low-us")) / self.number("height");
        self.points.get(quantity.key()).into_iter().flatten().any(|spot| {
            (spot.at_ns - at_ns).abs() <= 1.6 * per_x
                && spot.low_us - 2.1 * per_y <= us
                && us <= spot.high_us + 2.1 * per_y
        })
    }
}

/// The vertical strokes of a path: x, upper y, length.
fn strokes(path: &str) -> Vec<[f64; 3]> {
    let mut words = Vec::new();
    for c in path.chars() {
        match c {
            'M' | 'm' | 'v' | 'h' => words.push((c, String::new())),
            c => words.last_mut().unwrap().1.push(c),
        }
    }
    let (mut pen, mut all) = ([0.0, 0.0], Vec::new());
    for (letter, numbers) in words {
        let spaced = numbers.replace('-', " -");
        let numbers: Vec<f64> = spaced.split_whitespace().map(|n| n.parse().unwrap()).collect();
        match (letter, &numbers[..]) {
            ('M', [x, y]) => pen = [*x, *y],
            ('m', [x, y]) => pen = [pen[0] + x, pen[1] + y],
            ('v', [length]) => {
                all.push([pen[0], pen[1], *length]);
                pen[1] += length;
            }
            ('h', [zero]) if *zero == 0.0 => all.push([pen[0], pen[1], 0.0]),
            other => panic!("{other:?}"),
        }
    }
    all
}

/// The value of an attribute of an element.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split(&format!(" {name}=\"")).nth(1)?.split('"').next()
}

/// The panels of a picture.
fn panels(text: &str) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    for group in text.split("<g ").skip(1) {
        let (head, body) = group.split_once('>').unwrap();
        let head = format!(" {head}");
        if let Some(panel) = attribute(&head, "data-panel") {
            let names = ["operations", "from-ns", "to-ns", "low-us", "high-us", "x", "y", "width", "height"];
            let data = names
                .map(|name| (name.to_owned(), attribute(&head, &format!("data-{name}")).unwrap().to_owned()));
            all.push(Seen { data: data.into(), ..Seen::default() });
            all.last_mut().unwrap().data.insert("name".into(), panel.into());
        } else if let Some(quantity) = attribute(&head, "data-quantity") {
            for path in body.lines().filter(|line| line.starts_with("<path")) {
                all.last_mut().unwrap().add(quantity, attribute(path, "d").unwrap());
            }
        } else if head.contains("data-beyond") {
            let titles = body.split("<title>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned());
            all.last_mut().unwrap().beyond.extend(titles);
        }
    }
    all
}

/// The legend's medians, microseconds.
fn medians(text: &str) -> BTreeMap<String, f64> {
    let groups = text.split("<g ").skip(1).map(|group| format!(" {}", group.split('>').next().unwrap()));
    groups
        .filter_map(|head| {
            let median = attribute(&head, "data-median-us")?.parse().unwrap();
            Some((attribute(&head, "data-legend")?.to_owned(), median))
        })
        .collect()
}

#[test]
fn without_operations_there_is_no_page() {
    assert!(page(&subject(), &Run::new(KEPT)).is_none());
}

#[test]
fn a_single_operation_is_drawn_with_all_its_quantities() {
    let (_, text) = drawn(&subject(), [timed(0, 210_800, 32_300)]);
    let all = panels(&text);
    assert_eq!(all.len(), 1, "nothing is closer than the whole");
    for (quantity, us) in Quantity::ALL.into_iter().zip([240.8, 30.0, 210.8, 32.3, 70.266, 140.534]) {
        assert!(all[0].shows(quantity, 0.0, us), "{quantity:?}: {:?}", all[0]);
        assert!((medians(&text)[quantity.key()] - us).abs() < 0.01);
        assert!(text.contains(&format!("{} {}, median", quantity.name(), quantity.formula())), "{text}");
    }
    assert!(text.contains("1 operation from 1483228800.000000000 s since 1970"), "{text}");
}

#[test]
fn equal_values_and_zeros_are_drawn() {
    for ns in [0, 20_000] {
        let all = [Some(ns); Quantity::COUNT];
        let (_, text) = drawn(&subject(), (0..3000).map(|n| Timed::new(BEGIN + n * 50_000, all)));
        for panel in panels(&text) {
            assert!(panel.number("high-us") > panel.number("low-us"), "{:?}", panel.data);
            let first = panel.number("from-ns");
            let drawn_at = if ns == 0 { 0.0 } else { 20.0 };
            assert!(
                Quantity::ALL.iter().all(|quantity| panel.shows(*quantity, first, drawn_at)),
                "{ns}: {:?}",
                panel.data
            );
            assert!(panel.beyond.is_empty());
        }
    }
}

#[test]
fn ten_seconds_among_microseconds_are_marked_at_the_edge_and_squeeze_nothing() {
    let slow = 4321;
    let operations =
        (0..20_000).map(|n| timed(n * 100_000, if n == slow { 10_000_000_000 } else { 135_000 }, 20_000));
    let (_, text) = drawn(&subject(), operations);
    let all = panels(&text);
    assert!(all.len() >= 4, "whole, 1 s, 100 ms, close-up");
    let whole = &all[0];
    assert!(whole.number("high-us") < 300.0, "{:?}", whole.data);
    assert!(whole.shows(Quantity::Network, 1e9, 135.0) && whole.shows(Quantity::Client, 1e9, 20.0));
    for quantity in [Quantity::OutsideClient, Quantity::Network, Quantity::Request, Quantity::Response] {
        let own: Vec<&String> = whole
            .beyond
            .iter()
            .filter(|t| t.starts_with(&format!("{}: 1, up to ", quantity.name())))
            .collect();
        assert_eq!(own.len(), 1, "{quantity:?}: {:?}", whole.beyond);
    }
    assert!(whole.beyond.contains(&"network: 1, up to 10.00 s".to_owned()), "{:?}", whole.beyond);
    assert!(text.contains(">1 to 10.00 s</text>"), "the count is on the page");
    assert!(!whole.beyond.iter().any(|text| text.starts_with("inside the")), "{:?}", whole.beyond);
}

#[test]
fn a_tenth_of_the_operations_is_never_beyond_the_axis() {
    let operations =
        (0..10_000).map(|n| timed(n * 100_000, if n % 8 == 0 { 44_000_000 } else { 135_000 }, 20_000));
    let whole = panels(&drawn(&subject(), operations).1).remove(0);
    assert!(whole.beyond.is_empty() && whole.shows(Quantity::Network, 4e8, 44_000.0), "{:?}", whole.data);
}

#[test]
fn missing_stamps_are_named_and_not_drawn() {
    let exchange = Exchange {
        request: Passage { ended: Stamp::at(BEGIN), ..Passage::default() },
        response: Passage { ended: Stamp::at(BEGIN + 243_400), ..Passage::default() },
        thought_ns: Some(32_000),
        ..Exchange::default()
    };
    let seen = |side: Side| {
        let timed = Timed::observed(&record::Observed::alone(side, &exchange)).unwrap();
        let (client, server) = (side == Side::Client, side == Side::Server);
        let subject =
            Subject { origin: Origin::Capture { client, server }, clocks: Clocks::Apart, ..subject() };
        drawn(&subject, [timed]).1
    };
    let client = seen(Side::Client);
    assert_eq!(medians(&client).into_keys().collect::<Vec<_>>(), ["client", "outside_client"]);
    assert!((medians(&client)["outside_client"] - 243.4).abs() < 0.01);
    assert!((medians(&client)["client"] - 32.0).abs() < 0.01);
    assert!(client.contains("inside the server: needs a capture of the server&#39;s side"), "{client}");
    assert_eq!(panels(&client)[0].points.keys().collect::<Vec<_>>(), ["client", "outside_client"]);
    let server = seen(Side::Server);
    assert_eq!(medians(&server).into_keys().collect::<Vec<_>>(), ["server"]);
    assert!(server.contains("network: needs a capture of the client&#39;s side"), "{server}");
    assert!(Timed::of(&Op::default(), Clocks::Shared).is_none(), "no stamp, no time");
}

#[test]
fn clocks_apart_give_no_paths() {
    let op = Op {
        start: Stamp::at(BEGIN),
        c1: Stamp::at(BEGIN + 5_000),
        s1: Stamp::at(77_000_000_000),
        s2: Stamp::at(77_000_030_000),
        c2: Stamp::at(BEGIN + 245_000),
        finish: Stamp::at(BEGIN + 260_000),
        ..Op::default()
    };
    let subject = Subject {
        origin: Origin::Capture { client: true, server: true },
        clocks: Clocks::Apart,
        ..subject()
    };
    let (_, text) = drawn(&subject, [Timed::of(&op, Clocks::Apart).unwrap()]);
    let expected = BTreeMap::from(
        [("outside_client", 240.0), ("server", 30.0), ("network", 210.0), ("client", 20.0)]
            .map(|(k, us)| (k.to_owned(), us)),
    );
    assert_eq!(medians(&text), expected);
    assert!(text.contains("request path: needs one clock for both sides"), "{text}");
}

#[test]
fn negative_values_are_drawn_below_zero() {
    let operations = (0..5000).map(|n| timed(n * 100_000, if n % 4 == 0 { -60_000 } else { 90_000 }, 20_000));
    let (_, text) = drawn(&subject(), operations);
    for panel in panels(&text) {
        assert!(panel.number("low-us") < -60.0, "{:?}", panel.data);
        let spots = &panel.points["network"];
        assert!(spots.iter().any(|spot| spot.low_us < -55.0 && spot.high_us > -65.0), "{spots:?}");
    }
    // Far below: marked at the lower edge.
    let operations =
        (0..5000).map(|n| timed(n * 100_000, if n == 77 { -9_000_000_000 } else { 90_000 }, 20_000));
    let whole = panels(&drawn(&subject(), operations).1).remove(0);
    assert_eq!(whole.number("low-us"), 0.0);
    assert!(whole.beyond.contains(&"network: 1, up to -9.00 s".to_owned()), "{:?}", whole.beyond);
}

/// One operation in a million takes twice as long: its cell is in the picture, also where not all operations are kept.
#[test]
fn one_rare_operation_in_a_million_is_drawn() {
    for kept in [1 << 20, 1 << 14] {
        let mut run = Run::new(kept);
        let rare = 654_321;
        for n in 0..1_000_000_u64 {
            let network = if n == rare { 290_000 } else { 134_000 + (n * 7919 % 2000) as i64 };
            run.add(&timed(n * 7_000, network, 20_000));
        }
        let text = svg(&page(&subject(), &run).unwrap());
        assert!(text.len() < 3 << 20, "{}", text.len());
        let whole = &panels(&text)[0];
        assert_eq!(whole.number("operations"), 1e6);
        assert!(whole.shows(Quantity::Network, rare as f64 * 7e3, 290.0), "{kept}");
        assert!(whole.shows(Quantity::OutsideClient, rare as f64 * 7e3, 320.0), "{kept}");
        assert!(!whole.shows(Quantity::Network, 2e9, 290.0), "{kept}");
        let within = if kept > 1_000_000 { 0.01 } else { 0.6 };
        assert!((medians(&text)["network"] - 134.999).abs() < within, "{:?}", medians(&text));
    }
}

#[test]
fn clouds_stay_small_and_cover_their_range() {
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as i64
    };
    // Few enough for a panel that cells do not all touch, and many.
    for count in [3_000_u64, 12_000, 40_000, 300_000] {
        let operations: Vec<Timed> = (0..count)
            .map(|n| Timed::new(BEGIN + n * 50_000, [0; 6].map(|_| Some(next() % 1_000_000))))
            .collect();
        let (scene, text) = drawn(&subject(), operations.iter().copied());
        let bytes = png(&scene).unwrap().len();
        assert!(bytes < 3 << 20, "{count}: {bytes}");
        let whole = &panels(&text)[0];
        for timed in operations.iter().step_by(101) {
            let at_ns = (timed.at_ns - BEGIN) as f64;
            for own in Quantity::ALL {
                let us = f64::from(timed.us(own).unwrap());
                // Where quantities share a place, their colours alternate.
                let is_covered = Quantity::ALL.iter().any(|quantity| whole.shows(*quantity, at_ns, us));
                assert!(is_covered, "{count}: {own:?} of {timed:?}");
            }
        }
        let marks: Vec<usize> = whole.points.values().map(Vec::len).collect();
        assert!(
            marks.len() == 6 && marks.iter().all(|own| *own * 8 > marks[0]),
            "no colour hides another: {marks:?}"
        );
    }
}

/// A constant that another quantity's cloud covers stays visible, and so does a rare value in a cloud.
#[test]
fn clouds_hide_no_line_and_no_rare_value() {
    let operations = (0..100_000_u64).map(|n| {
        let cloud = 50_000 + (n * 7919 % 100_000) as i64;
        let server = if n == 55_555 { 77_000 } else { 20_000 };
        Timed::new(BEGIN + n * 50_000, [Some(90_000), Some(server), None, None, None, Some(cloud)])
    });
    let whole = panels(&drawn(&subject(), operations).1).remove(0);
    assert!(whole.shows(Quantity::Server, 55_555.0 * 5e4, 77.0), "rare, below a cloud that is drawn later");
    let line = whole.points["outside_client"].len();
    assert!(line > 200, "{line} of 555 columns");
}

#[test]
fn both_regimes_and_their_patterns_are_visible() {
    // The paper's 4096 B chart: every fifth operation of the middle third takes 119 us longer.
    let is_slow = |n: u64| (10_000..20_000).contains(&n) && n.is_multiple_of(5);
    let operations =
        (0..30_000).map(|n| timed(n * 166_000, if is_slow(n) { 164_000 } else { 45_000 }, 20_000));
    let all = panels(&drawn(&subject(), operations).1);
    let names: Vec<&str> = all.iter().map(|panel| panel.data["name"].as_str()).collect();
    assert_eq!(names[..3], ["Whole run", "Part 1 of the run", "Part 2 of the run"]);
    assert!(names[3].starts_with("Close-up A") && names[4].starts_with("Close-up B"), "{names:?}");
    for (third, expected) in [(0.17, false), (0.5, true), (0.83, false)] {
        let at_ns = third * 30_000.0 * 166e3;
        assert_eq!(all[0].shows(Quantity::Network, at_ns, 164.0), expected, "{third}");
        assert!(all[0].shows(Quantity::Network, at_ns, 45.0));
    }
    // Single operations: at one of the close-ups one in five is slow, at the other none.
    let slow = |panel: &Seen| panel.points["network"].iter().filter(|spot| spot.high_us > 100.0).count();
    let counts = [slow(&all[3]), slow(&all[4])];
    assert!(counts == [0, 9] || counts == [0, 10] || counts == [9, 0] || counts == [10, 0], "{counts:?}");
    assert_eq!(all[3].points["network"].len(), 48);
}

#[test]
fn hostile_times_and_values_do_no_harm() {
    let extremes = [i64::MIN, -1, 0, 1, i64::MAX];
    let values =
        extremes.iter().flat_map(|a| extremes.map(|b| [Some(*a), Some(b), None, Some(b), None, Some(*a)]));
    let times = [1, 2, BEGIN, BEGIN + 1, u64::MAX - 1, u64::MAX];
    let operations: Vec<Timed> =
        values.enumerate().map(|(n, values)| Timed::new(times[n % times.len()], values)).collect();
    let (scene, _) = drawn(&subject(), operations);
    assert!(png(&scene).is_ok());
    // Two operations far away leave the others their room.
    let mut run: Vec<Timed> = (0..10_000).map(|n| timed(n * 100_000, 135_000, 20_000)).collect();
    run.insert(0, Timed::new(1, [Some(5_000); Quantity::COUNT]));
    run.push(Timed::new(u64::MAX, [Some(5_000); Quantity::COUNT]));
    let (_, text) = drawn(&subject(), run);
    let whole = &panels(&text)[0];
    let length_ns = whole.number("to-ns") - whole.number("from-ns");
    assert!((0.99e9..1.2e9).contains(&length_ns), "{:?}", whole.data);
    assert!(text.contains("2 operations began far before or after all others"), "{text}");
    assert_eq!(whole.number("operations"), 10_000.0);
}

#[test]
fn the_png_shows_the_same_picture() {
    let operations =
        (0..20_000).map(|n| timed(n * 100_000, if n == 99 { 10_000_000_000 } else { 135_000 }, 20_000));
    let (scene, _) = drawn(&subject(), operations);
    let bytes = png(&scene).unwrap();
    let mut reader = ::png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), ((scene.width * 1.5) as u32, (scene.height * 1.5).ceil() as u32));
    for quantity in Quantity::ALL {
        let Colour(red, green, blue) = quantity.colour();
        let count = pixels.chunks(3).filter(|pixel| *pixel == [red, green, blue]).count();
        assert!(count > 1000, "{quantity:?}: {count} pixels");
    }
    assert!(pixels.chunks(3).filter(|pixel| *pixel == [28, 36, 48]).count() > 500, "text");
}
