"""Two network namespaces and the wire between them: a bare veth pair, or the forwarder with delay, rate and loss."""

import os
import signal
import subprocess
import time

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
FORWARDER_KEYS = ("delay_us", "rate_bps", "queue_bytes", "loss_ppm", "mtu_drop", "seed")


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Wire:
    """Keys of `settings`: rtt_ms (0.05: a bare veth pair), rate_mbit, queue_kb, loss (share), loss_by ("nft": random drops by
    nftables on a veth pair), mtu_drop (bytes), mtu (of both
    ends; above 1500 on a veth pair only), up and down (tables with keys of one direction), initcwnd, cwnd_limit (segments), gso_segments (of
    one large send), idle_restart (False:
    no slow start after idle), congestion, syn_drop (share, by nftables at the server)."""

    def __init__(self, settings, tools):
        self.settings, self.tools = settings, tools
        self.client, self.server = f"corpus{os.getpid()}c", f"corpus{os.getpid()}s"
        self.forwarder = None
        self.counters = ""

    def __enter__(self):
        try:
            for name in (self.client, self.server):
                run("ip", "netns", "add", name)
                self.at(name, "ip", "link", "set", "lo", "up")
            self.device = self.veth() if self.settings["rtt_ms"] <= 0.05 else self.taps()
            for name, address in ((self.client, CLIENT), (self.server, SERVER)):
                self.configure(name, address)
            self.nft()
            # Neither end looks for the other's hardware address during the capture.
            self.at(self.client, "ping", "-c", "2", "-i", "0.2", "-q", SERVER, check=False)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.forwarder:
            self.forwarder.send_signal(signal.SIGTERM)
            self.counters = self.forwarder.communicate(timeout=10)[0].strip()
        for name in (self.client, self.server):
            for pid in run("ip", "netns", "pids", name, check=False).split():
                os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", name, check=False)

    def at(self, name, *command, check=True):
        return run("ip", "netns", "exec", name, *command, check=check)

    def configure(self, name, address):
        at = self.at
        at(name, "ip", "address", "add", f"{address}/24", "dev", self.device)
        at(name, "ip", "link", "set", self.device, "mtu", str(self.settings.get("mtu", 1500)), "up")
        # What the machine's administrator chose as defaults is not part of the experiment.
        settings = {
            # A locked window is read from the metrics of an earlier connection, which then must be kept.
            "net.ipv4.tcp_no_metrics_save": int("cwnd_limit" not in self.settings),
            "net.ipv4.tcp_slow_start_after_idle": int(self.settings.get("idle_restart", True)),
            "net.ipv4.tcp_mtu_probing": 0,
            "net.ipv4.ip_local_port_range": "20000 60000",
            "net.ipv6.conf.all.disable_ipv6": 1,
        }
        for key, value in settings.items():
            at(name, "sysctl", "-qw", f"{key}={value}")
        if "gso_segments" in self.settings:
            # Without large sends a send buffer is a limit to the byte; with them it is exceeded by one of them.
            segments = self.settings["gso_segments"]
            at(name, "ip", "link", "set", self.device, "gso_max_segs", str(segments), "gso_max_size", str(segments * 1500))
        # A namespace may not choose among all algorithms for its sockets, but a route may.
        route = ["congctl", self.settings.get("congestion", "cubic")]
        if "initcwnd" in self.settings:
            route += ["initcwnd", str(self.settings["initcwnd"]), "initrwnd", str(self.settings["initcwnd"])]
        if "cwnd_limit" in self.settings:
            route += ["cwnd", "lock", str(self.settings["cwnd_limit"])]
        at(name, "ip", "route", "change", "10.77.0.0/24", "dev", self.device, "src", address, *route)

    def veth(self):
        run("ip", "link", "add", "wire0", "netns", self.client, "type", "veth", "peer", "name", "wire0", "netns", self.server)
        for name, cpu in ((self.client, 1), (self.server, 2)):
            self.at(name, "ethtool", "-K", "wire0", "tso", "off", "gso", "off", "gro", "off", "tx", "off", "rx", "off", check=False)
            # Without receive steering, segments that different processors send overtake each other.
            mask = cpu if os.cpu_count() > 1 else 1
            self.at(name, "sh", "-c", f"echo {mask} > /sys/class/net/wire0/queues/rx-0/rps_cpus")
            if "rate_mbit" in self.settings:
                limit = self.settings.get("queue_kb", 256)
                self.at(name, "tc", "qdisc", "add", "dev", "wire0", "root", "tbf", "rate", f"{self.settings['rate_mbit']}mbit",
                        "burst", "5kb", "limit", f"{limit}kb")
        return "wire0"

    def taps(self):
        def keys(settings, prefix=""):
            found = {}
            if "rtt_ms" in settings:
                # What reading and writing the devices costs, about 0.04 ms for each direction, is part of the delay.
                found["delay_us"] = max(0, int(settings["rtt_ms"] * 500 - 40))
            if "rate_mbit" in settings:
                found["rate_bps"] = int(settings["rate_mbit"] * 1e6)
            if "queue_kb" in settings:
                found["queue_bytes"] = int(settings["queue_kb"] * 1024)
            if "loss" in settings and settings.get("loss_by") != "nft":
                found["loss_ppm"] = int(settings["loss"] * 1e6)
            found.update({key: settings[key] for key in ("mtu_drop", "seed") if key in settings})
            return [f"{prefix}{key}={value}" for key, value in found.items()]

        arguments = keys(self.settings)
        for direction in ("up", "down"):
            arguments += keys(self.settings.get(direction, {}), f"{direction}.")
        command = [self.tools / "forwarder", self.client, self.server, *arguments]
        self.forwarder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self.forwarder.stdout.readline().strip() != "ready":
            raise RuntimeError("the forwarder did not start")
        return "wire0"

    def nft(self):
        def drop(where, share, match=""):
            every = max(1, round(1 / share))
            self.at(where, "nft", f"add table inet corpus; add chain inet corpus in {{ type filter hook input priority -300; }};"
                    f"add rule inet corpus in iifname wire0 ip protocol tcp {match} numgen random mod {every} 0 drop")

        if self.settings.get("loss_by") == "nft":
            for where in (self.client, self.server):
                drop(where, self.settings["loss"])
        if "syn_drop" in self.settings:
            drop(self.server, self.settings["syn_drop"], "tcp flags & (syn|ack) == syn")


def wait_for(condition, what, seconds=30):
    """Waits until a condition of another process holds, which has no event to wait for."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not come within {seconds} s")
        time.sleep(0.02)
