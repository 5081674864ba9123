"""A server and its client in one process: requests of 64 bytes, and responses as the first argument says.

Arguments: MODE [nodelay]. Prints the port and the descriptor of the server's connection, then obeys lines of its input, each
answered by "done": "run N" exchanges N times, "start" exchanges until "stop".
MODE: parts (header and body written apart), whole (one write), bulk (a response of 64 KiB blocks without end, one request).
"""

import os
import socket
import sys
import threading

REQUEST, HEADER, BODY = b"q" * 64, b"h" * 100, b"b" * 500


def exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            sys.exit("the connection ended")
        data += part
    return data


def serve(sock, mode):
    while True:
        exactly(sock, len(REQUEST))
        if mode == "parts":
            sock.sendall(HEADER)
            sock.sendall(BODY)
        elif mode == "whole":
            sock.sendall(HEADER + BODY)
        while mode == "bulk":
            sock.sendall(bytes(65536))


def exchange(sock, mode):
    sock.sendall(REQUEST)
    while mode == "bulk":
        sock.recv(1 << 20)
    exactly(sock, len(HEADER) + len(BODY))


def main():
    mode = sys.argv[1]
    listener = socket.create_server(("127.0.0.1", 0))
    # An algorithm without pacing, whatever the system's is.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    if "nodelay" in sys.argv:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    threading.Thread(target=serve, args=(server, mode), daemon=True).start()
    wanted, at_rest = threading.Event(), threading.Event()
    at_rest.set()

    def keep_on():
        while True:
            wanted.wait()
            at_rest.clear()
            while wanted.is_set():
                exchange(client, mode)
            at_rest.set()

    threading.Thread(target=keep_on, daemon=True).start()
    print(listener.getsockname()[1], server.fileno(), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            for _ in range(int(words[1])):
                exchange(client, mode)
        elif words[0] == "start":
            at_rest.clear()
            wanted.set()
        else:
            wanted.clear()
            at_rest.wait()
        print("done", flush=True)
    os._exit(0)


main()
