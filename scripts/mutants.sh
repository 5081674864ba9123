#!/usr/bin/env bash
# Changes crates in small ways and lists the changes that none of a crate's own tests notices (docs/mutation.md).
set -euo pipefail

shard=${1:?usage: mutants.sh K/N CRATE...}
shift
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
# Slow property tests of many rings, ten seconds in total: only the other tests run for every mutant.
slow=(no_ring_leaves_its_band without_latencies_it_is_the_max_plus_ring every_ring_reaches_its_limit_at_the_knee
    shared_cpus_stay_in_their_band)
for crate in "$@"; do
    out=target/mutants/$crate
    mkdir -p "$out"
    status=0
    # One at a time, so that mutants do not slow each other into the time limit.
    nice cargo mutants --package "$crate" --test-package "$crate" --jobs 1 --timeout 60 --colors never \
        --shard "$shard" --sharding round-robin --output "$out" -- --tests -- "${slow[@]/#/--skip=}" || status=$?
    # 2: missed mutants; 3: timed out mutants. Other codes are failures of the run itself.
    case $status in
    0 | 2 | 3) ;;
    *) exit "$status" ;;
    esac
done
echo "Not detected by any test (docs/mutation.md lists the known ones with reasons):"
for crate in "$@"; do
    cat "target/mutants/$crate/mutants.out/missed.txt" "target/mutants/$crate/mutants.out/timeout.txt"
done
