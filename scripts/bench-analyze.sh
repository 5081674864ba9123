#!/usr/bin/env bash
# Speed of the analysis of captures, against tshark's field extraction on the same file: interleaved, medians, ratios.
# bench-analyze.sh [FILE]   without a file it captures one (root, 30 s): of iSCSI about 1.6 GB
# PROTOCOL=iscsi|http2|resp the protocol of the capture: 512-byte reads, h2load at nghttpd, redis-benchmark
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"; [ -z "${target:-}" ] || kill "$target" 2>/dev/null || true' EXIT
roundtrip=$PWD/target/release/roundtrip
file=${1:-}
protocol=${PROTOCOL:-iscsi}
case $protocol in
    iscsi) port=3260 fields=(-Y iscsi.time -e frame.number -e iscsi.time) ;;
    http2) port=8080 fields=(-Y http2.streamid -e frame.number -e frame.time_relative -e http2.streamid -e http2.headers.status) ;;
    resp) port=6379 fields=(-Y resp -e frame.number -e frame.time_relative) ;;
    *) printf 'PROTOCOL=%s: iscsi, http2 or resp\n' "$protocol" >&2 && exit 2 ;;
esac

serve() { # starts the server
    local address=127.0.0.1
    case $protocol in
        iscsi)
            coproc server { exec "$roundtrip" target --portal "$address:$port" --iqn "$iqn" --lun 0=zero:1G 2>/dev/null; }
            target=$server_PID
            read -r _ _ _ <&"${server[0]}"
            ;;
        http2)
            head -c 3000 /dev/zero >"$folder/page"
            nghttpd --no-tls -a "$address" -d "$folder" "$port" >/dev/null &
            target=$!
            ;;
        resp)
            redis-server --bind "$address" --port "$port" --save '' --appendonly no >/dev/null &
            target=$!
            ;;
    esac
}

load() { # asks the server: UNITS
    case $protocol in
        iscsi) "$roundtrip" bench "iscsi://127.0.0.1:$port/$iqn/0" --bs 512 --iodepth 1,16,128 --runtime "$1s" ;;
        http2) for streams in 1 10 100; do h2load -n "$(($1 * 15000))" -c 8 -m "$streams" "http://127.0.0.1:$port/page"; done ;;
        resp) for depth in 1 16; do redis-benchmark -p "$port" -n "$(($1 * 50000))" -c 8 -P "$depth" -t set,get -r 10000 -q; done ;;
    esac
}

capture() { # a capture: FILE UNITS
    local iqn=iqn.2026-11.example.roundtrip:bench dumpcap
    serve
    dumpcap -q -i lo -f "tcp port $port" -B 256 -w "$1" 2>"$folder/dumpcap.log" &
    dumpcap=$!
    sleep 1
    load "$2" >/dev/null
    sleep 1
    kill -INT "$dumpcap" && wait "$dumpcap" || true
    kill "$target" && wait "$target" 2>/dev/null || true
    target=
}

if [ -z "$file" ]; then
    port=$((port + 20000))
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
    measure tshark -r "$file" -d "tcp.port==$port,$protocol" -T fields "${fields[@]}" >>"$folder/theirs"
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
