"""Who may capture; what those are told who may not, or name what there is not; and interfaces that come and go."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafkatap.commands.live import command
from kafkatap.engine.engine import Engine
from kafkatap.kernels import store
from kafkatap.kernels.decorator import kernel_mode
from kafkatap.live.capture import interfaces
from kafkatap.live.capture.capabilities import DAC_OVERRIDE, DAC_READ_SEARCH, to_read, to_write
from kafkatap.live.capture.packet_source import open_capture
from tests.cli.running import KAFKATAP, ROOT, environment, kafkatap, without_compiling
from tests.support.captures import read_capture
from tests.support.tcp import on_link

from . import network
from .running import Live, wait_for
from .test_afpacket_ring import both_ways, packets, taken_now
from .test_signals import on_loopback, requests_of, talking

needs_capture = pytest.mark.skipif(bool(network.missing()), reason=network.missing())
needs_interfaces = pytest.mark.skipif(bool(network.missing(admin=True)), reason=network.missing(admin=True))
users = pytest.mark.parametrize("user", ["root", "nobody"])


def privileges(user: str, *capabilities: str) -> list[str]:
    """A command line that begins a program as this user with these capabilities alone, and no way to get others."""
    why = network.missing("setpriv")
    if why or os.geteuid() != 0:
        pytest.skip(why or "needs root, to become another user")
    given = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    if user == "root":
        return ["setpriv", "--inh-caps=-all", f"--bounding-set={given}"]
    return [
        "setpriv", "--reuid", user, "--regid", "65534", "--clear-groups", f"--inh-caps={given}",
        f"--ambient-caps={given}", f"--bounding-set={given}",
    ]  # fmt: skip


def reading(user: str) -> list[str]:
    """The capability that a user needs to read this Python and its libraries, if any."""
    if user == "root":
        return []
    trial = [sys.executable, "-c", "import numpy, kafkatap.engine.engine"]
    ran = subprocess.run(
        [*privileges(user), "/bin/sh", "-c", 'exec "$@"', "sh", *trial], cwd=ROOT, capture_output=True, check=False
    )
    return ["dac_read_search"] if ran.returncode else []


@contextmanager
def cache_of(user: str) -> Iterator[str]:
    """A copy of the compiled kernels that belongs to a user; its folder."""
    Engine()  # names the kernels
    store.prepare()
    compiled = store.open_folder() if kernel_mode() == "store" and store.made_ahead() is None else None
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if compiled is not None:
            shutil.copytree(compiled, folder / compiled.name)
        if user != "root":
            for path in (folder, *folder.rglob("*")):
                shutil.chown(path, user, 65534)
        yield made


@needs_capture
@users
@pytest.mark.parametrize("more", [[], ["--scapy"]], ids=["ring", "scapy"])
def test_without_the_capability_it_says_what_mends_it(user: str, more: list[str]) -> None:
    arguments = ["live", "-i", "lo", *more, "--plain", "tcp port 9092"]
    with cache_of(user) as cache:
        command = [*privileges(user, *reading(user)), *KAFKATAP, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(KAFKATAP_CACHE=cache), capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    said = without_compiling(done.stderr).splitlines()
    assert len(said) == 3
    assert "CAP_NET_RAW" in said[0]
    again, setcap = (shlex.split(line.removeprefix("kafkatap:")) for line in said[1:])
    assert again == ["sudo", *KAFKATAP, *arguments]
    assert setcap == ["sudo", "setcap", "cap_net_raw+ep", os.path.realpath(sys.executable)]


def test_the_command_that_is_told_is_the_one_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As installed: a script that can be run itself."""
    installed = Path(sys.executable).with_name("kafkatap")
    if not installed.exists():
        pytest.skip("needs kafkatap as it is installed")
    monkeypatch.setattr(sys, "argv", [str(installed), "live", "-i", "eth0", "tcp port 9092"])
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr(command, "complain", told.append)
        assert command._refuse_without_capability() == 2
    assert shlex.split(told[1]) == ["sudo", str(installed), "live", "-i", "eth0", "tcp port 9092"]


@needs_capture
@users
@pytest.mark.parametrize("more", [[], ["--scapy"]], ids=["ring", "scapy"])
def test_cap_net_raw_is_enough(user: str, more: list[str]) -> None:
    with cache_of(user) as cache, talking() as talk:
        before = privileges(user, "net_raw", *reading(user))
        with Live(*on_loopback(talk, "--json", *more), before=before, KAFKATAP_CACHE=cache) as live:
            live.wait_ready()
            talk.request(5)
            done = live.end(signal.SIGINT)
    assert done.code == 0
    assert requests_of(done.out) == 5


def capabilities(pid: int) -> list[dict[str, int]]:
    """The sets of each thread of a process, and whether it may get new ones."""
    told = [path.read_text().splitlines() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [
        {name: int(value, 16) for name, _, value in (line.partition(":") for line in lines) if _WANTED.fullmatch(name)}
        for lines in told
    ]


_WANTED = re.compile("Cap.*|NoNewPrivs")
NOTHING = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0) | {"NoNewPrivs": 1}


@needs_interfaces
@pytest.mark.parametrize("more", [[], ["--scapy"], ["--prometheus", ":0"]], ids=["ring", "scapy", "prometheus"])
def test_root_keeps_no_capability_while_packets_are_read(tmp_path: Path, more: list[str]) -> None:
    """In no thread; what it recorded is there, and an interface that is made anew is captured again."""
    pcap, tables = tmp_path / "x.pcap", tmp_path / "tables"
    with network.veth_pair() as veth:
        arguments = ["-i", veth.far, "--json", "--write-pcap", pcap, "--parquet", tables, *more, "tcp"]
        with Live(*arguments) as live:
            live.wait_ready()
            wait_for(lambda: capabilities(live.process.pid)[0]["CapPrm"] == 0, 20, lambda: "capabilities are kept")
            network.ip("link", "del", veth.near)
            wait_for(lambda: "network is down" in live.err(), 20, live.err)
            network.ip("link", "add", veth.near, "type", "veth", "peer", "name", veth.far)
            for name in (veth.near, veth.far):
                network.ip("link", "set", name, "up")
            wait_for(lambda: f"{veth.far} is up again" in live.err(), 20, live.err)
            send(veth.near, frames(9))
            threads = capabilities(live.process.pid)
            done = live.end()
    assert threads == [NOTHING] * len(threads)
    assert done.code == 0
    assert len(read_capture(pcap).packets) == 5
    assert list(tables.rglob("*.parquet"))


@needs_capture
def test_what_root_may_do_by_a_capability_alone_keeps_it(tmp_path: Path) -> None:
    """A folder of another user, closed to others: files are made in it later."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    shutil.chown(folder, "nobody")
    with talking() as talk:
        arguments = on_loopback(talk, "--json", "--parquet", folder, "--rotate", "1s")
        with Live(*arguments, before=privileges("root", "net_raw", "dac_override")) as live:
            live.wait_ready()
            kept = 1 << DAC_OVERRIDE
            wait_for(lambda: capabilities(live.process.pid)[0]["CapPrm"] == kept, 20, lambda: "others are kept")
            talk.request(3)
            done = live.end()
    assert done.code == 0
    assert list(folder.rglob("*.parquet"))


def test_what_modes_allow_needs_no_capability(tmp_path: Path) -> None:
    assert to_write([tmp_path, tmp_path / "new" / "newer"]) == to_read([tmp_path]) == set()
    (tmp_path / "closed").mkdir(mode=0o500)
    (tmp_path / "closed" / "open").mkdir()
    assert to_write([tmp_path / "closed"]) == {DAC_OVERRIDE}
    assert to_write([tmp_path / "closed" / "open"]) == to_read([tmp_path / "closed"]) == set()
    (tmp_path / "closed").chmod(0o400)
    assert to_read([tmp_path / "closed" / "open"]) == {DAC_READ_SEARCH}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "nope0"], r"there is no interface nope0; there are .*\blo\b.*, any"),
        (["-i", "lo", "-i", "nope\n"], r"there is no interface nope\\x0a; there are"),
        (["-i", "n" * 100], r"there is no interface n+; there are"),
        (["-i", ""], r"there is no interface"),
        (["-i", "lo", "prot 9092"], r"the capture filter 'prot 9092' is wrong: .*syntax error"),
        (["-i", "lo", "tcp", "port"], r"the capture filter 'tcp port' is wrong: .*syntax error"),
        (["-i", "lo", "tcp port 123456"], r"the capture filter 'tcp port 123456' is wrong: .*123456"),
        (["-i", "lo", "--scapy", "prot 9092"], r"the capture filter 'prot 9092' is wrong: .*syntax error"),
        (["-i", "lo", "--filter", "latncy > 1s"], r"latncy"),
    ],
    ids=["interface", "control", "long", "empty", "filter", "words", "port", "scapy", "expression"],
)
@needs_capture
def test_what_there_is_not_is_said(arguments: list[str], said: str) -> None:
    done = kafkatap("live", "--plain", "--duration", "1s", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert re.match(f"kafkatap: .*{said}", done.err)
    assert "Traceback" not in done.err


def test_interfaces_are_listed() -> None:
    done = kafkatap("live", "-D")
    assert done.code == 0
    assert done.out.splitlines() == [*interfaces.names(), "any"]


# ---------------------------------------------------------------- interfaces that come and go


class Pumped:
    """A capture whose packets, and what its interfaces say, are kept."""

    def __init__(self, name: str, by_scapy: bool) -> None:
        self.said: list[str] = []
        self.got: list[bytes] = []
        self.capture = open_capture([name], "", 8 << 20, by_scapy=by_scapy, notify=self.said.append)

    def until(self, what: str | list[bytes]) -> None:
        """Until this was said, or these packets came."""
        wait_for(
            lambda: self._pumped(what), 10, lambda: f"no {what!r:.200}; said: {self.said}; {len(self.got)} packets"
        )

    def _pumped(self, what: str | list[bytes]) -> bool:
        self.capture.wait(0.05)
        self.got += [packet.data for packet in taken_now(self.capture)]
        return any(what in line for line in self.said) if isinstance(what, str) else set(what) <= set(self.got)

    def close(self) -> None:
        self.capture.close()


def frames(port: int) -> list[bytes]:
    return [on_link(ip) for ip in packets(5, port)]


def send(name: str, sent: list[bytes]) -> None:
    with network.Wire(name) as wire:
        wire.send(sent)


@needs_interfaces
@both_ways
def test_an_interface_goes_down_and_comes_back(by_scapy: bool) -> None:
    with network.veth_pair() as veth, closing(Pumped(veth.far, by_scapy)) as pumped:
        send(veth.near, frames(1))
        pumped.until(frames(1))
        network.ip("link", "set", veth.far, "down")
        pumped.until(f"{veth.far}: network is down; packets are captured again once it is back")
        network.ip("link", "set", veth.far, "up")
        pumped.until(f"{veth.far} is up again")
        send(veth.near, frames(2))
        pumped.until(frames(2))
    assert len(pumped.said) == 2
    as_sent = pumped.got == [*frames(1), *frames(2)]
    assert as_sent


@needs_interfaces
def test_an_interface_may_be_down_at_first() -> None:
    with network.veth_pair() as veth:
        network.ip("link", "set", veth.far, "down")
        with pytest.raises(OSError, match=f"down.*{veth.far}"):  # scapy reads a socket as it opens it
            open_capture([veth.far], "", 8 << 20, by_scapy=True)
        with closing(Pumped(veth.far, by_scapy=False)) as pumped:
            pumped.until(f"{veth.far}: network is down")
            network.ip("link", "set", veth.far, "up")
            pumped.until(f"{veth.far} is up again")
            send(veth.near, frames(3))
            pumped.until(frames(3))


@needs_interfaces
@both_ways
def test_an_interface_that_is_removed_may_be_made_anew(by_scapy: bool) -> None:
    """As a container's that is started again: the same name, but another interface."""
    with network.veth_pair() as veth, closing(Pumped(veth.far, by_scapy)) as pumped:
        send(veth.near, frames(4))
        pumped.until(frames(4))
        network.ip("link", "del", veth.near)
        pumped.until(f"{veth.far}: network is down")
        network.ip("link", "add", veth.near, "type", "veth", "peer", "name", veth.far)
        network.ip("link", "set", veth.near, "up")
        network.ip("link", "set", veth.far, "up")
        pumped.until(f"{veth.far} is up again")
        send(veth.near, frames(5))
        pumped.until(frames(5))


@needs_interfaces
@both_ways
def test_an_interface_that_is_renamed_while_it_is_down_comes_back(by_scapy: bool) -> None:
    """Its socket stays, so the lines are about the same interface, by each of its names. Then it stays the one that is
    captured, even if another one has its first name now."""
    with network.veth_pair() as veth, closing(Pumped(veth.far, by_scapy)) as pumped:
        second, third = f"{veth.far}2", f"{veth.far}3"
        network.ip("link", "set", veth.far, "down")
        pumped.until(f"{veth.far}: network is down")
        network.ip("link", "set", veth.far, "name", second)
        network.ip("link", "set", second, "up")
        pumped.until(f"{second} (formerly {veth.far}) is up again")
        assert pumped.capture.names == (second,)
        send(veth.near, frames(6))
        pumped.until(frames(6))
        network.ip("link", "set", second, "down")
        pumped.until(f"{second}: network is down")
        network.ip("link", "set", second, "name", third)
        with network.veth_pair() as other:
            network.ip("link", "set", other.far, "down")
            network.ip("link", "set", other.far, "name", veth.far)
            network.ip("link", "set", veth.far, "up")
            network.ip("link", "set", third, "up")
            pumped.until(f"{third} (formerly {second}) is up again")
        send(veth.near, frames(7))
        pumped.until(frames(7))
    assert len(pumped.said) == 4


@needs_interfaces
@both_ways
def test_a_rename_shows_when_the_interface_goes_down(by_scapy: bool) -> None:
    """Drivers that rename an interface while it is up are followed by its number."""
    with network.veth_pair() as veth, closing(Pumped(veth.far, by_scapy)) as pumped:
        second = f"{veth.far}2"
        pumped.capture.taps[0].interface = replace(pumped.capture.taps[0].interface, name="before")
        network.ip("link", "set", veth.far, "down")
        pumped.until(f"{veth.far} (formerly before): network is down")
        network.ip("link", "set", veth.far, "name", second)
        network.ip("link", "del", second)
        network.ip("link", "add", veth.near, "type", "veth", "peer", "name", veth.far)
        network.ip("link", "set", veth.far, "up")
        network.ip("link", "set", veth.near, "up")
        pumped.until(f"{veth.far} is up again")
        send(veth.near, frames(8))
        pumped.until(frames(8))


@needs_interfaces
def test_without_its_interface_it_goes_on() -> None:
    with network.veth_pair() as veth, Live("-i", veth.far, "--plain", "--interval", "1s") as live:
        live.wait_ready()
        network.ip("link", "del", veth.near)
        wait_for(lambda: f"{veth.far}: network is down" in live.err(), 20, live.err)
        seen = live.out().count("time=")
        wait_for(lambda: live.out().count("time=") > seen, 20, live.out)
        done = live.end()
    assert done.code == 0
    assert "Traceback" not in done.err
