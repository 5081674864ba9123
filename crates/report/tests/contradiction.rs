//! A latency below zero is a contradiction in the text, on the page and in the JSON, and not drawn as nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use analysis::segments::SegmentFigures;
use analysis::{
    Breakdown, Closure, CpuCost, Disturbances, PathCost, Prediction, Printed, Segments, Stanza, StanzaInput,
};
use record::stage::CpuSharing;
use report::pages::Figure;
use study::machine::Machine;
use study::sides::Sides;
use study::{Observation, Plan, StudyResult};

/// The page of a study.
fn study_page(result: &StudyResult, figures: &[Figure]) -> String {
    report::pages::page(&[report::pages::Result::Study(result, figures)]).html()
}

/// A study of one point at queue depth 1 whose threads worked so long, and what disturbed it.
fn study(client_thread_us: f64, server_thread_us: f64, disturbed: &[String]) -> StudyResult {
    let mean = |mean_us| SegmentFigures { mean_us, ..SegmentFigures::default() };
    let segments = Segments {
        operations: 1000,
        rtt: mean(275.7),
        client: mean(32.3),
        server: mean(32.6),
        network: mean(210.8),
        ..Segments::default()
    };
    let service =
        CpuCost { client_thread_us, client_softirq_us: 2.6, server_thread_us, server_softirq_us: 4.0 };
    let breakdown = Breakdown::of(&StanzaInput {
        queue_depth: 1,
        iops: 1e6 / 275.7,
        rtt_us: 275.7,
        segments,
        cpu: service,
        path: Some(PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: false }),
        sharing: (CpuSharing::Uniprocessor, CpuSharing::Uniprocessor),
        depth_one: &segments,
        shares: None,
        softirqs: analysis::breakdown::Softirqs::Apart,
    });
    let printed = Printed {
        iops: 1e6 / 275.7,
        cpu_busy: (0.3, 0.3),
        service: &service,
        unlimited: None,
        segments: &segments,
        breakdown: &breakdown,
    };
    let closure = Closure::of(&printed, Err("no events"), &Disturbances { printed: disturbed, traced: &[] });
    let stanza = Stanza {
        repeatability: None,
        user_share: (None, None),
        block_size_bytes: 512,
        policy: "nodelay".into(),
        queue_depth: 1,
        iops: 1e6 / 275.7,
        iops_observed: 1e6 / 275.7,
        tpt_us: 275.7,
        rtt_us: 275.7,
        segments,
        cpu: service,
        service,
        path: None,
        cpu_busy: (0.3, 0.3),
        breakdown,
        closure,
        evidence: None,
        iops_traced: None,
        predicted: None,
        model_iops: None,
        simulated_iops: None,
        completed: 1000,
        followed: 1000,
        holes: Vec::new(),
        busy_count_share: vec![1.0],
        avg_busy: 1.0,
        runs: Vec::new(),
    };
    StudyResult {
        format: 1,
        began_unix_seconds: 0,
        seconds: 1.0,
        machine: Machine::here(),
        client_machine: None,
        plan: Plan::quick(),
        wire: true,
        observation: Observation::Packets,
        congestion: None,
        cpus: Sides { client: 0, server: 1 },
        warnings: Vec::new(),
        stanzas: vec![stanza],
    }
}

#[test]
fn latencies_below_zero_fail_the_point_in_text_page_and_json() {
    let compiler = ["other programs used 40 % of the CPUs".to_owned()];
    for disturbed in [&[][..], &compiler] {
        let result = study(43.4, 36.8, disturbed);
        let text = report::study_text::study(&result, true).replace("\n  ", " ");
        let page = study_page(&result, &[]);
        for (name, us) in [("CQ", "-13.7"), ("SQ", "-8.2")] {
            let said =
                format!("contradiction: {name} is {us} us, below zero by more than its uncertainty of ");
            assert!(text.contains(&said) && text.contains(&format!("{name} {us} CONTRADICTION")), "{text}");
            assert!(page.contains(&format!("<p class=\"no\">{said}")), "beside the ring");
            assert!(
                page.contains(&format!("<td class=\"no\">{name} {us}</td>"))
                    || page.contains(&format!("<td class=\"no\">{us}</td>")),
                "in the table"
            );
        }
        assert!(text.contains("the service times are longer than this point had time for"), "{text}");
        assert!(text.contains("Closure: FAILS at 1 of 1 points."), "{text}");
        let json = serde_json::to_value(&result).unwrap();
        let closure = &json["stanzas"][0]["closure"];
        assert_eq!(closure["outcome"], "fails", "{closure:#}");
        assert!(
            closure["reasons"][0].as_str().unwrap().starts_with("contradiction: CQ is -13.7 us"),
            "{closure:#}"
        );
        let negative = json["stanzas"][0]["breakdown"]["negative"].as_array().unwrap();
        assert_eq!(negative.len(), 2, "{negative:?}");
    }
}

#[test]
fn a_latency_of_zero_within_its_uncertainty_is_said_to_be_that() {
    let result = study(30.7, 20.0, &[]);
    let page = study_page(&result, &[]);
    assert!(page.contains("not drawn: CQ is -1.0 us, zero within its uncertainty of 4.6 us"), "{page}");
    let text = report::study_text::study(&result, true).replace("\n  ", " ");
    assert!(!page.contains("contradiction") && !text.contains("CONTRADICTION"), "{text}");
}

/// The points between the two that calibrate count, and each against its own repeatability.
#[test]
fn errors_of_predictions_are_those_of_points_that_do_not_calibrate() {
    let predicted = |error: f64| Prediction {
        iops: 1000.0,
        iops_low: 1000.0,
        iops_high: 1000.0,
        band_low: 1.0,
        band_high: 1e6,
        error,
        in_band: true,
    };
    let mut result = study(6.0, 12.0, &[]);
    let one = result.stanzas[0].clone();
    result.stanzas = [(1, 0.9, 0.01), (2, -0.10, 0.06), (16, 0.30, 0.10), (32, 0.02, 0.01), (128, 0.8, 0.01)]
        .map(|(queue_depth, error, repeats)| Stanza {
            queue_depth,
            predicted: Some(predicted(error)),
            repeatability: Some(repeats),
            user_share: (Some(0.25), (queue_depth != 32).then_some(f64::from(queue_depth) / 256.0)),
            ..one.clone()
        })
        .to_vec();
    let text = report::study_text::study(&result, true).replace("\n  ", " ");
    let said = "median error 10.0 %, worst 30.0 % (512 B, nodelay, queue depth 16); 0 of 3 outside the band. \
                2 of 3 within twice the point's own repeatability.";
    assert!(text.contains(said), "{text}");
    assert!(text.contains("±6.0%") && text.contains("±10.0%"), "{text}");
    // The deepest point's threads: a quarter of the client's time and a half of the server's.
    let threads =
        "Threads in user mode, c/s, the rest in system calls (sampled): 512 nodelay QD 128: 25/50 %\n";
    assert!(text.contains(threads), "{text}");
    result.stanzas.iter_mut().for_each(|s| s.repeatability = None);
    assert!(
        report::study_text::study(&result, true).contains("repeat is not known: --repeats 3 measures it")
    );
    result.stanzas.retain(|s| [1, 128].contains(&s.queue_depth));
    assert!(report::study_text::study(&result, true).contains("Every point here calibrates the model"));
}

/// The pictures of a study are images in the page: what is in them cannot act on it.
#[test]
fn pictures_are_in_the_page_and_cannot_act_on_it() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert('1')</script>\u{b5}%</svg>".to_owned();
    let figure = Figure { file: "figures/<a>.svg".into(), svg: svg.clone() };
    let page = study_page(&study(6.0, 12.0, &[]), &[figure]);
    assert!(!page.contains("<script>alert") && page.contains("figures/&lt;a&gt;.svg"));
    let data = page.split("src=\"data:image/svg+xml,").nth(1).unwrap().split('"').next().unwrap();
    let (mut bytes, mut rest) = (Vec::new(), data.bytes());
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte.unwrap()).to_digit(16).unwrap() as u8;
        bytes.push(if byte == b'%' { digit(rest.next()) << 4 | digit(rest.next()) } else { byte });
    }
    assert_eq!(String::from_utf8(bytes).unwrap(), svg);
}
