//! `roundtrip bench http://` and `https://` against nginx and haproxy: what is reported is what the server has logged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::process::Output;

use common::nginx::{Logged, Nginx, certificate};
use common::{Served, bench, records, roundtrip};
use serde_json::Value;

/// Requests of each connection before the measured time.
const WARM_UP: u64 = 4;
const SHORT: [&str; 2] = ["--runtime", "200ms"];

/// Runs `bench` and returns its first run and its exit code.
fn run(url: &str, arguments: &[&str]) -> (Value, i32) {
    let short = if arguments.contains(&"--runtime") { &[][..] } else { &SHORT };
    // Without a ramp, every request but those of the warm-up is counted.
    let ramp = if arguments.contains(&"--ramp") { &[][..] } else { &["--ramp", "0ms"] };
    let command = ["bench", url, "--json"];
    let output = roundtrip().args(command).args(short).args(ramp).args(arguments).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (result["runs"][0].clone(), output.status.code().unwrap())
}

fn refused(arguments: &[&str]) -> (String, Option<i32>) {
    let Output { stderr, stdout, status } = roundtrip().arg("bench").args(arguments).output().unwrap();
    assert!(stdout.is_empty());
    (String::from_utf8_lossy(&stderr).into_owned(), status.code())
}

fn number(run: &Value, key: &str) -> u64 {
    run[key].as_u64().unwrap_or_else(|| panic!("{key}: {run:#}"))
}

/// Checks a run of successes against the server's log.
#[track_caller]
fn agrees(run: &Value, log: &[Logged], connections: u64, body_bytes: u64) {
    let all = log.len() as u64;
    let (warm_up, operations) = (WARM_UP * connections, number(run, "operations"));
    // The requests in flight when the measured time ended are in no rate.
    assert!(
        (warm_up + operations..=warm_up + operations + connections).contains(&all),
        "{all} requests: {run:#}"
    );
    assert!(log.iter().all(|logged| logged.body_bytes == body_bytes), "{log:?}");
    assert_eq!(number(run, "transferred_bytes"), operations * body_bytes);
    let opened: BTreeSet<u64> = log.iter().map(|logged| logged.connection).collect();
    // The last connection of each place may have been made for a request that did not start.
    let counted = number(&run["connections"], "opened");
    assert!(
        (opened.len() as u64..=opened.len() as u64 + connections).contains(&counted),
        "{} {run:#}",
        opened.len()
    );
}

#[test]
fn keep_alive_limits_are_survived() {
    for (directive, connections, least) in [
        ("keepalive_requests 3;", 4, 20),
        ("keepalive_requests 1000;", 2, 2),
        ("keepalive_timeout 0;", 3, 40),
    ] {
        let nginx = Nginx::start(&format!("listen LISTEN; {directive} location / {{ return 200 'hello'; }}"));
        let (run, code) =
            run(&nginx.url("/"), &["--iodepth", &connections.to_string(), "--runtime", "500ms"]);
        assert_eq!(
            (code, number(&run, "errors"), number(&run["connections"], "retried")),
            (0, 0, 0),
            "{run:#}"
        );
        assert!(number(&run["connections"], "opened") >= least, "{directive}: {run:#}");
        assert!(run["connections"]["setup_us"]["mean"].as_f64().unwrap() > 0.0);
        assert!(run["connections"]["tls_us"].is_null());
        agrees(&run, &nginx.log(), connections, 5);
    }
}

/// nginx closes without notice when it is idle for longer than this: in an open loop, most connections are.
#[test]
fn idle_connections_that_the_server_closes_are_made_again() {
    let nginx = Nginx::start("listen LISTEN; keepalive_timeout 20ms; location / { return 200 'hello'; }");
    let (run, code) = run(&nginx.url("/"), &["--iodepth", "4", "--rate", "20", "--runtime", "1s"]);
    assert_eq!((code, number(&run, "errors")), (0, 0), "{run:#}");
    assert!(number(&run["connections"], "opened") > 10, "{run:#}");
    let all = number(&run, "operations") + number(&run, "behind");
    assert!((19..=20).contains(&all), "{run:#}");
}

#[test]
fn the_path_the_host_and_the_fields_are_those_of_the_user() {
    let nginx = Nginx::start("listen LISTEN; location / { return 200 'x'; }");
    let (ip, host) = (nginx.ip.clone(), format!("{}:8080", nginx.ip));
    for (path, fields) in [("", &[][..]), ("/?q=%20/a", &["-H", "X-A:  b c "]), ("/a/{bs}", &["--bs", "4k"])]
    {
        let (run, code) = run(&nginx.url(path), fields);
        assert_eq!((code, number(&run, "errors")), (0, 0), "{run:#}");
    }
    let file = nginx.path("fields");
    std::fs::write(&file, "host: other\n\nX-A: from a file\n").unwrap();
    run(&nginx.url("/h"), &["--header", &format!("@{}", file.display()), "--method", "OPTIONS"]);
    let log = nginx.log();
    let seen: BTreeSet<Vec<&str>> =
        log.iter().map(|logged| logged.fields[..4].iter().map(String::as_str).collect()).collect();
    let expected: [Vec<&str>; 4] = [
        vec![&host, "/", "-", "-"],
        vec![&host, "/?q=%20/a", "b c", "-"],
        vec![&host, "/a/4096", "-", "-"],
        vec!["other", "/h", "from a file", "-"],
    ];
    assert_eq!(seen, BTreeSet::from(expected), "{ip}");
}

#[test]
fn statuses_other_than_2xx_are_counted_and_are_no_throughput() {
    let nginx = Nginx::start(
        "listen LISTEN;
         location / { return 200 'hello'; }
         location /missing { return 404; }
         location /broken { return 500; }
         location /moved { return 302 /; }
         location /empty { return 204; }",
    );
    for (path, class) in
        [("/missing", "HTTP status 404"), ("/broken", "HTTP status 500"), ("/moved", "HTTP status 302")]
    {
        let (run, code) = run(&nginx.url(path), &["--iodepth", "2"]);
        let errors = number(&run, "errors");
        assert!(code == 1 && errors > 10, "{run:#}");
        assert_eq!(run["failures"], serde_json::json!([{ "class": class, "count": errors }]));
        assert_eq!(
            (number(&run, "operations"), run["iops"].as_f64(), run["bytes_per_second"].as_f64()),
            (0, Some(0.0), Some(0.0))
        );
        assert!(run["failed_mean_us"].as_f64().unwrap() > 0.0 && run["first_error"] == class);
    }
    let (empty, code) = run(&nginx.url("/empty"), &[]);
    assert_eq!((code, number(&empty, "errors"), number(&empty, "transferred_bytes")), (0, 0, 0));
    assert!(number(&empty, "operations") > 10);
    // Redirects are not followed.
    assert!(nginx.log().iter().all(|logged| logged.fields[1] != "/"));
}

/// nginx answers only some requests: a rate is that of successes.
#[test]
fn a_rate_limit_shows_as_errors_beside_the_rate_it_allows() {
    let nginx = Nginx::start(
        "listen LISTEN; location / { if ($connection_requests ~ '[02468]$') { return 503; } return 200 'hello'; }",
    );
    let (run, code) = run(&nginx.url("/"), &["--iodepth", "3"]);
    let (errors, operations) = (number(&run, "errors"), number(&run, "operations"));
    assert!(code == 1 && errors.abs_diff(operations) <= 6 && operations > 10, "{run:#}");
    let log = nginx.log();
    let ok = log.iter().filter(|logged| logged.status == 200).count() as u64;
    assert!((operations..=operations + 3 * (WARM_UP + 1)).contains(&ok), "{ok}: {run:#}");
}

#[test]
fn bodies_without_a_length_are_counted_exactly() {
    // A filter that may change the length makes nginx send chunks.
    let nginx = Nginx::start(
        "listen LISTEN; root FOLDER/www; sub_filter_types *; location /chunked { alias FOLDER/www; sub_filter 'A' 'BBB'; sub_filter_once off; }
         location /file { alias FOLDER/www; }",
    );
    std::fs::create_dir(nginx.path("www")).unwrap();
    std::fs::write(nginx.path("www/a"), "A".repeat(100_000)).unwrap();
    let (chunked, code) = run(&nginx.url("/chunked/a"), &["--iodepth", "2"]);
    assert_eq!((code, number(&chunked, "errors")), (0, 0), "{chunked:#}");
    assert_eq!(number(&chunked, "transferred_bytes"), 300_000 * number(&chunked, "operations"));
    assert_eq!(number(&chunked, "block_size_bytes"), 300_000);
    let (file, _) = run(&nginx.url("/file/a"), &[]);
    assert_eq!(number(&file, "transferred_bytes"), 100_000 * number(&file, "operations"));
    let (head, code) = run(&nginx.url("/file/a"), &["--method", "HEAD"]);
    assert_eq!((code, number(&head, "errors"), number(&head, "transferred_bytes")), (0, 0, 0), "{head:#}");
    assert!(number(&head, "operations") > 10);
}

#[test]
fn a_file_is_sent_as_the_body() {
    let nginx = Nginx::start(
        "listen LISTEN; client_max_body_size 3m; location / { root FOLDER/put; dav_methods PUT; create_full_put_path on; }",
    );
    let (body, put) = (nginx.path("body"), nginx.path("put/x"));
    common::random_file(&body, 2_000_001);
    let path = body.display().to_string();
    let (result, code) =
        run(&nginx.url("/x"), &["--method", "PUT", "--body-file", &path, "-H", "Content-Type: text/x-a"]);
    assert_eq!(
        (code, number(&result, "errors"), number(&result, "block_size_bytes")),
        (0, 0, 2_000_001),
        "{result:#}"
    );
    assert_eq!(number(&result, "transferred_bytes"), 2_000_001 * number(&result, "operations"));
    assert!(std::fs::read(put).unwrap() == std::fs::read(&body).unwrap());
    // A body over the server's limit is answered before all of it is sent.
    let (large, code) = run(&nginx.url("/y"), &["--method", "PUT", "--bs", "32M", "--iodepth", "2"]);
    let class = large["failures"][0]["class"].as_str().unwrap();
    assert!(code == 1 && class == "HTTP status 413" && number(&large, "operations") == 0, "{large:#}");
    assert!(nginx.log().iter().all(|logged| logged.fields[3] == "text/x-a" || logged.status == 413));
}

/// A server of the certificate's names, with small and large responses.
fn https(names: &str) -> Nginx {
    let (folder, ip) = (tempfile::tempdir().unwrap(), Nginx::next_ip());
    certificate(folder.path(), &names.replace("ADDRESS", &ip));
    std::fs::create_dir(folder.path().join("www")).unwrap();
    std::fs::write(folder.path().join("www/large"), vec![7; 1_000_000]).unwrap();
    let server = "listen LISTEN ssl; ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem;
                  keepalive_requests 5; client_max_body_size 64m; location / { return 200 'hello'; }
                  location /files { alias FOLDER/www; } location /put { root FOLDER; dav_methods PUT; }";
    Nginx::start_in(folder, ip, server)
}

#[test]
fn tls_is_verified_and_measured() {
    let nginx = https("DNS:test.example,IP:ADDRESS");
    let ca = nginx.path("ca.pem").display().to_string();
    let (run_small, code) = run(&nginx.https("/"), &["--ca-file", &ca, "--iodepth", "3"]);
    assert_eq!((code, number(&run_small, "errors")), (0, 0), "{run_small:#}");
    let connections = &run_small["connections"];
    let (set_up, tls) = (connections["setup_us"]["mean"].as_f64(), connections["tls_us"]["mean"].as_f64());
    assert!(tls.unwrap() > 0.0 && set_up > tls && number(connections, "opened") > 6, "{run_small:#}");
    let (large, code) = run(&nginx.https("/files/large"), &["--ca-file", &ca, "--iodepth", "2"]);
    assert_eq!((code, number(&large, "errors")), (0, 0), "{large:#}");
    assert_eq!(number(&large, "transferred_bytes"), 1_000_000 * number(&large, "operations"));
    let put = ["--ca-file", &ca, "--method", "PUT", "--bs", "1M", "--iodepth", "2"];
    let (sent, code) = run(&nginx.https("/put"), &put);
    assert_eq!((code, number(&sent, "errors")), (0, 0), "{sent:#}");
    assert_eq!(std::fs::metadata(nginx.path("put")).unwrap().len(), 1 << 20);
    let log = nginx.log();
    assert!(log.iter().all(|logged| logged.fields[5] == "http/1.1"), "ALPN");
    let small: Vec<Logged> = log.into_iter().filter(|logged| logged.fields[1] == "/").collect();
    agrees(&run_small, &small, 3, 5);
}

#[test]
fn certificates_that_do_not_verify_are_refused_unless_insecure() {
    let nginx = https("DNS:test.example");
    let (ca, url) = (nginx.path("ca.pem").display().to_string(), nginx.https("/"));
    let key = nginx.path("key.pem").display().to_string();
    for (options, expected, code) in [
        (&[][..], "no trusted certificate authority has issued the server's certificate; name", 1),
        (&["--ca-file", &ca], &format!("not valid for '{}', only for test.example; use", nginx.ip), 1),
        (&["--ca-file", &key], "no certificate found", 2),
        (&["--ca-file", "/nonexistent"], "/nonexistent", 2),
        (&["--ca-file", &ca, "--insecure"], "cannot be used with", 2),
        (&["--writes", "apart", "--insecure"], "--writes has no effect", 2),
    ] {
        let (error, found) = refused(&[&[&*url][..], &SHORT, options].concat());
        assert!(found == Some(code) && error.contains(expected), "{options:?}: {error}");
        assert!(code == 2 || error.contains("--insecure"), "what to do: {error}");
    }
    let output = roundtrip().args(["bench", &url, "--insecure", "--json"]).args(SHORT).output().unwrap();
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && warning.contains("WARNING") && warning.contains("NOT verified"),
        "{warning}"
    );
    let plain = Nginx::start("listen LISTEN; location / { return 200 'x'; }");
    let (error, _) = refused(&[&[&*plain.https("/")][..], &SHORT, &["--insecure"]].concat());
    assert!(error.contains("does the server use TLS on this port?"), "{error}");
    let (error, code) = refused(&[&*plain.url("/"), "--insecure"]);
    assert!(code == Some(2) && error.contains("no effect without https://"), "{error}");
}

/// A certificate as `openssl req -x509` makes it by default: an authority's.
#[test]
fn an_authority_s_certificate_as_the_server_s_is_explained() {
    let (folder, ip) = (tempfile::tempdir().unwrap(), Nginx::next_ip());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let name = format!("subjectAltName=IP:{ip}");
    let new = ["req", "-newkey", "rsa:2048", "-nodes", "-batch", "-x509", "-days", "2", "-subj", "/CN=x"];
    let files = ["-keyout", &file("key.pem"), "-out", &file("cert.pem"), "-addext", &name];
    common::succeed("openssl", &[&new[..], &files].concat());
    let server = "listen LISTEN ssl; ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem;";
    let nginx = Nginx::start_in(folder, ip, server);
    let ca = nginx.path("cert.pem").display().to_string();
    let (error, code) = refused(&[&*nginx.https("/"), "--ca-file", &ca]);
    assert!(
        code == Some(1) && error.contains("certificate of a certificate authority as its own"),
        "{error}"
    );
    assert!(
        error.contains("CA:FALSE") && error.contains("--insecure") && !error.contains("CaUsed"),
        "{error}"
    );
}

/// The name of the URL is what the server and its certificate are asked for.
#[test]
fn the_host_name_is_sent_by_tls() {
    let (folder, ip) = (tempfile::tempdir().unwrap(), "127.0.0.1".to_owned());
    certificate(folder.path(), "DNS:localhost");
    let port = std::net::TcpListener::bind((&*ip, 0)).unwrap().local_addr().unwrap().port();
    let server = format!(
        "listen 127.0.0.1:{port} ssl; ssl_certificate FOLDER/cert.pem; ssl_certificate_key FOLDER/key.pem; location / {{ return 200 'x'; }}"
    );
    let nginx = Nginx::start_in(folder, ip, &server);
    let ca = nginx.path("ca.pem").display().to_string();
    let (run, code) = run(&format!("https://localhost:{port}/"), &["--ca-file", &ca]);
    assert_eq!((code, number(&run, "errors")), (0, 0), "{run:#}");
    let log = nginx.log();
    let host = format!("localhost:{port}");
    assert!(
        !log.is_empty() && log.iter().all(|l| l.fields[4] == "localhost" && l.fields[0] == host),
        "{log:?}"
    );
}

#[test]
fn host_names_resolve_to_the_address_that_answers() {
    let server = Served::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    // `localhost` has an IPv6 address on most systems, on which nothing listens here.
    let result = bench(&format!("http://localhost:{port}/64"), &SHORT);
    assert_eq!(result["runs"][0]["block_size_bytes"], 64);
    let (error, code) = refused(&["http://nonexistent.invalid/"]);
    assert!(code == Some(2) && error.contains("does not resolve"), "{error}");
}

#[test]
fn unusable_arguments_are_refused_without_showing_secrets() {
    let url = "http://127.0.0.1:9/";
    for (arguments, expected) in [
        (&[url, "-H", "Authorization: secret\r\nX: y"][..], "Authorization"),
        (&[url, "-H", "secret"], "no colon"),
        (&[url, "-H", "@/nonexistent"], "/nonexistent"),
        (&[url, "-H", "@/dev/zero"], "at most 65536"),
        (&[url, "-H", "Content-Length: 5"], "the program sets it"),
        (&["http://me:secret@127.0.0.1:9/"], "credentials"),
        (&[url, "--method", "CONNECT"], "tunnel"),
        (&[url, "--method", "GE T"], "not a method"),
        (&[url, "--body-file", "/etc/hostname"], "no body"),
        (&[url, "--method", "PUT", "--body-file", "/nonexistent"], "/nonexistent"),
        (&[url, "--method", "PUT", "--body-file", "/dev/zero"], "at most 67108864"),
        (&[url, "--bs", "4k"], "{bs}"),
        (&[url, "--rw", "randrw"], "only --rw read"),
        (&[url, "--threads", "0"], "at least 1"),
        (&[url, "--arrival", "poisson"], "add --rate"),
        (&[url, "--seed", "7"], "--arrival poisson"),
        (&[url, "--size", "1M"], "--size has no effect"),
        (&[url, "--ops", "/proc/no/such/file.csv"], "/proc/no/such/file.csv"),
        (&[url, "--iodepth", "1025"], "1 to 1024"),
        (&["iscsi://127.0.0.1:9/iqn.2026-11.example:x/0", "--method", "GET"], "--method has no effect"),
        (&["tcp://127.0.0.1:9", "--insecure"], "--insecure has no effect"),
    ] {
        let (error, code) = refused(arguments);
        assert!(code == Some(2) && error.contains(expected), "{arguments:?}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn the_table_is_followed_by_the_set_up_of_connections() {
    let nginx = Nginx::start("listen LISTEN; keepalive_requests 10; location / { return 200 'hello'; }");
    let output = roundtrip().args(["bench", &nginx.url("/"), "--iodepth", "2"]).args(SHORT).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.contains("connections were set up"))
        .unwrap_or_else(|| panic!("{text}"));
    let count = line.split(": ").nth(1).unwrap().split(" connections").next().unwrap();
    let opened: u64 = count.replace(' ', "").parse().unwrap();
    let logged: BTreeSet<u64> = nginx.log().iter().map(|logged| logged.connection).collect();
    assert!(opened.abs_diff(logged.len() as u64) <= 2, "{line}: {}", logged.len());
    assert!(line.contains("mean") && line.contains("p99"), "{line}");
}
/// Every request that nginx has logged after the warm-up has a record: with those of the ramp, and with failures.
#[test]
fn each_request_has_a_record() {
    let nginx = Nginx::start(
        "listen LISTEN; keepalive_requests 50;
         location / { if ($connection_requests ~ '7$') { return 503 'busy'; } return 200 'hello'; }",
    );
    let file = nginx.path("ops.csv");
    let ops = ["--ops", file.to_str().unwrap(), "--iodepth", "3", "--ramp", "100ms", "--runtime", "100ms"];
    let (result, code) = run(&nginx.url("/"), &ops);
    assert_eq!(code, 1, "{result:#}");
    let all = records(&file);
    let log = nginx.log();
    assert_eq!(all.len() + WARM_UP as usize * 3, log.len(), "{result:#}");
    let failed = |outcome: &str| all.iter().filter(|op| op["outcome"] == outcome).count();
    let busy = log.iter().filter(|logged| logged.status == 503).count();
    // Each connection of the warm-up has asked four times only.
    assert_eq!((failed("failed"), failed("good")), (busy, all.len() - busy));
    assert!(number(&result, "errors") + number(&result, "unmeasured_errors") == busy as u64 && busy > 3);
    for op in &all {
        let bytes = if op["outcome"] == "good" { "5" } else { "4" };
        assert_eq!((&*op["operation"], &*op["kind"], &*op["data_bytes"]), ("GET", "read", bytes), "{op:?}");
        assert_eq!(op["queue_depth"], "3");
        assert!(op["request_bytes"].parse::<u32>().unwrap() > 40, "{op:?}");
        assert!(op["response_bytes"].parse::<u32>().unwrap() > 100, "{op:?}");
        let at = |name: &str| op[name].parse::<u64>().unwrap();
        assert!(at("finish_ns") > at("start_ns") && at("start_ns") > 1_600_000_000_000_000_000, "{op:?}");
    }
    let connections: BTreeSet<&str> = all.iter().map(|op| &*op["connection"]).collect();
    let logged: BTreeSet<u64> = log.iter().map(|logged| logged.connection).collect();
    assert!(connections.len().abs_diff(logged.len()) <= 3, "{connections:?}");
    // Requests of a connection are numbered, so no two have the same connection and tag.
    let distinct: BTreeSet<_> = all.iter().map(|op| (&op["connection"], &op["tag"])).collect();
    assert_eq!(distinct.len(), all.len());
}

/// A ramp delays the measured time, and what happens in it is in no figure but the connections.
#[test]
fn the_ramp_of_a_load_is_not_measured() {
    let nginx = Nginx::start("listen LISTEN; location / { return 200 'hello'; }");
    let (result, code) = run(&nginx.url("/"), &["--ramp", "400ms", "--runtime", "100ms", "--rate", "1000"]);
    assert_eq!((code, number(&result, "unmeasured_errors")), (0, 0), "{result:#}");
    let operations = number(&result, "operations") + number(&result, "behind");
    assert!((95..=105).contains(&operations), "{result:#}");
    let all = nginx.log().len() as u64;
    assert!((495..=505).contains(&(all - WARM_UP + number(&result, "behind"))), "{all}: {result:#}");
}

#[test]
fn poisson_arrivals_of_requests_keep_the_mean_rate() {
    let nginx = Nginx::start("listen LISTEN; location / { return 200 'hello'; }");
    let file = nginx.path("ops.csv");
    let load = ["--rate", "1000", "--arrival", "poisson", "--iodepth", "64", "--runtime", "2s", "--ops"];
    let with = |seed: &str| {
        let (result, code) =
            run(&nginx.url("/"), &[&load[..], &[file.to_str().unwrap(), "--seed", seed]].concat());
        assert_eq!((code, &result["arrival"], &result["rate"]), (0, &"poisson".into(), &1000.0.into()));
        let mut starts: Vec<u64> = records(&file).iter().map(|op| op["start_ns"].parse().unwrap()).collect();
        starts.sort_unstable();
        starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect::<Vec<f64>>()
    };
    let intervals = with("1");
    let count = intervals.len() as f64;
    let mean = intervals.iter().sum::<f64>() / count;
    let deviation = (intervals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
    // Due times, so the scheduler has no part in them: mean and deviation of an exponential distribution are equal.
    assert!((mean - 1.0).abs() < 5.0 / count.sqrt(), "{mean} ms, {count}");
    assert!((deviation / mean - 1.0).abs() < 0.15, "{deviation} {mean}");
    assert!((with("1")[7] - intervals[7]).abs() < 1e-9 && (with("2")[7] - intervals[7]).abs() > 1e-9);
}

/// The keys of fio, with the figures of nginx's log.
#[test]
fn json_plus_of_a_load_has_the_figures_of_the_log() {
    let nginx = Nginx::start(
        "listen LISTEN; client_max_body_size 1m; location / { return 200 'hello'; } location /put { root FOLDER; dav_methods PUT; }",
    );
    let url = nginx.url("/");
    let formats = |arguments: &[&str]| {
        let fixed = ["--ramp", "0ms", "--runtime", "1100ms", "--iodepth", "4", "--output-format", "json+"];
        let output = roundtrip().args(["bench"]).args(arguments).args(fixed).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["jobs"][0].clone()
    };
    let job = formats(&[&url]);
    let read = &job["read"];
    let count = number(read, "total_ios");
    assert!(count > 100 && number(read, "io_bytes") == count * 5, "{read:#}");
    assert_eq!(number(&read["clat_ns"], "N"), count);
    let bins = read["clat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), count);
    assert!(number(&read["clat_ns"]["percentile"], "99.000000") > 1000, "{read:#}");
    assert_eq!((number(&job["write"], "total_ios"), number(read, "iops_samples")), (0, 1), "{job:#}");
    assert_eq!(
        (&job["job options"]["rw"], &job["job options"]["iodepth"]),
        (&"randread".into(), &"4".into())
    );
    let put = nginx.url("/put");
    let job = formats(&[&put, "--method", "PUT", "--bs", "64k", "--rate", "200", "--arrival", "poisson"]);
    let written = number(&job["write"], "total_ios");
    assert!(written > 50 && number(&job["write"], "io_bytes") == written * 65_536, "{job:#}");
    assert_eq!(
        (&job["job options"]["rate_process"], number(&job["read"], "total_ios")),
        (&"poisson".into(), 0)
    );
    let log = nginx.log();
    let gets = log.iter().filter(|logged| logged.fields[1] == "/").count() as u64;
    assert!((count + 16..=count + 20).contains(&gets), "{gets} and {count}");
}

/// haproxy closes connections by itself, and answers for servers that do not.
#[test]
fn haproxy_is_loaded_with_its_own_limits() {
    let (folder, ip) = (tempfile::tempdir().unwrap(), Nginx::next_ip());
    let nginx = Nginx::start("listen LISTEN; location / { return 200 'hello'; }");
    let file = folder.path().join("haproxy.cfg");
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         listen all\n bind {ip}:8080\n http-request deny deny_status 429 if {{ path /denied }}\n use-server gone if {{ path /gone }}\n \
         server nginx {}:8080\n server gone 127.255.255.254:9 weight 0\n retries 0\n\
         listen closing\n bind {ip}:8081\n option httpclose\n server nginx {}:8080\n",
        nginx.ip, nginx.ip
    );
    std::fs::write(&file, config).unwrap();
    let program = std::path::Path::new("/usr/sbin/haproxy");
    // It listens when it has gone into the background.
    let pid_file = folder.path().join("pid");
    let started = std::process::Command::new(program)
        .args(["-D", "-q", "-f"])
        .arg(&file)
        .arg("-p")
        .arg(&pid_file)
        .status()
        .expect("haproxy starts (make setup installs it)");
    assert!(started.success());
    let pid: i32 = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    let runs = [
        (8080, "/", "", 0),
        (8080, "/denied", "HTTP status 429", 1),
        (8080, "/gone", "HTTP status 503", 1),
        (8081, "/", "", 0),
    ]
    .map(|(port, path, class, expected)| {
        let (run, code) = run(&format!("http://{ip}:{port}{path}"), &["--iodepth", "2"]);
        (run, code, class, expected, port)
    });
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    for (run, code, class, expected, port) in runs {
        assert_eq!(code, expected, "{run:#}");
        assert_eq!(run["failures"][0]["class"].as_str().unwrap_or_default(), class, "{run:#}");
        let all = number(&run, "operations") + number(&run, "errors");
        assert!(port == 8080 || number(&run["connections"], "opened") > all, "{run:#}");
    }
}
