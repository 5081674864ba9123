//! Results for people and programs: terminal tables, progress, CSV, JSON, HTML.

#![forbid(unsafe_code)]

pub mod csv;
pub mod progress;
pub mod terminal;
