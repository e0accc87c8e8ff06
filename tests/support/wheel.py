"""The wheel of this project, and environments that have it and what it requires, and nothing of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the project; its output, or a failure with it."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | environment
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """(sdist, wheel) in a folder, built unless they are there. The wheel is built from the sdist, so that both are
    proved complete."""
    if not any(folder.glob("*.whl")):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def environment(folder: Path, wheel: Path, extras: frozenset[str]) -> Path:
    """A virtual environment as `pip install 'kafkatap[EXTRA,...]'` makes it of a wheel; return its `python`.

    What the wheel requires, by its own metadata, are links to the packages of this interpreter, with their scripts.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    install = ("install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(name="kafkatap", path=[str(site)])
    for distribution in _required(installed, extras):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file))).resolve()
            if file.parts[0] == "..":
                link = folder / "bin" / path.name if file.parts[-2] == "bin" else None
            else:
                link, path = site / file.parts[0], Path(str(distribution.locate_file(file.parts[0])))
            if link is not None and not link.exists() and link.name != "__pycache__":
                link.symlink_to(path)
    return python


def _required(of: metadata.Distribution, extras: frozenset[str]) -> list[metadata.Distribution]:
    """The installed distributions that one requires with extras, and theirs."""
    found: dict[str, metadata.Distribution] = {}
    open_ = [(requirement, extras) for requirement in of.requires or ()]
    while open_:
        requirement, wanted = open_.pop()
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        matched = re.match(r"([\w.-]+)\s*(?:\[([\w,\s-]+)\])?", requirement)
        assert matched is not None, requirement
        if extra is not None and extra[1] not in wanted:
            continue
        own = frozenset(re.split(r"[\s,]+", matched[2])) if matched[2] else frozenset()
        key = f"{re.sub(r'[-_.]+', '-', matched[1]).lower()}{sorted(own)}"
        try:
            distribution = metadata.distribution(matched[1])
        except metadata.PackageNotFoundError:
            continue  # needed on other systems
        if key not in found:
            found[key] = distribution
            open_ += [(each, own) for each in distribution.requires or ()]
    return list(found.values())
