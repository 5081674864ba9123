#!/usr/bin/python3
"""Makes mongodb.pcapng.zst: FerretDB and its clients, captured on the loopback of a network namespace of their own.

    corpus/decoders/mongodb.py [FOLDER]     with FOLDER (target/corpus) for the programs

mongodb.json has what the client's driver has counted: commands by name and collection, errors, and handshakes. FerretDB speaks MongoDB's
protocol, and is too large to be built for each test. Needs root, Go, `unshare`, `ip`, `zstd`, and a roundtrip (ROUNDTRIP names it).
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "v1.24.2"
PYMONGO = "4.20.1"
PORT = 27017


def build(tools):
    """FerretDB, whose version is a file that its module does not have, and a Python with the driver."""
    tools.mkdir(parents=True, exist_ok=True)
    if not (tools / "ferretdb").exists():
        download = ["go", "mod", "download", "-json", f"github.com/FerretDB/FerretDB@{VERSION}"]
        module = json.loads(subprocess.run(download, check=True, cwd=tools, stdout=subprocess.PIPE).stdout)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "ferretdb"
            # The files of the module may be read only.
            shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
            for path, _, _ in os.walk(source):
                os.chmod(path, 0o755)
            (source / "build/version/version.txt").write_text(f"{VERSION}\n")
            subprocess.run(["go", "build", "-o", tools / "ferretdb", "./cmd/ferretdb"], check=True, cwd=source)
    python = tools / "pymongo/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", tools / "pymongo"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"pymongo=={PYMONGO}"], check=True)
    return python


def wait_for(what, condition):
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within 30 s")
        time.sleep(0.05)


def is_listening():
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", PORT)) == 0


def take(tools, python):
    """Runs in the namespace."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    roundtrip = os.environ.get("ROUNDTRIP") or shutil.which("roundtrip") or "target/release/roundtrip"
    capture = HERE / "mongodb.pcapng"
    with tempfile.TemporaryDirectory() as folder:
        options = {"handler": "sqlite", "sqlite-url": f"file:{folder}/", "state-dir": folder, "telemetry": "disable",
                   "listen-addr": f"127.0.0.1:{PORT}", "debug-addr": "-", "log-level": "error"}
        server = subprocess.Popen([tools / "ferretdb", *(f"--{name}={value}" for name, value in options.items())])
        recording = None
        try:
            wait_for("FerretDB", is_listening)
            command = [roundtrip, "capture", "--port", str(PORT), "--baseline", "0ms", "-o", capture]
            recording = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            wait_for("the capture", pathlib.Path(f"{capture}.part").exists)
            time.sleep(0.2)
            client = subprocess.run([python, __file__, "--client"], check=True, stdout=subprocess.PIPE, timeout=60)
            time.sleep(0.2)
        finally:
            if recording:
                recording.send_signal(signal.SIGINT)
                recording.wait()
            server.terminate()
            server.wait()
    subprocess.run(["zstd", "-q", "-19", "--long=24", "-f", "--rm", capture], check=True)
    (HERE / "mongodb.json").write_bytes(client.stdout)


def client():
    """What a program does with a database, as the driver counts it."""
    import pymongo
    from pymongo import monitoring
    from pymongo.errors import OperationFailure

    counts = collections.Counter()
    errors = collections.Counter()
    others = collections.Counter()
    lock = threading.Lock()

    class Commands(monitoring.CommandListener):
        def started(self, event):
            name, command = event.command_name, event.command
            place = command.get("collection") if name == "getMore" else command.get(name)
            is_named = isinstance(place, str) and name not in ("ping", "buildInfo")
            with lock:
                counts[f"{name} {event.database_name}.{place}" if is_named else f"{name} {event.database_name}"] += 1

        def succeeded(self, event):
            with lock:
                for error in event.reply.get("writeErrors", [])[:1]:
                    errors[str(error["code"])] += 1

        def failed(self, event):
            with lock:
                errors[event.failure.get("codeName") or str(event.failure["code"])] += 1

    class Beats(monitoring.ServerHeartbeatListener):
        def started(self, event):
            pass

        def succeeded(self, event):
            with lock:
                others["heartbeats"] += 1

        def failed(self, event):
            raise AssertionError(event)

    class Pool(monitoring.ConnectionPoolListener):
        def connection_created(self, event):
            with lock:
                others["connections"] += 1

        def ignore(self, event):
            pass

        connection_ready = connection_closed = connection_checked_out = connection_checked_in = ignore
        connection_check_out_started = connection_check_out_failed = ignore
        pool_created = pool_ready = pool_cleared = pool_closed = ignore

    one = pymongo.MongoClient("127.0.0.1", PORT, heartbeatFrequencyMS=500, directConnection=True,
                              event_listeners=[Commands(), Beats(), Pool()])
    one.admin.command("ping")
    users, orders = one.shop.users, one.shop["orders.17"]
    users.create_index("name")
    users.insert_many([{"_id": number, "name": f"user {number}", "text": "x" * 500} for number in range(120)])
    for number in range(20):
        orders.insert_one({"_id": number, "of": number % 7, "lines": ["y" * 100] * number})
        orders.update_one({"_id": number}, {"$set": {"paid": True}})
        assert orders.find_one({"_id": number})["paid"]
    # Replies of several batches.
    assert len(list(users.find({}, batch_size=25))) == 120
    list(orders.aggregate([{"$match": {"of": 3}}, {"$limit": 2}]))
    orders.count_documents({"of": 2})
    users.distinct("name")
    users.find_one_and_update({"_id": 5}, {"$set": {"seen": True}})
    one.shop.list_collection_names()

    def fails(work):
        try:
            work()
        except OperationFailure:
            return
        raise AssertionError("it did not fail")

    for _ in range(3):
        fails(lambda: users.insert_one({"_id": 1}))
    fails(lambda: users.find_one({"a": {"$nonsense": 1}}))
    fails(lambda: one.shop.command("nonsense"))
    # Several connections at once.
    start = threading.Barrier(8)

    def reads(place):
        start.wait()
        for number in range(5):
            assert users.find_one({"_id": place * 5 + number})

    threads = [threading.Thread(target=reads, args=[place]) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    users.delete_many({"_id": {"$lt": 10}})
    orders.drop()
    time.sleep(1)
    one.close()
    print(json.dumps({"commands": counts, "errors": errors, "others": others}, indent=1, sort_keys=True))


def main():
    if sys.argv[1:] == ["--client"]:
        return client()
    if os.geteuid():
        raise SystemExit("mongodb.py needs root: it makes a network namespace and captures")
    if sys.argv[1:2] == ["--take"]:
        return take(pathlib.Path(sys.argv[2]), sys.argv[3])
    tools = pathlib.Path(sys.argv[1] if sys.argv[1:] else HERE.parent.parent / "target/corpus").resolve()
    python = build(tools)
    subprocess.run(["unshare", "--net", sys.executable, __file__, "--take", tools, python], check=True)


main()
