"""docs/kubernetes/pod-report.sh with the real kubectl, up to an API server of ours."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import kubernetes_validate
import pytest
import zstandard

from .api_server import ApiServer

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "kubernetes" / "pod-report.sh"
CAPTURE = ROOT / "samples" / "advice" / "nagle.pcap.zst"
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "broker-0", "namespace": "kafka"},
    "spec": {"containers": [{"name": "kafka", "image": "kafka"}], "securityContext": {"runAsNonRoot": True}},
    "status": {"phase": "Running"},
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl 1.31 or later")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ApiServer]:
    """With one pod, in which tcpdump writes a capture for as long as it may."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "capture.pcap").write_bytes(zstandard.decompress(CAPTURE.read_bytes(), 1 << 20))
    tcpdump = programs / "tcpdump"
    tcpdump.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\ncat {tmp_path}/capture.pcap\nexec sleep 30\n')
    tcpdump.chmod(0o755)
    kafkatap = programs / "kafkatap"
    kafkatap.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkatap "$@"\n')
    kafkatap.chmod(0o755)
    with ApiServer(bin_folder=programs) as server:
        server.pods["kafka/broker-0"] = deepcopy(POD)
        server.kubeconfig(tmp_path / "kubeconfig")
        yield server


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "KUBECONFIG": str(folder / "kubeconfig"),
        "KUBECACHEDIR": str(folder / "cache"),
    }  # fmt: skip
    return subprocess.run([SCRIPT, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_it_captures_the_packets_of_a_pod_and_reports(cluster: ApiServer, tmp_path: Path) -> None:
    done = ran(tmp_path, "kafka", "broker-0", "1", "tcp port 9092 or icmp", "--", "--sections", "summary")
    assert done.returncode == 0, done.stderr
    assert "TCP_NODELAY" in done.stdout
    assert "ended early" not in done.stderr
    (file,) = tmp_path.glob("broker-0-*.pcap")
    assert file.read_bytes() == (tmp_path / "capture.pcap").read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has records"
    assert (tmp_path / "words").read_text() == "-i any -s 0 -U -w - tcp port 9092 or icmp\n"


def test_the_container_may_capture_and_no_more(cluster: ApiServer, tmp_path: Path) -> None:
    assert ran(tmp_path, "kafka", "broker-0", "1").returncode == 0
    (patch,) = cluster.patches
    (container,) = patch["spec"]["ephemeralContainers"]
    assert container["command"] == ["sleep", "121"]
    assert container["securityContext"] == {
        "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}, "runAsUser": 0, "runAsNonRoot": False
    }  # fmt: skip
    assert not container.get("tty")
    pod = {**POD, "spec": {**POD["spec"], "ephemeralContainers": [container]}}
    kubernetes_validate.validate(pod, "1.37", strict=True)


def test_a_container_that_does_not_run_is_said(cluster: ApiServer, tmp_path: Path) -> None:
    cluster.state = {"terminated": {"reason": "Error", "message": "no such image"}}
    done = ran(tmp_path, "kafka", "broker-0", "1")
    assert done.returncode == 1
    assert "does not run:  no such image" in done.stderr
    assert not list(tmp_path.glob("broker-0-*"))


def test_a_pod_that_is_not_there(cluster: ApiServer, tmp_path: Path) -> None:
    done = ran(tmp_path, "kafka", "broker-9", "1")
    assert done.returncode == 1
    assert "the server could not find" in done.stderr or "not found" in done.stderr


def test_a_capture_that_ends_early_is_reported_with_a_word(cluster: ApiServer, tmp_path: Path) -> None:
    tcpdump = tmp_path / "bin" / "tcpdump"
    tcpdump.write_text(tcpdump.read_text().replace("exec sleep 30", "exit 1"))
    done = ran(tmp_path, "kafka", "broker-0", "20")
    assert done.returncode == 0
    assert "the capture ended early" in done.stderr


@pytest.mark.parametrize("words", [(), ("kafka",), ("kafka", "broker-0", "soon")])
def test_wrong_words(words: tuple[str, ...], tmp_path: Path) -> None:
    done = ran(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pod-report.sh" in done.stderr
