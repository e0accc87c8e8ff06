"""The installed version, and the command that installs an extra."""

from __future__ import annotations

import os
import sys


def own_version() -> str:
    """The version of the installed distribution, or "unknown"."""
    from importlib.metadata import PackageNotFoundError, version  # imported here: it takes 20 ms

    try:
        return version("kafkatap")
    except PackageNotFoundError:
        return "unknown"


def install_command(extra: str) -> str:
    """The command that installs an extra such as "plots", from the same clone or index as this kafkatap."""
    folder, is_editable = _installed_from()
    if not folder:
        return f"pip install 'kafkatap[{extra}]'"
    more = f" '{folder}/agent'" if extra == "keys" else ""  # a distribution of its own
    return f"{sys.executable} -m pip install {'-e ' if is_editable else ''}'{folder}[{extra}]'{more}"


def _installed_from() -> tuple[str, bool]:
    """The folder that kafkatap was installed from, or ""; and whether the installation is editable (PEP 610)."""
    clone = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
    if os.path.isfile(os.path.join(clone, "pyproject.toml")):
        return clone, True
    import json  # imported here: they take 15 ms, and few runs come here
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(distribution("kafkatap").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return "", False
    url = urlsplit(origin.get("url", ""))
    folder = unquote(url.path) if url.scheme == "file" else ""
    if not os.path.isfile(os.path.join(folder, "pyproject.toml")):
        return "", False
    return folder, bool(origin.get("dir_info", {}).get("editable"))
