"""What an error says of a missing extra is a command that works: in a clone, beside it, and from a package index."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatap import installation

from .cli.running import ROOT


def test_in_a_clone_it_is_the_clone() -> None:
    assert installation.install_command("plots") == f"{sys.executable} -m pip install -e '{ROOT}[plots]'"


def install(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """Let it look as if it was installed, from where the text (direct_url.json) says."""
    monkeypatch.setattr(installation, "__file__", "/usr/lib/python3/site-packages/kafkatap/installation.py")
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))


@pytest.mark.parametrize(
    "origin", [None, "{}", "no json", {"url": "https://example.org/x.whl"}, {"url": "file:///gone"}]
)
def test_elsewhere_it_is_the_package(origin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(origin) if isinstance(origin, dict) else origin
    install(monkeypatch, text)
    assert installation.install_command("plots") == "pip install 'kafkatap[plots]'"


def test_installed_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my clone"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    text = json.dumps({"url": folder.as_uri(), "dir_info": {}})
    install(monkeypatch, text)
    assert installation.install_command("live") == f"{sys.executable} -m pip install '{folder}[live]'"


def test_the_extras_that_are_named_are_there() -> None:
    provided = metadata.distribution("kafkatap").metadata.get_all("Provides-Extra")
    assert {"live", "otlp", "pandas", "plots", "spark"} <= set(provided or ())
