//! HTTP responses in pieces: the reader neither panics nor grows, and the pieces make no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::http::{Malformed, Response, ResponseReader};

/// Reads all responses of a connection; returns them and, if it ended so, the error.
fn read(bytes: &[u8], is_bodyless: bool, step: usize) -> (Vec<Response>, Option<Malformed>) {
    let mut reader = ResponseReader::new(is_bodyless);
    let (mut found, mut used) = (Vec::new(), 0);
    while used < bytes.len() {
        let piece = &bytes[used..bytes.len().min(used + step)];
        match reader.feed(piece) {
            Err(error) => return (found, Some(error)),
            Ok(fed) => {
                assert!(fed.used <= piece.len());
                assert!(
                    fed.response.is_some() || fed.used == piece.len(),
                    "an incomplete response takes all"
                );
                assert!(fed.used > 0, "every step gets further");
                used += fed.used;
                found.extend(fed.response);
            }
        }
    }
    found.extend(reader.close());
    (found, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let is_bodyless = how & 1 != 0;
    let (whole, error) = read(bytes, is_bodyless, usize::MAX / 2);
    let (pieces, late) = read(bytes, is_bodyless, 1 + usize::from(how >> 1));
    // In pieces an error may show only with the end of its line, but nothing is a response in one way alone.
    assert_eq!(whole, pieces);
    assert!(late.is_none() || error.is_some());
});
