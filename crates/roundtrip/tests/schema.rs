//! The published JSON Schemas (docs/schema) are those of the code, real output conforms to them, and no verb prints a key
//! twice. `ROUNDTRIP_WRITE_SCHEMAS=1 cargo test -p roundtrip --test schema` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;

use common::roundtrip;
use schemars::{JsonSchema, Schema, schema_for};
use serde_json::Value;

/// The result of `simulate --paper --json`.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Paper {
    /// The paper's table of busy cycles.
    paper: study::busy_cycles::BusyCycles,
}

/// The result of `simulate --json`.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Simulation {
    /// The runs, one for each combination of settings.
    runs: Vec<tcpsim::RunResult>,
    /// The values of `--sweep`, one for each run.
    swept: Vec<String>,
}

/// Every published schema with its file's name.
fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("analyze.json", schema_for!(analyzer::AnalysisResult)),
        ("compare.json", schema_for!(compare::Comparison)),
        ("capture.json", schema_for!(capture::record_to_file::Recorded)),
        ("host-check.json", schema_for!(host::report::Checked)),
        ("host-verify.json", schema_for!(host::verify::Verification)),
        ("host-show.json", schema_for!(host::facts::link::LinkFacts)),
        ("simulate.json", schema_for!(Simulation)),
        ("simulate-paper.json", schema_for!(Paper)),
        ("../target-file.schema.json", target_config::file::schema()),
    ]
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema"))
}

#[test]
fn published_schemas_are_those_of_the_code() {
    for (name, schema) in schemas() {
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let path = folder().join(name);
        if std::env::var_os("ROUNDTRIP_WRITE_SCHEMAS").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap();
        assert!(
            published == text,
            "docs/schema/{name} is not the schema of the code: ROUNDTRIP_WRITE_SCHEMAS=1 writes it"
        );
    }
}

/// Whether a value conforms to a schema, for the keywords that generated schemas use; what differs if not. Properties that the
/// schema does not name are errors, too.
fn check(schema: &Value, root: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(schema) = schema.as_object() else {
        return if schema == &Value::Bool(false) { Err(format!("{at}: nothing is allowed")) } else { Ok(()) };
    };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).ok_or(format!("{at}: {reference}"))?;
        check(target, root, value, at)?;
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(all) = schema.get(keyword).and_then(Value::as_array) {
            let errors: Vec<String> =
                all.iter().filter_map(|one| check_part(one, root, value, at).err()).collect();
            if errors.len() == all.len() {
                return Err(errors.join("; "));
            }
        }
    }
    if let Some(expected) = schema.get("const")
        && expected != value
    {
        return Err(format!("{at}: {value} is not {expected}"));
    }
    if let Some(all) = schema.get("enum").and_then(Value::as_array)
        && !all.contains(value)
    {
        return Err(format!("{at}: {value} is none of {all:?}"));
    }
    if let Some(kinds) = schema.get("type") {
        let kinds = kinds.as_array().cloned().unwrap_or_else(|| vec![kinds.clone()]);
        let is = |kind: &Value| match kind.as_str().unwrap_or_default() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            other => panic!("{other}"),
        };
        if !kinds.iter().any(is) {
            return Err(format!("{at}: {value} is not of {kinds:?}"));
        }
    }
    if let Some(object) = value.as_object() {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !object.contains_key(name.as_str().unwrap()) {
                return Err(format!("{at}: {name} is missing"));
            }
        }
        for (name, value) in object {
            let at = format!("{at}.{name}");
            match schema.get("properties").and_then(|all| all.get(name)) {
                Some(own) => check(own, root, value, &at)?,
                // The only pattern in use is that of whole numbers.
                None if object.keys().all(|name| name.parse::<u64>().is_ok())
                    && schema.contains_key("patternProperties") =>
                {
                    let patterns = schema["patternProperties"].as_object().unwrap();
                    patterns.values().try_for_each(|own| check(own, root, value, &at))?;
                }
                None => match schema.get("additionalProperties") {
                    Some(other) => check(other, root, value, &at)?,
                    None if may_have_others(schema) => {}
                    None => return Err(format!("{at} is not in the schema")),
                },
            }
        }
    }
    if let Some(array) = value.as_array() {
        let first = schema.get("prefixItems").and_then(Value::as_array);
        for (place, item) in array.iter().enumerate() {
            let own = first.and_then(|all| all.get(place)).or(schema.get("items"));
            if let Some(own) = own {
                check(own, root, item, &format!("{at}[{place}]"))?;
            }
        }
    }
    Ok(())
}

/// Whether other parts of the schema describe further properties.
fn may_have_others(schema: &serde_json::Map<String, Value>) -> bool {
    ["$ref", "oneOf", "anyOf"].iter().any(|keyword| schema.contains_key(*keyword))
}

/// As [`check`], for an alternative of a flattened enumeration, which names only its own properties.
fn check_part(schema: &Value, root: &Value, value: &Value, at: &str) -> Result<(), String> {
    let mut value = value.clone();
    if let (Some(object), Some(own)) =
        (value.as_object_mut(), schema.get("properties").and_then(Value::as_object))
    {
        object.retain(|name, _| own.contains_key(name));
    }
    check(schema, root, &value, at)
}

/// A reader of JSON that refuses a key that an object has twice.
struct Unique;

impl<'de> serde::de::DeserializeSeed<'de> for &Unique {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> serde::de::Visitor<'de> for Visitor {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element_seed(&Unique)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let mut names = std::collections::BTreeSet::new();
        while let Some(name) = all.next_key::<String>()? {
            all.next_value_seed(&Unique)?;
            if !names.insert(name.clone()) {
                return Err(serde::de::Error::custom(format!("the key '{name}' is there twice")));
            }
        }
        Ok(())
    }
}

/// The documents of a text: several if the verb prints lines of JSON.
#[track_caller]
fn unique(what: &str, text: &str) -> usize {
    let mut documents = 0;
    let mut stream = serde_json::Deserializer::from_str(text);
    while stream.end().is_err() {
        serde::de::DeserializeSeed::deserialize(&Unique, &mut stream)
            .unwrap_or_else(|e| panic!("{what}: {e}: {text}"));
        documents += 1;
    }
    documents
}

#[test]
fn a_key_that_is_there_twice_is_detected() {
    let read = |text: &str| {
        serde::de::DeserializeSeed::deserialize(&Unique, &mut serde_json::Deserializer::from_str(text))
            .is_ok()
    };
    assert!(read("{\"a\": [{\"b\": 1}, {\"b\": null}]}") && !read("{\"a\": [{\"b\": 1, \"b\": 2}]}"));
}

/// The keys of a pattern and of its row share one object: every pattern, also those that no simulation has.
#[test]
fn every_pattern_is_written_without_a_key_twice() {
    use analysis::modes::{Finding, FindingKind, Mode, Regime, Shape};
    let schema = schema_for!(analyzer::AnalysisResult);
    let row = &schema.as_value()["$defs"]["ModeRow"];
    assert!(row.is_object());
    let mode = Mode { centre_us: 1.0, mean_us: 2.0, share: 0.5, spread: 0.1 };
    let period = |shape| FindingKind::PeriodInTime { period_ms: 1.0, shape, height_us: 2.0 };
    let nth = FindingKind::EveryNth { n: 5, longer_us: 119.0 };
    let regime = Regime {
        from_operation: 1,
        to_operation: 2,
        from_ms: 0.5,
        to_ms: 1.5,
        share: 0.5,
        time_share: 0.5,
        median_us: 100.0,
        mean_us: 120.0,
        longer_us: 24.0,
        segment: analysis::Part::RequestPath,
        patterns: vec![Finding {
            kind: nth,
            segment: analysis::Part::RequestPath,
            operations: 1,
            text: String::new(),
        }],
    };
    for kind in [
        FindingKind::Regimes { regimes: vec![regime] },
        FindingKind::Modes { modes: vec![mode] },
        FindingKind::EveryNth { n: 3, longer_us: 5.0 },
        period(Shape::Square { high_ms: 1.0 }),
        period(Shape::Sawtooth { rising: true }),
        period(Shape::Other),
        FindingKind::Ramp { change_us: 1.0 },
        FindingKind::ChangePoint { at_operation: 7, after_ms: 1.0, levels_us: (1.0, 2.0) },
        FindingKind::ClockSkew { us_per_second: 1.0, height_us: 2.0, period_ms: None },
    ] {
        let finding = Finding { kind, segment: analysis::Part::Server, operations: 10, text: String::new() };
        let written = analyzer::ModeRow {
            connection: Some(0),
            service: None,
            operation: "read(10)".to_owned(),
            direction: record::OpKind::Read,
            block_size_bytes: 512.0,
            stanza_operations: 20,
            finding,
        };
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(unique("a pattern", &text), 1);
        check(row, schema.as_value(), &serde_json::from_str(&text).unwrap(), "modes[]").unwrap();
        let read: analyzer::ModeRow = serde_json::from_str(&text).unwrap();
        assert_eq!(read, written, "{text}");
    }
}

/// Every verb that needs no rights, and nothing but JSON on stdout.
#[test]
fn output_conforms_to_its_schema_and_has_no_key_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let output = roundtrip().args(arguments).arg("--json").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            unique(&format!("{arguments:?}"), &text),
            1,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    let schemas = schemas();
    let conforms = |name: &str, text: &str| {
        let schema = schemas.iter().find(|(known, _)| *known == name).unwrap().1.as_value();
        let value: Value = serde_json::from_str(text).unwrap();
        check(schema, schema, &value, name).unwrap();
        // An invented key is noticed.
        let mut wrong = value.clone();
        wrong["invented"] = 1.into();
        assert!(check(schema, schema, &wrong, name).is_err());
    };
    let presets: [(&str, &[&str]); 7] = [
        ("two-sends", &["--operations", "60"]),
        ("lossy", &["--operations", "3000"]),
        ("seed-512", &["--operations", "3000"]),
        // Moderated interrupts: the operations have modes.
        ("seed-512", &["--operations", "3000", "--iodepth", "3", "--set", "client.interrupt-gap=50us"]),
        ("more-broken", &["--operations", "30"]),
        ("post", &["--operations", "60"]),
        ("seed-512", &["--operations", "1000", "--iodepth", "16"]),
    ];
    for (number, (preset, more)) in presets.into_iter().enumerate() {
        let packets = path(&format!("{number}.pcapng"));
        let output = roundtrip()
            .args(["simulate", "--preset", preset, "--pcapng", &packets, "--json"])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{preset} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        unique(preset, &text);
        conforms("simulate.json", &text);
        conforms("analyze.json", &run(&["analyze", &packets, "--bandwidth", "1gbit"]));
        conforms("compare.json", &run(&["compare", &packets, &packets]));
        // A capture that begins in the middle, with bytes missing.
        let whole = std::fs::read(&packets).unwrap();
        let cut = path("cut.pcapng");
        std::fs::write(&cut, &whole[..whole.len() / 2 + 3]).unwrap();
        conforms("analyze.json", &run(&["analyze", &cut]));
        conforms("analyze.json", &run(&["analyze", &packets, "--port", "9"]));
    }
    std::fs::create_dir(folder.path().join("journal")).unwrap();
    for state in ["/none", &path("journal")] {
        conforms("host-verify.json", &run(&["host", "verify", "--state", state]));
        std::fs::write(path("journal/1.json"), "{").unwrap();
    }
    conforms("host-check.json", &run(&["host", "check", "--watch", "10ms"]));
    conforms("host-show.json", &run(&["host", "show", "lo"]));
    conforms("simulate-paper.json", &run(&["simulate", "--paper", "--operations", "200"]));
    for arguments in [
        &["simulate", "--list"][..],
        &["simulate", "--preset", "post", "--print"],
        &["simulate", "--operations", "30", "--iodepth", "1,2"],
        &["model", "--preset", "seed-512", "--what-if", "sl=0"],
        &["model", "--preset", "copy-mtu-read"],
        &["model", "--preset", "post"],
        &["study", "--quick", "--print"],
        &["wire", "plan", "--nat", "eth4", "eth5"],
        &["wire", "show", "--state", &path("wires")],
        &["wire", "down", "--all", "--state", &path("wires")],
    ] {
        run(arguments);
    }
}

/// The verbs that serve until they are stopped print lines of JSON.
#[test]
fn servers_print_lines_of_json() {
    use std::io::{BufRead as _, Read as _};
    for (arguments, documents) in [
        (&["serve", "--listen", "127.0.0.1:0"][..], 1),
        (&["serve", "--copies", "--listen", "127.0.0.1:0"], 1),
        (&["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M"], 2),
    ] {
        let mut child =
            roundtrip().args(arguments).arg("--json").stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        out.read_line(&mut text).unwrap();
        let ready: Value = serde_json::from_str(&text).unwrap();
        let address: std::net::SocketAddr = ready["ready"].as_str().unwrap().parse().unwrap();
        drop(std::net::TcpStream::connect(address).unwrap());
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(child.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        )
        .unwrap();
        out.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(unique(&format!("{arguments:?}"), &text), documents, "{text}");
    }
}
