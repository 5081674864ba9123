"""S7 communication: python-snap7, both sides. Makes s7.pcapng.zst and s7.json, in an environment with python-snap7 3.3.0:

python3 -m venv /tmp/s7 && /tmp/s7/bin/pip install python-snap7 && /tmp/s7/bin/python s7.py
"""

import logging
from collections import Counter

import snap7
from snap7.s7protocol import S7Area, S7WordLen
from snap7.server import Server
from snap7.type import Area, SrvArea

from recording import recording

PORT = 11102
DEPTH = 6


def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception:
        return 1
    raise AssertionError("it must be refused")


def main():
    logging.disable()
    told = Counter()
    server = Server()
    for block in (1, 5):
        server.register_area(SrvArea.DB, block, bytearray(2000))
    server.register_area(SrvArea.MK, 0, bytearray(100))
    server.start(tcp_port=PORT)
    with recording("s7", PORT) as result:
        for _ in range(2):
            client = snap7.Client()
            client.connect("127.0.0.1", 0, 1, PORT)
            told.update(("CONNECT", "SETUP"))
            for number in range(100):
                client.db_read(1, number, 10)
                client.db_write(5, number, bytearray(b"abc"))
                client.read_area(Area.MK, 0, 0, 4)
                told.update(("READ_VAR", "WRITE_VAR", "READ_VAR"))
            for number in range(10):
                told["NO_OBJECT"] += refused(client.db_read, 99, 0, 4)
                told["BAD_ADDRESS"] += refused(client.db_read, 1, 1990, 50)
                client.get_plc_datetime()
                client.list_blocks()
                told.update(("READ_VAR", "READ_VAR", "READ_CLOCK", "BLOCK_LIST"))
            # Several at once.
            for first in range(0, 120, DEPTH):
                build = client.protocol.build_read_request
                some = [(k, build(S7Area.DB, 5, first + k, S7WordLen.BYTE, 4)) for k in range(DEPTH)]
                told["READ_VAR"] += len(client._send_receive_parallel(some))
            # Two blocks in one request.
            for number in range(10):
                two = [{"area": Area.DB, "db_number": block, "start": number, "size": 4} for block in (1, 5)]
                client.read_multi_vars(two)
                told["READ_VAR"] += 1
            client.disconnect()
        result.update(told)
    server.stop()


main()
