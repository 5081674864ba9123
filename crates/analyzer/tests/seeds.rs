//! The fuzzer's seeds, which include every file that once caused a failure, are read to their end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use analyzer::{Analysis, Input, Options};
use capture::file::CaptureFile;

#[test]
fn every_seed_is_read_to_an_end() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/capture_file");
    let (mut files, mut operations) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Some cannot even be opened.
        let Ok(file) = CaptureFile::open(&path) else { continue };
        let options = Options { modes: true, ..Options::default() };
        let inputs = vec![Input { file, place: None }];
        let result = Analysis::run(inputs, &options, None, &mut |_| (), &|| false).unwrap();
        files += 1;
        operations += result.operations;
    }
    assert!(files >= 5 && operations > 0, "{files} files, {operations} operations");
}
