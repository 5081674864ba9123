#!/usr/bin/env bash
# Builds the fuzz targets with the stable compiler and runs each for some time: fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2)

# The flags of cargo-fuzz, without the sanitizers that only a nightly compiler has: everything parsed here is
# safe Rust.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing $coverage" cargo build --release --target "$host" --bins

for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" artifacts
    seeds=()
    [ -d "seeds/$target" ] && seeds=("seeds/$target")
    printf 'fuzzing %s for %s s\n' "$target" "$seconds" >&2
    "target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="artifacts/$target-" -print_final_stats=1 "corpus/$target" "${seeds[@]}"
done

# Connections against a model of the invariants, from seeds: ten million steps by default.
cd ..
ROUNDTRIP_SIM_STEPS=${ROUNDTRIP_SIM_STEPS:-10000000} cargo test --release --locked -p iscsi-target --lib simulation::scripted
