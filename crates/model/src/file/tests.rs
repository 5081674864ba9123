use super::*;

const GOOD: &str = r#"
    [wire]
    bandwidth = "1gbit"
    mtu = 9000
    [ring]
    block-size = "512"
    queue-depth = 4
    [[stage]]
    name = "W1"
    latency = "102.25us"
    [[stage]]
    name = "SP"
    service = "15.9us"
    latency = "16.7us"
    [[stage]]
    name = "W2"
    latency = "102.25us"
    [[stage]]
    name = "CP"
    service = "8.6us"
    latency = "23.7us"
"#;

/// As the paper's author read them from top(1) and from packet stamps.
const TABLES: &str = r#"
    [saturated]
    iops = "63000+-500"
    server-thread = "100%"
    client-thread = "54%"
    [depth-one]
    rtt = "275.7us"
    c2-c1 = "243.4us"
    s2-s1 = "32.6us"
"#;

fn ring(text: &str) -> Result<Setup, ModelError> {
    match read(text)? {
        Model::Ring(setup) => Ok(*setup),
        other => panic!("{other:?}"),
    }
}

#[test]
fn file_gives_the_published_run() {
    let setup = ring(GOOD).unwrap();
    assert_eq!(setup.queue_depth, 4);
    assert!((setup.ring.rtt_alone_us() - 275.7).abs() < 0.06, "{}", setup.ring.rtt_alone_us());
    assert!(!setup.ring.is_uncertain());
}

#[test]
fn written_tables_give_times_with_their_uncertainty() {
    let setup = ring(TABLES).unwrap();
    let server = &setup.ring.stages()[1];
    let of = |value, within| Known::within(value, within).to_string();
    // 100 % / 63,000 IOPS; SL = 32.6 - 15.9 = 16.7.
    assert_eq!(of(server.service_us, server.service_within_us), "15.9±0.1");
    assert_eq!(of(server.start_latency_us, server.latency_within_us), "16.7±0.2");
    let outcome = setup.outcome(128).unwrap();
    assert!((outcome.iops.value - 63_000.0).abs() < 10.0 && outcome.iops.plus_minus > 300.0, "{outcome:?}");
}

#[test]
fn the_published_figures_typed_as_tables_are_the_preset() {
    let typed = r#"
        [saturated]
        iops = "63000"
        server-thread = "15.9us"
        client-thread = "8.6us"
        [depth-one]
        rtt = "275.7us"
        c2-c1 = "243.4us"
        s2-s1 = "32.6us"
    "#;
    let (typed, preset) =
        (ring(typed).unwrap(), crate::preset::Preset::named("seed-512").unwrap().setup().unwrap());
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
    close(typed.knee().unwrap().unwrap(), preset.knee().unwrap().unwrap());
    close(typed.nagle_needs().unwrap().backlog, preset.nagle_needs().unwrap().backlog);
    for (typed, preset) in typed.ring.stages().iter().zip(preset.ring.stages()) {
        assert!((typed.start_latency_us - preset.start_latency_us).abs() < 0.05, "{typed:?}");
    }
    for depth in [1, 4, 16, 17, 64] {
        close(typed.outcome(depth).unwrap().iops.value, preset.outcome(depth).unwrap().iops.value);
    }
    for (typed, preset) in typed.terms().iter().zip(preset.terms()) {
        assert_eq!(typed.term, preset.term);
        close(typed.us.value, preset.us.value);
    }
}

#[test]
fn reads_copies_and_posts() {
    let copy = r#"
        [copy]
        unit = "socket buffer"
        measured = [{ unit = "64k", megabytes-per-second = 48.30 }, { unit = "512k", megabytes-per-second = 57.37 }]
        predict = ["1M"]
    "#;
    let Ok(Model::Copy(copy)) = read(copy) else { panic!() };
    assert!((57.37e6..58.8e6).contains(&copy.predicted[0].bytes_per_second), "{copy:?}");
    let post = "[post]\nrest = '46.8ms'\ngap = '2.2ms'\nack-delay = '163ms'";
    let Ok(Model::Post(post)) = read(post) else { panic!() };
    assert!((post.nodelay_request_us() - 49_000.0).abs() < 1e-6);
    let nothing = "[post]\nrest = '0us'\ngap = '0us'\nack-delay = '40ms'";
    assert!(read(nothing).is_err_and(|e| e.to_string().contains("post.rest")), "no infinite rate");
}

#[test]
fn errors_name_the_wrong_key() {
    for (from, to, named) in [
        ("mtu = 9000", "mtu = 40", "wire.mtu = 40"),
        ("mtu = 9000", "mtu = 70\nip = 6", "wire.mtu = 70"),
        ("mtu = 9000", "ip = 5", "wire.ip = 5"),
        ("mtu = 9000", "digests = 'some'", "wire.digests"),
        ("1gbit", "0gbit", "wire.bandwidth"),
        ("\"512\"", "\"0\"", "ring.block-size = 0"),
        ("queue-depth = 4", "queue-depth = 0", "queue-depth = 0"),
        ("queue-depth = 4", "sessions = 0", "ring.sessions = 0"),
        ("queue-depth = 4", "sends = 7", "ring.sends = 7"),
        ("queue-depth = 4", "operation = 'erase'", "ring.operation"),
        ("queue-depth = 4", "slow = '3'", "ring.slow"),
        ("queue-depth = 4", "ack-delay = '501ms'", "ring.ack-delay = 501ms"),
        ("15.9us", "-1us", "SP.service"),
        ("service = \"8.6us\"", "colour = \"red\"", "colour"),
        ("service = \"8.6us\"", "", "CP.service = nothing"),
    ] {
        let error = ring(&GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
    for (from, to, named) in [
        ("iops = \"63000+-500\"", "", "saturated.iops"),
        ("100%", "lots", "saturated.server-thread"),
        ("iops = \"63000+-500\"", "iops = \"0\"", "saturated.iops = 0"),
        ("server-thread = \"100%\"", "server-thread = \"18us\"", "saturated.iops"),
        ("100%", "900%", "not of one system"),
        ("275.7us", "275.7", "depth-one.rtt"),
        ("[depth-one]", "[depth-two]", "depth-two"),
    ] {
        let error = ring(&TABLES.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
    let depth_one = TABLES.find("[depth-one]").unwrap();
    assert!(ring(&TABLES[..depth_one]).unwrap_err().to_string().contains("depth-one = nothing"));
    assert!(read("").unwrap_err().to_string().contains("[[stage]]"));
    assert!(read("nonsense").is_err());
    assert!(read(&format!("{GOOD}{TABLES}")).unwrap_err().to_string().contains("several"));
}
