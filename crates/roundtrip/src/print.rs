//! Printing results and messages. All output of the program passes these functions, which escape control characters of any
//! origin (see [`output::text`]).

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use output::text::lines;

/// Prints a line on stdout. A closed pipe (`| head`) is not an error; any other failure ends the program with an error.
pub(crate) fn print_line(text: impl Display) {
    if let Err(error) = writeln!(io::stdout().lock(), "{}", lines(text))
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprint_line(format_args!("roundtrip: cannot print the result: {error}"));
        std::process::exit(1);
    }
}

/// Prints a line on stderr. Ignores failures, which cannot be reported.
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", lines(text));
}
