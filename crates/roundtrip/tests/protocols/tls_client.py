"""Clients with and without TLS for the tests: they do what they are told and print how many operations they made.

tls_client.py PROTOCOL HOST PORT COUNT [plain | KEYLOG VERSION CIPHERS]
"""
import http.client
import socket
import ssl
import struct
import sys

protocol, host, port, count, *secure = sys.argv[1:]
port, count = int(port), int(count)
context = None
if secure[0] != "plain":
    keylog, version, ciphers = secure
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if keylog != "-":
        context.keylog_filename = keylog
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    if version == "TLSv1_2":
        context.set_ciphers(ciphers)


def wrap(sock, session=None):
    return context.wrap_socket(sock, server_hostname="shop.example", session=session) if context else sock


def exactly(sock, size):
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part, "the server has closed the connection"
        data += part
    return data


def close(sock):
    if context:
        try:
            sock.unwrap()
        except OSError:
            pass  # Not every server answers a close_notify.
    sock.close()


def http_requests():
    """Requests one after the other on a connection, among them errors and large bodies."""
    if context:
        context.set_alpn_protocols(["http/1.1"])
    connection = http.client.HTTPConnection(host, port)
    connection.sock = wrap(socket.create_connection((host, port)))
    sock = connection.sock
    for n in range(count):
        path = ["/a", "/large", "/missing", "/post", "/b"][n % 5]
        body = b"y" * 3000 if path == "/post" else None
        # Head and body leave together: the server may answer a POST before its body has come.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.request("POST" if body else "GET", path, body)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        connection.getresponse().read()
    close(sock)


def letters():
    """Each request has a path and an answer of its own."""
    sock = wrap(socket.create_connection((host, port)))
    for n in range(count):
        letter = chr(ord("a") + n)
        sock.sendall(f"GET /{letter}/{400 + n} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += sock.recv(65536)
        head, body = data.split(b"\r\n\r\n", 1)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        exactly(sock, length - len(body))
    sock.close()


def resumed():
    """A connection for each request, which resume the session of the first."""
    session = None
    if protocol == "resumed-by-identifier":
        context.options |= ssl.OP_NO_TICKET
    for n in range(count):
        sock = socket.create_connection((host, port))
        sock = wrap(sock, session)
        sock.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while sock.recv(65536):
            pass
        if context:
            assert n == 0 or sock.session_reused
            session = session or sock.session
        sock.close()


def redis():
    """Pipelines of eight commands."""
    sock = wrap(socket.create_connection((host, port)))
    command = b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$2\r\nab\r\n"
    for _ in range(count // 8):
        sock.sendall(command * 8)
        assert exactly(sock, 40) == b"+OK\r\n" * 8
    close(sock)


def postgres():
    sock = socket.create_connection((host, port))
    if context:
        sock.sendall(struct.pack("!II", 8, 80877103))
        assert exactly(sock, 1) == b"S"
        sock = wrap(sock)
    words = b"user\0postgres\0database\0postgres\0\0"
    sock.sendall(struct.pack("!II", 8 + len(words), 3 << 16) + words)

    def until_ready():
        while True:
            kind, size = struct.unpack("!cI", exactly(sock, 5))
            assert kind != b"E", exactly(sock, size - 4)
            exactly(sock, size - 4)
            if kind == b"Z":
                return

    until_ready()
    for n in range(count):
        text = f"SELECT {n}, repeat('x', {n * 100})".encode() + b"\0"
        sock.sendall(struct.pack("!cI", b"Q", 4 + len(text)) + text)
        until_ready()
    sock.sendall(b"X\0\0\0\4")
    close(sock)


def mysql():
    sock = socket.create_connection((host, port))

    def packet():
        head = exactly(sock, 4)
        return exactly(sock, int.from_bytes(head[:3], "little")), head[3]

    def send(seq, payload):
        sock.sendall(len(payload).to_bytes(3, "little") + bytes([seq]) + payload)

    greeting, _ = packet()
    # CLIENT_PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH; and SSL.
    flags, seq = 0x200 | 0x8000 | 0x80000 | 1, 1
    head = lambda flags: struct.pack("<IIB23x", flags, 1 << 24, 45)
    if context:
        flags |= 0x800
        send(seq, head(flags))
        sock, seq = wrap(sock), 2
    send(seq, head(flags) + b"root\0" + b"\0" + b"mysql_native_password\0")
    answer, seq = packet()
    if answer[0] == 0xFE:
        send(seq + 1, b"")
        answer, seq = packet()
    assert answer[0] == 0, answer
    for n in range(count):
        send(0, b"\x03SELECT %d" % n)
        ends = 0
        while ends < 2:
            answer, _ = packet()
            assert answer[0] != 0xFF, answer
            ends += answer[0] == 0xFE and len(answer) < 9
    send(0, b"\x01")
    sock.close()


{
    "http": http_requests,
    "letters": letters,
    "resumed": resumed,
    "resumed-by-identifier": resumed,
    "redis": redis,
    "postgres": postgres,
    "mysql": mysql,
}[protocol]()
print(count)
