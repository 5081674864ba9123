//! Models as files: TOML with units.
//!
//! Three kinds: `[[stage]]` or `[saturated]` with `[depth-one]` make a ring; `[copy]` a bulk copy; `[post]` a
//! request in two segments.

use serde::Deserialize;

use super::calibrate::{Calibrated, DepthOne, Placement, Saturated, SideWork, WireTimes, calibrate};
use super::extras::Extras;
use super::setup::{Nagle, Setup};
use super::transfer::{CopyModel, Measured, Post};
use super::what_if::{
    ack_delay_us, parse_coalescing, parse_digests, parse_is_ipv6, parse_mtu, parse_slow, time_us,
};
use super::{Model, ModelError, Ring, Role, Stage, check_queue_depth};
use crate::known::Known;
use record::units::{UnitError, parse_bit_rate, parse_size};
use record::wire::{Link, Messages};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    ring: RingTable,
    #[serde(default)]
    wire: WireTable,
    #[serde(default)]
    stage: Vec<StageTable>,
    saturated: Option<SaturatedTable>,
    depth_one: Option<DepthOneTable>,
    copy: Option<CopyTable>,
    post: Option<PostTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RingTable {
    block_size: String,
    operation: String,
    queue_depth: u32,
    sessions: u32,
    nagle: bool,
    flush: bool,
    client_nagle: bool,
    sends: u32,
    /// The client's.
    ack_delay: String,
    server_ack_delay: String,
    think: String,
    coalescing: String,
    slow: String,
}

impl Default for RingTable {
    fn default() -> Self {
        Self {
            block_size: "512".into(),
            operation: "read".into(),
            queue_depth: 1,
            sessions: 1,
            nagle: false,
            flush: false,
            client_nagle: false,
            sends: 1,
            ack_delay: "40ms".into(),
            server_ack_delay: "40ms".into(),
            think: "0us".into(),
            coalescing: "off".into(),
            slow: "off".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct WireTable {
    bandwidth: String,
    mtu: u32,
    ip: u32,
    timestamps: bool,
    vlan: bool,
    digests: String,
    paced: bool,
}

impl Default for WireTable {
    fn default() -> Self {
        Self {
            bandwidth: "1gbit".into(),
            mtu: 9000,
            ip: 4,
            timestamps: true,
            vlan: false,
            digests: "none".into(),
            paced: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StageTable {
    name: String,
    service: Option<String>,
    latency: Option<String>,
    resource: Option<String>,
    #[serde(default)]
    paced: bool,
    #[serde(default)]
    interrupt: bool,
    per_packet_received: Option<String>,
    per_packet_sent: Option<String>,
}

/// CPU shares (`52%`) with the IOPS at which they were read, or times per operation (`8.3us`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SaturatedTable {
    iops: Option<String>,
    server_thread: String,
    server_softirq: Option<String>,
    server_transmit: Option<String>,
    client_thread: String,
    client_softirq: Option<String>,
    client_transmit: Option<String>,
    server_packet_received: Option<String>,
    server_packet_sent: Option<String>,
    client_packet_received: Option<String>,
    client_packet_sent: Option<String>,
    #[serde(default)]
    cpus: Cpus,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Cpus {
    /// Softirq and thread of a side on one CPU.
    #[default]
    Shared,
    /// Softirq and thread on one CPU, transmit work on another.
    TransmitApart,
    /// Each on its own.
    Own,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DepthOneTable {
    rtt: String,
    #[serde(rename = "c2-c1")]
    outside_client: String,
    #[serde(rename = "s2-s1")]
    server: String,
    /// Only where both sides share a clock.
    #[serde(rename = "s1-c1")]
    request_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CopyTable {
    unit: String,
    measured: Vec<MeasuredTable>,
    #[serde(default)]
    predict: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MeasuredTable {
    unit: String,
    megabytes_per_second: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PostTable {
    rest: String,
    gap: String,
    ack_delay: String,
}

/// Reads a model. W1 and W2 need no service time: it follows from the wire.
///
/// # Errors
/// When the text is no TOML of this form, or a value is impossible; the key is named.
pub fn read(text: &str) -> Result<Model, ModelError> {
    let file: File = toml::from_str(text)
        .map_err(|e| ModelError::new("file", e.message(), "see `roundtrip model --help` for the form"))?;
    let kinds = [
        !file.stage.is_empty(),
        file.saturated.is_some() || file.depth_one.is_some(),
        file.copy.is_some(),
        file.post.is_some(),
    ];
    if kinds.into_iter().filter(|k| *k).count() != 1 {
        return Err(ModelError::new(
            "file",
            "none of them, or several",
            "write [[stage]], or [saturated] with [depth-one], or [copy], or [post]",
        ));
    }
    if let Some(copy) = &file.copy {
        return read_copy(copy).map(Model::Copy);
    }
    if let Some(p) = &file.post {
        let post = Post {
            rest_us: time_us("post.rest", &p.rest)?,
            gap_us: time_us("post.gap", &p.gap)?,
            ack_delay_us: ack_delay_us("post.ack-delay", &p.ack_delay)?,
        };
        if post.nodelay_request_us() <= 0.0 {
            return Err(ModelError::new(
                "post.rest",
                &p.rest,
                "a request takes some time besides the delayed ACK",
            ));
        }
        return Ok(Model::Post(post));
    }
    let (link, messages) = read_wire(&file)?;
    let (ring, terms) = match (&file.saturated, &file.depth_one) {
        (Some(saturated), Some(depth_one)) => {
            let Calibrated { ring, terms } =
                calibrated(saturated, depth_one, link, messages, file.wire.paced)?;
            // Nagle's algorithm shares the costs of packets, which are in the times.
            if !file.ring.nagle && !file.ring.client_nagle {
                check_rate(saturated, &ring)?;
            }
            (ring, Some(terms))
        }
        (None, None) => (Ring::new(read_stages(&file.stage, link, messages)?)?, None),
        (Some(_), None) => {
            return Err(ModelError::new(
                "depth-one",
                "nothing",
                "latencies come from a run at queue depth 1",
            ));
        }
        (None, Some(_)) => {
            return Err(ModelError::new("saturated", "nothing", "service times come from a saturated run"));
        }
    };
    let r = &file.ring;
    check_queue_depth(r.queue_depth)?;
    if r.sessions == 0 {
        return Err(ModelError::new("ring.sessions", 0, "1 or more sessions are possible"));
    }
    if !(1..=2).contains(&r.sends) {
        return Err(ModelError::new(
            "ring.sends",
            r.sends,
            "1 (a response in one send) or 2 (header and data apart) is possible",
        ));
    }
    let nagle = Nagle {
        sends: r.sends,
        ack_delay_us: ack_delay_us("ring.ack-delay", &r.ack_delay)?,
        flushes_when_idle: r.flush,
    };
    let server_ack_delay_us = ack_delay_us("ring.server-ack-delay", &r.server_ack_delay)?;
    let client_nagle = Nagle { ack_delay_us: server_ack_delay_us, ..Nagle::default() };
    Ok(Model::Ring(Box::new(Setup {
        terms,
        nagle: r.nagle.then_some(nagle),
        client_nagle: r.client_nagle.then_some(client_nagle),
        queue_depth: r.queue_depth,
        sessions: r.sessions,
        extras: Extras {
            think_us: time_us("ring.think", &r.think)?,
            coalescing: parse_coalescing("ring.coalescing", &r.coalescing)?,
            slow: parse_slow("ring.slow", &r.slow)?,
            ..Extras::default()
        },
        ..Setup::new(ring, link, messages)
    })))
}

fn read_wire(file: &File) -> Result<(Link, Messages), ModelError> {
    let w = &file.wire;
    let link = Link {
        bits_per_second: parse_bit_rate(&w.bandwidth).map_err(|e| wrong("wire.bandwidth", &e))?,
        mtu_bytes: parse_mtu("wire.mtu", &w.mtu.to_string())?,
        ipv6: parse_is_ipv6("wire.ip", &w.ip.to_string())?,
        timestamps: w.timestamps,
        vlan: w.vlan,
    };
    if link.mtu_bytes <= link.wire().tcpip_bytes {
        return Err(ModelError::new("wire.mtu", w.mtu, "more than the headers is possible"));
    }
    let digests = parse_digests("wire.digests", &w.digests)?;
    let block_bytes = parse_size(&file.ring.block_size).map_err(|e| wrong("ring.block-size", &e))?;
    if block_bytes == 0 || block_bytes > 1 << 30 {
        return Err(ModelError::new("ring.block-size", block_bytes, "1 byte to 1G is possible"));
    }
    let write = match file.ring.operation.as_str() {
        "read" => false,
        "write" => true,
        other => return Err(ModelError::new("ring.operation", other, "read or write is possible")),
    };
    let messages = Messages { block_bytes, write, header_digest: digests.header, data_digest: digests.data };
    Ok((link, messages))
}

fn read_stages(tables: &[StageTable], link: Link, messages: Messages) -> Result<Vec<Stage>, ModelError> {
    let time = |key: String, text: &str| -> Result<Known, ModelError> {
        // A parameter is exact unless it says otherwise.
        let exact = !text.contains("+-") && !text.contains('±');
        let known = Known::parse_time_us(text).map_err(|e| wrong(key, &e))?;
        Ok(if exact { Known::exactly(known.value) } else { known })
    };
    let read = |s: &StageTable| {
        let service = match (&s.service, s.name.as_str()) {
            (Some(text), _) => time(format!("{}.service", s.name), text)?,
            (None, "W1") => Known::exactly(link.wire().own_packets_us(messages.request_bytes())),
            (None, "W2") => Known::exactly(link.wire().own_packets_us(messages.response_bytes())),
            (None, name) => {
                let key = format!("{name}.service");
                return Err(ModelError::new(key, "nothing", "only W1 and W2 follow from the wire"));
            }
        };
        let latency = time(format!("{}.latency", s.name), s.latency.as_deref().unwrap_or("0us"))?;
        let part = |key: &str, text: Option<&str>| match text {
            Some(text) => Ok(time(format!("{}.{key}", s.name), text)?.value),
            None => Ok::<_, ModelError>(0.0),
        };
        Ok(Stage {
            per_received_us: part("per-packet-received", s.per_packet_received.as_deref())?,
            per_sent_us: part("per-packet-sent", s.per_packet_sent.as_deref())?,
            resource: s.resource.clone().unwrap_or_else(|| s.name.clone()),
            paced: s.paced,
            interrupt: s.interrupt,
            ..Stage::own(&s.name, service.value, latency.value)
                .known_within(service.plus_minus, latency.plus_minus)
        })
    };
    tables.iter().map(read).collect()
}

/// The rate of the saturated run, where it is given.
fn rate(saturated: &SaturatedTable) -> Result<Option<Known>, ModelError> {
    let Some(text) = &saturated.iops else { return Ok(None) };
    let iops = Known::parse_number(text).map_err(|e| wrong("saturated.iops", &e))?;
    if iops.value <= 0.0 {
        return Err(ModelError::new("saturated.iops", text, "a rate above 0 is possible, such as 63000"));
    }
    Ok(Some(iops))
}

/// How much faster than its times allow a saturated run may be: times are rounded, and CPU shares are sampled.
const FASTER_MAX: f64 = 1.1;

/// The paper's own check: TPTmin is 1 / IOPS. A slower run was not saturated, a faster one is of another system.
fn check_rate(saturated: &SaturatedTable, ring: &Ring) -> Result<(), ModelError> {
    let Some(iops) = rate(saturated)? else { return Ok(()) };
    let limit = ring.iops_max();
    if iops.value <= limit * FASTER_MAX {
        return Ok(());
    }
    Err(ModelError::new(
        "saturated.iops",
        format!("{iops}, where the times allow {limit:.0}"),
        "the times and the rate are not of one run: more operations than the busiest stage can serve",
    ))
}

fn calibrated(
    saturated: &SaturatedTable,
    depth_one: &DepthOneTable,
    link: Link,
    messages: Messages,
    paced: bool,
) -> Result<Calibrated, ModelError> {
    let iops = rate(saturated)?;
    let work = |name: &str, text: Option<&str>| -> Result<Option<Known>, ModelError> {
        let Some(text) = text else { return Ok(None) };
        let key = format!("saturated.{name}");
        if !text.contains('%') {
            return Known::parse_time_us(text).map(Some).map_err(|e| wrong(key, &e));
        }
        let iops = iops.filter(|k| k.value > 0.0).ok_or_else(|| {
            ModelError::new(
                "saturated.iops",
                "nothing",
                "a share of a CPU needs the IOPS at which it was read",
            )
        })?;
        let share = Known::parse_number(text).map_err(|e| wrong(key, &e))?;
        Ok(Some(share / iops * 1e6))
    };
    let side = |names: [&str; 3], softirq: &Option<String>, thread: &String, transmit: &Option<String>| {
        Ok::<_, ModelError>(SideWork {
            softirq: work(names[0], softirq.as_deref())?.unwrap_or_default(),
            thread: work(names[1], Some(thread))?.unwrap_or_default(),
            transmit: work(names[2], transmit.as_deref())?,
        })
    };
    let s = saturated;
    let server = ["server-softirq", "server-thread", "server-transmit"];
    let client = ["client-softirq", "client-thread", "client-transmit"];
    let saturated = Saturated {
        server: side(server, &s.server_softirq, &s.server_thread, &s.server_transmit)?,
        client: side(client, &s.client_softirq, &s.client_thread, &s.client_transmit)?,
    };
    let time = |name: &str, text: &str| {
        Known::parse_time_us(text).map_err(|e| wrong(format!("depth-one.{name}"), &e))
    };
    let one = DepthOne {
        rtt: time("rtt", &depth_one.rtt)?,
        outside_client: time("c2-c1", &depth_one.outside_client)?,
        server: time("s2-s1", &depth_one.server)?,
        request_path: depth_one.request_path.as_deref().map(|t| time("s1-c1", t)).transpose()?,
    };
    let wire = link.wire();
    let times = WireTimes {
        w1_us: wire.own_packets_us(messages.request_bytes()),
        w2_us: wire.own_packets_us(messages.response_bytes()),
        paced,
    };
    let apart = s.server_softirq.is_some() || s.client_softirq.is_some();
    let placement = match s.cpus {
        Cpus::Own => Placement::OwnCpus,
        Cpus::TransmitApart => Placement::TransmitApart,
        Cpus::Shared if apart => Placement::Interrupts,
        Cpus::Shared => Placement::OneStage,
    };
    let mut calibrated = calibrate(&saturated, &one, &times, placement)?;
    let part = |key: &str, text: Option<&str>| {
        Ok::<_, ModelError>(work(key, text)?.map_or(0.0, |us: Known| us.value))
    };
    let sides = [
        (
            Role::Server,
            part("server-packet-received", s.server_packet_received.as_deref())?,
            part("server-packet-sent", s.server_packet_sent.as_deref())?,
        ),
        (
            Role::Client,
            part("client-packet-received", s.client_packet_received.as_deref())?,
            part("client-packet-sent", s.client_packet_sent.as_deref())?,
        ),
    ];
    let mut stages = calibrated.ring.stages().to_vec();
    for (role, received_us, sent_us) in sides {
        // A side's first stage receives, its last one sends.
        let of_side = |stage: &&mut Stage| stage.role() == role;
        if let Some(first) = stages.iter_mut().find(of_side) {
            first.per_received_us = received_us;
        }
        if let Some(last) = stages.iter_mut().rev().find(of_side) {
            last.per_sent_us = sent_us;
        }
    }
    calibrated.ring = Ring::new(stages)?;
    Ok(calibrated)
}

fn read_copy(copy: &CopyTable) -> Result<CopyModel, ModelError> {
    let bytes = |key: &str, text: &str| -> Result<f64, ModelError> {
        Ok(parse_size(text).map_err(|e| wrong(key, &e))? as f64)
    };
    let [a, b] = copy.measured.as_slice() else {
        return Err(ModelError::new("copy.measured", copy.measured.len(), "two measurements are needed"));
    };
    let measured = |m: &MeasuredTable| {
        Ok::<_, ModelError>(Measured {
            unit_bytes: bytes("copy.measured.unit", &m.unit)?,
            bytes_per_second: m.megabytes_per_second * 1e6,
        })
    };
    let asked = copy.predict.iter().map(|t| bytes("copy.predict", t)).collect::<Result<Vec<_>, _>>()?;
    CopyModel::new(&copy.unit, [measured(a)?, measured(b)?], &asked)
}

fn wrong(key: impl Into<String>, error: &UnitError) -> ModelError {
    ModelError::new(key, error, "see its units")
}

#[cfg(test)]
mod tests {
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
        assert!(
            (outcome.iops.value - 63_000.0).abs() < 10.0 && outcome.iops.plus_minus > 300.0,
            "{outcome:?}"
        );
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
}
