#!/usr/bin/env python3
"""Disks of other servers behind the target, beside clients that use them without it.

    scripts/bench-remote-disks.py target/release/roundtrip [CEPH.CONF POOL/IMAGE]

nbdkit's memory over a Unix socket: qemu-img bench, fio's nbd engine, and the target. With a cluster also an image, whose contents are lost:
rbd bench, fio's rbd engine, and the target. 4 KiB at random, queue depth 1 and 32, three rounds of two seconds each, interleaved; medians.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS, ROUNDS = 2, 3


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=300).stdout


def fio(engine, rw, depth, *options):
    words = ["fio", "--name=x", f"--ioengine={engine}", *options, f"--rw=rand{rw}", "--bs=4k", f"--iodepth={depth}"]
    words += [f"--runtime={SECONDS}", "--time_based", "--size=128m", "--output-format=json"]
    text = output(*words)
    start = text.find("{")
    return json.loads(text[start:])["jobs"][0][rw]["iops"] if start >= 0 else None


class Target:
    """A target with one disk."""

    def __init__(self, program, disk):
        self.program = program
        self.process = subprocess.Popen(
            [program, "target", "--portal", "127.0.0.1:0", "--lun", f"0={disk}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        words = self.process.stdout.readline().split()
        self.url = f"iscsi://{words[1]}/{words[2]}/0"

    def measure(self, rw, depth):
        words = ["bench", self.url, "--iodepth", str(depth), "--rw", f"rand{rw}", "--bs", "4k"]
        return json.loads(output(self.program, *words, "--runtime", f"{SECONDS}s", "--json"))["runs"][0]["iops"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def table(title, ways):
    print(f"\n{title}\n\n| 4 KiB at random | " + " | ".join(name for name, _ in ways) + " |")
    print("|---|" + "---:|" * len(ways))
    for rw in ("read", "write"):
        for depth in (1, 32):
            rounds = [[way(rw, depth) for _, way in ways] for _ in range(ROUNDS)]
            medians = [[x for x in column if x is not None] for column in zip(*rounds)]
            cells = [f"{statistics.median(column):,.0f}" if column else "not measured" for column in medians]
            print(f"| {rw}s, queue depth {depth} | " + " | ".join(cells) + " |", flush=True)


def nbd(program):
    with tempfile.TemporaryDirectory() as folder:
        socket = os.path.join(folder, "s")
        server = subprocess.Popen(["nbdkit", "-f", "-U", socket, "memory", "256M"])
        while not os.path.exists(socket):
            time.sleep(0.01)
        address = f"nbd+unix:///?socket={socket}"
        target = Target(program, address)

        def qemu(rw, depth):
            # Its offsets are one behind the other; the server's memory does not mind.
            writes = ["-w"] if rw == "write" else []
            count = "20000" if depth == 1 else "200000"
            text = output("qemu-img", "bench", "-c", count, "-d", str(depth), "-s", "4096", "-f", "raw", "-t", "none", *writes, address)
            found = re.search(r"completed in ([0-9.]+) seconds", text)
            return int(count) / float(found[1]) if found else None

        table(
            "nbdkit's memory over a Unix socket",
            [
                ("qemu-img bench", qemu),
                ("fio nbd", lambda rw, depth: fio("nbd", rw, depth, f"--uri={address}")),
                ("target", target.measure),
            ],
        )
        target.stop()
        server.terminate()
        server.wait()


def rbd(program, conf, image):
    target = Target(program, f"rbd:{image},conf={conf}")
    pool, name = image.split("/", 1)

    def bench(rw, depth):
        total = "40M" if depth == 1 else "160M"
        words = ["rbd", "-c", conf, "bench", "--rbd-cache=false", "--io-type", rw, "--io-size", "4096"]
        text = output(*words, "--io-threads", str(depth), "--io-total", total, "--io-pattern", "rand", image)
        found = re.search(r"ops/sec: ([0-9.]+)", text)
        return float(found[1]) if found else None

    options = [f"--pool={pool}", f"--rbdname={name}", "--clientname=admin"]
    os.environ["CEPH_CONF"] = conf
    table(
        f"{image} of a Ceph cluster",
        [("rbd bench", bench), ("fio rbd", lambda rw, depth: fio("rbd", rw, depth, *options)), ("target", target.measure)],
    )
    target.stop()


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    nbd(sys.argv[1])
    if len(sys.argv) == 4:
        rbd(*sys.argv[1:])


main()
