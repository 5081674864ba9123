"""A Modbus/TCP server and its clients, by pymodbus (python3-pymodbus).

modbus.py serve PORT                a gateway to units 1 and 2 on loopback, until it is ended; unit 2 cannot write
modbus.py KIND PORT COUNT DEPTH     a client, which prints how many requests of each kind it has made, as JSON
"""

import asyncio
import json
import logging
import socket
import struct
import sys
from collections import Counter

from pymodbus.client import AsyncModbusTcpClient
from pymodbus.datastore import ModbusSequentialDataBlock, ModbusServerContext, ModbusSlaveContext
from pymodbus.server import StartAsyncTcpServer


class Broken(ModbusSequentialDataBlock):
    def setValues(self, address, values):
        raise OSError("it cannot write")


def unit(block):
    blocks = {kind: block(0, [1] * 5000) for kind in ("di", "co", "hr", "ir")}
    return ModbusSlaveContext(zero_mode=True, **blocks)


async def serve(port):
    # Missing units are errors in its log.
    logging.disable()
    units = {1: unit(ModbusSequentialDataBlock), 2: unit(Broken)}
    context = ModbusServerContext(slaves=units, single=False)
    await StartAsyncTcpServer(context, address=("127.0.0.1", port), broadcast_enable=True)


def ask(client, number):
    """One of several requests, and its name."""
    if number % 5 == 0:
        return "READ_COILS", client.read_coils(number % 1000, 40, slave=1)
    if number % 5 == 1:
        return "READ_HOLDING", client.read_holding_registers(number % 1000, 1 + number % 125, slave=1)
    if number % 5 == 2:
        return "READ_INPUT", client.read_input_registers(1000 + number % 1000, 10, slave=2)
    if number % 5 == 3:
        return "WRITE_REGISTER", client.write_register(number % 1000, 7, slave=1)
    return "WRITE_REGISTERS", client.write_registers(3000, [number] * 8, slave=1)


async def pipelined(port, count, depth):
    """So many at once, each behind the answers to the ones before."""
    client = AsyncModbusTcpClient("127.0.0.1", port=port)
    await client.connect()
    connected = client.protocol.transport.get_extra_info("socket")
    done = Counter()
    for first in range(0, count, depth):
        # They leave together, however busy the machine is.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        asked = [ask(client, number) for number in range(first, min(first + depth, count))]
        answers = [asyncio.ensure_future(answer) for _, answer in asked]
        # Each sends in its first step.
        await asyncio.sleep(0)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        answers = await asyncio.gather(*answers)
        assert not any(answer.isError() for answer in answers)
        done.update(name for name, _ in asked)
    await client.close()
    return done


async def refused(port, count, _):
    """What the units do not have, units that are not there, and writes that fail; between them what all units get, and none answers."""
    client = AsyncModbusTcpClient("127.0.0.1", port=port)
    await client.connect()
    done = Counter()
    for number in range(count):
        for name, request in (
            ("ILLEGAL_ADDRESS", client.read_coils(4999, 10, slave=1)),
            ("GATEWAY_TARGET", client.read_holding_registers(number, 1, slave=9)),
            ("DEVICE_FAILURE", client.write_register(number, 1, slave=2)),
        ):
            assert (await request).isError()
            done[name] += 1
        client.protocol.transport.write(struct.pack(">HHHBBHH", 60_000 + number, 0, 6, 0, 6, number, 7))
        await asyncio.sleep(0.001)
    await client.close()
    return done


def one_identifier(port, count, depth):
    """Requests that all have identifier 0."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read = struct.pack(">HHHBBHH", 0, 0, 6, 1, 3, 4000, 10)
        for _ in range(0, count, depth):
            stream.sendall(read * depth)
            left = depth * (9 + 20)
            while left:
                left -= len(stream.recv(left))
    return {"READ_HOLDING": count}


async def main():
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "serve":
        await serve(port)
        return
    count, depth = int(sys.argv[3]), int(sys.argv[4])
    if kind == "one_identifier":
        print(json.dumps(one_identifier(port, count, depth)))
        return
    print(json.dumps(await {"pipelined": pipelined, "refused": refused}[kind](port, count, depth)))


asyncio.run(main())
