#!/usr/bin/env bash
# Roundtrip beside the TCP floor and tgt, under every load that docs/performance.md shows: about forty minutes, figures in out/*.json. As root it
# also measures the shaped wire.
set -euo pipefail
cd "$(dirname "$0")/.."

side_by_side=target/release/examples/side_by_side
depths=1,2,3,4,8,16,32,64,128
short="--ms 250 --repeats 3"
mkdir -p out
for rw in randread randwrite; do
  $side_by_side $short --rw $rw --iodepth $depths --json out/small-$rw.json
  $side_by_side $short --rw $rw --bs 65536,1048576 --iodepth 1,2,4,8,32,128 --send auto,nodelay --json out/large-$rw.json
done
$side_by_side $short --disk zero:1G --bs 512,4096,65536,1048576 --send auto --json out/zero.json
$side_by_side $short --client iscsi-perf --without floor --send auto,nodelay --iodepth $depths --json out/iscsi-perf.json
for rw in randread randwrite; do
  $side_by_side --ms 200 --repeats 3 --rw $rw --bs 512,4096,65536 --iodepth 1,8,32 --sessions 1,4,16,64,256 --engines memory \
    --send auto,batch,nodelay --json out/sessions-$rw.json
done
$side_by_side $short --spin --without tgt --send auto --iodepth 1,8,32,128 --json out/spinning.json
$side_by_side $short --without tgt --send "" --engines threads,poll,uring,reactor --bs 512 --iodepth 1,8,32,128 --sessions 1,64 --json out/engines.json
if ((EUID == 0)); then
  scripts/between.sh wire $side_by_side $short --bs 512,4096,65536 --iodepth $depths --json out/wire.json
fi
