#!/usr/bin/env python3
"""Writes of 1 KiB without Nagle's algorithm, with the target's (never flushed) and with the client's, over a network that delays every packet.

A user-space bridge between two network namespaces delays packets, because not every kernel has netem. Interleaved; medians of the rates, and of
each round's ratio. Needs root and /dev/net/tun; everything is removed at the end.

    scripts/nagle-write.py [DELAY_US] [REPEATS] [MS]
"""
import collections
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time

DELAY_US, REPEATS, MS = (int(given) for given in (sys.argv[1:] + ["1000", "3", "900"][len(sys.argv) - 1 :])[:3])
PROGRAM = os.environ.get("PROGRAM", os.path.join(os.path.dirname(__file__), "../target/release/roundtrip"))
DEPTHS = [int(depth) for depth in os.environ.get("DEPTHS", "1 2 3 4 8 16").split()]
# The target's send policy, and options of the client.
WAYS = {"off": ("nodelay", []), "target": ("nagle-unflushed", []), "client": ("nodelay", ["--nagle"])}
IQN = "iqn.2026-11.example.roundtrip:nagle-write"
MTU = 1500
# ioctl numbers and flags of linux/if_tun.h.
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def tap(name):
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return handle


def bridge(ends):
    """Passes each frame on to the other end after the delay."""
    waiting = collections.deque()
    while True:
        now = time.perf_counter()
        while waiting and waiting[0][0] <= now:
            _, to, frame = waiting.popleft()
            try:
                os.write(to, frame)
            except OSError:
                pass  # The device's queue is full: the frame is lost, as on a wire.
        left = max(0.0, waiting[0][0] - now) if waiting else None
        for end in select.select(ends, [], [], left)[0]:
            try:
                frame = os.read(end, MTU + 100)
            except OSError:
                continue
            waiting.append((time.perf_counter() + DELAY_US * 1e-6, ends[1 - ends.index(end)], frame))


def write(spaces, way, depth):
    """Megabytes per second of one run."""
    policy, options = WAYS[way]
    serve = ["target", "--portal", "10.77.0.2:3260", "--iqn", IQN, "--lun", "0=ram:64M", "--send", policy, "--json"]
    target = subprocess.Popen(
        ["ip", "netns", "exec", spaces[1], PROGRAM, *serve], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        target.stdout.readline()
        load = ["bench", f"iscsi://10.77.0.2:3260/{IQN}/0", "--rw", "write", "--bs", "1k", "--iodepth", str(depth)]
        times = ["--runtime", f"{MS}ms", "--ramp", "300ms", "--json"]
        run = ["ip", "netns", "exec", spaces[0], PROGRAM, *load, *times, *options]
        return json.loads(subprocess.check_output(run))["runs"][0]["bytes_per_second"] / 1e6
    finally:
        target.send_signal(signal.SIGINT)
        target.communicate()


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    spaces = [f"rtdelay-c{os.getpid()}", f"rtdelay-s{os.getpid()}"]
    names = ["rtdelayc", "rtdelays"]
    ends = [tap(name) for name in names]
    child = os.fork()
    if child == 0:
        bridge(ends)
    run = lambda command: subprocess.run(command.split(), check=True)
    rates = collections.defaultdict(list)
    try:
        for space, name, address in zip(spaces, names, ["10.77.0.1", "10.77.0.2"]):
            run(f"ip netns add {space}")
            run(f"ip link set {name} netns {space}")
            run(f"ip -n {space} addr add {address}/24 dev {name}")
            run(f"ip -n {space} link set {name} mtu {MTU} up")
        for _ in range(REPEATS):
            for depth in DEPTHS:
                for way in WAYS:
                    rates[way, depth].append(write(spaces, way, depth))
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
    print(f"1 KiB writes, {DELAY_US} us each way, MB/s (least to greatest of {REPEATS}); off divided by the target's and by the client's Nagle")
    for depth in DEPTHS:
        of = lambda way: "{:.2f} ({:.2f} to {:.2f})".format(median(rates[way, depth]), min(rates[way, depth]), max(rates[way, depth]))
        ratio = lambda way: "{:.2f}".format(median([a / b for a, b in zip(rates["off", depth], rates[way, depth])]))
        print(f"QD {depth:2}", *(f"{way} {of(way)}" for way in WAYS), ratio("target"), ratio("client"), sep="   ")


main()
