//! `roundtrip model`: the limits of a ring, and the effect of other settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use model::preset::{OTHER, PRESETS};
use model::setup::Setup;
use model::{Model, ModelError, preset};
use report::model_text;
use serde_json::{Value, json};

use crate::print::print_line;
use crate::{Failure, args, outputs};

/// Compute bounds, knee and throughput curve of a ring of stages, and predict the effect of other settings
///
/// The ring comes from a TOML file, from a study's study.json (calibrated only from its queue depth 1 run and its
/// saturated run), or from a published run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip model --preset seed-512\n  \
                        roundtrip model --preset seed-512 --iodepth 4 --what-if bandwidth=10gbit --what-if sl=0\n  \
                        roundtrip model out/study/study.json --bs 4k --what-if mtu=1500 --what-if server-cpu=own\n  \
                        roundtrip model ring.toml --chart curve.svg\n\n\
                        A file is one of these; docs/model.md has all keys:\n  \
                        [[stage]]                         [saturated]                 [copy]\n  \
                        name = \"SP\"                       iops = \"63000+-500\"         unit = \"socket buffer\"\n  \
                        service = \"15.9us\"                server-thread = \"100%\"      measured = [\n  \
                        latency = \"16.7us\"                client-thread = \"54%\"         { unit = \"64k\", megabytes-per-second = 48.3 },\n  \
                        resource = \"server CPU\"           [depth-one]                   { unit = \"512k\", megabytes-per-second = 57.4 }]\n  \
                        [wire]                            rtt = \"275.7us\"             [post]\n  \
                        bandwidth = \"1gbit\"               c2-c1 = \"243.4us\"           rest = \"42.6ms\"\n  \
                        mtu = 9000                        s2-s1 = \"32.6us\"            gap = \"2.5ms\"\n  \
                        (W1 and W2 follow from the wire)                              ack-delay = \"163ms\"")]
pub(crate) struct ModelArgs {
    /// Model as TOML, or a study.json
    #[arg(required_unless_present = "preset", conflicts_with = "preset")]
    file: Option<PathBuf>,
    /// Published run: seed-512, seed-512-nagle, seed-512-two-sends, seed-512-bimodal, seed-512-local, seed-2048-local,
    /// seed-4096-local, copy-mtu-write, copy-mtu-read, copy-buffer-write, copy-buffer-read, post
    #[arg(long)]
    preset: Option<String>,
    /// Block size to take from a study; by default the first
    #[arg(long, value_parser = args::size)]
    bs: Option<u64>,
    /// Send policy to take from a study; by default the first
    #[arg(long)]
    send: Option<String>,
    /// Queue depths of the curve
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,8,10,12,16,20,24,32,48,64,128")]
    iodepth: Vec<u32>,
    /// Setting to change: bandwidth=10gbit, mtu=1500, ip=6, vlan=on, timestamps=off, digests=both, block-size=4k,
    /// queue-depth=32, sessions=4, think=50us, coalescing=50us/8, slow=3/203us, nodelay=on, client-nodelay=off,
    /// flush=on, client-ack-delay=500ms, server-ack-delay=200ms, sends=1, sl=0, cl=0, server-cpu=own,
    /// server-cpu=transmit-apart, SP.service=5us, W2.latency=0; repeatable
    #[arg(long = "what-if", value_name = "KEY=VALUE")]
    what_if: Vec<String>,
    /// Write the curve with its band to this file (SVG)
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ModelArgs) -> Result<ExitCode, Failure> {
    outputs::check(&[("--chart", args.chart.as_ref())], &args.file)?;
    let model = match (&args.file, &args.preset) {
        (Some(path), _) => {
            read(path, args).with_context(|| path.display().to_string()).map_err(Failure::Usage)?
        }
        (None, preset) => named(preset.as_deref().unwrap_or_default())?,
    };
    match model {
        Model::Ring(setup) => ring(*setup, args),
        Model::Copy(copy) => print(args, &model_text::copy(&copy), || json!({ "copy": copy })),
        Model::Post(post) => print(args, &model_text::post(&post), || {
            json!({ "post": {
                "nagle_request_us": post.nagle_request_us(),
                "nodelay_request_us": post.nodelay_request_us(),
                "rest_us": post.rest_us,
                "gap_us": post.gap_us,
                "ack_delay_us": post.ack_delay_us,
            }})
        }),
    }
}

fn ring(mut setup: Setup, args: &ModelArgs) -> Result<ExitCode, Failure> {
    let usage = |e: ModelError| Failure::Usage(e.into());
    if let [depth] = args.iodepth[..] {
        setup.queue_depth = depth;
    }
    let curve = args
        .iodepth
        .iter()
        .map(|&queue_depth| {
            let (band, outcome) = (setup.band(queue_depth)?, setup.outcome(queue_depth)?);
            Ok(model_text::Point { queue_depth, band, outcome })
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(usage)?;
    let predictions = setup.predict(&args.what_if).map_err(usage)?;
    let limits = model_text::Limits::of(&setup).map_err(usage)?;
    if let Some(path) = &args.chart {
        let svg = model_text::chart(&setup, &limits, &curve)
            .ok_or_else(|| Failure::Work(anyhow!("cannot draw the chart")))?;
        output::file::write(path, svg)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
    }
    let text = model_text::text(&setup, &limits, &curve, &predictions);
    print(args, &text, || model_text::json(&setup, &limits, &curve, &predictions))
}

fn print(args: &ModelArgs, text: &str, json: impl Fn() -> Value) -> Result<ExitCode, Failure> {
    if args.json {
        let text = serde_json::to_string_pretty(&json()).context("writing JSON").map_err(Failure::Work)?;
        print_line(text);
    } else {
        print_line(text);
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path, args: &ModelArgs) -> anyhow::Result<Model> {
    let text = std::fs::read_to_string(path).context("cannot read the file")?;
    if path.extension().is_some_and(|e| e == "json") {
        let result: study::StudyResult = serde_json::from_str(&text).context("this is not a study.json")?;
        let setup = result.setup(args.bs, args.send.as_deref())?;
        return Ok(Model::Ring(Box::new(setup)));
    }
    Ok(model::file::read(&text)?)
}

fn named(name: &str) -> Result<Model, Failure> {
    let model = preset::named(name).ok_or_else(|| {
        let names = PRESETS.iter().map(|p| p.name).chain(OTHER.iter().map(|o| o.name));
        Failure::Usage(anyhow!("'{name}' is not a preset; use {}", names.collect::<Vec<_>>().join(", ")))
    })?;
    model.map_err(|e| Failure::Work(e.into()))
}
