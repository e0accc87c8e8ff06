"""Hosts in network namespaces, for samples with addresses, losses and delays of their own (Linux, as root).

    with Network() as network:
        broker = network.host("broker", "10.77.0.1")
        path = network.distant("far", "10.77.1.2", delay_ms=20)      # behind a router that delays each packet
        broker.run(["ss", "-tin"])

A network has a bridge in a namespace of its own. Each host is a namespace with one interface, `eth0`, that sends
packets of the wire's size (no offloads). A distant host stands behind a router of its own: a namespace that forwards,
and that can delay packets (through a TUN device) or lose them (iptables). The namespaces end with the block, and each
process by its own id. KAFKATAP_NAMESPACES changes the prefix of their names.
"""

from __future__ import annotations

import heapq
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from .broker import BrokerError

PREFIX = os.environ.get("KAFKATAP_NAMESPACES", f"kt{os.getpid()}")
ROOT = Path(__file__).resolve().parents[2]
#: The programs that a network needs, and Debian's packages for them.
PROGRAMS = {"ip": "iproute2", "ss": "iproute2", "ethtool": "ethtool", "iptables": "iptables", "tcpdump": "tcpdump"}


def cannot_build() -> str:
    """What this machine lacks for networks of namespaces, as a sentence; "" where it lacks nothing."""
    lacking = sorted({package for name, package in PROGRAMS.items() if shutil.which(name) is None})
    if lacking:
        return f"needs network namespaces (apt-get install {' '.join(lacking)})"
    return "" if os.geteuid() == 0 else "needs to be root: it makes network namespaces"


def run(words: Sequence[str], timeout: float = 60) -> str:
    """The output of a program; BrokerError where it fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL, cwd=ROOT
    )
    if done.returncode:
        raise BrokerError(f"{' '.join(words)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


class Host:
    """A namespace with one address."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address
        self._processes: list[subprocess.Popen[bytes]] = []

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line that runs a program here. The process id is the program's own."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def run(self, words: Sequence[str], timeout: float = 60) -> str:
        """The output of a program here."""
        return run(self.command(words), timeout)

    def python(self, module: str, *arguments: str, timeout: float = 120) -> str:
        """The output of a Python module here."""
        return self.run([sys.executable, "-m", module, *arguments], timeout)

    def start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program here. It is stopped at the end of the network at the latest."""
        with open(log, "wb") as output:
            process = subprocess.Popen(
                self.command(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT
            )
        self._processes.append(process)
        return process

    def set(self, name: str, value: str) -> None:
        """Set a sysctl of this namespace."""
        self.run(["sysctl", "-q", "-w", f"{name}={value}"])

    def stop(self) -> None:
        """Stop what still runs here."""
        for process in self._processes:
            stop(process)
        self._processes.clear()


class Network:
    """Hosts on one bridge: a context manager."""

    def __init__(self, prefix: str = PREFIX) -> None:
        self._prefix = prefix
        self._bridge = f"{prefix}-lan"
        self._namespaces: list[str] = []
        self.hosts: list[Host] = []

    def __enter__(self) -> Network:
        self._namespace(self._bridge)
        run(["ip", "-n", self._bridge, "link", "add", "lan", "type", "bridge"])
        run(["ip", "-n", self._bridge, "link", "set", "lan", "up"])
        return self

    def host(self, name: str, address: str) -> Host:
        """A host on the bridge. `name` has at most 15 characters, `address` lies in 10.77.0.0/16."""
        host = self._new(name, address)
        self._wire(self._bridge, name, host.namespace, "eth0")
        run(["ip", "-n", self._bridge, "link", "set", name, "master", "lan"])
        run(["ip", "-n", host.namespace, "addr", "add", f"{address}/16", "dev", "eth0"])
        return host

    def bridge(self) -> Host:
        """The namespace of the bridge: its interface `lan` carries what any two hosts send each other."""
        host = Host("bridge", self._bridge, "")
        self.hosts.append(host)
        return host

    def distant(
        self, name: str, address: str, *, delay_ms: float = 0, loss: float = 0, control: Path | None = None
    ) -> Host:
        """A host behind a router that delays each packet by `delay_ms` and loses the share `loss` of them; or behind
        a relay (tests.support.relay) that reads what it does to packets from the file `control`.

        `address` lies in a /24 of 10.78.0.0/16 of its own, where the router is number 254.
        """
        network = address.rsplit(".", 1)[0]
        number = network.rsplit(".", 1)[1]
        lan, wan = f"10.77.254.{number}", f"{network}.254"
        router = self.host(f"r-{name}"[:15], lan)
        host = self._new(name, address)
        self._wire(router.namespace, "wan", host.namespace, "eth0")
        run(["ip", "-n", router.namespace, "addr", "add", f"{wan}/24", "dev", "wan"])
        run(["ip", "-n", host.namespace, "addr", "add", f"{address}/24", "dev", "eth0"])
        run(["ip", "-n", host.namespace, "route", "add", "default", "via", wan])
        for other in self.hosts:
            if other.address.startswith("10.77.") and other is not router:
                run(["ip", "-n", other.namespace, "route", "add", f"{network}.0/24", "via", lan])
        for name_, value in (("ip_forward", "1"), ("conf.all.rp_filter", "0"), ("conf.default.rp_filter", "0")):
            router.set(f"net.ipv4.{name_}", value)
        if loss:
            rule = ["-m", "statistic", "--mode", "random", "--probability", str(loss), "-j", "DROP"]
            # A delayed packet is forwarded twice: to the TUN device, and from it.
            router.run(["iptables", "-A", "FORWARD", *(["-i", "slow"] if delay_ms else []), *rule])
        if control is not None:
            self._relay(router, ["tests.support.relay", str(control)])
        elif delay_ms:
            self._relay(router, ["tests.support.namespaces", "delay", str(delay_ms)])
        return host

    def _relay(self, router: Host, words: list[str]) -> None:
        router.run(["ip", "tuntap", "add", "dev", "slow", "mode", "tun"])
        router.set("net.ipv4.conf.slow.rp_filter", "0")
        router.run(["ip", "link", "set", "slow", "up", "mtu", "1500", "txqueuelen", "5000"])
        for interface in ("eth0", "wan"):
            router.run(["ip", "rule", "add", "iif", interface, "table", "100"])
        router.run(["ip", "rule", "add", "to", router.address, "table", "local", "pref", "0"])
        router.run(["ip", "route", "add", "default", "dev", "slow", "table", "100"])
        router.start([sys.executable, "-m", *words], Path(os.devnull))

    def _new(self, name: str, address: str) -> Host:
        host = Host(name, f"{self._prefix}-{name}", address)
        self._namespace(host.namespace)
        run(["ip", "-n", host.namespace, "link", "set", "lo", "up"])
        self.hosts.append(host)
        return host

    def _namespace(self, name: str) -> None:
        run(["ip", "netns", "add", name])
        self._namespaces.append(name)

    def _wire(self, one: str, one_name: str, other: str, other_name: str) -> None:
        """Join two namespaces by a pair of interfaces without offloads."""
        run(["ip", "-n", one, "link", "add", one_name, "type", "veth", "peer", "name", other_name, "netns", other])
        for namespace, interface in ((one, one_name), (other, other_name)):
            features = ["tso", "off", "gso", "off", "gro", "off", "tx", "off", "sg", "off"]
            run(["ip", "netns", "exec", namespace, "ethtool", "-K", interface, *features])
            run(["ip", "-n", namespace, "link", "set", interface, "up"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.stop()
        for name in reversed(self._namespaces):
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=60)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process: SIGTERM, then SIGKILL after 20 s."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@contextmanager
def recorded_at(host: Host, work: Path, condition: str = "tcp", interface: str = "eth0") -> Iterator[Path]:
    """Record what an interface of a host carries. The path is complete after the block. It prints tcpdump's counts."""
    raw, log = work / f"{host.name}.pcap", work / f"{host.name}.tcpdump.log"
    words = ["tcpdump", "-i", interface, "-U", "-w", str(raw), "-s", "0", "-B", "65536", *condition.split()]
    tcpdump = host.start(words, log)
    try:
        end = time.monotonic() + 10
        while not (raw.exists() and raw.stat().st_size >= 24) and time.monotonic() < end:
            time.sleep(0.1)
        if tcpdump.poll() is not None:
            raise BrokerError(f"tcpdump ended: {log.read_text()}")
        yield raw
        time.sleep(1)
    finally:
        stop(tcpdump)
    print(log.read_text().strip())


def delay(milliseconds: float) -> None:
    """Read packets from the TUN device `slow` and write each back later. Runs until it is stopped."""
    import fcntl

    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    tun_without_header, set_interface = 0x0001 | 0x1000, 0x400454CA
    fcntl.ioctl(device, set_interface, struct.pack("16sH14x", b"slow", tun_without_header))
    waiting: list[tuple[float, int, bytes]] = []
    count = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([device], [], [], pause)[0]:
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                continue
            heapq.heappush(waiting, (time.monotonic() + milliseconds / 1000, count, packet))
            count += 1
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(device, heapq.heappop(waiting)[2])


if __name__ == "__main__":
    delay(float(sys.argv[2]))
