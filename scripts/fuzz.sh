#!/usr/bin/env bash
# Builds the fuzz targets with the stable compiler and runs each for some time: fuzz.sh SECONDS [TARGET...]
# The target streams runs once for each protocol; streams:redis names one.
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

fuzz() { # NAME TARGET SEEDS...
    local name=$1 target=$2
    shift 2
    mkdir -p "corpus/$name" artifacts
    printf 'fuzzing %s for %s s\n' "$name" "$seconds" >&2
    "target/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="artifacts/$name-" -print_final_stats=1 "corpus/$name" "$@"
}

conversations=$PWD/corpus/conversations
conversations() { # writes the conversations of the decoders' tests, by protocol
    mkdir -p "$conversations"
    (cd .. && ROUNDTRIP_WRITE_FUZZ_SEEDS=$conversations cargo test --quiet --locked -p capture --lib decode:: >&2)
}

streams() { # PROTOCOL
    local folder
    folder=$(mktemp -d)
    cp seeds/streams/* "$folder"
    find "$conversations" -name "$1-*" -exec cp -t "$folder" {} +
    ROUNDTRIP_FUZZ_PROTOCOL=$1 fuzz "streams-$1" streams "$folder"
    rm -r "$folder"
}

for target in "${targets[@]}"; do
    case $target in
        streams)
            conversations
            mapfile -t protocols < <(find "$conversations" -type f -printf '%f\n' | sed 's/-[0-9a-f]*$//' | sort -u)
            for protocol in iscsi http turns detection tls "${protocols[@]}"; do streams "$protocol"; done
            ;;
        streams:*)
            conversations
            streams "${target#streams:}"
            ;;
        *)
            seeds=()
            [ -d "seeds/$target" ] && seeds=("seeds/$target")
            fuzz "$target" "$target" "${seeds[@]}"
            ;;
    esac
done

# Connections against a model of the invariants, from seeds: ten million steps by default.
cd ..
ROUNDTRIP_SIM_STEPS=${ROUNDTRIP_SIM_STEPS:-10000000} cargo test --release --locked -p iscsi-target --lib simulation::scripted
