"""An API server of Kubernetes on loopback, as far as kubectl's `debug`, `get pod` and `exec` and lists by curl need it.

`exec` runs the command on this machine, with `bin` before all other folders of PATH.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
import struct
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
#: RFC 6455.
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PROTOCOL = "v5.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3


class ApiServer:
    """`pods`: by namespace/name. `lists`: by plural kind; without one, its request fails. `state`: of containers that
    are added to a pod. `patches`: the bodies of these requests, and `requests` all, each with its path and token."""

    def __init__(self, certificate: tuple[Path, Path] | None = None, bin_folder: Path | None = None) -> None:
        self.pods: dict[str, Object] = {}
        self.lists: Mapping[str, Object] = {}
        self.state: Object = {"running": {"startedAt": "2026-11-30T00:00:00Z"}}
        self.patches: list[Object] = []
        self.requests: list[tuple[str, str]] = []
        self.bin = bin_folder
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def kubeconfig(self, path: Path) -> Path:
        """Write the file by which kubectl finds this server."""
        named = {"name": "test"}
        whole = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "contexts": [named | {"context": {"cluster": "test", "user": "test"}}],
            "users": [named | {"user": {}}],
        }  # fmt: skip
        path.write_text(json.dumps(whole))
        return path


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.api.requests.append((self.path, self.headers.get("Authorization", "")))
        parts = url.path.strip("/").split("/")
        pod = self.api.pods.get("/".join(parts[3:6:2])) if parts[:3] == ["api", "v1", "namespaces"] else None
        if parts == ["api"]:
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif parts == ["apis"]:
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        elif parts == ["api", "v1"]:
            verbs = ["get", "list", "patch", "create", "update"]
            names = (("pods", "Pod"), ("pods/exec", "PodExecOptions"), ("pods/ephemeralcontainers", "Pod"))
            resources = [{"name": name, "namespaced": True, "kind": kind, "verbs": verbs} for name, kind in names]
            self._answer({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources})
        elif len(parts) == 3 and parts[2] in self.api.lists:
            self._answer(self.api.lists[parts[2]])
        elif pod is not None and parts[6:] == ["exec"]:
            self._exec(parse_qs(url.query)["command"])
        elif pod is not None and parts[4] == "pods":
            self._answer(pod)
        else:
            self._answer({"kind": "Status", "status": "Failure", "message": "not found", "code": 404}, 404)

    def do_PATCH(self) -> None:
        _, _, _, namespace, _, name, _ = urlsplit(self.path).path.strip("/").split("/")
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.api.patches.append(patch)
        pod = self.api.pods[f"{namespace}/{name}"]
        added = patch["spec"]["ephemeralContainers"]
        pod["spec"]["ephemeralContainers"] = added
        status = [{"name": each["name"], "image": each["image"], "state": self.api.state} for each in added]
        pod["status"]["ephemeralContainerStatuses"] = status
        self._answer(pod)

    def _answer(self, body: Any, code: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _exec(self, command: list[str]) -> None:
        """Run it; its output goes through a WebSocket, a channel's number before each piece."""
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + _GUID).encode(), usedforsecurity=False).digest()
        self.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Protocol", _PROTOCOL),
            ("Sec-WebSocket-Accept", base64.b64encode(accept).decode()),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        path = f"{self.api.bin}:{os.environ['PATH']}"
        done = subprocess.run(command, capture_output=True, env={**os.environ, "PATH": path}, timeout=60)
        for channel, data in ((STDOUT, done.stdout), (STDERR, done.stderr), (STATUS, _status(done.returncode))):
            for start in range(0, len(data), 30_000):
                self._frame(2, bytes([channel]) + data[start : start + 30_000])
        self._frame(8, struct.pack(">H", 1000))
        self.close_connection = True

    def _frame(self, opcode: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else struct.pack(">BH", 126, len(data))
        self.wfile.write(bytes([0x80 | opcode]) + size + data)


def _status(code: int) -> bytes:
    """How exec says that the command ended."""
    if not code:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    return json.dumps(
        {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": message,
         "details": {"causes": causes}, "code": 500}
    ).encode()  # fmt: skip
