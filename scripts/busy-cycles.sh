#!/usr/bin/env bash
# The server's busy cycles by the requests served, live: for each way to send and each depth the mean of the runs, the least and the greatest, in percent.
# With WORK set, the target works that long for each request. Interleaved. A wire needs root.
#
#   scripts/busy-cycles.sh [loopback|veth|wire] [REPEATS] [MS]
#   SENDS=nodelay WORK="0us 2us 5us 10us" DEPTHS="4 5" scripts/busy-cycles.sh wire
set -euo pipefail
cd "$(dirname "$0")/.."

where=${1:-loopback}
[[ -n ${ADDRESS-} ]] || exec scripts/between.sh "$where" "scripts/${0##*/}" "$@"
repeats=${2:-5} ms=${3:-700}
program=${PROGRAM:-$PWD/target/release/roundtrip}
iqn=iqn.2026-11.example.roundtrip:cycles
sends=${SENDS:-nodelay nagle-unflushed nagle+client-nagle nagle}
depths=${DEPTHS:-2 3 4 5}
works=${WORK:-0us}
folder=$(mktemp -d)
target=
finish() {
  [[ -z $target ]] || kill "$target" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# One run: counts of the cycles that served 1, 2, ... requests, in a line.
cycles() {
  local send=$1 depth=$2 work=$3 nagle=
  [[ $send != *+client-nagle ]] || nagle=--nagle
  : >"$folder/target"
  $SERVER_RUN taskset -c 0 "$program" target --portal "$ADDRESS:0" --iqn "$iqn" --congestion cubic --lun "0=zero:1G,work=$work" --send "${send%+client-nagle}" \
    --json >"$folder/target" 2>/dev/null &
  target=$!
  until grep -q ready "$folder/target"; do sleep 0.05; done
  portal=$(sed -n 's/.*"ready": *"\([^"]*\)".*/\1/p' "$folder/target" | head -1)
  $CLIENT_RUN taskset -c 1 "$program" bench "iscsi://$portal/$iqn/0" --bs 512 --iodepth "$depth" $nagle --congestion cubic --runtime "${ms}ms" \
    --ramp "$((ms / 2))ms" --json >/dev/null
  kill -INT "$target"
  wait "$target" || true
  target=
  sed -n 's/.*"ended": *\[0, *\([0-9, ]*\)\].*/\1/p' "$folder/target" | tr , " "
}

for ((run = 0; run < repeats; run++)); do
  for work in $works; do
    for depth in $depths; do
      for send in $sends; do cycles "$send" "$depth" "$work" >>"$folder/$send.$depth.$work"; done
    done
  done
done
for send in $sends; do
  for work in $works; do
    for depth in $depths; do
      awk -v name="$send, QD $depth, work $work" -v depth="$depth" '
        {all = 0; for (i = 1; i <= NF; i++) all += $i
         for (i = 1; i <= depth; i++) {
           share = all ? 100 * $i / all : 0; sum[i] += share
           if (NR == 1 || share < least[i]) least[i] = share
           if (NR == 1 || share > greatest[i]) greatest[i] = share}}
        END {
          for (i = 1; i <= depth; i++) {a = a sprintf(" %.0f", sum[i] / NR); b = b sprintf(" %.0f", least[i]); c = c sprintf(" %.0f", greatest[i])}
          printf "%-40s %s   least%s   greatest%s\n", name, a, b, c}' "$folder/$send.$depth.$work"
    done
  done
done
