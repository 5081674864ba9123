//! A profile of Wireshark for annotated captures: columns and colours that show what the comments are about.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the profile.
pub const PROFILE: &str = "roundtrip";

/// Columns: when, how long after the packet before on the connection, who, what, and the comment.
const PREFERENCES: &str = "# Columns for captures that roundtrip annotated.
gui.column.format: 
\t\"No.\", \"%m\",
\t\"Time\", \"%Cus:frame.time_relative:0:R\",
\t\"After\", \"%Cus:tcp.time_delta:0:R\",
\t\"Source\", \"%uns\",
\t\"Port\", \"%uS\",
\t\"Destination\", \"%und\",
\t\"Port\", \"%uD\",
\t\"Stream\", \"%Cus:tcp.stream:0:R\",
\t\"Data\", \"%Cus:tcp.len:0:R\",
\t\"Protocol\", \"%p\",
\t\"Comment\", \"%Cus:frame.comment:0:R\",
\t\"Info\", \"%i\"
tcp.calculate_timestamps: TRUE
tcp.relative_sequence_numbers: TRUE
";

/// Colours: name, filter, background and foreground; the first that matches counts.
const COLOURS: [(&str, &str, [u16; 3], [u16; 3]); 6] = [
    ("Verdict of roundtrip", "frame.comment", [65_535, 50_886, 14_392], [0, 0, 0]),
    ("Reset", "tcp.flags.reset == 1", [42_148, 0, 0], [65_535, 64_764, 40_092]),
    (
        "Sent again",
        "tcp.analysis.retransmission || tcp.analysis.fast_retransmission",
        [4718, 10_030, 11_796],
        [63_479, 34_695, 34_695],
    ),
    (
        "Window full or zero",
        "tcp.analysis.zero_window || tcp.analysis.window_full",
        [61_166, 51_143, 65_535],
        [0, 0, 0],
    ),
    (
        "Waited 30 ms or longer",
        "tcp.time_delta >= 0.03 && tcp.flags.syn == 0",
        [65_535, 62_451, 46_003],
        [0, 0, 0],
    ),
    (
        "Small segment while others may be on their way",
        "tcp.len > 0 && tcp.len < 200",
        [59_110, 61_680, 65_535],
        [0, 0, 0],
    ),
];

/// Where the configuration that has the profile is, beside a capture.
#[must_use]
pub fn folder(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".wireshark");
    name.into()
}

/// Writes the profile beside a capture; returns the folder of the configuration that has it.
///
/// # Errors
/// When a file cannot be written.
pub fn write(capture: &Path) -> io::Result<PathBuf> {
    let folder = folder(capture);
    let profiles = folder.join("profiles");
    let profile = profiles.join(PROFILE);
    for place in [&folder, &profiles, &profile] {
        // A link could lead to files that are somebody's own.
        match fs::symlink_metadata(place) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                let why = format!(
                    "{} is there and no folder: remove it or annotate to another name",
                    place.display()
                );
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            Err(_) => fs::create_dir(place)?,
        }
    }
    let colours: String = COLOURS
        .iter()
        .map(|(name, filter, [r, g, b], [fr, fg, fb])| {
            format!("@{name}@{filter}@[{r},{g},{b}][{fr},{fg},{fb}]\n")
        })
        .collect();
    output::file::write(&profile.join("preferences"), PREFERENCES.as_bytes())?;
    output::file::write(&profile.join("colorfilters"), colours.as_bytes())?;
    Ok(folder)
}
