"""A WebSocket service and its clients, by websockets (python3-websockets).

websocket.py serve PORT             serves /echo, /push, /mixed, /silent and /refuse on loopback until it is ended
websocket.py KIND PORT COUNT        a client, which prints what it has sent and received as JSON
"""

import asyncio
import json
import sys
from socket import IPPROTO_TCP, TCP_CORK

import websockets


EVENTS = 200


async def events(socket):
    for number in range(EVENTS):
        await socket.send(f"event {number}")
        await asyncio.sleep(0.001)


async def handler(socket, path):
    if path == "/push":
        # Events, whatever the client says.
        await socket.recv()
        await events(socket)
        return
    task = asyncio.create_task(events(socket)) if path == "/mixed" else None
    async for message in socket:
        if path == "/refuse":
            raise ValueError("this service fails")
        if path != "/silent":
            await socket.send(message)
    if task:
        task.cancel()


async def serve(port):
    async with websockets.serve(handler, "127.0.0.1", port, ping_interval=None):
        await asyncio.Future()


def connect(port, path, **options):
    return websockets.connect(f"ws://127.0.0.1:{port}{path}", ping_interval=None, **options)


async def echo(port, count, **options):
    """Messages of any size, as text, in fragments and as bytes, each behind the answer to the one before."""
    done = {"text": 0, "binary": 0, "pings": 0}
    async with connect(port, "/echo", **options) as socket:
        for number in range(count):
            text = f"message {number} " + "x" * (number * 37 % 70_000)
            message = [text, text.encode(), [text[:9], text[9:]]][number % 3]
            await socket.send(message)
            answer = await socket.recv()
            assert answer == ("".join(message) if isinstance(message, list) else message)
            done["binary" if isinstance(message, bytes) else "text"] += 1
            if number % 4 == 0:
                await (await socket.ping(f"ping {number}" if number % 8 else b""))
                done["pings"] += 1
    return done


async def push(port, count):
    """Events, and a note behind every tenth."""
    sent = 1
    async with connect(port, "/push") as socket:
        await socket.send("subscribe")
        for number in range(EVENTS):
            assert await socket.recv() == f"event {number}"
            if number % 10 == 9 and sent < count:
                await socket.send(f"note {number}")
                sent += 1
    return {"sent": sent}


async def mixed(port, count):
    """Questions, each behind the answer to the one before, until the last event has come."""
    sent, seen = 0, 0
    async with connect(port, "/mixed") as socket:
        while seen < EVENTS or sent < count:
            await socket.send(f"question {sent}")
            while (answer := await socket.recv()) != f"question {sent}":
                assert answer == f"event {seen}"
                seen += 1
            sent += 1
    return {"sent": sent}


async def pipelined(port, count):
    """Four messages at a time, which leave together."""
    async with connect(port, "/echo") as socket:
        tcp = socket.transport.get_extra_info("socket")
        for _ in range(count // 4):
            tcp.setsockopt(IPPROTO_TCP, TCP_CORK, 1)
            for number in range(4):
                await socket.send(f"message {number}")
            tcp.setsockopt(IPPROTO_TCP, TCP_CORK, 0)
            for number in range(4):
                assert await socket.recv() == f"message {number}"
    return {"messages": count}


async def telling(port, count):
    """Messages that nobody answers, and a while before the end."""
    async with connect(port, "/silent") as socket:
        for number in range(count):
            await socket.send(f"value {number}")
        await asyncio.sleep(1.5)
    return {"messages": count}


async def pings(port, count):
    """Pings in flight all at once."""
    async with connect(port, "/echo") as socket:
        await asyncio.gather(*[await socket.ping(f"ping {number}") for number in range(count)])
    return {"pings": count}


async def refused(port, count):
    codes = []
    for _ in range(count):
        async with connect(port, "/refuse") as socket:
            await socket.send("question")
            try:
                await socket.recv()
            except websockets.ConnectionClosed as error:
                codes.append(error.code)
    return {"codes": codes}


async def main():
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "serve":
        await serve(port)
        return
    count = int(sys.argv[3])
    if kind == "echo":
        plain = echo(port, count, compression=None)
        done = await asyncio.gather(*[echo(port, count) for _ in range(2)], plain)
        result = {name: sum(one[name] for one in done) for name in done[0]}
    else:
        kinds = {"push": push, "mixed": mixed, "pipelined": pipelined, "telling": telling, "pings": pings, "refused": refused}
        result = await kinds[kind](port, count)
    print(json.dumps(result))


asyncio.run(main())
