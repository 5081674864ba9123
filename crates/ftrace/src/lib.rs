//! Records tracepoints of the kernel for a short window: an instance of ftrace with a buffer of its own, used through
//! the files of tracefs. It needs neither a BPF program nor a library, and other users of ftrace are not disturbed.
//!
//! [`Recorder::open`] makes the instance, [`Recorder::begin`] and [`Recorder::end`] are one write each, and
//! [`Recorder::events`] returns what was recorded. Dropping the recorder removes the instance.

#![forbid(unsafe_code)]

mod decoder;
mod error;
mod format;
mod page;
mod recorder;
mod tracefs;

pub use decoder::{Decoder, Devices};
pub use error::TraceError;
pub use format::{Field, Format};
pub use page::{Page, PageError};
pub use recorder::{Recorded, Recorder};
