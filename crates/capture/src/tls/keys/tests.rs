use super::*;

const RANDOM: &str = "cb34ecb1e78163ba1c38c6dacb196a6dffa21a8d9912ec18a2ef6283024dece7";

fn line(label: &str, bytes: usize) -> String {
    format!("{label} {RANDOM} {}\n", "a7".repeat(bytes))
}

fn read(text: &str) -> (Keys, KeyLog) {
    let keys = Keys::default();
    let log = keys.read(text.as_bytes()).unwrap();
    (keys, log)
}

#[test]
fn labels_that_are_of_use_are_kept() {
    let text = [
        "# SSL/TLS secrets log file\r\n".to_owned(),
        line("CLIENT_RANDOM", 48),
        line("CLIENT_TRAFFIC_SECRET_0", 32).replace('\n', "\r\n"),
        line("SERVER_TRAFFIC_SECRET_0", 48).to_lowercase().replacen(
            "server_traffic_secret_0",
            "SERVER_TRAFFIC_SECRET_0",
            1,
        ),
        line("EXPORTER_SECRET", 32),
        "RSA 0102030405060708 0303\n".to_owned(),
        "\n".to_owned(),
        line("SERVER_HANDSHAKE_TRAFFIC_SECRET", 32).trim_end().to_owned(),
    ]
    .concat();
    let (keys, log) = read(&text);
    assert_eq!(log, KeyLog { secrets: 4, wrong: Vec::new(), wrong_lines: 0 });
    let mut random = [0; 32];
    bytes(RANDOM.as_bytes(), &mut random).unwrap();
    assert_eq!(keys.find(&random, Label::Master).unwrap().bytes(), [0xa7; 48]);
    assert_eq!(keys.find(&random, Label::Client).unwrap().bytes().len(), 32);
    assert_eq!(keys.find(&random, Label::Server).unwrap().bytes().len(), 48);
    assert!(
        keys.find(&random, Label::ServerHandshake).is_some() && keys.find(&[0; 32], Label::Master).is_none()
    );
}

#[test]
fn wrong_lines_are_told_by_number_and_cost_nothing_else() {
    let short = line("CLIENT_RANDOM", 47);
    let odd = line("CLIENT_RANDOM", 48).replacen("a7", "a", 1);
    let letters = line("CLIENT_RANDOM", 48).replacen("a7", "zz", 1);
    let random = line("CLIENT_RANDOM", 48).replacen("cb", "", 1);
    let long = format!("CLIENT_RANDOM {}\n", "f".repeat(LINE_MAX * 3));
    let wrong =
        [&short, &odd, &letters, &random, &long, "CLIENT_RANDOM\n", "{\"json\": 1}\n", "\u{fc}\u{fc} 1 2\n"];
    for wrong in wrong {
        let (keys, log) =
            read(&[&line("CLIENT_TRAFFIC_SECRET_0", 32), wrong, &line("CLIENT_RANDOM", 48)].concat());
        assert_eq!((keys.count(), log.wrong_lines, log.wrong[0].0), (2, 1, 2), "{wrong:.60}");
        assert!(!log.wrong[0].1.contains("a7a7"), "a secret is not shown");
    }
    let (_, log) = read(&wrong.concat());
    assert_eq!((log.wrong.len(), log.wrong_lines), (WRONG_TOLD, wrong.len() as u64));
    assert_eq!(log.wrong.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn too_many_secrets_are_an_error_with_their_line() {
    let lines = (0..SECRETS_MAX + 5).map(|n| format!("CLIENT_RANDOM {n:064x} {}\n", "5c".repeat(48)));
    let keys = Keys::default();
    let error = keys.read(lines.collect::<String>().as_bytes()).unwrap_err();
    assert!(matches!(error, KeyLogError::TooMany { line } if line == SECRETS_MAX as u64 + 1), "{error}");
    assert_eq!(keys.count(), SECRETS_MAX);
    // The same again is not one more.
    assert_eq!(
        keys.read(format!("CLIENT_RANDOM {:064x} {}\n", 7, "5c".repeat(48)).as_bytes()).unwrap().secrets,
        1
    );
}

#[test]
fn secrets_are_never_shown() {
    let (keys, _) = read(&line("CLIENT_RANDOM", 48));
    let secret = Secret::new(&[0xa7; 48]).unwrap();
    let shown = format!("{keys:?} {secret:?} {:?}", Some(&secret));
    assert_eq!(shown, "Keys(1) Secret Some(Secret)");
    assert!(Secret::new(&[0; 49]).is_none());
}
