"""Changes to a capture after it was made, for causes that must not be planted on a machine that others use."""

import pathlib
import struct


def blocks(data):
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        yield kind, at, length
        at += length


def packets(data):
    return [(at, length) for kind, at, length in blocks(data) if kind == 6]


def clock_step(data, step_s, share):
    """The capturing clock was set by `step_s` seconds after this share of the packets (the unit is a nanosecond)."""
    found = packets(data)
    for at, _ in found[int(len(found) * share):]:
        high, low = struct.unpack_from("<II", data, at + 12)
        stamp = ((high << 32) | low) + int(step_s * 1e9)
        struct.pack_into("<II", data, at + 12, stamp >> 32, stamp & 0xFFFFFFFF)
    return data


def drop(data, run, every):
    """The capture lost `run` packets in each `every`."""
    kept, last = bytearray(), 0
    for number, (at, length) in enumerate(packets(data)):
        if number % every >= every - run:
            kept += data[last:at]
            last = at + length
    return kept + data[last:]


def apply(settings, file):
    path = pathlib.Path(file)
    data = bytearray(path.read_bytes())
    if settings["kind"] == "clock_step":
        data = clock_step(data, settings["step_s"], settings["share"])
    elif settings["kind"] == "drop":
        data = drop(data, settings["run"], settings["every"])
    else:
        raise RuntimeError(f"unknown edit {settings['kind']}")
    path.write_bytes(data)
