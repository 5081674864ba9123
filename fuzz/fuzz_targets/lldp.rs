//! Any bytes as an LLDP frame.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = host::lldp::parse_frame(data);
});
