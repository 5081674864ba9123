//! Invalid arguments are reported in one clear line, with exit code 2.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::roundtrip;

#[track_caller]
fn refused(arguments: &[&str], named: &str) {
    let output = roundtrip().args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    assert!(text.contains(named), "{arguments:?}: '{named}' is not in: {text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(output.stdout.is_empty(), "nothing was done");
}

#[test]
fn unknown_words_are_named() {
    refused(&["nonsense"], "nonsense");
    refused(&["target", "--lun", "0=ram:1M", "--fast"], "--fast");
    refused(&["target", "--lun", "0=ram:1M", "--cpus", "0,999"], "CPU 999: the target may use");
    refused(
        &["target", "--lun", "0=ram:1M", "--send", "sometimes"],
        "'sometimes' is not a send policy; use auto, nodelay, nagle",
    );
    refused(&["bench", "iscsi://h/iqn.x/0", "--rw", "sideways"], "'sideways' is not an access pattern");
    refused(&["study", "-o", "x"], "--quick");
}

#[test]
fn impossible_sizes_and_times_are_named() {
    refused(&["target", "--lun", "0=ram:0"], "size 0");
    refused(&["target", "--lun", "0=ram:1000"], "multiple of 512");
    refused(&["target", "--lun", "0=ram:99P"], "at most");
    refused(&["target", "--lun", "0=floppy:1M"], "'floppy'");
    refused(&["target", "--lun", "900=ram:1M"], "0 to 255");
    refused(&["target", "--lun", "0=ram:1M", "--lun", "0=ram:1M"], "LUN 0 is given twice");
    refused(&["target", "--lun", "0=ram:1M", "--iqn", "disk"], "'disk' is not an iSCSI name");
    refused(&["target", "--lun", "0=ram:1M", "--portal", "nowhere"], "nowhere");
    refused(&["bench", "iscsi://127.0.0.1/iqn.x/0", "--bs", "4q"], "'q'");
    refused(&["bench", "iscsi://127.0.0.1/iqn.x/0", "--runtime", "5"], "ns, us, ms, s or m");
    refused(&["bench", "iscsi://127.0.0.1/iqn.x/0", "--iodepth", "0"], "queue depth 0");
    refused(&["bench", "ftp://127.0.0.1/iqn.x/0"], "http://, https:// or tcp://");
    refused(&["bench", "iscsi://127.0.0.1/iqn.x/0", "--bs", "512,0"], "--bs 0");
    refused(&["bench", "iscsi://127.0.0.1/iqn.x/0", "--timeout", "0s"], "longer than 0");
    refused(&["study", "--quick", "-o", "x", "--runtime", "1ms"], "100ms");
}

#[test]
fn impossible_rings_are_refused_with_the_key_s_name() {
    refused(&["model"], "<FILE>");
    refused(&["model", "--preset", "seed-9"], "'seed-9' is not a preset; use seed-512");
    refused(&["model", "--preset", "seed-512", "--what-if", "server-cpu=own"], "server-cpu = own");
    refused(&["model", "/no/such/ring.toml"], "/no/such/ring.toml");
    refused(&["model", "--preset", "seed-512", "--iodepth", "0"], "queue-depth = 0: 1 to 65536");
    refused(&["model", "--preset", "seed-512", "--what-if", "mtu=40"], "mtu = 40: 68 to 65535");
    refused(&["model", "--preset", "seed-512", "--what-if", "colour=red"], "what-if = colour");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ring.toml");
    std::fs::write(&file, "[[stage]]\nname = 'SP'\nservice = '-5us'\n").unwrap();
    refused(&["model", file.to_str().unwrap()], "SP.service");
}

#[test]
fn the_model_prints_the_published_run_as_json() {
    let output = roundtrip()
        .args(["model", "--preset", "seed-512", "--iodepth", "1,17,128", "--what-if", "sl=0", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let curve = result["curve"].as_array().unwrap();
    assert_eq!(curve.len(), 3);
    // RTT 275.7 us at queue depth 1, about 63,000 IOPS at depth, and no loss from 17 on.
    assert!((curve[0]["rtt_us"].as_f64().unwrap() - 275.7).abs() < 0.05, "{result}");
    for point in &curve[1..] {
        assert!((point["iops"].as_f64().unwrap() / 63_000.0 - 1.0).abs() < 0.01, "{result}");
    }
    assert_eq!(result["bottleneck"], "SI+SP+SK");
    assert_eq!(result["what_if"][0]["change"], "sl=0");
}

#[test]
fn a_workload_that_does_not_fit_the_disk_is_refused() {
    let target = common::Target::start(&["--lun", "0=ram:1M,bs=4k"]);
    refused(&["bench", &target.url(0), "--bs", "512"], "not a multiple of the disk's logical block");
    refused(&["bench", &target.url(0), "--bs", "2M"], "does not fit");
}

#[test]
fn files_that_cannot_be_written_are_named_before_anything_starts() {
    refused(&["study", "--quick", "-o", "/proc/no/such/place"], "/proc/no/such/place");
    refused(&["bench", "iscsi://127.0.0.1:1/iqn.x/0", "--ops", "/proc/no/such/file"], "/proc/no/such/file");
}

#[test]
fn refused_connection_fails_with_advice() {
    let output =
        roundtrip().args(["bench", "iscsi://127.0.0.1:1/iqn.x/0", "--runtime", "1s"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("cannot connect to 127.0.0.1:1") && text.contains("is the target running"),
        "{text}"
    );
}

#[test]
fn host_names_of_targets_are_resolved_or_refused_with_advice() {
    let url = "iscsi://nonexistent.invalid:3261/iqn.x/0";
    refused(
        &["bench", url],
        "cannot resolve the host name 'nonexistent.invalid' of nonexistent.invalid:3261",
    );
    refused(&["bench", url], "write the target's IP address");
    let target = common::Target::start(&["--lun", "0=ram:1M"]);
    let url = target.url(0).replace("127.0.0.1", "localhost");
    common::bench(&url, &["--runtime", "50ms", "--ramp", "0ms"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["target", "--lun", "0=ram:1M", "--portal", &address], &address);
}

#[test]
fn every_verb_has_help_with_an_example() {
    for verb in ["target", "bench", "study", "model"] {
        let output = roundtrip().args([verb, "--help"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("Example"), "{verb}: {text}");
    }
}

#[test]
fn model_reads_manual_tables_with_their_uncertainty() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tables.toml");
    let tables = "[saturated]\niops = '63000+-500'\nserver-thread = '100%'\nclient-thread = '54%'\n\
                  [depth-one]\nrtt = '275.7us'\nc2-c1 = '243.4us'\ns2-s1 = '32.6us'\n";
    std::fs::write(&file, tables).unwrap();
    let run = |extra: &[&str]| {
        let output = roundtrip().arg("model").arg(&file).args(extra).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&["--iodepth", "128"]);
    assert!(text.contains("63000±") && text.contains("15.9±0.1"), "{text}");
    let result: serde_json::Value = serde_json::from_str(&run(&["--iodepth", "128", "--json"])).unwrap();
    assert!(result["curve"][0]["iops_plus_minus"].as_f64().unwrap() > 300.0, "{result}");
}

#[test]
fn counterfactuals_are_ranked_and_every_preset_prints() {
    let output = roundtrip()
        .args(["model", "--preset", "seed-512-two-sends", "--iodepth", "4", "--json"])
        .args(["--what-if", "bandwidth=10gbit", "--what-if", "nodelay=on"])
        .output()
        .unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let changes = result["what_if"].as_array().unwrap();
    assert!(changes[0]["change"].as_str().unwrap().contains("nodelay=on"), "{result}");
    assert!(
        changes[0]["gain"].as_f64().unwrap() > 50.0 && changes[2]["gain"].as_f64().unwrap() < 0.1,
        "{result}"
    );
    for preset in ["seed-512-nagle", "seed-512-bimodal", "copy-mtu-read", "copy-buffer-write", "post"] {
        let output = roundtrip().args(["model", "--preset", preset]).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 200, "{preset}");
    }
}

#[test]
fn pages_and_completions_have_every_verb_that_help_shows() {
    let folder = tempfile::tempdir().unwrap();
    let (man, completions) = (folder.path().join("man"), folder.path().join("completions"));
    for (what, folder) in [("man", &man), ("completions", &completions)] {
        let output = roundtrip().args(["generate", what]).arg(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let help = String::from_utf8(roundtrip().arg("--help").output().unwrap().stdout).unwrap();
    let verbs = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    // Descriptions of several lines go on further right.
    let verbs = verbs.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 9 && verbs.contains(&"ctl"), "{help}");
    let bash = std::fs::read_to_string(completions.join("roundtrip.bash")).unwrap();
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let page = std::fs::read_to_string(man.join(format!("roundtrip-{verb}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{verb}: {page}");
        assert!(bash.contains(&format!("roundtrip__subcmd__{verb})")), "{verb}");
    }
    assert!(man.join("roundtrip-ctl-disk-add.1").exists() && completions.join("_roundtrip").exists());
    // Hidden verbs are for programs.
    assert!(!man.join("roundtrip-study-client.1").exists() && !bash.contains("study-client"));
}

/// A cause is explained without a capture; with one, each verdict is; and a name that is none is refused with those that are.
#[test]
fn a_cause_is_explained_without_a_capture() {
    let output = roundtrip().args(["analyze", "--explain=delayed_ack"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.starts_with("delayed ACK: full segments") && text.contains("Remedies"), "{text}");
    assert!(text.contains("Windows: TcpAckFrequency=1"), "{text}");
    let output = roundtrip().args(["analyze", "--explain=rain"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("header_body_apart"), "{error}");
    // Without a name it is of a capture, which is missing.
    let output = roundtrip().args(["analyze", "--explain"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("name a capture file"), "{error}");
}
