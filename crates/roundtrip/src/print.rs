//! Printing results and messages. Nothing else in the program prints: here control characters are escaped, wherever they came
//! from (see [`output::text`]).

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use output::text::lines;

/// Prints a line on stdout. A reader that has seen enough and gone (`| head`) is no error; that it cannot be written is
/// one, and ends the program.
pub(crate) fn print_line(text: impl Display) {
    if let Err(error) = writeln!(io::stdout().lock(), "{}", lines(text))
        && error.kind() != ErrorKind::BrokenPipe
    {
        eprint_line(format_args!("roundtrip: cannot print the result: {error}"));
        std::process::exit(1);
    }
}

/// Prints a line on stderr. Where that cannot be done there is nobody to tell.
pub(crate) fn eprint_line(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", lines(text));
}
