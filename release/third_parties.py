"""What a release depends on, as it is installed on this day: pinned versions, a bill of materials, and licences."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

#: Writes CycloneDX of an environment.
BILL_WRITER = "cyclonedx-bom>=7.1,<8"


def run(*command: str | Path) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def environment(folder: Path, *requirements: str | Path) -> Path:
    """The Python of a virtual environment with some packages, and without pip."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--only-binary", ":all:", *requirements)
    return python


def write(wheel: Path, extras: Sequence[str], out: Path, name: str) -> None:
    """Write NAME-constraints.txt, NAME.cdx.json and NAME-third-party-licences.txt into the folder `out`."""
    with tempfile.TemporaryDirectory(prefix="kafkatap-third-") as folder:
        environment(Path(folder, "of"), f"{wheel}[{','.join(extras)}]")
        (site,) = Path(folder, "of").glob("lib/python*/site-packages")
        for path in site.glob("kafkatap-*/direct_url.json"):  # where the wheel lay on this machine
            path.unlink()
        found = others(site)
        pins = "".join(f"{each.name}=={each.version}\n" for each in found)
        (out / f"{name}-constraints.txt").write_text(pins, encoding="utf-8")
        (out / f"{name}-third-party-licences.txt").write_text("\n".join(licences(found)), encoding="utf-8")
        writer = environment(Path(folder, "writer"), BILL_WRITER).with_name("cyclonedx-py")
        bill = ("--output-reproducible", "--validate", "--of", "JSON", "-o", out / f"{name}.cdx.json")
        run(writer, "environment", *bill, Path(folder, "of"))


def others(site: Path) -> list[Distribution]:
    """The distributions in a folder, but those of this project, by name."""
    found = {each.name.lower(): each for each in distributions(path=[str(site)])}
    return [found[name] for name in sorted(found) if not name.startswith("kafkatap")]


def licence(of: Distribution) -> str:
    """The licence of a distribution in a line, from its metadata."""
    meta = of.metadata
    classifiers = [line.rpartition(" :: ")[2] for line in meta.get_all("Classifier", []) if line.startswith("License")]
    expression, short = ((meta.get_all(name) or [""])[0].strip() for name in ("License-Expression", "License"))
    return expression or (short if 0 < len(short) < 80 else "") or ", ".join(classifiers) or "?"


def licences(found: Sequence[Distribution]) -> Iterator[str]:
    """Lines: a list of all, then the texts."""
    for each in found:
        yield f"{each.name} {each.version}: {licence(each)}"
    for each in found:
        for path, text in texts(each):
            yield f"\n{'=' * 100}\n{each.name} {each.version}: {path}\n{'=' * 100}\n{text.strip()}"
    yield ""


def texts(of: Distribution) -> Iterator[tuple[str, str]]:
    """The files of a distribution with licences."""
    for file in sorted(of.files or (), key=str):
        is_licence = file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS"))
        if is_licence and file.suffix in ("", ".txt", ".md", ".rst", ".APACHE", ".BSD", ".BSD3"):
            yield file.name, Path(str(of.locate_file(file))).read_text(encoding="utf-8", errors="replace")
