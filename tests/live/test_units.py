"""The systemd unit: what can be told of it without systemd."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from kafkatap.commands.command_parser import build_parser
from kafkatap.kernels import store

from .test_prometheus_server import packets

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "docs" / "live" / "kafkatap.service"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CAP_NET_RAW = 13  # <linux/capability.h>


def unit() -> dict[str, list[str]]:
    """The settings of the unit, each with all its values."""
    settings: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def command() -> list[str]:
    (line,) = unit()["ExecStart"]
    return shlex.split(line)


def test_the_unit_runs_a_command_that_there_is() -> None:
    program, *arguments = command()
    assert Path(program).name in PYPROJECT["project"]["scripts"]
    options = build_parser().parse_args(arguments)
    assert options.command == "live"
    assert options.prometheus == ("127.0.0.1", 9464)
    assert options.plain
    assert options.nice is None  # the usual one
    settings = unit()
    assert "Nice" not in settings, "it could not leave that while packets wait"
    assert settings["LimitNICE"] == ["+0"]


def test_the_unit_gives_one_capability() -> None:
    settings = unit()
    assert settings["AmbientCapabilities"] == settings["CapabilityBoundingSet"] == ["CAP_NET_RAW"]
    assert settings["NoNewPrivileges"] == settings["DynamicUser"] == ["yes"]


def test_the_kernel_store_of_the_unit_is_closed_to_others() -> None:
    """Below its cache folder, which is a link where users are dynamic, lies one of its own."""
    settings = unit()
    assert settings["CacheDirectory"] == ["kafkatap"]
    assert settings["CacheDirectoryMode"] == ["0700"]
    assert "XDG_CACHE_HOME=%C/kafkatap" in settings["Environment"]


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: apt-get install systemd)")
    there = tmp_path / UNIT.name
    there.write_text(UNIT.read_text().replace(command()[0], sys.executable))
    ran = subprocess.run(["systemd-analyze", "verify", there], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def confined() -> list[str]:
    """What runs a command with the unit's capability and no way to more. The user stays: who is not root may not be
    able to enter where this Python lies. Without capabilities root has no more rights than anybody."""
    (capability,) = unit()["CapabilityBoundingSet"]
    only = "-all,+" + capability.removeprefix("CAP_").lower()
    return ["setpriv", "--no-new-privs", f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}"]


def missing_rights() -> str | None:
    """Why no command can be run so; None where it can."""
    if shutil.which("setpriv") is None or os.geteuid() != 0:
        return "needs setpriv, and root, to give a command CAP_NET_RAW and nothing else"
    tried = subprocess.run([*confined(), "grep", "CapEff", "/proc/self/status"], capture_output=True, text=True)
    if tried.stdout.split() != ["CapEff:", f"{1 << CAP_NET_RAW:016x}"]:
        return f"needs CAP_NET_RAW: {tried.stdout}{tried.stderr}".strip()
    return None


def test_one_capability_is_enough() -> None:
    """The unit's command, with its rights alone, on the loopback."""
    why = missing_rights()
    if why:
        pytest.skip(why)
    store.prepare()
    _, *arguments = command()
    changed = {"any": "lo", "127.0.0.1:9464": "127.0.0.1:0", "tcp port 9092 or icmp or icmp6": "tcp", "5m": "1s"}
    process = subprocess.Popen(
        [*confined(), sys.executable, "-m", "kafkatap", *(changed.get(each, each) for each in arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if not process.stdout.readline():  # it says so after a second
            pytest.fail(process.communicate(timeout=60)[1])
        text = ""
        url = f"http://127.0.0.1:{listening_port(process.pid)}/metrics"
        seen, end = 0.0, time.monotonic() + 60
        while not seen:  # its own scrapes are packets on the loopback
            assert time.monotonic() < end, text
            with urlopen(url, timeout=30) as answer:
                text = answer.read().decode()
            seen = packets(text)
        assert 'kafkatap_interface_info{interface="lo"} 1.0' in text
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def listening_port(pid: int) -> int:
    """The TCP port on which a process listens."""
    sockets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # it was closed meanwhile
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            return int(fields[1].split(":")[1], 16)
    raise AssertionError("it listens nowhere")
