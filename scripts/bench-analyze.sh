#!/usr/bin/env bash
# Speed of the analysis of captures, against tshark's field extraction on the same file: interleaved, medians, ratios.
# bench-analyze.sh [FILE]   without a file it captures one of about 1.6 GB (root, 30 s)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"; [ -z "${target:-}" ] || kill "$target" 2>/dev/null || true' EXIT
roundtrip=$PWD/target/release/roundtrip
file=${1:-}
port=3260

capture() { # a capture of 512-byte reads: FILE SECONDS-EACH
    local iqn=iqn.2026-11.example.roundtrip:bench address dumpcap
    coproc server { exec "$roundtrip" target --portal "127.0.0.1:$port" --iqn "$iqn" --lun 0=zero:1G 2>/dev/null; }
    target=$server_PID
    read -r _ address _ <&"${server[0]}"
    dumpcap -q -i lo -f "tcp port $port" -B 256 -w "$1" 2>"$folder/dumpcap.log" &
    dumpcap=$!
    sleep 1
    "$roundtrip" bench "iscsi://$address/$iqn/0" --bs 512 --iodepth 1,16,128 --runtime "$2s" >/dev/null
    sleep 1
    kill -INT "$dumpcap" && wait "$dumpcap" || true
    kill "$target" && wait "$target" 2>/dev/null || true
    target=
}

if [ -z "$file" ]; then
    port=32600
    file=$folder/once.pcapng
    capture "$file" 6
    capture "$folder/twice.pcapng" 12
fi
cat "$file" >/dev/null

measure() { # seconds and kilobytes of a command
    python3 - "$@" <<'PY'
import resource, subprocess, sys, time
began = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PY
}

: >"$folder/ours" >"$folder/theirs"
for round in $(seq "$rounds"); do
    printf 'round %s of %s\n' "$round" "$rounds" >&2
    for _ in 1 2 3; do measure "$roundtrip" analyze "$file" --port "$port" --no-modes >>"$folder/ours"; done
    measure tshark -r "$file" -d "tcp.port==$port,iscsi" -Y iscsi.time -T fields -e frame.number -e iscsi.time >>"$folder/theirs"
done
# A capture twice as long.
if [ -e "$folder/twice.pcapng" ]; then
    cat "$folder/twice.pcapng" >/dev/null
    for _ in 1 2 3; do
        measure "$roundtrip" analyze "$folder/twice.pcapng" --port "$port" --no-modes >>"$folder/doubled"
    done
    "$roundtrip" analyze "$folder/twice.pcapng" --port "$port" --no-modes --json >"$folder/doubled.json" || true
fi

"$roundtrip" analyze "$file" --port "$port" --no-modes --json >"$folder/once.json" || true
python3 - "$folder" "$(stat -c %s "$file")" <<'PY'
import json, os, platform, statistics, sys
folder = sys.argv[1]
load = lambda name: json.load(open(f"{folder}/{name}.json"))
rows = lambda name: [tuple(map(float, l.split())) for l in open(f"{folder}/{name}")]
seconds = lambda name: statistics.median(r[0] for r in rows(name))
memory = lambda name: max(r[1] for r in rows(name)) / 1024
once = load("once")
packets, ours, theirs = once["packets"], seconds("ours"), seconds("theirs")
cpu = next((l.split(": ")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
print(f"{cpu}, Linux {platform.release()}; {int(sys.argv[2]) / 1e9:.2f} GB, {packets:,} packets, {once['operations']:,} operations")
row = lambda name, s, p, m: print(f"{name:22}{s:8.2f} s  {p / s / 1e6:6.2f} M packets/s  {m:8.1f} MiB")
row("roundtrip analyze", ours, packets, memory("ours"))
row("tshark fields", theirs, packets, memory("theirs"))
if os.path.exists(f"{folder}/doubled.json"):
    more = load("doubled")["packets"]
    row("a longer capture", seconds("doubled"), more, memory("doubled"))
    print(f"{more / packets:.2f} times the packets, {seconds('doubled') / ours:.2f} times the time")
print(f"tshark takes {theirs / ours:.0f} times as long")
PY
