#!/bin/sh
# Checks that a load lost nothing while its target was restarted: unharmed.sh SINCE RESULT.json UNIT
#
# No command has failed, every block that was read was as written, there was no login but the first one, and the longest time of a
# command, which is the gap, is shorter than the 2 s after which an initiator logs in again (on idle CPUs it is 70 to 150 ms). Prints how
# often the session went on, and the gap.
set -eu
since=$1 result=$2 unit=$3
[ -s "$result" ] || { echo "the load has no result"; exit 1; }
# Of the run and of each kind of operation.
if grep -E '"(errors|mismatched_blocks)": ' "$result" | grep -vE ': 0,?$'; then exit 1; fi
grep -q '"mismatched_blocks": 0' "$result"
log() { journalctl -q --no-pager -u "$unit" --since "$since" -o cat; }
logins=$(log | grep -c 'logged in' || true)
went_on=$(log | grep -c 'session goes on' || true)
gap=$(grep -oE '"max": [0-9]+' "$result" | grep -oE '[0-9]+$' | sort -n | tail -n 1)
echo "$logins logins, went on $went_on times, gap $((gap / 1000)) ms"
[ "$logins" -le 1 ] && [ "$went_on" -ge 1 ] && [ "$gap" -lt 2000000 ]
