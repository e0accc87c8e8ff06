"""Interfaces of our own for tests that capture: veth pairs, and network namespaces at their far end.

All have names that no other run has, and are taken away in the end. `missing()` says in plain words what a test that
captures lacks here, or nothing.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_numbers = itertools.count()
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13}


def missing(*programs: str, admin: bool = False) -> str:
    """What is needed of these programs and capabilities (`admin`: to make interfaces), and not there; "" if nothing."""
    if sys.platform != "linux":
        return "needs Linux: packet sockets and network namespaces"
    with open("/proc/self/status", encoding="ascii") as told:
        held = next(int(line.split()[1], 16) for line in told if line.startswith("CapEff"))
    for name in ("CAP_NET_RAW", "CAP_NET_ADMIN")[: 2 if admin else 1]:
        if not held >> _CAPABILITIES[name] & 1:
            return f"needs the capability {name}, to {'make interfaces' if 'ADMIN' in name else 'capture'}: run as root"
    for program in (*programs, *(["ip"] if admin else [])):
        if shutil.which(program) is None:
            return f"needs the program {program}, which is not installed"
    return ""


@dataclass(frozen=True, slots=True)
class Veth:
    """Both ends of a pair of interfaces, the second in `namespace` ("": here as well)."""

    near: str
    far: str
    namespace: str = ""
    near_address: str = ""
    far_address: str = ""

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command line that runs in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *command]


def ip(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _names() -> tuple[str, str, str]:
    mark = f"{os.getpid() % 100_000}{next(_numbers)}"
    return f"kt{mark}a", f"kt{mark}b", f"kafkatap-{os.getpid()}-{mark}"


@contextmanager
def veth_pair(mtu: int = 1500) -> Iterator[Veth]:
    """Two interfaces here, without addresses: what is written to one comes out of the other, and nothing else does."""
    near, far, _ = _names()
    ip("link", "add", near, "mtu", str(mtu), "type", "veth", "peer", "name", far, "mtu", str(mtu))
    try:
        for name in (near, far):
            _quiet(name)
            ip("link", "set", name, "up")
        yield Veth(near, far)
    finally:
        ip("link", "del", near, check=False)


@contextmanager
def namespace_pair() -> Iterator[Veth]:
    """A pair with its far end in a network namespace, and an address at each end."""
    near, far, namespace = _names()
    third = os.getpid() % 200 + 20
    subnet = f"10.77.{third}.{next(_numbers) % 60 * 4}"
    first, second = (f"{subnet.rsplit('.', 1)[0]}.{int(subnet.rsplit('.', 1)[1]) + n}" for n in (1, 2))
    ip("netns", "add", namespace)
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
        try:
            ip("addr", "add", f"{first}/30", "dev", near)
            ip("link", "set", near, "up")
            ip("-n", namespace, "addr", "add", f"{second}/30", "dev", far)
            ip("-n", namespace, "link", "set", far, "up")
            ip("-n", namespace, "link", "set", "lo", "up")
            yield Veth(near, far, namespace, first, second)
        finally:
            ip("link", "del", near, check=False)
    finally:
        ip("netns", "del", namespace, check=False)


def _quiet(name: str) -> None:
    """No packets of the system's own (IPv6 looking for neighbours)."""
    try:
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w", encoding="ascii") as setting:
            setting.write("1")
    except OSError:
        pass


class Wire:
    """Writes frames to an interface as they are."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((name, 0))

    def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self._socket.send(frame)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
