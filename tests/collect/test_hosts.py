"""Three hosts in network namespaces, each with a broker, `kafkatap live --keep` and sshd; one of them has trouble.

`kafkatap collect` runs on a fourth one: it names what happened and where, and no password is in what it fetched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import KAFKATAP, ROOT, Done, environment
from tests.live.running import READY_S, catches, wait_for
from tests.support.captures import read_capture
from tests.support.namespaces import Host, Network, cannot_build

from .small_cluster import PASSWORD, PORT

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if os.path.exists("/usr/sbin/sshd") else "")
WHY_NOT = cannot_build() or (
    "" if SSHD and shutil.which("ssh-keygen") else "needs sshd (apt-get install openssh-server)"
)
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
NAMES = ("broker-1", "broker-2", "broker-3")


@dataclass
class Cluster:
    """`admin`: where kafkatap collect runs. `config`: of ssh. `kept`: the folder of packets of each host, as this
    machine sees it; `folder`: as all of them see theirs."""

    admin: Host
    hosts: dict[str, Host]
    brokers: dict[str, subprocess.Popen[bytes]]
    lives: dict[str, subprocess.Popen[bytes]]
    folder: Path
    kept: dict[str, Path]
    config: Path
    known: Path

    def collect(self, *words: str | Path, patience: float = 120) -> Done:
        command = [*KAFKATAP, "collect", "--dir", str(self.folder), "--ssh-config", str(self.config), *map(str, words)]
        done = subprocess.run(
            self.admin.command(command), capture_output=True, text=True, timeout=patience, cwd=ROOT, env=environment()
        )
        return Done(done.returncode, done.stdout, done.stderr)


def _keys(work: Path) -> None:
    for name in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / name], check=True, timeout=30)
    os.makedirs("/run/sshd", exist_ok=True)  # sshd wants it
    (work / "sshd_config").write_text(
        f"HostKey {work}/host\nAuthorizedKeysFile {work}/user.pub\nPidFile none\nUsePAM no\nStrictModes no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    )


@contextmanager
def cluster(work: Path) -> Iterator[Cluster]:
    """All of it, with clients that ask all brokers."""
    _keys(work)
    folder, known, config = work / "kept", work / "known_hosts", work / "ssh_config"
    folder.mkdir(0o700)
    with Network() as net:
        admin = net.host("admin", "10.77.0.1")
        hosts = {name: net.host(name, f"10.77.0.{n}") for n, name in enumerate(NAMES, 11)}
        host_key = (work / "host.pub").read_text().strip()
        known.write_text("".join(f"{host.address} {host_key}\n" for host in hosts.values()))
        aliases = "".join(f"Host {name}\n  HostName {host.address}\n" for name, host in hosts.items())
        config.write_text(
            f"{aliases}Host *\n  User root\n  IdentityFile {work}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking no\n"
        )
        brokers, lives, kept = {}, {}, {}
        for name, host in hosts.items():
            kept[name] = work / name
            kept[name].mkdir(0o700)
            program = f"mount --bind {kept[name]} {folder} && exec {SSHD} -D -e -f {work}/sshd_config"
            host.start(["unshare", "-m", "sh", "-c", program], work / f"{name}.sshd.log")
            words = ["-m", "tests.collect.small_cluster", "broker", host.address]
            brokers[name] = host.start([sys.executable, *words], work / f"{name}.log")
            options = ["-i", "eth0", "--plain", "--no-report", "--keep", "10m", "--keep-dir", str(kept[name])]
            lives[name] = host.start([*KAFKATAP, "live", *options], work / f"{name}.live.log")
        for name, live in lives.items():
            log = work / f"{name}.live.log"
            wait_for(lambda live=live: catches(live.pid, signal.SIGUSR1), READY_S, log.read_text)
        addresses = [host.address for host in hosts.values()]
        admin.start([sys.executable, "-m", "tests.collect.small_cluster", "client", *addresses], work / "client.log")
        yield Cluster(admin, hosts, brokers, lives, folder, kept, config, known)


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process that does nothing for the time of the block."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_trouble_on_one_of_three_hosts(tmp_path: Path) -> None:
    with cluster(tmp_path) as all_of_it:
        time.sleep(6)
        begun = time.time()
        with stopped(all_of_it.brokers["broker-2"]):
            time.sleep(6)
        ended = time.time()
        time.sleep(5)
        out = tmp_path / "out"
        at = f"{(begun + ended) / 2:.3f}"
        done = all_of_it.collect("--at", at, "--around", "9s", "-o", out, *NAMES, "--", "--json")
        print(done.err)
        assert done.code == 0, done.err
        _check_merged(json.loads(done.out), begun, ended)
        assert [file.name for file in sorted(out.iterdir())] == [f"{name}.pcapng" for name in NAMES]
        for file in [*out.iterdir(), *(file for folder in all_of_it.kept.values() for file in folder.iterdir())]:
            data = file.read_bytes()
            assert b"client-" in data
            assert PASSWORD[:7] not in data
            assert file.stat().st_mode & 0o777 == 0o600

        # The key of one host is not known, another one does not answer, and a third is not there.
        lines = all_of_it.known.read_text().splitlines(keepends=True)
        all_of_it.known.write_text("".join(lines[:1]) + lines[2])
        hosts = [*NAMES[:2], "10.77.0.99"]
        done = all_of_it.collect("--at", at, "--around", "9s", *hosts, "--", "--json")
        print(done.err)
        assert done.code == 4
        assert "broker-2 is left out: Host key verification failed." in done.err
        assert "10.77.0.99 is left out: ssh: connect to host 10.77.0.99 port 22: No route to host" in done.err
        assert "2 of 3 hosts are left out, whole or in part: broker-2, 10.77.0.99" in done.err
        assert json.loads(done.out)["capture"]["requests"] > 150
        assert lines[1] not in all_of_it.known.read_text()
        _check_nothing_listens(all_of_it)


def _check_merged(report: dict[str, Any], begun: float, ended: float) -> None:
    """The report names the broker that hung, and when; and no other."""
    told = [each["text"] for each in report["reports"]["summary"]]
    print("\n".join(told))
    assert told[0].startswith(f"broker 10.77.0.12:{PORT} hung for "), told
    assert told[0].endswith("requests of 1 client waited on 1 connection; its kernel acknowledged what came")
    (event,) = report["reports"]["events"]
    assert (event["event"], event["party"]) == ("broker_hung", f"10.77.0.12:{PORT}")
    first, last = (datetime.fromisoformat(event[name]).timestamp() for name in ("time", "end"))
    assert abs(first - begun) < 0.5
    assert abs(last - ended) < 0.5
    assert not any("10.77.0.11" in text or "10.77.0.13" in text for text in told)


def _check_nothing_listens(all_of_it: Cluster) -> None:
    """Beside the brokers and sshd."""
    for host in all_of_it.hosts.values():
        ports = {line.split()[3].rpartition(":")[2] for line in host.run(["ss", "-Htln"]).splitlines()}
        assert ports == {"22", str(PORT)}
    assert all_of_it.admin.run(["ss", "-Htln"]) == ""


def test_the_packets_are_those_of_the_hosts(tmp_path: Path) -> None:
    """What is collected of a host is what it has on disk, in the span."""
    with cluster(tmp_path) as all_of_it:
        time.sleep(5)
        now = time.time()
        time.sleep(3)
        out = tmp_path / "out"
        done = all_of_it.collect("--at", f"{now:.3f}", "--around", "2s", "-o", out, "--no-report", "broker-1")
        assert done.code == 0, done.err
        (file,) = all_of_it.kept["broker-1"].iterdir()
        found, there = read_capture(out / "broker-1.pcapng").packets, read_capture(file).packets
    inside = [p for p in there if now - 2 <= p.time_ns / 1e9 < now + 2]
    assert len(found) == len(inside) > 100
    assert [p.data for p in found] == [p.data for p in inside]
