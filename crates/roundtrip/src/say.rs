//! Printing results.

use std::io::{ErrorKind, Write as _};

/// Prints a line on stdout. A reader that has seen enough and gone (`| head`) is no error; that it cannot be written is
/// one, and ends the program.
pub(crate) fn say(text: impl std::fmt::Display) {
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}")
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("roundtrip: cannot print the result: {error}");
        std::process::exit(1);
    }
}
