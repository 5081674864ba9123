"""EtherNet/IP: cpppo, both sides. Makes enip.pcapng.zst and enip.json, in an environment with cpppo 5.2.5:

python3 -m venv /tmp/enip && /tmp/enip/bin/pip install cpppo && /tmp/enip/bin/python enip.py
"""

import sys
from collections import Counter

from cpppo.server.enip import client
from cpppo.server.enip.get_attribute import attribute_operations

from recording import recording, running

PORT = 44818
TAGS = ["SCADA=INT[1000]", "Line_7.Speed=REAL[20]", "TEXT=STRING[4]"]


def ask(connection, operations, depth, multiple=0):
    """How many requests it has sent: those with one index share one."""
    done = connection.pipeline(operations, depth=depth, multiple=multiple, timeout=10.0)
    return len({index for index, *_ in done})


def main():
    told = Counter()
    connected = lambda: client.connector(host="127.0.0.1", port=PORT, timeout=10.0)
    tags = client.parse_operations
    with running([sys.executable, "-m", "cpppo.server.enip", "-a", f"127.0.0.1:{PORT}", *TAGS], PORT):
        with recording("enip", PORT) as result:
            for depth in (1, 8):
                with connected() as connection:
                    told["REGISTER"] += 1
                    told["READ_TAG"] += ask(connection, tags(f"SCADA[{i}-{i + 9}]" for i in range(100)), depth)
                    told["WRITE_TAG"] += ask(connection, tags(f"SCADA[{i}]={i}" for i in range(60)), depth)
                    told["GET_ATTR"] += ask(connection, attribute_operations(["@1/1/7"] * 20), depth)
                    told["MULTIPLE"] += ask(connection, tags(f"Line_7.Speed[{i % 20}]" for i in range(60)), depth, 250)
                    # Beyond the tag's end.
                    told["GENERAL"] += ask(connection, tags(["SCADA[2000]"] * 10), depth)
            told["READ_TAG"] += told["GENERAL"]
            for _ in range(3):
                # The server refuses the packet, and closes the connection.
                with connected() as connection:
                    told["REGISTER"] += 1
                    try:
                        ask(connection, tags(["NO_SUCH_TAG"]), 1)
                    except client.ENIPStatusError:
                        told["ENCAP_08"] += 1
            told["READ_TAG"] += told["ENCAP_08"]
            result.update(told)


main()
