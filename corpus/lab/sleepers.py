#!/usr/bin/env python3
"""How much faster hosts do the same work when they have not slept before it, on this machine.

A client in Python asks servers over the loopback interface: once with requests in two writes, of which Nagle's algorithm holds the
second for 40 ms until a delayed ACK, and once in one write. Prints the client's own time and the time from a request's last byte to the answer's,
together, in microseconds: least and median of the first, median of the second. As root:

    corpus/lab/sleepers.py ROUNDTRIP GO_SERVER

ROUNDTRIP is the program, GO_SERVER what `go build ./server` in corpus/programs makes.
"""
import csv
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(__file__).parent.parent / "programs"
PORT = 8080
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 60 + b"\r\n\r\n"
FIRST = ["chrt", "-f", "50"]


def ask(is_split, count):
    with socket.create_connection(("127.0.0.1", PORT)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not is_split)
        for _ in range(count):
            for part in [REQUEST[:40], REQUEST[40:]] if is_split else [REQUEST]:
                sock.send(part)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += sock.recv(65536)
            head, body = answer.split(b"\r\n\r\n", 1)
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            while len(body) < length:
                body += sock.recv(65536)


def times(roundtrip, folder, is_split, count):
    """The times of a run's operations without the hold, as its packets show them."""
    capture, rows = f"{folder}/run.pcapng", f"{folder}/run.csv"
    command = [*FIRST, roundtrip, "capture", "--port", str(PORT), "--output", capture]
    capturing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    ask(is_split, count)
    time.sleep(0.3)
    capturing.send_signal(signal.SIGINT)
    capturing.wait()
    subprocess.run([roundtrip, "analyze", capture, "--ops", rows], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(rows) as file:
        operations = list(csv.DictReader(file))[1:]
    return [(int(of["c2_ns"]) - int(of["c1_ns"]) + int(of["thought_ns"] or 0)) / 1000 for of in operations]


def main():
    roundtrip, go_server = sys.argv[1:]
    servers = {
        "Go": [go_server, "-address", f":{PORT}"],
        "Python": ["python3", PROGRAMS / "stdlib_server.py", "--buffered"],
        "Node.js": ["node", PROGRAMS / "server.js"],
    }
    subprocess.run([*FIRST[:2], "-p", FIRST[2], str(os.getpid())], check=True)
    for name, command in servers.items():
        server = subprocess.Popen([*FIRST, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(3):
                    held, free = (times(roundtrip, folder, is_split, count) for is_split, count in [(True, 80), (False, 200)])
                    least, typical, awake = min(held), statistics.median(held), statistics.median(free)
                    print(
                        f"{name}: {least:.0f} and {typical:.0f} us with waits, {awake:.0f} us without: "
                        f"{least / awake:.2f} and {typical / awake:.2f} times",
                        flush=True,
                    )
        finally:
            server.terminate()
            server.wait()


main()
