"""docs/kubernetes/base/hosts.sh with curl, up to an API server of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.authority import Authority

from .api_server import ApiServer

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "kubernetes" / "base" / "hosts.sh"
LISTS = {
    "pods": {
        "kind": "PodList", "apiVersion": "v1",
        "items": [{"metadata": {"name": "orders-1", "namespace": "shop"}, "status": {"podIP": "10.244.3.17"}}],
    },
    "services": {
        "kind": "ServiceList", "apiVersion": "v1",
        "items": [{"metadata": {"name": "kafka", "namespace": "kafka"}, "spec": {"clusterIP": "10.96.0.10"}}],
    },
    "nodes": {
        "kind": "NodeList", "apiVersion": "v1",
        "items": [{"metadata": {"name": "node-1"},
                   "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}],
    },
}  # fmt: skip
KINDS = list(LISTS)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ApiServer]:
    authority = Authority(tmp_path)
    pem = authority.issue("kubernetes")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "ca.crt").write_bytes(authority.certificate.read_bytes())
    (secrets / "token").write_text("a.b.c")
    (tmp_path / "hosts").mkdir()
    with ApiServer(certificate=(pem, pem)) as server:
        server.lists = dict(LISTS)
        yield server


def environment(folder: Path, port: int) -> dict[str, str]:
    return {
        **os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port),
        "SECRETS_DIR": f"{folder}/secrets", "HOSTS_DIR": f"{folder}/hosts", "NODE_NAME": "node-1",
        "HOST_IP": "10.0.0.1",
    }  # fmt: skip


def ran(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    """The script once, as the init container runs it."""
    return subprocess.run(
        ["sh", SCRIPT], env=environment(folder, port), capture_output=True, text=True, timeout=60, check=False
    )


def written(folder: Path) -> dict[str, object]:
    return {kind: json.loads((folder / "hosts" / f"{kind}.json").read_text()) for kind in KINDS}


def test_it_writes_the_lists(cluster: ApiServer, tmp_path: Path) -> None:
    done = ran(tmp_path, cluster.port)
    assert (done.returncode, done.stderr) == (0, "")
    assert written(tmp_path) == LISTS
    assert sorted(path.name for path in (tmp_path / "hosts").iterdir()) == sorted(f"{kind}.json" for kind in KINDS)


def test_it_asks_for_what_its_role_may_read(cluster: ApiServer, tmp_path: Path) -> None:
    ran(tmp_path, cluster.port)
    assert {token for _, token in cluster.requests} == {"Bearer a.b.c"}
    first, *others = [path for path, _ in cluster.requests]
    chosen = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
    assert first == f"/api/v1/pods?resourceVersion=0&{chosen}"
    assert others == [f"/api/v1/{kind}?resourceVersion=0" for kind in ("services", "nodes")]


def test_without_an_api_server_the_node_has_its_name(cluster: ApiServer, tmp_path: Path) -> None:
    cluster.lists = {}
    done = ran(tmp_path, cluster.port)
    assert done.returncode == 0
    assert "404" in done.stderr
    node = {"kind": "Node", **LISTS["nodes"]["items"][0]}
    assert written(tmp_path) == dict.fromkeys(KINDS, node)


def test_a_list_that_fails_stays_as_it_was(cluster: ApiServer, tmp_path: Path) -> None:
    ran(tmp_path, cluster.port)
    more = {**LISTS["nodes"], "items": LISTS["nodes"]["items"] * 2}
    cluster.lists = {"services": LISTS["services"], "nodes": more}
    ran(tmp_path, cluster.port)
    assert written(tmp_path) == {**LISTS, "nodes": more}


def test_it_goes_on_writing_with_the_newest_token(cluster: ApiServer, tmp_path: Path) -> None:
    process = subprocess.Popen(["sh", SCRIPT, "0.1"], env=environment(tmp_path, cluster.port))
    try:
        until(lambda: len(cluster.requests) > 3)
        (tmp_path / "secrets" / "token").write_text("d.e.f")
        cluster.lists = {**LISTS, "nodes": LISTS["services"]}
        until(lambda: written(tmp_path)["nodes"] == LISTS["services"])
        assert cluster.requests[-1][1] == "Bearer d.e.f"
    finally:
        process.terminate()
        assert process.wait(20) == 0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
