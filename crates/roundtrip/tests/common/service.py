# A service manager for one process: holds a listening socket and a notification socket, starts the program with them, prints what it is
# told, a line each, and ends the program when its own input ends. Arguments: address, port, program, its arguments.
import os, select, signal, socket, sys

address, port, program = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = "\0roundtrip-test-%d" % os.getpid()
told.bind(name)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
listener.listen(16)
child = os.fork()
if child == 0:
    os.dup2(listener.fileno(), 3, inheritable=True)
    os.environ.update(
        LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET="@" + name[1:], WATCHDOG_USEC="400000"
    )
    os.execv(program[0], program)
print("listening %s:%d pid %d" % (*listener.getsockname(), child), flush=True)
ended = False
while not ended:
    ready, _, _ = select.select([told, sys.stdin], [], [], 0.1)
    if told in ready:
        for line in told.recv(4096).decode().split("\n"):
            print(line, flush=True)
    elif sys.stdin in ready and not sys.stdin.readline():
        break
    ended, status = os.waitpid(child, os.WNOHANG)
if not ended:
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
told.settimeout(0.2)
try:
    while True:
        print(told.recv(4096).decode().replace("\n", " "), flush=True)
except TimeoutError:
    pass
print("ended %d" % os.waitstatus_to_exitcode(status), flush=True)
