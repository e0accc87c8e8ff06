"""A real Prometheus that scrapes and evaluates, for tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

#: Seconds to wait for whatever Prometheus is to do; it takes about one.
PATIENCE = 60


class Prometheus:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; raises HTTPError where that is an error."""
        with urlopen(f"{self._base}/api/v1/{path}?{urlencode(parameters)}", timeout=PATIENCE) as answer:
            result = json.load(answer)
        assert result["status"] == "success"
        return result["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The series of an instant vector: labels and value."""
        data = self.get("query", query=expression)
        assert data["resultType"] == "vector"
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def value(self, expression: str) -> float | None:
        """The value of the one series that there is, None without any."""
        found = self.query(expression)
        assert len(found) < 2
        return found[0][1] if found else None

    def until(self, expression: str, value: float) -> None:
        """Wait until an expression has a value."""
        end = time.monotonic() + PATIENCE
        while (now := self.value(expression)) != value:
            assert time.monotonic() < end, f"{expression} is {now}, not {value}"
            time.sleep(0.1)

    def ready(self) -> bool:
        try:
            with urlopen(f"{self._base}/-/ready", timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except URLError:
            return False


def missing() -> str | None:
    """Why there can be no Prometheus, None where there can."""
    lacking = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"needs {' and '.join(lacking)} (Debian: apt-get install prometheus)" if lacking else None


@contextmanager
def prometheus(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """One that scrapes `target` (host:port) once a second, with its data in `folder`, until the end."""
    settings = folder / "prometheus.yml"
    settings.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\n"
        f"scrape_configs: [{{job_name: kafkatap, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        server = Prometheus(port)
        end = time.monotonic() + PATIENCE
        while not server.ready():
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"Prometheus does not come up:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
