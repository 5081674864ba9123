//! How fast the simulator is, and that its memory does not grow with the length of a run: 512 B reads at queue depth 16
//! under each policy, on one core.

use std::time::Instant;

use policy::SendPolicy;
use tcpsim::{Setup, simulate};

/// Resident memory, MiB.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn main() {
    println!(
        "{:<9} {:>10} {:>12} {:>14} {:>10}",
        "policy", "operations", "seconds", "operations/s", "peak MiB"
    );
    for policy in SendPolicy::ALL {
        for operations in [500_000, 2_000_000] {
            let setup = Setup { policy, operations, queue_depth: 16, ..Setup::default() };
            let begun = Instant::now();
            let result = simulate(&setup, &mut ());
            let seconds = begun.elapsed().as_secs_f64();
            let rate = result.operations as f64 / seconds;
            println!("{policy:<9} {operations:>10} {seconds:>12.2} {rate:>14.0} {:>10.1}", resident_mib());
        }
    }
}
