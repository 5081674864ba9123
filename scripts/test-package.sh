#!/usr/bin/env bash
# Installs the Debian package in a Debian 12 of its own, booted with systemd in a container without a network, and checks what it does
# there: start, hardening, reload, watchdog, several instances, upgrade, removal. As root; touches nothing of this machine outside
# the work folder. Figures and checks go to stdout.
set -euo pipefail

deb=$(realpath "${1:?usage: test-package.sh PACKAGE.deb [WORK_FOLDER]}")
work=$(realpath -m "${2:-target/package-test}")
here=$(realpath "$(dirname "$0")")
suite=bookworm
bound=2.0 # of `systemd-analyze security`
iqn=iqn.2026-11.example.roundtrip:packaged
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "$*"; }
[ "$(id -u)" = 0 ] || { say "test-package: needs root, for a container"; exit 2; }
for program in debootstrap systemd-nspawn nsenter dpkg-deb; do
    command -v $program >/dev/null || { say "test-package: needs $program: scripts/setup.sh package"; exit 2; }
done

# The bare system is made once: it takes minutes.
mkdir -p "$work"
base=$work/debian-$suite
if [ ! -e "$base/.complete" ]; then
    rm -rf "$base"
    say "making Debian $suite in $base"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,iproute2,libiscsi-bin $suite "$base" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 5 "$work/debootstrap.log"; exit 1; }
    # No waiting for a network that does not come, and no time zone dialogue.
    ln -sf /dev/null "$base/etc/systemd/system/systemd-networkd-wait-online.service"
    touch "$base/.complete"
fi
tree=$work/tree
rm -rf "$tree"
cp -a --reflink=auto "$base" "$tree"
rm -f "$tree/.complete"

# The same package with a higher version is the upgrade.
rm -rf "$work/repacked"
dpkg-deb -R "$deb" "$work/repacked"
version=$(dpkg-deb -f "$deb" Version)
next=$version+upgraded
sed -i "s/^Version: .*/Version: $next/" "$work/repacked/DEBIAN/control"
mkdir -p "$tree/packages"
dpkg-deb -b "$work/repacked" "$tree/packages/next.deb" >/dev/null
cp "$deb" "$tree/packages/first.deb"
install -m 755 "$here/test-package/connect.sh" "$here/test-package/unharmed.sh" "$tree/packages/"

# A container filters system calls, too: these are allowed on a machine of its own.
calls="landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp io_uring_setup io_uring_enter io_uring_register"
systemd-nspawn -D "$tree" --system-call-filter="$calls" --quiet --boot --register=no --keep-unit --private-network --console=pipe </dev/null >"$work/console.log" 2>&1 &
nspawn=$!
finish() {
    status=$?
    if [ $status -ne 0 ] && [ -n "${leader:-}" ]; then
        inside "systemctl --no-pager status roundtrip.service roundtrip-portal.socket; journalctl --no-pager -n 60 -u 'roundtrip*'" || true
    fi
    # SIGTERM to nspawn ends the system in it in order.
    kill "$nspawn" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$nspawn" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$nspawn" 2>/dev/null || true
    wait "$nspawn" 2>/dev/null || true
    rm -rf "$tree" "$work/repacked"
    [ $status -eq 0 ] || say "console: $work/console.log"
}
trap finish EXIT
trap 'exit 130' INT TERM

leader=
for _ in $(seq 100); do
    leader=$(pgrep -P "$nspawn" | head -n 1 || true)
    [ -n "$leader" ] && break
    sleep 0.1
done
[ -n "$leader" ] || { say "the container did not start:"; cat "$work/console.log"; exit 1; }

# bash -e does not end at a negated command: "no COMMAND" and "nothing_in COMMAND" fail.
# shellcheck disable=SC2016 # expanded inside
inside_functions='no() { if "$@" >/dev/null 2>&1; then echo "succeeded: $*"; return 1; fi; }
nothing_in() { local out; out=$("$@") || true; if [ -n "$out" ]; then echo "$out"; return 1; fi; }'
inside() {
    nsenter -t "$leader" -m -u -i -n -p -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive bash -ec "$inside_functions
$1"
}
# Waits until a command succeeds inside: until_true SECONDS COMMAND
until_true() {
    for _ in $(seq $(($1 * 10))); do inside "$2" >/dev/null 2>&1 && return 0; sleep 0.1; done
    say "not within $1 s: $2"; return 1
}
passed=0
check() {
    local name=$1 output
    if output=$(inside "$2" 2>&1); then
        passed=$((passed + 1)); say "ok    $name${3:+: $output}"
    else
        say "FAILED $name: $2"; say "$output"; say "$passed passed, 1 failed"; exit 1
    fi
}
bench="roundtrip bench iscsi://127.0.0.1:3260/$iqn/0 --rw randrw --bs 4k --iodepth 4 --runtime 300ms --ramp 0s --verify"

until_true 30 "systemctl is-system-running | grep -qE 'running|degraded'"
inside "ip link set lo up"
# What is there before, without what dpkg and the system itself write.
files="find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /packages -o -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/systemd -o -path /var/cache -o -path /var/tmp \) -prune -o -print | grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|^/etc/\.(pwd\.lock|updated)$' | LC_ALL=C sort"
inside "$files" >"$work/before.txt"
inside "cat /etc/passwd /etc/group" >"$work/accounts-before.txt"

say "-- install $version"
check "installs" "dpkg -i /packages/first.deb"
check "service and socket run and are enabled" "systemctl is-active roundtrip.service roundtrip-portal.socket; systemctl is-enabled roundtrip.service roundtrip-portal.socket"
check "runs as its user" "[ \$(ps -o user= -p \$(systemctl show -P MainPID roundtrip)) = roundtrip ]"
check "configuration is for root and the group" "[ \"\$(stat -c '%a %U:%G' /etc/roundtrip/target.toml)\" = '640 root:roundtrip' ]; no setpriv --reuid 65534 --regid 65534 --clear-groups cat /etc/roundtrip/target.toml"
check "no disk is served" "roundtrip ctl disk list | grep -qx none"
check "no warning at the start" "nothing_in journalctl -q --no-pager -u roundtrip -p warning"
check "manual and completions are there" "test -s /usr/share/man/man1/roundtrip-target.1.gz; bash -n /usr/share/bash-completion/completions/roundtrip"
check "units verify" "systemd-analyze verify --man=no roundtrip.service roundtrip-portal.socket"

say "-- hardening"
score=$(inside "systemd-analyze security --no-pager roundtrip.service" | grep -oE 'Overall exposure.*: [0-9.]+' | grep -oE '[0-9.]+$')
say "systemd-analyze security: $score (bound $bound)"
check "exposure is below the bound" "systemd-analyze security --no-pager --threshold=$(awk "BEGIN { print $bound * 10 }") roundtrip.service"

say "-- configure and serve"
inside "printf '%s\n' 'iqn = \"$iqn\"' '[luns]' '0 = \"file:/var/lib/roundtrip/disks/first,size=64M\"' '1 = \"ram:16M\"' >/etc/roundtrip/target.toml
printf '%s\n' 'ROUNDTRIP_OPTIONS=\"--sandbox require --cpus 0 --metrics 127.0.0.1:9260\"' 'ROUNDTRIP_LOG=info' >/etc/default/roundtrip"
check "starts with the options of /etc/default" "systemctl restart roundtrip"
check "its own sandbox is complete within the unit's" "journalctl -q --no-pager -u roundtrip -g 'sandbox: .*Landlock ABI.*seccomp' -o cat | tail -n 1" show
check "CPUs are pinned, io_uring works" "nothing_in journalctl -q --no-pager -u roundtrip -p warning"
check "serves a file" "$bench"
check "serves libiscsi" "iscsi-ls -s iscsi://127.0.0.1:3260 | grep -q 'Lun:1'"
check "the socket is the portal" "ss -Hltn 'sport = 3260' | grep -q '\*:3260'"
check "metrics" "exec 3<>/dev/tcp/127.0.0.1/9260; printf 'GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n' >&3; timeout 5 cat <&3 | grep -q roundtrip_disk_operations_total"
inside "sed -i 's/ram:16M/ram:32M/' /etc/roundtrip/target.toml"
check "reload keeps the process" "before=\$(systemctl show -P MainPID roundtrip); systemctl reload roundtrip; sleep 0.3; [ \$(systemctl show -P MainPID roundtrip) = \$before ]; roundtrip ctl disk list | grep -q 33554432; systemctl is-active roundtrip"
inside "cp -p /etc/roundtrip/target.toml /etc/roundtrip/good; echo nonsense >>/etc/roundtrip/target.toml"
check "reload of a bad file changes nothing" "systemctl reload roundtrip; sleep 0.3; systemctl is-active roundtrip; journalctl -q --no-pager -u roundtrip -p err | grep -q 'keeping the old configuration'; $bench"
inside "cat /etc/roundtrip/good >/etc/roundtrip/target.toml; rm /etc/roundtrip/good"
check "a disk added by ctl is saved by root, with owner and mode" "roundtrip ctl disk add 7 file:/var/lib/roundtrip/disks/second,size=8M --save; grep -q second /etc/roundtrip/target.toml; [ \"\$(stat -c '%a %U:%G' /etc/roundtrip/target.toml)\" = '640 root:roundtrip' ]"
check "a disk elsewhere is refused" "no roundtrip ctl disk add 8 file:/srv/third,size=8M"

inside "cp -p /etc/roundtrip/target.toml /etc/roundtrip/good; echo nonsense >>/etc/roundtrip/target.toml; systemctl restart roundtrip || true; for _ in 1 2 3 4 5 6 7 8; do (exec 3<>/dev/tcp/127.0.0.1/3260) 2>/dev/null || true; sleep 0.2; done"
check "a target with a bad file is not started for ever" "sleep 2; before=\$(systemctl show -P ExecMainStartTimestampMonotonic roundtrip); sleep 3; [ \$(systemctl show -P ExecMainStartTimestampMonotonic roundtrip) = \$before ]; systemctl is-active roundtrip-portal.socket roundtrip || true" show
inside "cat /etc/roundtrip/good >/etc/roundtrip/target.toml; rm /etc/roundtrip/good"
check "mended, it serves again" "systemctl reset-failed; systemctl restart roundtrip-portal.socket roundtrip; $bench; ss -Hltn 'sport = 3260' | grep -q '\*:3260'"

say "-- a volume of its own target: made, attached, grown, detached, removed (docs/packaging.md)"
volume=iqn.2026-11.example.roundtrip:pvc-1
attached="roundtrip bench iscsi://127.0.0.1:3260/$volume/0 --initiator-name iqn.2026-11.example:node-1 --runtime 100ms --ramp 0s"
inside "echo 'initiators = [\"iqn.2026-11.example:node-1\"]' >/run/node-1.toml"
check "made, and attached to nobody" "roundtrip ctl targets add $volume --access nobody --save; roundtrip ctl disk add 0 file:/var/lib/roundtrip/disks/pvc-1,size=8M --serial pvc-1 --target $volume --save; no $attached"
check "attached to a node" "roundtrip ctl access set /run/node-1.toml --target $volume --save; $attached; no ${attached/node-1/node-2}"
check "grown" "roundtrip ctl disk resize 0 16M --target $volume --save; [ \$(stat -c %s /var/lib/roundtrip/disks/pvc-1) = 16777216 ]; $attached"
check "detached" "roundtrip ctl access set nobody --target $volume --save; no $attached"
check "the file has it all after a restart" "systemctl restart roundtrip; roundtrip ctl targets | grep -q pvc-1; no $attached"
check "removed" "roundtrip ctl disk remove 0 --target $volume --save; roundtrip ctl targets remove $volume --save; rm /var/lib/roundtrip/disks/pvc-1; no grep -q pvc-1 /etc/roundtrip/target.toml"

say "-- watchdog"
inside "mkdir -p /run/systemd/system/roundtrip.service.d; printf '[Service]\nWatchdogSec=2s\nTimeoutAbortSec=2s\n' >/run/systemd/system/roundtrip.service.d/test.conf; systemctl daemon-reload; systemctl restart roundtrip"
check "lives longer than the watchdog's time" "before=\$(systemctl show -P MainPID roundtrip); sleep 4; [ \$(systemctl show -P MainPID roundtrip) = \$before ]"
inside "kill -STOP \$(systemctl show -P MainPID roundtrip)"
until_true 15 "[ \$(systemctl show -P NRestarts roundtrip) -ge 1 ] && systemctl is-active roundtrip"
check "a target that hangs is started again" "$bench"
inside "rm -r /run/systemd/system/roundtrip.service.d; systemctl daemon-reload; systemctl restart roundtrip"

say "-- several instances"
inside "install -m 640 -g roundtrip /dev/null /etc/roundtrip/second.toml; printf '%s\n' 'iqn = \"$iqn-second\"' 'luns.0 = \"file:/var/lib/roundtrip-second/disks/one,size=16M\"' >/etc/roundtrip/second.toml
mkdir -p /etc/systemd/system/roundtrip-portal@second.socket.d; printf '[Socket]\nListenStream=127.0.0.1:3261\n' >/etc/systemd/system/roundtrip-portal@second.socket.d/address.conf; systemctl daemon-reload"
check "an instance with a socket" "systemctl start roundtrip-portal@second.socket roundtrip@second; roundtrip bench iscsi://127.0.0.1:3261/$iqn-second/0 --runtime 200ms --ramp 0s; roundtrip ctl --control /run/roundtrip-second/control.sock status"
inside "install -m 640 -g roundtrip /dev/null /etc/roundtrip/third.toml; printf '%s\n' 'iqn = \"$iqn-third\"' 'luns.0 = \"ram:16M\"' '[[portal]]' 'listen = \"127.0.0.1:3262\"' >/etc/roundtrip/third.toml"
check "an instance with a portal of its own" "systemctl start roundtrip@third; roundtrip bench iscsi://127.0.0.1:3262/$iqn-third/0 --runtime 200ms --ramp 0s"
check "they do not touch each other" "systemctl stop roundtrip@third; test -S /run/roundtrip/control.sock; $bench"

say "-- sessions go on"
load="roundtrip bench iscsi://127.0.0.1:3261/$iqn-second/0 --rw randrw --bs 4k --size 16M --iodepth 8 --ramp 0s --verify --json"
inside "date '+%F %T' >/packages/since; sleep 1.1
$load --runtime 7s >/packages/load.json 2>/packages/load.txt & load=\$!
for _ in 1 2 3; do sleep 1.5; systemctl restart roundtrip@second; done; wait \$load" || say "$(inside 'cat /packages/load.txt')"
check "over three restarts under load" "/packages/unharmed.sh \"\$(cat /packages/since)\" /packages/load.json roundtrip@second" show
many="sessions=2000 connections=2000 logins=2000 connections_per_address=2000 accepts_per_address=5000"
inside "for limit in $many; do printf ' --limit %s' \$limit; done >/packages/limits; echo ROUNDTRIP_OPTIONS=\"\$(cat /packages/limits)\" >/etc/default/roundtrip-second; systemctl restart roundtrip@second
date '+%F %T' >/packages/since; sleep 1.1
for name in a b; do roundtrip bench iscsi://127.0.0.1:3261/$iqn-second/0 --initiator-name iqn.2026-11.example:\$name --sessions 600 --runtime 8s --ramp 0s --json >/packages/load-\$name.json 2>>/packages/load.txt & done
for _ in \$(seq 50); do [ \$(journalctl -q --no-pager -u roundtrip@second --since \"\$(cat /packages/since)\" -o cat | grep -c 'logged in') -lt 1200 ] || break; sleep 0.2; done; systemctl restart roundtrip@second; wait" || say "$(inside 'cat /packages/load.txt')"
check "1200 sessions over a restart" "for name in a b; do grep -q '\"errors\": 0' /packages/load-\$name.json || { cat /packages/load.txt; grep -E '\"(class|message)\": ' /packages/load-\$name.json; false; }; done; journalctl -q --no-pager -u roundtrip@second --since \"\$(cat /packages/since)\" -o cat >/packages/log; echo \$(grep -c 'logged in' /packages/log) logins, \$(grep -c 'session goes on' /packages/log) went on; [ \$(grep -c 'logged in' /packages/log) = 1200 ]; [ \$(grep -c 'session goes on' /packages/log) = 1200 ]" show
inside "rm /etc/default/roundtrip-second; systemctl restart roundtrip@second"
inside "$load --runtime 4s >/dev/null 2>&1 & sleep 1; systemctl stop roundtrip@second"
check "none is left after a stop" "nothing_in ss -Htn state established 'sport = 3261'; systemctl start roundtrip@second"

say "-- upgrade to $next while clients connect"
inside "date '+%F %T' >/packages/since; sleep 1.1"
inside "$load --runtime 15s >/packages/load.json 2>/packages/load.txt </dev/null & sleep 0.5"
inside "systemctl start roundtrip@third
/packages/connect.sh 3260 /packages/stop >/packages/connects.txt 2>&1 &
/packages/connect.sh 3261 /packages/stop >/packages/connects-second.txt 2>&1 &
/packages/connect.sh 3262 /packages/stop >/packages/connects-third.txt 2>&1 &
sleep 0.5
systemctl show -P MainPID roundtrip roundtrip@second >/packages/pids
dpkg -i /packages/next.deb >/packages/upgrade.txt 2>&1
sleep 1; touch /packages/stop; sleep 0.5"
check "new processes" "systemctl show -P MainPID roundtrip roundtrip@second >/packages/pids-after; no grep -xFf <(grep . /packages/pids) /packages/pids-after; dpkg-query -W -f '\${Version}' roundtrip | grep -qxF '$next'"
until_true 30 "! pgrep -f '[r]oundtrip bench'"
check "a session went on over the upgrade" "/packages/unharmed.sh \"\$(cat /packages/since)\" /packages/load.json roundtrip@second" show
check "connections of port 3260" "cat /packages/connects.txt; grep -q ' 0 refused' /packages/connects.txt" show
check "connections of port 3261" "cat /packages/connects-second.txt; grep -q ' 0 refused' /packages/connects-second.txt" show
# Shows that the loop sees a gap where there is one.
check "without a socket of the system (port 3262)" "cat /packages/connects-third.txt; no grep -q ' 0 refused' /packages/connects-third.txt" show
check "serves after the upgrade with the changed configuration" "$bench; roundtrip ctl disk list | grep -q second"
check "a disabled unit stays disabled" "systemctl disable --now roundtrip-portal.socket roundtrip.service; dpkg -i /packages/next.deb; no systemctl is-enabled roundtrip.service; no systemctl is-active roundtrip.service; systemctl enable --now roundtrip-portal.socket roundtrip.service; $bench"

say "-- remove and purge"
check "removes; nothing runs" "dpkg -r roundtrip; no pgrep -x roundtrip; nothing_in ss -Hltn 'sport >= 3260 and sport <= 3262'; test -e /etc/roundtrip/target.toml"
check "purge keeps disks and their owner" "dpkg -P roundtrip; test -e /var/lib/roundtrip/disks/first; getent passwd roundtrip; no test -e /etc/roundtrip/target.toml"
check "the files of instances stay, and their group" "test -e /etc/roundtrip/second.toml; getent group roundtrip"
inside "rm -rf /var/lib/roundtrip /var/lib/roundtrip-* /etc/roundtrip /etc/systemd/system/roundtrip-portal@second.socket.d"
check "installs again" "dpkg -i /packages/first.deb; systemctl is-active roundtrip.service roundtrip-portal.socket; roundtrip ctl status"
check "removed and installed again, it runs" "dpkg -r roundtrip; no systemctl is-active roundtrip.service; dpkg -i /packages/first.deb; systemctl is-active roundtrip.service roundtrip-portal.socket; roundtrip ctl status"
check "purge of a package without disks" "dpkg -P roundtrip"
inside "$files" >"$work/after.txt"
inside "cat /etc/passwd /etc/group" >"$work/accounts-after.txt"
check "no account is left" "no getent passwd roundtrip; no getent group roundtrip"
if left=$(diff "$work/before.txt" "$work/after.txt") && diff "$work/accounts-before.txt" "$work/accounts-after.txt" >/dev/null; then
    passed=$((passed + 1)); say "ok    no file is left"
else
    say "FAILED no file is left:"; say "$left"; say "$passed passed, 1 failed"; exit 1
fi
check "no unit has failed" "nothing_in systemctl --failed --no-legend --plain 'roundtrip*'"
say "$passed passed, 0 failed"
