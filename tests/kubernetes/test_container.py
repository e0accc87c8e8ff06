"""The container of the DaemonSet with its capabilities alone and a file system that it cannot write to, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from kafkatap.kernels import store
from kafkatap.live.capture.capabilities import grants
from kafkatap.live.capture.changed_user import user_named
from tests.live.test_prometheus_server import packets
from tests.live.test_units import listening_port, missing_rights

from .test_hosts_script import LISTS
from .test_manifests import TAP


def confined(folder: Path) -> list[str]:
    """What runs a command so. All is read-only but for the folder, which is private."""
    capabilities = ",".join(f"+{name.lower()}" for name in TAP["securityContext"]["capabilities"]["add"])
    only = f"-all,{capabilities}"
    script = f'mount --bind {folder} {folder} && mount -o remount,bind,ro / && exec "$@"'
    return [
        "unshare", "--mount", "sh", "-c", script, "sh",
        "setpriv", "--no-new-privs", f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}",
    ]  # fmt: skip


def test_its_rights_are_enough(tmp_path: Path) -> None:
    if why := missing_rights():
        pytest.skip(why)
    if shutil.which("unshare") is None or subprocess.run([*confined(tmp_path), "true"], capture_output=True).returncode:
        pytest.skip("needs unshare, and the right to mount")
    store.prepare()
    tmp_path.chmod(0o777)
    changed = {"--interface=any": "--interface=lo", "--interval=5m": "--interval=1s", TAP["args"][-1]: "tcp"}
    words = [changed.get(word, word) for word in TAP["args"] if not word.startswith(("--hosts=", "--prometheus="))]
    for kind, content in LISTS.items():
        (tmp_path / f"{kind}.json").write_text(json.dumps(content))
        words.append(f"--hosts={tmp_path}/{kind}.json")
    nobody = user_named("nobody")
    if not all(grants(path, 0o4, nobody) for path in (Path(os.__file__), tmp_path / "pods.json")):
        words.append("--user=root")  # these are in a folder of root alone
    script = f'touch /usr/written 2>/dev/null || exec {sys.executable} -m kafkatap "$@"'
    process = subprocess.Popen(
        [*confined(tmp_path), "sh", "-c", script, "sh", *words, "--prometheus=[127.0.0.1]:0"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.fail(process.communicate(timeout=60)[1])
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        assert (status["Uid"].split()[1] == "0") == ("--user=root" in words)
        assert int(status["CapEff"], 16) == 0
        url = f"http://127.0.0.1:{listening_port(process.pid)}/metrics"
        end = time.monotonic() + 60
        while not packets(urlopen(url, timeout=30).read().decode()):  # its own scrapes are packets
            assert time.monotonic() < end
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
