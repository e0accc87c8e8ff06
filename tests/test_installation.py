"""What an error says of a missing extra is a command that works: in a clone, beside it, in pipx, and from a wheel."""

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
    requires = metadata.requires("kafkatap")
    monkeypatch.setattr(installation, "__file__", "/usr/lib/python3/site-packages/kafkatap/installation.py")
    monkeypatch.setattr(
        metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text, requires=requires)
    )


@pytest.mark.parametrize(
    "origin", [None, "{}", "no json", {"url": "https://example.org/x.whl"}, {"url": "file:///gone"}]
)
def test_elsewhere_it_is_the_packages_of_the_extra(origin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(origin) if isinstance(origin, dict) else origin
    install(monkeypatch, text)
    assert installation.install_command("plots") == f"{sys.executable} -m pip install 'matplotlib>=3.9'"
    assert installation.install_command("pandas").endswith(" -m pip install 'pandas>=2.2' 'pyarrow>=18'")
    assert installation.install_command("keys").endswith(" -m pip install ./agent")


def test_installed_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my clone"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    text = json.dumps({"url": folder.as_uri(), "dir_info": {}})
    install(monkeypatch, text)
    assert installation.install_command("live") == f"{sys.executable} -m pip install '{folder}[live]'"


def test_in_pipx_it_is_pipx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environments have no pip of their own, and it forgets what it did not install."""
    prefix = tmp_path / "venvs" / "kafkatap"
    prefix.mkdir(parents=True)
    (prefix / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    assert installation.install_command("plots") == "pipx inject kafkatap 'matplotlib>=3.9'"
    assert installation.install_command("pandas") == "pipx inject kafkatap 'pandas>=2.2' 'pyarrow>=18'"
    assert installation.install_command("keys") == f"pipx inject kafkatap '{ROOT}/agent'"


def test_the_extras_that_are_named_are_there() -> None:
    provided = metadata.distribution("kafkatap").metadata.get_all("Provides-Extra")
    assert {"arrow", "live", "otlp", "pandas", "plots", "spark"} <= set(provided or ())
