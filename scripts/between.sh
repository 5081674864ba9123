#!/usr/bin/env bash
# Runs a command that measures a server and a client, with a chosen connection between them: loopback, a veth pair between two network
# namespaces, or a wire of 1 Gb/s (MTU 9000, offloads off, each side's receive work on its own CPU). The command finds in its environment how to run
# something on a side (SERVER_RUN, CLIENT_RUN) and the servers' address (ADDRESS). Everything is removed at the end.
#
#   scripts/between.sh loopback|veth|wire COMMAND...
set -euo pipefail

where=$1
shift
export SERVER_RUN="" CLIENT_RUN="" ADDRESS=127.0.0.1
if [[ $where != loopback ]]; then
  server=rtbench-s$$ client=rtbench-c$$
  finish() {
    ip netns del "$server" 2>/dev/null || true
    ip netns del "$client" 2>/dev/null || true
  }
  trap finish EXIT
  trap 'exit 143' TERM INT HUP
  SERVER_RUN="ip netns exec $server" CLIENT_RUN="ip netns exec $client" ADDRESS=192.0.2.2
  ip netns add "$server"
  ip netns add "$client"
  ip link add c0 netns "$client" type veth peer name s0 netns "$server"
  for end in "c 192.0.2.1 2 $CLIENT_RUN" "s 192.0.2.2 1 $SERVER_RUN"; do
    read -r side ip rps run <<<"$end"
    $run ip address add "$ip/30" dev "${side}0"
    $run ip link set "${side}0" mtu 9000 up
    $run ethtool -K "${side}0" tso off gso off gro off >/dev/null
    # The server's CPU is 0, the client's is 1.
    $run sh -c "echo $rps > /sys/class/net/${side}0/queues/rx-0/rps_cpus"
    if [[ $where == wire ]]; then
      # One frame plus the tokens that accrue while the shaper's timer is late.
      $run tc qdisc replace dev "${side}0" root tbf rate 1gbit burst 16500 limit 4m
    fi
  done
fi
"$@"
