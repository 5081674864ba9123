"""A client of SMB 2 by impacket: smb_client.py PORT. Several reads in flight, notifications of changes, locks, errors."""

import socket
import sys

from impacket import smb3structs as smb
from impacket.smb3 import SessionError
from impacket.smbconnection import SMBConnection

ACCESS, SHARED, OPEN, CREATE = 0x12019F, 7, 1, 5

connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=int(sys.argv[1]), preferredDialect=smb.SMB2_DIALECT_21)
connection.login("root", "secret")
server = connection.getSMBServer()
tree = connection.connectTree("data")


def create(name, disposition=OPEN, options=0x40):
    return server.create(tree, name, ACCESS, SHARED, options, disposition, 0)


def send(command, body):
    packet = server.SMB_PACKET()
    packet["Command"], packet["TreeID"], packet["Data"] = command, tree, body
    return server.sendSMB(packet)


def done(number, status=0):
    answer = server.recvSMB(number)
    assert answer["Status"] == status, hex(answer["Status"])


def read(file):
    body = smb.SMB2Read()
    body["Padding"], body["FileID"], body["Length"], body["Offset"] = 0x50, file, 512, 0
    return send(smb.SMB2_READ, body)


for at in range(20):
    file = create(f"file{at}.txt", CREATE)
    server.write(tree, file, b"x" * 4000, 0, 4000)
    server.close(tree, file)
file = create("file1.txt")
connected = server._NetBIOSSession.get_socket()
for outstanding in (1, 4, 8):
    for _ in range(10):
        # The requests leave together, however busy the machine is.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        numbers = [read(file) for _ in range(outstanding)]
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        for number in numbers:
            done(number)
try:
    create("none.txt")
    raise SystemExit("it exists")
except SessionError as error:
    assert "OBJECT_NAME_NOT_FOUND" in str(error)
assert len(connection.listPath("data", "*")) == 22

# A change of a folder, and one that never comes.
folder = create("\\", OPEN, 1)
for _ in range(2):
    notify = smb.SMB2ChangeNotify()
    notify["FileID"], notify["OutputBufferLength"], notify["CompletionFilter"] = folder, 4096, 1
    awaited = send(smb.SMB2_CHANGE_NOTIFY, notify)
    done(read(file))
    if _ == 0:
        server.close(tree, create("new.txt", CREATE))
        done(awaited)
server.close(tree, folder)


# A lock that another open of the file holds.
def lock(file, flags):
    element = smb.SMB2_LOCK_ELEMENT()
    element["Offset"], element["Length"], element["Flags"] = 0, 10, flags
    body = smb.SMB2Lock()
    body["FileID"], body["LockCount"], body["Locks"] = file, 1, element.getData()
    return send(smb.SMB2_LOCK, body)


EXCLUSIVE, UNLOCK, AT_ONCE = 2, 4, 0x10
other = create("file1.txt")
done(lock(file, EXCLUSIVE | AT_ONCE))
done(lock(other, EXCLUSIVE | AT_ONCE), 0xC0000055)
waiting = lock(other, EXCLUSIVE)
done(read(file))
done(lock(file, UNLOCK))
done(waiting)
# A chain: each request is about the file that the first one opens.
opens = smb.SMB2Create()
name = "file2.txt".encode("utf-16le")
opens["RequestedOplockLevel"], opens["ImpersonationLevel"], opens["DesiredAccess"] = 0, 2, ACCESS
opens["ShareAccess"], opens["CreateDisposition"], opens["CreateOptions"] = SHARED, OPEN, 0x40
opens["NameLength"], opens["Buffer"], opens["AlignPad"] = len(name), name, b""
opens["CreateContextsOffset"] = opens["CreateContextsLength"] = 0
reads, closes = smb.SMB2Read(), smb.SMB2Close()
reads["Padding"], reads["Length"], reads["Offset"] = 0x50, 100, 0
reads["FileID"], closes["FileID"] = b"\xff" * 16, b"\xff" * 16
chain = b""
for place, (command, body) in enumerate([(smb.SMB2_CREATE, opens), (smb.SMB2_READ, reads), (smb.SMB2_CLOSE, closes)]):
    packet = server.SMB_PACKET()
    packet["Command"], packet["TreeID"], packet["SessionID"] = command, tree, server._Session["SessionID"]
    packet["MessageID"], packet["CreditCharge"], packet["CreditRequestResponse"] = server._Connection["SequenceWindow"], 1, 10
    packet["Flags"], packet["Data"] = 4 if place else 0, body
    server._Connection["SequenceWindow"] += 1
    data = packet.getData()
    data += bytes(-len(data) % 8)
    if place < 2:
        packet["NextCommand"] = len(data)
        data = packet.getData().ljust(len(data), b"\0")
    chain += data
server._NetBIOSSession.send_packet(chain)
answer = server._NetBIOSSession.recv_packet(10).get_trailer()
statuses = []
while answer:
    packet = server.SMB_PACKET(answer)
    statuses.append(packet["Status"])
    answer = answer[packet["NextCommand"] :] if packet["NextCommand"] else b""
assert statuses == [0, 0, 0], statuses

# The library knows one open of a file.
for opened in (other, file):
    body = smb.SMB2Close()
    body["FileID"] = opened
    done(send(smb.SMB2_CLOSE, body))
server.echo()
connection.logoff()

# A client that offers SMB 1 first; behind the log-in its library encrypts.
connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=int(sys.argv[1]))
connection.login("root", "secret")
connection.getSMBServer().close_session()
