#!/usr/bin/env bash
# How many instructions the target's thread takes for one command, outside the kernel: callgrind counts them, so a
# noisy machine sees a regression that a clock would not. The counts depend on how often the thread looks for more before it sleeps, and
# so on what else runs: build the program of before, too, and compare within the hour. Compares with the figures of docs/instructions.tsv; with
# --keep writes them there.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked -p roundtrip --example hot_path
program=target/release/examples/hot_path
kept=docs/instructions.tsv
new=$(mktemp)
work=$(mktemp -d)
trap 'rm -rf "$new" "$work"' EXIT

count() {
  valgrind --tool=callgrind --callgrind-out-file="$work/out" --toggle-collect='iscsi_target::event_loop::EventLoop::run' \
    "$program" "$1" "$2" "$3" 2>"$work/log" >/dev/null || { cat "$work/log" >&2; exit 1; }
  grep -E '^(summary|totals):' "$work/out" | head -1 | awk '{print $2}'
}

printf '%-8s %7s %14s %14s %7s\n' command bytes instructions before ratio
for case in "read 512" "read 4096" "write 4096"; do
  read -r what bytes <<<"$case"
  # Two lengths: the difference excludes one-time work such as the login.
  few=$(count "$what" "$bytes" 200)
  many=$(count "$what" "$bytes" 1200)
  now=$(((many - few) / 1000))
  if ((now <= 0)); then
    echo "bench-instructions: nothing was counted; is the function of --toggle-collect still there?" >&2
    exit 1
  fi
  printf '%s\t%s\t%s\n' "$what" "$bytes" "$now" >>"$new"
  before=$(awk -v w="$what" -v b="$bytes" '$1 == w && $2 == b {print $3}' "$kept" 2>/dev/null || true)
  ratio=$(awk -v n="$now" -v b="${before:-0}" 'BEGIN {if (b > 0) printf "%.3f", n / b; else printf "-"}')
  printf '%-8s %7s %14s %14s %7s\n' "$what" "$bytes" "$now" "${before:--}" "$ratio"
done
if [[ ${1:-} == --keep ]]; then cp "$new" "$kept"; fi
