//! Captures in, operations, stanzas and verdicts out.
//!
//! Frames of files ([`capture::file`]) go to their capture points ([`capture::Vantage`]); what these see of a
//! connection is joined where two points saw it ([`pairing`]); exchanges, stalls and facts go to
//! [`insight`], which judges. Everything streams: nothing grows with the length of a capture.

#![forbid(unsafe_code)]

mod annotate;
pub mod clocks;
pub mod pairing;
mod result;
mod run;
mod samples;

pub use annotate::annotate;
pub use result::{AnalysisResult, ConnectionRow, HoleRow, InputRow};
pub use run::{Analysis, AnalysisError, Input, Options};
