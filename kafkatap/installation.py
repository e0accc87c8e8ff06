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
    """The command that installs an extra such as "plots": in pipx, for the clone that this kafkatap comes from, or for
    the packages of the extra, as a wheel need not be in an index."""
    folder, is_editable = _installed_from()
    agent = f"'{folder}/agent'" if folder else "./agent"  # a distribution of its own
    if os.path.isfile(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject {os.path.basename(sys.prefix)} {agent if extra == 'keys' else _packages(extra)}"
    if folder:
        more = f" {agent}" if extra == "keys" else ""
        return f"{sys.executable} -m pip install {'-e ' if is_editable else ''}'{folder}[{extra}]'{more}"
    return f"{sys.executable} -m pip install {agent if extra == 'keys' else _packages(extra)}"


def has_arrow() -> bool:
    """Whether pyarrow is there, which only tables need."""
    from importlib.util import find_spec  # few commands need it

    return find_spec("pyarrow") is not None


def without_arrow(what: str) -> str:
    """What to say where pyarrow is missing. `what`: the words "tables need" or the like."""
    return f"{what} pyarrow ({install_command('arrow')})"


def _packages(extra: str) -> str:
    """What an extra installs, such as "'matplotlib>=3.9'"."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("kafkatap") or ()
    except PackageNotFoundError:
        lines = ()
    found = [line.partition(";") for line in lines]
    packages = [
        package.strip() for package, _, when in found if when.replace('"', "'").strip() == f"extra == '{extra}'"
    ]
    return " ".join(f"'{package}'" for package in packages or [f"kafkatap[{extra}]"])


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
