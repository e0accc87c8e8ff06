"""Root opens the sockets, and another user reads them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap.live.capture.changed_user import next_user, user_named
from tests.cli.running import kafkatap
from tests.support.captures import read_capture

from . import network
from .running import READY_S, Live, wait_for
from .test_signals import on_loopback, requests_of, talking

needs_root = pytest.mark.skipif(
    bool(network.missing()) or os.geteuid() != 0, reason=network.missing() or "needs root, to become another user"
)
NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which everybody may create files. pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o777)
        yield Path(made)


def users_of(pid: int) -> set[tuple[str, ...]]:
    """The users (real, effective, saved, of files), groups and further groups of all threads."""
    told = [path.read_text().splitlines() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    names = ("Uid:", "Gid:", "Groups:")
    return {tuple(" ".join(line.split()[1:]) for line in lines if line.startswith(names)) for lines in told}


def becomes(pid: int, uid: int) -> bool:
    return all(user == " ".join([str(uid)] * 4) for user, _, _ in users_of(pid))


@needs_root
@pytest.mark.parametrize("more", [[], ["--scapy"], ["--user", "nobody"]], ids=["ring", "scapy", "named"])
def test_root_becomes_nobody(more: list[str], shared: Path) -> None:
    """For good: in all threads, without root's groups, and it captures, records and reports."""
    outputs = ["--write-pcap", shared / "x.pcap", "--parquet", shared / "tables", "--prometheus", ":0"]
    with talking() as talk, Live(*on_loopback(talk, "--json", *more, *outputs), SUDO_UID="0") as live:
        live.wait_ready()
        wait_for(lambda: becomes(live.process.pid, NOBODY), READY_S, live.err)
        groups = " ".join(map(str, sorted(user_named("nobody").groups)))
        assert users_of(live.process.pid) == {(f"{NOBODY} {NOBODY} {NOBODY} {NOBODY}",) * 2 + (groups,)}
        talk.request(5)
        done = live.end(signal.SIGTERM)
    assert (done.code, requests_of(done.out)) == (0, 5)
    assert len(read_capture(shared / "x.pcap").packets) >= 10
    assert {path.stat().st_uid for path in shared.rglob("*")} == {NOBODY}


@needs_root
def test_who_called_sudo_goes_on(shared: Path) -> None:
    import pwd

    caller = next(user for user in pwd.getpwall() if 0 < user.pw_uid < 1000 and user.pw_name == "daemon")
    with talking() as talk, Live(*on_loopback(talk, "--json"), SUDO_UID=str(caller.pw_uid)) as live:
        live.wait_ready()
        wait_for(lambda: becomes(live.process.pid, caller.pw_uid), READY_S, live.err)
        talk.request(3)
        done = live.end()
    assert (done.code, requests_of(done.out)) == (0, 3)


@needs_root
@pytest.mark.parametrize("more", [["--user", "root"], []], ids=["asked", "closed folder"])
def test_root_stays_root(more: list[str], tmp_path: Path) -> None:
    """If it is asked to, or if nobody cannot use its files."""
    with talking() as talk, Live(*on_loopback(talk, "--json", *more, "--write-pcap", tmp_path / "x.pcap")) as live:
        live.wait_ready()
        wait_for((tmp_path / "x.pcap").exists, READY_S, live.err)
        talk.request(3)
        assert becomes(live.process.pid, 0)
        done = live.end()
    assert done.code == 0
    assert len(read_capture(tmp_path / "x.pcap").packets) >= 6


@needs_root
def test_what_a_named_user_cannot_use_is_said_at_the_start(shared: Path) -> None:
    closed, keys = shared / "closed", shared / "keys.log"
    closed.mkdir(mode=0o755)
    (shared / "tables" / "ledger").mkdir(parents=True)
    shutil.chown(shared / "tables", "nobody")
    keys.touch(mode=0o600)
    for options, words in (
        (["--write-pcap", closed / "x.pcap"], f"nobody cannot create files in {closed}: chown -R nobody {closed}"),
        (["--parquet", shared / "tables"], f"cannot create files in {shared}/tables/ledger: chown -R nobody"),
        (["--keylog", keys], f"nobody cannot read {keys}: chown nobody {keys}"),
    ):
        done = kafkatap("live", "-i", "lo", "--user", "nobody", "--duration", "1s", *options)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("kafkatap: --user nobody: ")
        assert words in done.err
    done = kafkatap("live", "-i", "lo", "--user", "no one", "--duration", "1s")
    assert (done.code, done.err) == (2, "kafkatap: --user no one: there is no such user\n")


@needs_root
def test_the_user_of_a_missing_caller_is_nobody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUDO_UID", "4242")
    assert next_user(None, [], []) is None
    monkeypatch.delenv("SUDO_UID")
    assert next_user(None, [], []) == user_named(str(NOBODY)) == user_named("nobody")
    assert next_user(None, [tmp_path], []) is None
    assert next_user("root", [tmp_path], []) is None


@needs_root
def test_others_become_nobody_else() -> None:
    code = """
import os, pwd
from kafkatap.live.capture.changed_user import next_user
os.setresuid(65534, 65534, 65534)
assert next_user(None, [], []) is None
assert next_user("nobody", [], []) is None
try:
    next_user("daemon", [], [])
except ValueError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("--user daemon: only root can become another user\n", "")
