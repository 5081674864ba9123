//! Results for people and programs: terminal tables, progress, CSV, HTML.

#![forbid(unsafe_code)]

pub mod chart;
pub mod csv;
pub mod html;
pub mod model_text;
pub mod progress;
pub mod study_text;
pub mod terminal;
