#!/usr/bin/env bash
# How fast captures are analysed, against tshark's field extraction on the same file: interleaved, medians, ratios.
# bench-analyze.sh [FILE]   without a file it captures one of about 1.6 GB (root, 30 s)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"; [ -z "${target:-}" ] || kill "$target" 2>/dev/null || true' EXIT
roundtrip=$PWD/target/release/roundtrip
file=${1:-}
port=3260

if [ -z "$file" ]; then
    file=$folder/big.pcapng
    iqn=iqn.2026-11.example.roundtrip:bench
    coproc server { exec "$roundtrip" target --portal 127.0.0.1:0 --iqn "$iqn" --lun 0=zero:1G; }
    target=$server_PID
    read -r _ address _ <&"${server[0]}"
    port=${address##*:}
    dumpcap -q -i lo -f "tcp port $port" -B 256 -w "$file" 2>"$folder/dumpcap.log" &
    capture=$!
    sleep 1
    "$roundtrip" bench "iscsi://$address/$iqn/0" --bs 512 --iodepth 1,16,128 --runtime 6s >/dev/null
    sleep 1
    kill -INT "$capture" && wait "$capture" || true
    kill "$target" && target=
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
# Twice the capture: the same file twice.
cat "$file" "$file" >"$folder/twice"
measure "$roundtrip" analyze "$folder/twice" --port "$port" --no-modes >"$folder/warm"
for _ in 1 2 3; do measure "$roundtrip" analyze "$folder/twice" --port "$port" --no-modes >>"$folder/doubled"; done

json=$("$roundtrip" analyze "$file" --port "$port" --no-modes --json || true)
python3 - "$folder" "$(stat -c %s "$file")" <<PY
import json, platform, statistics, sys
result = json.loads('''$json''')
rows = lambda name: [tuple(map(float, l.split())) for l in open(f"{sys.argv[1]}/{name}")]
seconds = lambda name: statistics.median(r[0] for r in rows(name))
memory = lambda name: max(r[1] for r in rows(name)) / 1024
packets = result["packets"]
ours, theirs, doubled = seconds("ours"), seconds("theirs"), seconds("doubled")
print(f"{platform.processor() or platform.machine()}, Linux {platform.release()}; {int(sys.argv[2]) / 1e9:.2f} GB, {packets:,} packets, {result['operations']:,} operations")
print(f"roundtrip analyze  {ours:8.2f} s  {packets / ours / 1e6:6.2f} M packets/s  {memory('ours'):7.1f} MiB")
print(f"tshark fields      {theirs:8.2f} s  {packets / theirs / 1e6:6.2f} M packets/s  {memory('theirs'):7.1f} MiB")
print(f"ratio              {theirs / ours:8.1f}")
print(f"twice the capture  {doubled:8.2f} s  {doubled / ours:6.2f} times the time     {memory('doubled'):7.1f} MiB")
PY
