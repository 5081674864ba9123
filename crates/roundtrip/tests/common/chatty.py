"""A server and its client in one process: requests of 64 bytes, and responses as the first argument says.

Arguments: MODE [nodelay]. Prints the port and the descriptor of the server's connection, exchanges until its input ends.
MODE: parts (header and body written apart), whole (one write), bulk (the server sends without end), idle (nothing).
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
            return None
        data += part
    return data


def serve(sock, mode):
    if mode == "bulk":
        while True:
            sock.sendall(bytes(65536))
    while exactly(sock, len(REQUEST)) is not None:
        if mode == "parts":
            sock.sendall(HEADER)
            sock.sendall(BODY)
        else:
            sock.sendall(HEADER + BODY)


def ask(sock, mode):
    if mode == "bulk":
        while sock.recv(1 << 20):
            pass
    while mode != "idle":
        sock.sendall(REQUEST)
        if exactly(sock, len(HEADER) + len(BODY)) is None:
            return


def main():
    mode = sys.argv[1]
    listener = socket.create_server(("127.0.0.1", 0))
    # An algorithm without pacing, whatever the system's is.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    if "nodelay" in sys.argv:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    if mode == "idle":
        # One exchange long ago.
        client.sendall(REQUEST)
        exactly(server, len(REQUEST))
        server.sendall(HEADER)
        server.sendall(BODY)
        exactly(client, len(HEADER) + len(BODY))
    for role, sock in ((serve, server), (ask, client)):
        threading.Thread(target=role, args=(sock, mode), daemon=True).start()
    print(listener.getsockname()[1], server.fileno(), flush=True)
    sys.stdin.read()
    os._exit(0)


main()
