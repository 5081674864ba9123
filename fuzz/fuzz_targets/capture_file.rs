//! Any bytes as a capture file, read, analysed and judged to the end: pcap, pcapng, gzip, zstd.
#![no_main]

use std::io::Cursor;

use analyzer::{Analysis, Input, Options};
use capture::Selection;
use capture::file::CaptureFile;
use libfuzzer_sys::fuzz_target;
use record::wire::Wire;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = CaptureFile::read("fuzz", Box::new(Cursor::new(data.to_vec()))) else { return };
    let wire = Some(Wire::ethernet(1_000_000_000, 1500));
    let options = Options { selection: Selection::default(), wire, modes: true, ..Options::default() };
    let mut exchanges = 0;
    let mut count = |_: &record::Observed, _: &analyzer::Named<'_>| exchanges += 1;
    let inputs = vec![Input { file, place: None }];
    let Ok(result) = Analysis::run(inputs, &options, Some(&mut count), &mut |_| (), &|| false) else {
        return;
    };
    assert_eq!(result.operations, exchanges);
});
