#!/usr/bin/env bash
# Mutates crates and lists the mutants that no test of their crate notices (docs/mutation.md).
set -euo pipefail

shard=${1:?usage: mutants.sh K/N CRATE...}
shift
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
# Four properties of many rings take ten seconds together; the other tests run for every mutant.
slow=(exact_throughput_lies_in_the_band without_latencies_it_is_the_max_plus_ring every_ring_reaches_its_limit_at_the_knee
    shared_cpus_stay_in_their_band)
for test in "${slow[@]}"; do
    grep -rq "fn $test" crates || { echo "mutants: there is no test $test to leave out" >&2 && exit 1; }
done
for crate in "$@"; do
    out=target/mutants/$crate
    mkdir -p "$out"
    status=0
    # One at a time, so that no mutant times out because of another.
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
