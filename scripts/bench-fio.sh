#!/usr/bin/env bash
# Measures one target with fio's libiscsi engine and with `roundtrip bench`, alternately on the same CPU, and prints the medians
# of both with their ratio. Debian's fio has no libiscsi engine: name one that has (docs/performance.md says how to build it).
# A file in memory (ram-*) shows the cost of the clients; a disk with a fixed delay (delay-*) leaves them idle.
#   FIO=/path/to/fio ROUNDTRIP=target/release/roundtrip ROUNDS=5 RUNTIME=3 [ONLY=delay] [SCHEDULER='chrt -f 10'] scripts/bench-fio.sh
set -euo pipefail

fio=${FIO:-fio}
roundtrip=${ROUNDTRIP:-target/release/roundtrip}
rounds=${ROUNDS:-5}
runtime=${RUNTIME:-3}
client_cpu=${CLIENT_CPU:-1}
target_cpu=${TARGET_CPU:-0}
only=${ONLY:-}
# Real-time scheduling keeps other programs of the machine out of the figures.
read -ra scheduler <<<"${SCHEDULER:-}"
iqn=iqn.2026-11.example.roundtrip:fio

"$fio" --enghelp=libiscsi >/dev/null 2>&1 || { echo "bench-fio: $fio has no libiscsi engine; set FIO" >&2 && exit 2; }
out=$(mktemp -d)
trap 'kill "$target" 2>/dev/null || true; wait "$target" 2>/dev/null || true; rm -rf "$out"' EXIT
touch "$out/ready"
"${scheduler[@]}" taskset -c "$target_cpu" "$roundtrip" target --portal 127.0.0.1:0 --iqn "$iqn" \
    --lun 0=ram:64M --lun 1=ram:64M,delay=1ms >"$out/ready" 2>/dev/null &
target=$!
while ! grep -q ready "$out/ready"; do sleep 0.1; kill -0 "$target"; done
address=$(cut -d' ' -f2 "$out/ready")

# name lun rw bs depth
cases="ram-read-1 0 randread 4k 1
ram-read-8 0 randread 4k 8
ram-write-8 0 randwrite 4k 8
ram-read-64k-8 0 randread 64k 8
delay-read-1 1 randread 4k 1
delay-read-8 1 randread 4k 8
delay-mixed-32 1 randrw 4k 32"
cases=$(grep -- "$only" <<<"$cases")

for round in $(seq "$rounds"); do
    while read -r name lun rw bs depth; do
        url=iscsi://$address/$iqn/$lun
        "${scheduler[@]}" taskset -c "$client_cpu" "$fio" --name="$name" --ioengine=libiscsi --filename="${url//:/\\:}" --rw="$rw" --bs="$bs" \
            --iodepth="$depth" --size=64M --time_based --runtime="${runtime}s" --ramp_time=200ms --norandommap \
            --output-format=json+ --output="$out/fio-$name-$round.json" >/dev/null
        "${scheduler[@]}" taskset -c "$client_cpu" "$roundtrip" bench "$url" --rw "$rw" --bs "$bs" --iodepth "$depth" --runtime "${runtime}s" \
            --output-format json+ >"$out/bench-$name-$round.json"
    done <<<"$cases"
done

python3 -c '
import json, statistics, sys
out, rounds, cases = sys.argv[1], int(sys.argv[2]), sys.argv[3]
print("case             direction        fio IOPS  bench IOPS   ratio    p50 us         ratio    p99 us         ratio")
for case in cases.splitlines():
    name = case.split()[0]
    for direction in ("read", "write"):
        rows = {}
        for tool in ("fio", "bench"):
            runs = []
            for n in range(1, rounds + 1):
                text = open(f"{out}/{tool}-{name}-{n}.json").read()
                runs.append(json.loads(text[text.index("{"):])["jobs"][0][direction])
            if all(r["total_ios"] for r in runs):
                at = lambda p: statistics.median(r["clat_ns"]["percentile"][p] for r in runs) / 1000
                rows[tool] = (statistics.median(r["iops"] for r in runs), at("50.000000"), at("99.000000"))
        if len(rows) == 2:
            f, b = rows["fio"], rows["bench"]
            print(f"{name:16} {direction:9} {f[0]:15.0f} {b[0]:11.0f} {b[0]/f[0]:7.3f} {f[1]:8.1f} {b[1]:8.1f} {b[1]/f[1]:7.3f} {f[2]:8.1f} {b[2]:8.1f} {b[2]/f[2]:7.3f}")
' "$out" "$rounds" "$cases"
