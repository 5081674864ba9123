//! Captures in, operations, stanzas and verdicts out.
//!
//! Frames of files ([`capture::file`]) go to their capture points ([`capture::Vantage`]); the points' observations go to
//! [`analysis`], which joins and judges them. Everything streams: memory does not grow with the length of a capture.

#![forbid(unsafe_code)]

mod annotate;
mod events;
mod holes;
mod link;
mod notes;
mod protocols;
mod reading;
mod result;
mod rows;
mod run;
mod tls;

pub use annotate::annotate;
pub use result::{AnalysisResult, ConnectionRow, HoleRow, InputRow, ModeRow};
pub use run::{Analysis, AnalysisError, Input, Named, Options, TakeOps};
