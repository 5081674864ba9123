"""One case: its services, its client, the capture between them, and what the ends themselves measured."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

from lab import edit
from lab.cases import merged
from lab.services import Services, port_of
from lab.wire import Wire, wait_for

# Counters of the kernel that prove or refute a cause.
COUNTERS = {
    "TcpRetransSegs", "TcpAttemptFails", "TcpOutRsts", "TcpEstabResets", "TcpExtTCPTimeouts", "TcpExtListenOverflows", "TcpExtListenDrops",
    "TcpExtDelayedACKs", "TcpExtTCPFromZeroWindowAdv", "TcpExtTCPToZeroWindowAdv", "TcpExtTCPSynRetrans", "TcpExtTCPLostRetransmit",
    "TcpExtTCPFastRetrans", "TcpExtTCPOFOQueue", "TcpExtTCPAbortOnData", "TcpExtTCPReqQFullDrop", "TcpExtTCPLossProbes",
}

# A frame that is later than this disturbs a run; then it is repeated, at most so often in all.
LATE_US_MAX, ATTEMPTS = 1500, 4


def counters(wire, name):
    text = wire.at(name, "nstat", "-asz")
    found = {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    return {key: value for key, value in found.items() if key in COUNTERS}


def capture(wire, name, port, snap, file):
    program = os.environ.get("ROUNDTRIP") or shutil.which("roundtrip") or "target/release/roundtrip"
    command = ["ip", "netns", "exec", name, program, "capture", "--port", str(port), "--interface", "wire0", "--snap", str(snap),
               "--baseline", "0ms", "-o", file]
    for old in (file, f"{file}.part"):
        pathlib.Path(old).unlink(missing_ok=True)
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: pathlib.Path(f"{file}.part").exists() or process.poll() is not None, "the capture")
    if process.poll() is not None:
        raise RuntimeError(f"capture: {process.stderr.read()}")
    # The file exists a moment before its ring receives.
    time.sleep(0.2)
    return process


def client_command(text, root, tools):
    names = {
        "load": str(tools / "load"), "node": f"node {root}/programs/client.js", "java": f"java -cp {tools} Client",
        "database": f"/usr/bin/python3 {root}/programs/database.py",
    }
    for key, value in names.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def sockets(wire, samples, ended):
    """What `ss` says of the server's connections, once in the middle of a run."""
    if not ended.wait(0.4):
        samples.append(wire.at(wire.server, "ss", "-tinmHO", "state", "established", check=False))


def take(case, root, tools, work, files):
    """Runs a case; writes its capture as files, and returns what was measured."""
    own = work / "run"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    own.chmod(0o755)
    port = case.get("port", port_of(case["server"]))
    with Wire({"rtt_ms": 0.05, **case.get("wire", {})}, tools) as wire:
        with Services(case["server"], wire, own, tools, root / "programs"):
            if "warm" in case:
                # A program that compiles itself while it runs is slow at first.
                wire.at(wire.client, "sh", "-c", client_command(case["warm"], root, tools))
            before = {name: counters(wire, name) for name in (wire.client, wire.server)}
            places = {"client": [wire.client], "server": [wire.server], "both": [wire.client, wire.server]}[case.get("capture", "client")]
            captures = [capture(wire, place, port, case.get("snap", 1600), file) for place, file in zip(places, files)]
            samples, ended = [], threading.Event()
            sampler = threading.Thread(target=sockets, args=(wire, samples, ended))
            sampler.start()
            helper = None
            if "helper" in case:
                helper = subprocess.Popen(["ip", "netns", "exec", wire.server, "sh", "-c", client_command(case["helper"], root, tools)],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            command = client_command(case["client"], root, tools)
            client = subprocess.run(["ip", "netns", "exec", wire.client, "sh", "-c", command], capture_output=True, text=True,
                                    timeout=case.get("seconds", 60))
            ended.set()
            sampler.join()
            # The last acknowledgements cross the wire.
            time.sleep(0.3 + case.get("wire", {}).get("rtt_ms", 0) / 500)
            if helper:
                helper.kill()
            for process in captures:
                process.send_signal(signal.SIGINT)
            for process in captures:
                if process.wait(20) not in (0, 1):
                    raise RuntimeError(f"capture: {process.stderr.read()}")
            after = {name: counters(wire, name) for name in (wire.client, wire.server)}
            if client.returncode:
                raise RuntimeError(f"client: {client.stderr.strip()[-500:]}")
    lines = [line for line in client.stdout.splitlines() if line.startswith("{")]
    measured = json.loads(lines[-1]) if lines else {}
    changed = {place: {key: after[name][key] - before[name].get(key, 0) for key in sorted(after[name]) if after[name][key] != before[name].get(key, 0)}
               for place, name in (("client", wire.client), ("server", wire.server))}
    lines = samples[0].splitlines() if samples else []
    # The longest line has most to say: an established connection of the port.
    of_port = [" ".join(line.split()) for line in lines if f":{port} " in line]
    return measured, changed, max(of_port, key=len, default=""), wire.counters


def late_us(counters):
    """How late the wire carried its latest frame, microseconds."""
    return max([int(value) for value in re.findall(r"latest_us (\d+)", counters)], default=0)


def disturbance(case, changed, wire):
    """What else the machine did to a run, which is no part of its case; "" if nothing."""
    if late_us(wire) > LATE_US_MAX:
        return f"the wire was {late_us(wire)} us late"
    sent_again = sum(changed[place].get("TcpRetransSegs", 0) for place in changed)
    if case.get("healthy") and sent_again and "loss" not in case.get("wire", {}):
        return f"{sent_again} segments were sent again on a wire that loses none"
    return ""


def take_quietly(case, *arguments):
    """Repeats a run that was disturbed."""
    for attempt in range(ATTEMPTS):
        result = take(case, *arguments)
        reason = disturbance(case, result[1], result[3])
        if not reason:
            break
        print(f"{case['name']}: {reason}, run {attempt + 1} of {ATTEMPTS}", flush=True)
    return result


def names_of(case, into):
    suffixes = [".client", ".server"] if case.get("capture") == "both" else [""]
    return [into / f"{case['name']}{suffix}.pcapng" for suffix in suffixes]


def compress(file):
    subprocess.run(["zstd", "-q", "-19", "--long=24", "-f", "--rm", str(file)], check=True)
    return pathlib.Path(f"{file}.zst")


def toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if "e" not in f"{value:.6g}" and "." in f"{value:.6g}" else f"{value:.1f}"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, int) else json.dumps(value)


def used(case, made_with):
    """Versions of the services and clients of this case."""
    text = " ".join(case["server"]) + " " + case["client"]
    aliases = {"go": ("go", "{load}"), "node": ("node",), "java": ("{java}",), "python": ("python", "stdlib", "{database}")}
    return {name: version for name, version in made_with.items()
            if name == "linux" or any(alias in text for alias in aliases.get(name, (name,)))}


def both_variants(case, root, tools, work, into, made_with):
    files = names_of(case, into)
    measured, changed, socket, wire = take_quietly(case, root, tools, work, files)
    for file in files:
        if "edit" in case:
            edit.apply(case["edit"], file)
    record = [f"# Made by corpus/make.py: what the client, the kernels and the wire themselves counted.",
              f"versions = {toml(used(case, made_with))}", f"client = {toml(measured)}",
              f"kernel = {toml(changed)}", f"socket = {toml(socket)}", f"wire = {toml(wire)}"]
    text = f"{case['name']}: {measured.get('operations')} in {measured.get('seconds', 0):.1f} s, mean {measured.get('mean_us', 0):.0f} us"
    if "mended" in case:
        scratch = [work / f"mended{i}.pcapng" for i in range(2)]
        mended = merged(case, case["mended"])
        result, kernel, _, _ = take_quietly(mended, root, tools, work, scratch)
        factors = {"rate": result["rate"] / measured["rate"] if measured.get("rate") else 0,
                   "mean": measured["mean_us"] / result["mean_us"] if result.get("mean_us") else 0,
                   "first": measured["first_us"] / result["first_us"] if result.get("first_us") else 0}
        gain = factors[case.get("measure", "rate")]
        first = [f"gain_first = {toml(float(factors['first']))}"] if factors["first"] else []
        record += [f"mended = {toml(result)}", f"mended_kernel = {toml(kernel)}",
                   "# Operations per second, time of an operation (`measure`), or of its first byte, of the mended run beside this one.",
                   f"gain = {toml(float(gain))}", *first]
        text += f"; mended: mean {result.get('mean_us', 0):.0f} us, gain {gain:.2f}"
        for place, file in zip(files, scratch):
            shutil.move(file, place.with_name(place.name.replace(case["name"], f"{case['name']}.mended", 1)))
            compress(place.with_name(place.name.replace(case["name"], f"{case['name']}.mended", 1)))
    size = sum(compress(file).stat().st_size for file in files)
    (into / f"{case['name']}.toml").write_text("\n".join(record) + "\n")
    print(f"{text}; {size / 1000:.0f} kB", flush=True)
