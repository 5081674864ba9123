#!/usr/bin/env bash
# Runs scripts/spark/analyze.py on a local Spark cluster with a master and two workers, of which one is killed in the middle, over 100
# captures, and compares the dataset with that of one machine: test-spark.sh PROGRAM FOLDER [PYTHON]. PYTHON has pyspark.
set -euo pipefail
program=$(realpath "$1")
folder=$2
python=${3:-python3}
scripts=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder/captures"
folder=$(realpath "$folder")
log() { printf 'test-spark: %s\n' "$*" >&2; }

SPARK_HOME=$("$python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON=$python SPARK_LOG_DIR=$folder/log SPARK_WORKER_DIR=$folder/work
port=17077
declare -A started
spark() { # NAME CLASS ARGUMENTS: starts a daemon in a session of its own
    local name=$1
    shift
    setsid "$SPARK_HOME/bin/spark-class" "$@" >"$folder/$name.log" 2>&1 &
    started[$name]=$!
}
stop() {
    for pid in "${started[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
}
trap stop EXIT

log "100 captures"
for seed in $(seq 0 99); do
    "$program" simulate --iodepth $((1 + seed % 4)) --operations $((2000 + 40 * seed)) --seed "$seed" --set jitter=0.2 \
        --pcapng "$folder/captures/host-$seed.pcapng" >/dev/null
done
log "one machine"
"$program" analyze --each "$folder/captures" --ops "$folder/single" --json >"$folder/single.json"

log "a cluster of two workers"
spark master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port $port --webui-port 0
for worker in 1 2; do
    spark worker-$worker org.apache.spark.deploy.worker.Worker "spark://127.0.0.1:$port" --host 127.0.0.1 --cores 1 --memory 1g --webui-port 0
done
registered() { grep -c 'Registering worker' "$folder/master.log" || true; }
for _ in $(seq 120); do [ "$(registered)" -ge 2 ] && break || sleep 0.5; done
[ "$(registered)" -ge 2 ] || { cat "$folder"/*.log >&2; log "the workers did not register"; exit 1; }

"$SPARK_HOME/bin/spark-submit" --master "spark://127.0.0.1:$port" --executor-memory 512m --conf spark.ui.enabled=false \
    "$scripts/spark/analyze.py" --captures "$folder/captures" --dataset "$folder/spark" --roundtrip "$program" \
    >"$folder/job.json" 2>"$folder/job.log" &
job=$!
done_so_far() { find "$folder/spark/results" -name '*.json' 2>/dev/null | wc -l; }
while kill -0 $job 2>/dev/null && [ "$(done_so_far)" -lt 20 ]; do sleep 0.02; done
killed=$(done_so_far)
kill -KILL -- "-${started[worker-1]}"
log "a worker was killed after $killed captures"
wait $job || { tail -40 "$folder/job.log" >&2; log "the job failed"; exit 1; }
[ "$killed" -lt 100 ] || { log "the worker was killed too late: all captures were done"; exit 1; }

cat "$folder/job.json"
"$python" - "$folder" <<'P'
import json
import os
import sys

folder = sys.argv[1]


def content(name):
    top = os.path.join(folder, name)
    return {os.path.relpath(os.path.join(place, one), top): open(os.path.join(place, one), 'rb').read()
            for place, _, names in os.walk(top) for one in names if not one.startswith('.')}


job = json.loads(open(os.path.join(folder, 'job.json')).read().splitlines()[-1])
single = json.load(open(os.path.join(folder, 'single.json')))
assert job == {'captures': 100, 'operations': single['operations'], 'failed': []}, (job, single['operations'])
one, other = content('single'), content('spark')
assert one.keys() == other.keys(), one.keys() ^ other.keys()
differ = [name for name in one if one[name] != other[name]]
assert not differ, f'{len(differ)} files differ: {differ[:5]}'
print(f'{len(one)} files are the same, {single["operations"]} operations')
P
log "passed"
