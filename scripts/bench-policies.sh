#!/usr/bin/env bash
# `auto` beside the other send policies, at every queue depth: on loopback, between two network namespaces over veth, and over a wire of 1 Gb/s; with
# and without work for each operation; with a client that batches its requests and one that does not. Interleaved, medians; the last column is auto's
# ratio to the best of the others. A wire needs root.
#
#   scripts/bench-policies.sh [loopback|veth|wire] [REPEATS] [MS]
set -euo pipefail
cd "$(dirname "$0")/.."

where=${1:-loopback}
[[ -n ${ADDRESS-} ]] || exec scripts/between.sh "$where" "scripts/${0##*/}" "$@"
repeats=${2:-3} ms=${3:-600}
program=$PWD/target/release/roundtrip
iqn=iqn.2026-11.example.roundtrip:policies
policies=(auto nodelay nagle adaptive batch)
depths=${DEPTHS:-1 2 3 4 8 16 32 64 128}
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# Keeps one target for each policy; their URLs are in urls.
serve() {
  urls=()
  for policy in "${policies[@]}"; do
    $SERVER_RUN taskset -c 0 "$program" target --portal "$ADDRESS:0" --iqn "$iqn" --congestion cubic --lun "0=$1" --send "$policy" >"$work/$policy" 2>/dev/null &
    pids+=($!)
    until grep -q ready "$work/$policy"; do sleep 0.05; done
    urls+=("iscsi://$(cut -d' ' -f2 "$work/$policy")/$iqn/0")
  done
}

# Processes differ by up to a tenth for their whole life, so each run starts new ones.
for disk in zero:1G zero:1G,work=10us; do
  rm -f "$work"/iops.*
  for ((run = 0; run < repeats; run++)); do
    serve "$disk"
    for submit in --batch ""; do
      for depth in $depths; do
        for index in "${!policies[@]}"; do
          iops=$($CLIENT_RUN taskset -c 1 "$program" bench "${urls[index]}" --bs 512 --iodepth "$depth" $submit --congestion cubic --runtime "${ms}ms" \
            --ramp "$((ms / 2))ms" --json | sed -n 's/.*"iops": \([0-9.]*\),.*/\1/p')
          echo "${policies[index]} $iops" >>"$work/iops.$submit.$depth"
        done
      done
    done
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait "${pids[@]}" 2>/dev/null || true
    pids=()
  done
  for submit in --batch ""; do
    echo "$where, $disk, client ${submit:-one by one}"
    for depth in $depths; do
      awk -v depth="$depth" -v names="${policies[*]}" '
        {all[$1] = all[$1] " " $2}
        END {
          n = split(names, order, " ")
          if (depth == 1) {printf "%4s", "QD"; for (i = 1; i <= n; i++) printf " %9s", order[i]; print "  auto/best"}
          printf "%4d", depth
          for (i = 1; i <= n; i++) {
            count = split(all[order[i]], v, " ")
            for (a = 1; a <= count; a++) for (b = a + 1; b <= count; b++) if (v[b] + 0 < v[a] + 0) {t = v[a]; v[a] = v[b]; v[b] = t}
            m[i] = v[int((count + 1) / 2)]
            printf " %9.0f", m[i]
            if (i > 1 && m[i] > best) best = m[i]
          }
          printf "  %.2f\n", m[1] / best
        }' "$work/iops.$submit.$depth"
    done
  done
done
