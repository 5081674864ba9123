"""Services for a case: nginx, PostgreSQL, Redis, MariaDB, memcached, haproxy, and the corpus's own servers."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

from lab.wire import run, wait_for

PORTS = {"nginx": 80, "postgres": 5432, "redis": 6379, "mariadb": 3306, "memcached": 11211, "haproxy": 8000}
PROGRAMS = {"go", "python", "stdlib", "node"}
NGINX = """worker_processes 2; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; sendfile on; keepalive_requests 100000; default_type text/plain;
  {http}
  server {{ listen 80 {listen}; root {dir}/files; {server} }}
}}
"""
HAPROXY = """global
  {globals}
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend front
  bind :8000
  default_backend back
backend back
  {backend}
"""


def port_of(server):
    """The port that the client talks to: that of haproxy if it is one of several services."""
    names = list(server)
    first = "haproxy" if "haproxy" in names else names[0]
    return PORTS.get(first, 8080)


class Services:
    """The services of a case, started in the server's namespace; `with` ends them."""

    def __init__(self, server, wire, work, tools, programs):
        self.wanted, self.wire, self.work, self.tools, self.programs = server, wire, work, tools, programs
        self.processes = []

    def __enter__(self):
        try:
            for name, options in self.wanted.items():
                if name == "helper":
                    continue
                start = getattr(self, name, None) or (lambda text, name=name: self.program(name, text))
                start(options)
                port = 8080 if name in PROGRAMS else PORTS[name]
                wait_for(lambda: self.listens(port), f"port {port} of {name}")
                getattr(self, f"prepare_{name}", lambda: None)()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                # PostgreSQL's fast shutdown is SIGINT; all others end by SIGTERM.
                process.send_signal(signal.SIGINT if "postgres" in process.args[-3:][0] else signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def listens(self, port):
        return f":{port} " in self.wire.at(self.wire.server, "ss", "-ltnH")

    def spawn(self, *command, **more):
        log = open(self.work / "service.log", "ab")
        process = subprocess.Popen(["ip", "netns", "exec", self.wire.server, *map(str, command)], stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, **more)
        self.processes.append(process)
        return process

    def program(self, name, text):
        command = {
            "go": [self.tools / "server"], "python": ["/usr/bin/python3", self.programs / "server.py"],
            "stdlib": ["/usr/bin/python3", self.programs / "stdlib_server.py"], "node": ["node", self.programs / "server.js"],
        }[name]
        self.spawn(*command, *shlex.split(text))

    def nginx(self, text):
        """The text has directives of the server, and lines "http: ..." and "listen: ..." for those elsewhere."""
        parts = {"http": "", "listen": "", "server": ""}
        for line in text.splitlines():
            where, _, rest = line.partition(": ")
            parts[where if where in parts and rest else "server"] += (rest if where in parts and rest else line) + "\n"
        parts["listen"] = parts["listen"].strip()
        files = self.work / "files"
        files.mkdir(exist_ok=True)
        for kilobytes in (0, 1, 4, 16, 64, 100, 256, 500, 1000, 2000, 4000):
            (files / f"{kilobytes}k").write_bytes(b"x" * (kilobytes * 1000 or 200))
        files.chmod(0o755)
        (self.work / "nginx.conf").write_text(NGINX.format(dir=self.work, **parts))
        self.spawn("nginx", "-c", self.work / "nginx.conf", "-e", self.work / "error.log")

    def haproxy(self, text):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        tuning = [line for line in lines if line.startswith("tune.")]
        backend = [line for line in lines if not line.startswith("tune.")] or ["server one 127.0.0.1:8080"]
        configuration = HAPROXY.format(globals="\n  ".join(tuning), backend="\n  ".join(backend))
        (self.work / "haproxy.cfg").write_text(configuration)
        self.spawn("haproxy", "-db", "-f", self.work / "haproxy.cfg")

    def redis(self, text):
        self.spawn("redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no",
                   "--enable-debug-command", "yes", *shlex.split(text))

    def memcached(self, text):
        self.spawn("memcached", "-u", "nobody", "-l", "0.0.0.0", "-m", "64", *shlex.split(text))

    def postgres(self, text):
        data = self.work.parent / "postgres"
        binaries = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        if not (data / "PG_VERSION").exists():
            data.mkdir(exist_ok=True)
            shutil.chown(data, "postgres", "postgres")
            run("runuser", "-u", "postgres", "--", str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-N")
            with open(data / "pg_hba.conf", "a", encoding="ascii") as rules:
                rules.write("host all all 10.77.0.0/24 trust\n")
        self.spawn("runuser", "-u", "postgres", "--", binaries / "postgres", "-D", data, "-c", "listen_addresses=*",
                   "-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "autovacuum=off", *shlex.split(text))

    def prepare_postgres(self):
        self.query_postgres("drop table if exists counters; create table counters (id int primary key, n int);"
                            "insert into counters select i, 0 from generate_series(1, 100) i")

    def query_postgres(self, text):
        def attempt():
            done = subprocess.run(["ip", "netns", "exec", self.wire.server, "psql", "-h", "127.0.0.1", "-U", "postgres", "-qc", text],
                                  capture_output=True, text=True)
            return done.returncode == 0
        wait_for(attempt, "PostgreSQL's answer")

    def mariadb(self, text):
        data = self.work.parent / "mariadb"
        if not (data / "mysql").exists():
            data.mkdir(exist_ok=True)
            shutil.chown(data, "mysql", "mysql")
            run("mariadb-install-db", "--user=mysql", f"--datadir={data}", "--skip-test-db")
        self.spawn("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={data}/socket",
                   "--bind-address=0.0.0.0", "--skip-name-resolve", f"--pid-file={data}/pid", *shlex.split(text))

    def prepare_mariadb(self):
        text = ("create database if not exists corpus; use corpus; create user if not exists corpus@'%'; grant all on *.* to corpus@'%';"
                "create or replace table counters (id int primary key, n int) engine=innodb;"
                "insert into counters select seq, 0 from seq_1_to_100")
        run("mariadb", "-u", "root", f"--socket={self.work.parent}/mariadb/socket", "-e", text)


def versions():
    """Versions of what made the captures, for their metadata."""
    commands = {
        "linux": ["uname", "-r"], "nginx": ["nginx", "-v"], "postgres": ["postgres", "--version"], "redis": ["redis-server", "--version"],
        "mariadb": ["mariadbd", "--version"], "memcached": ["memcached", "--version"], "haproxy": ["haproxy", "-v"],
        "go": ["go", "version"], "node": ["node", "--version"], "java": ["java", "--version"], "python": ["/usr/bin/python3", "--version"],
    }
    found = {}
    for name, command in commands.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
        except FileNotFoundError:
            continue
        match = re.search(r"\d+\.\d+[\w.]*", done.stdout + done.stderr)
        found[name] = match[0] if match else ""
    return found
