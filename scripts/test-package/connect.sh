#!/bin/bash
# Connects to a port of this machine again and again until a file exists, and counts: connect.sh PORT STOP_FILE
port=$1 stop=$2
made=0 refused=0
until [ -e "$stop" ]; do
    # The subshell closes it.
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then made=$((made + 1)); else refused=$((refused + 1)); fi
    # Fewer than the target accepts from one address in a second.
    sleep 0.02
done
echo "$made connections, $refused refused"
