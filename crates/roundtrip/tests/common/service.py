# A service manager for one process: holds a listening socket, a notification socket and a store of descriptors (as systemd does; the
# packages are tested with systemd itself), starts the program with them, prints what it is told, a line each, and ends the program when
# its own input ends. Lines of its input: "restart" ends the program and starts it again, "kill" does so with SIGKILL;
# after "fail" it ends by itself, and starts again after the next line.
# Arguments: address, port, program, its arguments.
import os, resource, select, signal, socket, sys, time

address, port, program = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = "\0roundtrip-test-%d" % os.getpid()
told.bind(name)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((address, port))
listener.listen(16)
# The store: descriptors with their names.
store = []


def start():
    child = os.fork()
    if child:
        return child
    # From 3 on: first out of the way of each other.
    passed = [listener.fileno()] + [fd for _, fd in store]
    high = [os.dup2(fd, 10000 + index) for index, fd in enumerate(passed)]
    for index, fd in enumerate(high):
        os.dup2(fd, 3 + index, inheritable=True)
    os.closerange(3 + len(high), 10000 + len(high))
    # What a process has of them by default.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(1024, 16 + len(high)), hard))
    os.environ.update(
        LISTEN_PID=str(os.getpid()),
        LISTEN_FDS=str(len(passed)),
        LISTEN_FDNAMES=":".join(["portal"] + [name for name, _ in store]),
        NOTIFY_SOCKET="@" + name[1:],
        WATCHDOG_USEC="400000",
    )
    os.execv(program[0], program)


def hear():
    global store
    text, fds, _, _ = socket.recv_fds(told, 4096, 253)
    lines = text.decode().split("\n")
    names = [line.removeprefix("FDNAME=") for line in lines if line.startswith("FDNAME=")]
    if "FDSTORE=1" in lines:
        store += [(names[0], fd) for fd in fds]
    elif "BARRIER=1" in lines:
        [os.close(fd) for fd in fds]
    elif "FDSTOREREMOVE=1" in lines:
        [os.close(fd) for name, fd in store if name in names]
        store = [(name, fd) for name, fd in store if name not in names]
    for line in lines:
        print(line, flush=True)


def wait(seconds):
    ready, _, _ = select.select([told, sys.stdin], [], [], seconds)
    if told in ready:
        hear()
    return sys.stdin in ready and told not in ready


def end(number):
    if number:
        os.kill(child, number)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        ready, _, _ = select.select([told], [], [], 0 if ended else 0.01)
        if ready:
            hear()
        elif ended:
            return status


child = start()
print("listening %s:%d pid %d" % (*listener.getsockname(), child), flush=True)
status = None
while status is None:
    if wait(0.1):
        line = sys.stdin.readline().strip()
        if not line:
            status = end(signal.SIGTERM)
            break
        begun = time.monotonic()
        end(signal.SIGKILL if line == "kill" else signal.SIGTERM)
        print("stored %d" % len(store), flush=True)
        child = start()
        if line == "fail":
            print("failed %d, stored %d" % (os.waitstatus_to_exitcode(end(None)), len(store)), flush=True)
            sys.stdin.readline()
            child = start()
        print("restarted pid %d after %.1f ms" % (child, 1e3 * (time.monotonic() - begun)), flush=True)
    ended, outcome = os.waitpid(child, os.WNOHANG)
    status = outcome if ended else None
print("ended %d" % os.waitstatus_to_exitcode(status), flush=True)
