//! Any text as keys: read, negotiated by both sides, and as binary values of CHAP.
#![no_main]

use iscsi::login::chap;
use iscsi::{Parameters, Wishes, parameters, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (mut ours, mut theirs) = (Parameters::default(), Parameters::default());
    let Ok(pairs) = text::parse(data) else { return };
    for (key, value) in pairs {
        assert!(key.len() <= text::KEY_BYTES_MAX && value.len() <= text::VALUE_BYTES_MAX);
        if let Some(parameters::Answer::Value(answer)) =
            parameters::answer(&mut ours, &Wishes::default(), key, value)
        {
            assert!(answer.len() <= text::VALUE_BYTES_MAX);
            parameters::accept(&mut theirs, key, &answer);
        }
        parameters::accept(&mut theirs, key, value);
        if let Some(bytes) = chap::decode(value) {
            assert_eq!(chap::decode(&chap::encode(&bytes)), Some(bytes));
        }
    }
    for p in [ours, theirs] {
        assert!(
            (512..1 << 24).contains(&p.max_send_bytes)
                && p.max_burst_bytes >= 1
                && p.error_recovery_level <= 2
        );
        assert!(p.max_connections >= 1 && p.max_outstanding_r2t >= 1);
    }
});
