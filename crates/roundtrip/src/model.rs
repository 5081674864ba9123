//! `roundtrip model`: what a ring can do, and what another setting would change.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use report::model_text;
use ring::model::preset::{PRESETS, Preset};
use ring::model::recursion::Extras;
use ring::model::what_if::Setup;

use crate::Failure;

/// Bounds, knee and throughput curve of a ring of stages, and predictions of what another setting would change
///
/// The ring comes from a TOML file, or is one of the paper's published runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip model --preset seed-512\n  \
                        roundtrip model --preset seed-512 --iodepth 4 --what-if bandwidth=10gbit --what-if sl=0\n  \
                        roundtrip model ring.toml --chart curve.svg\n\n\
                        A file:\n  [wire]\n  bandwidth = \"1gbit\"\n  mtu = 9000\n  [ring]\n  block-size = \"512\"\n  [[stage]]\n  \
                        name = \"SP\"\n  service = \"15.9us\"\n  latency = \"16.7us\"\n  resource = \"server\"\n  \
                        (W1 and W2 take their service time from the wire)")]
pub(crate) struct ModelArgs {
    /// A ring, as TOML
    #[arg(required_unless_present = "preset", conflicts_with = "preset")]
    file: Option<PathBuf>,
    /// A published run: seed-512 or seed-512-local
    #[arg(long)]
    preset: Option<String>,
    /// Queue depths of the curve
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6,8,10,12,16,20,24,32,48,64,128")]
    iodepth: Vec<u32>,
    /// Another setting, such as bandwidth=10gbit, mtu=1500, block-size=4k, sl=0, queue-depth=32; repeatable
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
    let usage = |e: ring::model::ModelError| Failure::Usage(e.into());
    let mut setup = match (&args.file, &args.preset) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))
                .map_err(Failure::Usage)?;
            ring::model::file::read(&text)
                .with_context(|| path.display().to_string())
                .map_err(Failure::Usage)?
        }
        (None, preset) => named(preset.as_deref().unwrap_or_default())?,
    };
    if let [depth] = args.iodepth[..] {
        setup.queue_depth = depth;
    }
    let curve = args
        .iodepth
        .iter()
        .map(|&depth| {
            Ok(report::model_text::Point {
                band: setup.ring.band(depth)?,
                exact: setup.ring.exact(depth, &setup.extras)?,
            })
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(usage)?;
    let predictions = setup.predict(&args.what_if).map_err(usage)?;
    if let Some(path) = &args.chart {
        let svg = model_text::chart(&setup, &curve)
            .ok_or_else(|| Failure::Work(anyhow!("the chart could not be drawn")))?;
        std::fs::write(path, svg)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&model_text::json(&setup, &curve, &predictions))
            .context("writing JSON")
            .map_err(Failure::Work)?;
        println!("{text}");
    } else {
        println!("{}", model_text::text(&setup, &curve, &predictions));
    }
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<Setup, Failure> {
    let preset = Preset::named(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        Failure::Usage(anyhow!("'{name}' is no preset; use {}", names.join(" or ")))
    })?;
    Ok(Setup {
        ring: preset.ring().map_err(|e| Failure::Work(e.into()))?,
        wire: Preset::wire(),
        block_bytes: preset.block_bytes,
        queue_depth: 1,
        extras: Extras::default(),
    })
}
