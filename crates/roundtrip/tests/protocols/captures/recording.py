"""Captures of a service and its client on loopback, with the client's own counts beside them."""

import json
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent


def wait_for(port, seconds=60):
    """Waits until a server listens on loopback."""
    for _ in range(seconds * 20):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


@contextmanager
def running(command, port, **options):
    """A server, ended behind its use."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, **quiet, **options)
    try:
        wait_for(port)
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


@contextmanager
def recording(name, port, snap=0):
    """Captures what passes on a port, and writes what the caller puts into the dictionary."""
    plain = FOLDER / f"{name}.pcapng"
    command = ["dumpcap", "-q", "-i", "lo", "-f", f"tcp port {port}", "-s", str(snap), "-w", str(plain)]
    dumpcap = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = {}
    try:
        time.sleep(2)
        yield told
        time.sleep(1)
    finally:
        dumpcap.send_signal(signal.SIGINT)
        dumpcap.wait(10)
    subprocess.run(["zstd", "-q", "-19", "-f", "--rm", str(plain)], check=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
