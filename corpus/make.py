#!/usr/bin/python3
"""Makes the corpus's captures: starts services and clients in two network namespaces, and captures what crosses the wire.

    corpus/make.py              every case without a capture
    corpus/make.py --all        every case anew
    corpus/make.py NAME...      these cases or families (shell patterns)
    corpus/make.py --list       names, causes and clients of all cases

Needs root, and the packages of `scripts/setup.sh corpus`. ROUNDTRIP names the program that captures.
"""

import argparse
import fnmatch
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from lab import cases as catalogue  # noqa: E402
from lab import take  # noqa: E402
from lab.services import versions  # noqa: E402


def build(tools):
    """Compiles the programs that are not scripts."""
    programs = ROOT / "programs"
    tools.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-pthread", "-o", tools / "forwarder", ROOT / "lab/forwarder.c"], check=True)
    for name in ("load", "server"):
        subprocess.run(["go", "build", "-o", tools / name, f"./{name}"], cwd=programs, check=True)
    subprocess.run(["javac", "-d", tools, programs / "Client.java"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="make captures that exist anew")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "captures")
    options = parser.parse_args()
    cases = catalogue.load(ROOT / "cases")
    chosen = [case for name, case in cases.items()
              if not options.names or any(fnmatch.fnmatch(text, wanted) for wanted in options.names for text in (name, case["family"]))]
    if options.names and not chosen:
        raise SystemExit(f"no case is named {' '.join(options.names)}; --list shows all")
    if options.list:
        for case in chosen:
            print(f"{case['name']:44} {case.get('expect', 'healthy')!s:28} {case['client']}")
        return 0
    if os.geteuid():
        raise SystemExit("make.py needs root: it makes network namespaces")
    tools = ROOT.parent / "target/corpus"
    build(tools)
    options.into.mkdir(exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="roundtrip-corpus-"))
    # The services run as users of their own.
    work.chmod(0o755)
    made_with, failed = versions(), []
    # What else the machine does must not look like a stall of a service: everything from here on has real-time priority.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for case in chosen:
        if not options.names and not options.all and (options.into / f"{case['name']}.toml").exists():
            continue
        try:
            take.both_variants(case, ROOT, tools, work, options.into, made_with)
        except (RuntimeError, subprocess.SubprocessError) as problem:
            failed.append(case["name"])
            print(f"{case['name']}: {problem}", file=sys.stderr)
    if failed:
        print(f"failed: {' '.join(failed)}; the services' logs are in {work}", file=sys.stderr)
    else:
        shutil.rmtree(work, ignore_errors=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
