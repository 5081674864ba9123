//! Files that cannot be opened at the moment: openat2(2) with RESOLVE_BENEATH says EAGAIN for a path with `..` (the links of
//! /sys/class/net have it) while anything is renamed or mounted on the machine, since it cannot know then that the path stays below.

use std::io;
use std::time::Duration;

/// Attempts, and the time between two: a second in all, while each rename or mount disturbs one attempt.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// Repeats an attempt while it would block.
///
/// # Errors
/// That of the last attempt.
pub(crate) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_block_is_tried_again_and_other_errors_are_not() {
        for (kind, blocks, attempts) in [
            (io::ErrorKind::WouldBlock, 3, 4),
            (io::ErrorKind::WouldBlock, ATTEMPTS, ATTEMPTS),
            (io::ErrorKind::NotFound, 3, 1),
        ] {
            let mut made = 0;
            let result = patiently(|| {
                made += 1;
                if made <= blocks { Err(io::Error::from(kind)) } else { Ok(made) }
            });
            assert_eq!(made, attempts);
            assert_eq!(result.is_ok(), blocks < ATTEMPTS && kind == io::ErrorKind::WouldBlock);
        }
    }
}
