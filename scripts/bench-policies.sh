#!/usr/bin/env bash
# `auto` beside the other send policies, at every queue depth: on loopback, between two network namespaces over veth, and over a wire of 1 Gb/s; with
# and without work for each operation; with a client that batches its requests and one that does not. Interleaved, medians; the last column is auto's
# ratio to the best of the others. As root where a wire is wanted.
#
#   scripts/bench-policies.sh [loopback|veth|wire] [REPEATS] [MS]
set -euo pipefail
cd "$(dirname "$0")/.."

where=${1:-loopback} repeats=${2:-3} ms=${3:-600}
program=$PWD/target/release/roundtrip
iqn=iqn.2026-11.example.roundtrip:policies
policies=(auto nodelay nagle adaptive batch)
depths=${DEPTHS:-1 2 3 4 8 16 32 64 128}
work=$(mktemp -d)
pids=()
server="" client="" address=127.0.0.1
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  if [[ -n $server ]]; then ip netns del "rtpol-s$$" 2>/dev/null || true; ip netns del "rtpol-c$$" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

if [[ $where != loopback ]]; then
  server="ip netns exec rtpol-s$$" client="ip netns exec rtpol-c$$" address=192.0.2.2
  ip netns add "rtpol-s$$"
  ip netns add "rtpol-c$$"
  ip link add c0 netns "rtpol-c$$" type veth peer name s0 netns "rtpol-s$$"
  for end in "c 1 192.0.2.1 2" "s 0 192.0.2.2 1"; do
    read -r side _ ip rps <<<"$end"
    run="ip netns exec rtpol-$side$$"
    $run ip address add "$ip/30" dev "${side}0"
    $run ip link set "${side}0" mtu 9000 up
    $run ethtool -K "${side}0" tso off gso off gro off >/dev/null
    # The receive work of each side on its own CPU: the server's is 0, the client's is 1.
    $run sh -c "echo $rps > /sys/class/net/${side}0/queues/rx-0/rps_cpus"
    if [[ $where == wire ]]; then
      # A frame and what accrues while the shaper's timer is late.
      $run tc qdisc replace dev "${side}0" root tbf rate 1gbit burst 16500 limit 4m
    fi
  done
fi

# Keeps one target for each policy; their URLs are in urls.
serve() {
  urls=()
  for policy in "${policies[@]}"; do
    $server taskset -c 0 "$program" target --portal "$address:0" --iqn "$iqn" --congestion cubic --lun "0=$1" --send "$policy" >"$work/$policy" 2>/dev/null &
    pids+=($!)
    until grep -q ready "$work/$policy"; do sleep 0.05; done
    urls+=("iscsi://$(cut -d' ' -f2 "$work/$policy")/$iqn/0")
  done
}

# One process can be luckier than another by a tenth, for as long as it lives: each run has new ones.
for disk in zero:1G zero:1G,work=10us; do
  rm -f "$work"/iops.*
  for ((run = 0; run < repeats; run++)); do
    serve "$disk"
    for submit in --batch ""; do
      for depth in $depths; do
        for index in "${!policies[@]}"; do
          iops=$($client taskset -c 1 "$program" bench "${urls[index]}" --bs 512 --iodepth "$depth" $submit --congestion cubic --runtime "${ms}ms" \
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
