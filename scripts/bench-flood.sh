#!/usr/bin/env bash
# Cost of a flood of logins and of half-open connections for an established session: the same random reads with
# and without it, interleaved. Prints medians and their ratio; the limit is a loss of a fifth.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${ROUNDTRIP:-target/release/roundtrip}
runs=${1:-5}
name=iqn.2026-11.example.roundtrip:flood
work=$(mktemp -d)
pids=()
finish() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"; }
trap finish EXIT

"$program" target --portal 127.0.0.1:0 --iqn "$name" --lun 0=zero:1G >"$work/ready" 2>/dev/null &
pids+=($!)
until grep -q ready "$work/ready"; do sleep 0.05; done
address=$(cut -d' ' -f2 "$work/ready")

# Connects as fast as possible, sends an invalid login or nothing, and continues with the next connection.
cat >"$work/flood.py" <<'PY'
import socket, sys, threading, time
host, port = sys.argv[1].rsplit(":", 1)
kind, until = sys.argv[2], time.time() + float(sys.argv[3])
done = [0]
def connect():
    while time.time() < until:
        s = socket.socket()
        s.settimeout(max(0.1, until - time.time()))
        try:
            s.connect((host, int(port)))
            done[0] += 1
            if kind == "logins":
                s.send(b"\x43\x87" + bytes(46))
                s.recv(100)
            else:
                held.append(s)
                continue
        except OSError:
            time.sleep(0.01)
        s.close()
held = []
threads = [threading.Thread(target=connect) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(kind, done[0], file=sys.stderr)
PY

measure() { # measure DEPTH: IOPS
    "$program" bench "iscsi://$address/$name/0" --bs 4k --rw randread --iodepth "$1" --runtime 2s --json 2>/dev/null |
        python3 -c 'import json,sys; print(round(json.load(sys.stdin)["runs"][0]["iops"]))'
}

for depth in 1 16; do
    : >"$work/calm"; : >"$work/logins"; : >"$work/half-open"
    for _ in $(seq "$runs"); do
        measure "$depth" >>"$work/calm"
        for kind in logins half-open; do
            python3 "$work/flood.py" "$address" "$kind" 3 2>>"$work/said" &
            flood=$!
            sleep 0.5
            measure "$depth" >>"$work/$kind"
            wait "$flood"
            sleep 0.2
        done
    done
    python3 - "$depth" "$work" <<'PY'
import statistics, sys
depth, work = sys.argv[1:]
median = lambda name: statistics.median(float(l) for l in open(f"{work}/{name}"))
calm = median("calm")
for kind in ("logins", "half-open"):
    print(f"queue depth {depth:>2}: {calm:8.0f} IOPS calm, {median(kind):8.0f} under a flood of {kind:9}: {median(kind) / calm:5.2f}")
PY
done
sort "$work/said" | awk '{ sum[$1] += $2; n[$1]++ } END { for (k in sum) printf "%s: %d connections in 3 s\n", k, sum[k] / n[k] }'
