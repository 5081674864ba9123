#!/usr/bin/env bash
# Installs missing packages and tools for one purpose: build, lint, run or test. Does nothing if all are installed.
set -euo pipefail

purpose=${1:?usage: setup.sh build|deb|musl|package|lint|run|test|test-ceph|test-linux|spark|perfetto|corpus|fuzz|miri|mutants|bench}
rust_needed=1.88
# The newest version that builds with that Rust.
deny_version=0.20.2
mutants_version=27.1.0
cargo_deb_version=3.8.0
axe_version=4.14.1
duckdb_version=1.4.2
pyspark_version=4.3.0

log() { printf 'setup: %s\n' "$*" >&2; }
has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

# program:package pairs
pairs=(cc:gcc)
case $purpose in
build) ;;
# dpkg-shlibdeps finds the libraries that the program needs.
deb) pairs+=(dpkg-shlibdeps:dpkg-dev dpkg-deb:dpkg) ;;
musl) pairs+=(musl-gcc:musl-tools) ;;
package)
    pairs+=(dpkg-shlibdeps:dpkg-dev dpkg-deb:dpkg debootstrap:debootstrap systemd-nspawn:systemd-container nsenter:util-linux
        pgrep:procps)
    ;;
# The database of advisories is a repository.
lint) pairs+=(git:git c++:g++) ;;
run) pairs+=(ip:iproute2 tc:iproute2 ethtool:ethtool) ;;
test)
    pairs+=(ip:iproute2 tc:iproute2 ethtool:ethtool setpriv:util-linux iscsi-test-cu:libiscsi-bin
        iscsi-ls:libiscsi-bin iscsi-perf:libiscsi-bin qemu-img:qemu-utils qemu-io:qemu-utils
        tshark:tshark dumpcap:wireshark-common tgtd:tgt tgtadm:tgt nft:nftables gzip:gzip losetup:mount
        fio:fio ssh:openssh-client dropbear:dropbear-bin unshare:util-linux prlimit:util-linux chattr:e2fsprogs
        nginx:nginx haproxy:haproxy openssl:openssl udevadm:udev systemd-tmpfiles:systemd run-parts:debianutils
        sysctl:procps setsid:util-linux nsenter:util-linux redis-server:redis-server redis-benchmark:redis-tools
        memcached:memcached nghttpd:nghttp2-server h2load:nghttp2-client
        mariadbd:mariadb-server mariadb-slap:mariadb-client python3:python3 editcap:wireshark-common
        knotd:knot kdig:knot-dnsutils dnsperf:dnsperf slapd:slapd ldapsearch:ldap-utils
        mosquitto:mosquitto mosquitto_pub:mosquitto-clients smbd:samba smbpasswd:samba-common-bin smbclient:smbclient
        ganesha.nfsd:nfs-ganesha nfs-cp:libnfs-utils mbpoll:mbpoll rabbitmqctl:rabbitmq-server
        nbdkit:nbdkit qemu-storage-daemon:qemu-system-common
        sysbench:sysbench promtool:prometheus prometheus:prometheus chromium:chromium node:nodejs npm:npm)
    ;;
test-ceph)
    pairs+=(ceph-mon:ceph-mon ceph-osd:ceph-osd ceph:ceph-common rbd:ceph-common monmaptool:ceph-mon qemu-img:qemu-utils
        iscsi-test-cu:libiscsi-bin)
    ;;
test-linux) pairs+=(qemu-system-x86_64:qemu-system-x86 ip:iproute2 dpkg-deb:dpkg) ;;
# What the captures of corpus/ are made with; tests need only the captures.
corpus)
    pairs+=(python3:python3 ip:iproute2 tc:iproute2 ss:iproute2 nstat:iproute2 ethtool:ethtool nft:nftables ping:iputils-ping
        runuser:util-linux sysctl:procps zstd:zstd nginx:nginx haproxy:haproxy redis-server:redis-server redis-cli:redis-tools
        memcached:memcached mariadbd:mariadb-server psql:postgresql-client go:golang-go node:nodejs javac:default-jdk-headless)
    ;;
spark) pairs+=(python3:python3 java:default-jre-headless setsid:util-linux) ;;
perfetto) pairs+=(node:nodejs npm:npm python3:python3) ;;
fuzz) pairs+=(c++:g++) ;;
miri | mutants) ;;
bench)
    pairs+=(tshark:tshark dumpcap:wireshark-common python3:python3 tgtd:tgt tgtadm:tgt iscsi-perf:libiscsi-bin
        valgrind:valgrind taskset:util-linux nginx:nginx wrk:wrk ip:iproute2 tc:iproute2 ethtool:ethtool
        nghttpd:nghttp2-server h2load:nghttp2-client redis-server:redis-server redis-benchmark:redis-tools
        nbdkit:nbdkit qemu-img:qemu-utils fio:fio)
    ;;
*) log "unknown purpose '$purpose'; use build, deb, musl, package, lint, run, test, test-ceph, test-linux, spark, perfetto, corpus, fuzz, miri, mutants or bench" && exit 2 ;;
esac

packages=()
for pair in "${pairs[@]}"; do
    has "${pair%%:*}" || packages+=("${pair#*:}")
done
# The linker needs the C library's own files, which gcc only recommends.
[ -e /usr/include/features.h ] || packages+=(libc6-dev)
# QEMU's iscsi driver is a module in a package of its own.
if [[ $purpose == test || $purpose == test-ceph ]] && ! ls /usr/lib/*/qemu/block-iscsi.so >/dev/null 2>&1; then
    packages+=(qemu-block-extra)
fi
# Its programs are not on the path.
if [ "$purpose" = corpus ] || [ "$purpose" = test ]; then
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages+=(postgresql)
fi
if [ "$purpose" = test ] || [ "$purpose" = spark ]; then
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
fi
if [ "$purpose" = test ]; then
    /usr/bin/python3 -c 'import websockets' 2>/dev/null || packages+=(python3-websockets)
    /usr/bin/python3 -c 'import ldap' 2>/dev/null || packages+=(python3-ldap)
    /usr/bin/python3 -c 'import paho.mqtt' 2>/dev/null || packages+=(python3-paho-mqtt)
    /usr/bin/python3 -c 'import impacket' 2>/dev/null || packages+=(python3-impacket)
    ls /usr/lib/*/ganesha/libfsalmem.so >/dev/null 2>&1 || packages+=(nfs-ganesha-mem)
    # It imports what it only recommends.
    /usr/bin/python3 -c 'import pymodbus.server' 2>/dev/null || packages+=(python3-pymodbus python3-serial python3-serial-asyncio)
    /usr/bin/python3 -c 'import pika' 2>/dev/null || packages+=(python3-pika)
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || packages+=(python3-prometheus-client)
fi
if [ "$purpose" = corpus ]; then
    /usr/bin/python3 -c 'import psycopg2' 2>/dev/null || packages+=(python3-psycopg2)
    /usr/bin/python3 -c 'import pymysql' 2>/dev/null || packages+=(python3-pymysql)
fi
has cargo || [ -x "$HOME/.cargo/bin/cargo" ] || has curl || packages+=(curl ca-certificates)

if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    root=()
    if [ "$(id -u)" -ne 0 ]; then
        has sudo || { log "missing: ${packages[*]}; as root: apt-get install ${packages[*]}" && exit 1; }
        root=(sudo)
    fi
    has apt-get || { log "missing: ${packages[*]}; install them with this system's package manager" && exit 1; }
    log "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # A package may contain a service; none must start on this machine.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee /usr/sbin/policy-rc.d >/dev/null
        "${root[@]}" chmod +x /usr/sbin/policy-rc.d
        trap '"${root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

if ! has cargo && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    log "installing Rust by rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default --no-modify-path
fi
cargo=$(PATH="$PATH:$HOME/.cargo/bin" command -v cargo)
version=$("$cargo" --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$rust_needed" "$version" | sort -V | head -n 1)" != "$rust_needed" ]; then
    log "cargo $version is too old; $rust_needed is needed: rustup update" && exit 1
fi

# What looks whether pages can be read by everybody; it runs in the tests' browser alone.
if [ "$purpose" = test ] && [ ! -e "target/pages/node_modules/axe-core/axe.min.js" ]; then
    log "installing axe-core $axe_version"
    mkdir -p target/pages
    npm install --prefix target/pages --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
        "axe-core@$axe_version" >&2
fi

if [ "$purpose" = test ] && ! target/duckdb/bin/python -c 'import duckdb' 2>/dev/null; then
    log "installing DuckDB $duckdb_version for Python"
    mkdir -p target
    /usr/bin/python3 -m venv target/duckdb
    target/duckdb/bin/pip install --quiet --disable-pip-version-check "duckdb==$duckdb_version"
fi

if [ "$purpose" = spark ] && ! target/spark/venv/bin/python -c 'import pyspark' 2>/dev/null; then
    log "installing pyspark $pyspark_version: 300 MB"
    mkdir -p target/spark
    /usr/bin/python3 -m venv target/spark/venv
    target/spark/venv/bin/pip install --quiet --disable-pip-version-check "pyspark==$pyspark_version"
fi

if [ "$purpose" = lint ] && ! has cargo-deny && [ ! -x "$HOME/.cargo/bin/cargo-deny" ]; then
    log "installing cargo-deny $deny_version: about a minute"
    # It runs for two seconds: optimising would take longer than the run.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 \
        "$cargo" install --quiet --locked "cargo-deny@$deny_version"
fi

if { [ "$purpose" = deb ] || [ "$purpose" = package ]; } && ! has cargo-deb && [ ! -x "$HOME/.cargo/bin/cargo-deb" ]; then
    log "installing cargo-deb $cargo_deb_version: a few minutes"
    "$cargo" install --quiet --locked "cargo-deb@$cargo_deb_version"
fi

if [ "$purpose" = musl ]; then
    rustup=$(PATH="$PATH:$HOME/.cargo/bin" command -v rustup) || { log "musl's target of Rust is missing: install rustup" && exit 1; }
    target=$(uname -m)-unknown-linux-musl
    "$rustup" target list --installed | grep -qx "$target" || {
        log "installing Rust's $target"
        "$rustup" target add "$target" || { log "Rust's $target cannot be installed here; make static builds with glibc" && exit 1; }
    }
fi

if [ "$purpose" = mutants ] && ! has cargo-mutants && [ ! -x "$HOME/.cargo/bin/cargo-mutants" ]; then
    log "installing cargo-mutants $mutants_version: a few minutes"
    "$cargo" install --quiet --locked "cargo-mutants@$mutants_version"
fi

if [ "$purpose" = miri ] && ! "$cargo" +nightly miri --version >/dev/null 2>&1; then
    rustup=$(PATH="$PATH:$HOME/.cargo/bin" command -v rustup) || { log "Miri needs nightly Rust: install rustup" && exit 1; }
    log "installing nightly Rust with Miri"
    "$rustup" toolchain install nightly --profile minimal --component miri,rust-src
fi
