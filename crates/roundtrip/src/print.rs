//! Printing results and messages. All output of the program passes these functions, which escape control characters of any
//! origin (see [`output::text`]).

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use output::text::lines;
use serde::Serialize;

use crate::Failure;

/// Prints a line on stdout and flushes it. If that fails, the program ends with exit code 1: quietly if the reader has closed
/// the pipe (`| head`), as other tools do, otherwise with the reason.
pub(crate) fn print_line(text: impl Display) {
    let mut out = io::stdout().lock();
    checked(writeln!(out, "{}", lines(text)).and_then(|()| out.flush()));
}

/// Ends the program if stdout could not be written, as [`print_line`] does.
pub(crate) fn checked(outcome: io::Result<()>) {
    let Err(error) = outcome else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        eprint_line(format_args!("roundtrip: cannot print the result: {error}"));
    }
    std::process::exit(1);
}

/// Prints a result as JSON on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_line(serde_json::to_string_pretty(value).context("writing JSON").map_err(Failure::Work)?);
    Ok(())
}

/// Prints a value as one line of JSON on stdout, for verbs that report several times.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print_line(serde_json::to_string(value).context("writing JSON").map_err(Failure::Work)?);
    Ok(())
}

/// Prints a line on stderr. Ignores failures, which cannot be reported.
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", lines(text));
}
