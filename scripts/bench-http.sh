#!/usr/bin/env bash
# HTTP loads beside wrk, in interleaved rounds against one nginx: bench-http.sh [ROUNDS] [SECONDS]. Both clients run on CPU 0, nginx's
# only worker on CPU 1. Prints the median of the paired ratios; figures of each round in
# out/http.tsv. Latencies are those that wrk's rule makes of the histogram (see as_wrk). "in flight" is rate x mean latency / connections
# (Little's law), of Roundtrip's own mean: the share of the connections that have a request in flight. The rest of the time a
# connection waits for the client itself. wrk's mean contains the latencies that its rule adds, so that its share may exceed 1 on a
# machine that is not calm. "cycle" is connections / rate, us: latency and wait together.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-7}
seconds=${2:-3}
roundtrip=${ROUNDTRIP:-target/release/roundtrip}
port=${PORT:-18080}
mkdir -p out
work=$(mktemp -d)
cat >"$work/nginx.conf" <<EOF
worker_processes 1;
worker_cpu_affinity 10;
daemon off;
pid $work/nginx.pid;
error_log $work/error.log;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000;
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    server {
        listen 127.0.0.1:$port;
        location / { return 200 "0123456789abcdef0123456789abcdef\n"; }
    }
}
EOF
PATH=$PATH:/usr/sbin nginx -c "$work/nginx.conf" 2>"$work/stderr" &
nginx=$!
trap 'kill $nginx 2>/dev/null; wait $nginx 2>/dev/null; rm -rf "$work"' EXIT
url=http://127.0.0.1:$port/
for _ in $(seq 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.1
done

ours() {
    "$roundtrip" bench "$url" --rw read --cpu 0 --iodepth "$1" --ramp 0ms --runtime "${seconds}s" --json
}
theirs() {
    taskset -c 0 wrk -t1 -c"$1" -d"${seconds}s" --latency "$url"
}
for ((round = 1; round <= rounds; round++)); do
    for connections in 1 8 64; do
        # Each goes first in every other round.
        if ((round % 2)); then
            ours $connections >"$work/$connections.$round.json"
            theirs $connections >"$work/$connections.$round.wrk"
        else
            theirs $connections >"$work/$connections.$round.wrk"
            ours $connections >"$work/$connections.$round.json"
        fi
    done
done

python3 - "$work" "$rounds" <<'EOF'
import json, re, statistics, sys
work, rounds = sys.argv[1], int(sys.argv[2])
unit = {"us": 1.0, "ms": 1e3, "s": 1e6}
def time(text):
    number, name = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * unit[name]
names = ["rate", "mean", "p50", "p90", "p99", "in flight", "cycle"]
def as_wrk(bins, seconds, connections):
    """The latencies as wrk reports them: for one that exceeds twice the mean interval of a connection it adds the
    latencies that requests at that interval would have had."""
    counts = sum(b["count"] for b in bins)
    interval = seconds * 1e6 / max(1, counts // connections)
    values = []
    for b in bins:
        us = b["up_to_ns"] / 1000
        values.append((us, b["count"]))
        if us >= 2 * interval:
            m = us - interval
            while m > interval:
                values.append((m, b["count"]))
                m -= interval
    values.sort()
    whole, result, seen = sum(c for _, c in values), [], 0
    result.append(sum(v * c for v, c in values) / whole)
    quantiles = [0.5, 0.9, 0.99]
    for v, c in values:
        seen += c
        while quantiles and seen >= quantiles[0] * whole:
            result.append(v)
            quantiles.pop(0)
    return result
with open("out/http.tsv", "w") as table:
    print("connections", "round", "client", *names, "errors", sep="\t", file=table)
    for connections in (1, 8, 64):
        ratios, values = {name: [] for name in names}, {"roundtrip": [], "wrk": []}
        for round in range(1, rounds + 1):
            run = json.load(open(f"{work}/{connections}.{round}.json"))["runs"][0]
            in_flight = lambda rate, mean: rate * mean / 1e6 / connections
            ours = [run["iops"], *as_wrk(run["histogram"], run["seconds"], connections)]
            ours.append(in_flight(run["iops"], run["latency_us"]["mean"]))
            ours.append(connections * 1e6 / run["iops"])
            text = open(f"{work}/{connections}.{round}.wrk").read()
            rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
            mean = time(re.search(r"Latency\s+(\S+)", text).group(1))
            at = {p: time(t) for p, t in re.findall(r"^\s+(50|90|99)%\s+(\S+)$", text, re.M)}
            failed = sum(map(int, re.findall(r"(?:connect|read|write|timeout|responses:) (\d+)", text)))
            theirs = [rate, mean, at["50"], at["90"], at["99"], in_flight(rate, mean), connections * 1e6 / rate]
            for client, row, errors in (("roundtrip", ours, run["errors"]), ("wrk", theirs, failed)):
                print(connections, round, client, *(f"{v:.3f}" if n == "in flight" else f"{v:.1f}" for n, v in zip(names, row)), errors, sep="\t", file=table)
                values[client].append(row)
            for name, a, b in zip(names, ours, theirs):
                ratios[name].append(a / b)
        for client, rows in values.items():
            medians = [statistics.median(column) for column in zip(*rows)]
            print(f"{connections:3} connections  {client:10}", *(f"{n} {v:.2f}" if n == "in flight" else f"{n} {v:.0f}" for n, v in zip(names, medians)))
        print(f"{connections:3} connections  ratio     ", *(f"{n} {statistics.median(r):.3f} ({min(r):.2f}..{max(r):.2f})" for n, r in ratios.items()))
EOF
