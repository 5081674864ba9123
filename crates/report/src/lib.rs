//! Results for people and programs: terminal tables, progress, CSV, Parquet, HTML.

#![forbid(unsafe_code)]

pub mod analysis_text;
pub mod bench_text;
pub mod chart;
mod closure_text;
pub mod dataset;
pub mod experiment_text;
pub mod explain;
pub mod fio;
pub mod host_text;
pub mod ladder;
pub mod model_text;
pub mod ops;
pub mod pages;
mod perfetto;
pub mod progress;
pub mod quantities;
pub mod scene;
pub mod simulated;
pub mod simulation_text;
pub mod socket_text;
pub mod study_text;
pub mod terminal;
pub mod wireshark;
