#!/usr/bin/python3
"""A server whose writes are planted: Nagle's algorithm, corks, byte-wise writes, buffers, a small backlog.

Answers HTTP, or with --turns a line "LENGTH\\n" with as many bytes. Python, because its sockets have Nagle's algorithm on
unless a program turns it off.
"""
import argparse
import random
import socket
import threading
import time

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--port", type=int, default=8080)
options.add_argument("--turns", action="store_true", help="answer lines with bytes instead of HTTP")
options.add_argument("--no-delay", action="store_true", help="turn Nagle's algorithm off")
options.add_argument("--writes", default="one", choices=["one", "two", "bytes", "cork", "chunks"])
options.add_argument("--piece", type=int, default=1, help="bytes of a write with --writes bytes")
options.add_argument("--size", type=int, default=300, help="bytes of an answer's body")
options.add_argument("--chunks", type=int, default=10, help="chunks of an answer with --writes chunks")
options.add_argument("--gap-ms", type=float, default=0, help="pause between chunks")
options.add_argument("--send-buffer", type=int, default=0)
options.add_argument("--receive-buffer", type=int, default=0)
options.add_argument("--backlog", type=int, default=128)
options.add_argument("--accept-every-ms", type=float, default=0, help="one thread that accepts and answers at this pace")
options.add_argument("--work-ms", type=float, default=0, help="processor time of each answer")
options.add_argument("--hang-percent", type=float, default=0, help="share of requests that get no answer")
options.add_argument("--read-every-ms", type=float, default=0, help="slow reader of requests: pause before each read")
options.add_argument("--read-bytes", type=int, default=65536)
options = options.parse_args()
chance = random.Random(11)


def header(length):
    length = "Transfer-Encoding: chunked" if options.writes == "chunks" else f"Content-Length: {length}"
    return f"HTTP/1.1 200 OK\r\nServer: corpus\r\nContent-Type: text/plain\r\n{length}\r\n\r\n".encode()


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def send(connection, first, body):
    if options.writes == "two":
        connection.sendall(first)
        connection.sendall(body)
    elif options.writes == "bytes":
        whole = first + body
        for start in range(0, len(whole), options.piece):
            connection.sendall(whole[start:start + options.piece])
    elif options.writes == "cork":
        # The cork is set once and never removed: the kernel sends a last partial segment after 200 ms.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(first + body)
    elif options.writes == "chunks":
        connection.sendall(first)
        for _ in range(options.chunks):
            connection.sendall(b"%x\r\n" % len(body) + body + b"\r\n")
            time.sleep(options.gap_ms / 1000)
        connection.sendall(b"0\r\n\r\n")
    else:
        connection.sendall(first + body)


def requests(connection):
    """The body length wanted by each complete request."""
    data = b""
    while True:
        end = b"\n" if options.turns else b"\r\n\r\n"
        while end not in data:
            time.sleep(options.read_every_ms / 1000)
            more = connection.recv(options.read_bytes)
            if not more:
                return
            data += more
        head, data = data.split(end, 1)
        if options.turns:
            yield int(head)
            continue
        missing = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                missing = int(line.split(b":")[1])
        while len(data) < missing:
            time.sleep(options.read_every_ms / 1000)
            more = connection.recv(options.read_bytes)
            if not more:
                return
            data += more
        data = data[missing:]
        yield options.size


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, options.no_delay)
    try:
        for length in requests(connection):
            spin(options.work_ms / 1000)
            if chance.random() * 100 < options.hang_percent:
                time.sleep(3600)
            send(connection, b"" if options.turns else header(length), b"x" * length)
    except OSError:
        pass
    connection.close()


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if options.send_buffer:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
if options.receive_buffer:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
listener.bind(("0.0.0.0", options.port))
listener.listen(options.backlog)
while True:
    accepted, _ = listener.accept()
    if options.accept_every_ms:
        time.sleep(options.accept_every_ms / 1000)
    threading.Thread(target=serve, args=(accepted,), daemon=True).start()
