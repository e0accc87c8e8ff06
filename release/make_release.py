#!/usr/bin/env python3
"""Make all files of a release in a folder: python release/make_release.py --help. It uploads nothing.

Run it with the Python of an environment that has the extra `test` (`./check` makes one). RELEASING.md says what to do
before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import third_parties
from bare_root import SUITES, smoke_test
from make_deb import SUITES as DEB_SUITES
from make_deb import check, make_deb, try_deb
from make_image import make_image

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = ("linux-x86_64", "linux-aarch64", "macos-arm64", "macos-x86_64")
#: What those who install a release have besides the package itself.
EXTRAS = ("live", "otlp")


class ReleaseError(Exception):
    """Why there can be no release."""


def main() -> int:
    options = arguments().parse_args()
    try:
        release(options)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release/make_release.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for all files (dist)")
    parser.add_argument(
        "--platform",
        action="append",
        choices=PLATFORMS,
        metavar="NAME",
        help=f"make wheels for it; may be repeated ({', '.join(PLATFORMS)}; the first one)",
    )
    parser.add_argument(
        "--smoke",
        action="append",
        choices=SUITES,
        default=[],
        metavar="SUITE",
        help=f"install the wheel in a bare Debian ({', '.join(SUITES)}), and try it; may be repeated; "
        "needs root, debootstrap and its packages",
    )
    parser.add_argument(
        "--deb",
        action="append",
        choices=DEB_SUITES,
        default=[],
        metavar="SUITE",
        help=f"make a package of Debian, and try it ({', '.join(DEB_SUITES)}); may be repeated; needs lintian too",
    )
    parser.add_argument(
        "--image", action="store_true", help="make an image of the first of these packages; needs umoci and skopeo too"
    )
    parser.add_argument("--roots", type=Path, help="keep bare systems of Debian in this folder for later runs")
    parser.add_argument("--once", action="store_true", help="do not build twice to compare")
    parser.add_argument("--draft", action="store_true",
                        help="not for others: the tree may have changes (what is committed is built), and the release "
                        "need not have a date in CHANGELOG.md")  # fmt: skip
    return parser


def release(options: argparse.Namespace) -> None:
    version = checked_version(options.draft)
    if options.image and not options.deb:
        raise ReleaseError("--image needs --deb: the image has that package")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty")
    platforms = options.platform or [PLATFORMS[0]]
    with tempfile.TemporaryDirectory(prefix="kafkatap-release-") as folder:
        made = Path(folder)
        with step("sources"):
            source = sources(made / "source")
        built = build(source, made / "first", platforms, empty_cache=False)
        if not options.once:
            again = build(sources(made / "elsewhere"), made / "second", platforms, empty_cache=True)
            with step("the same bytes"):
                compare(built, again)
        for path in built:
            shutil.copy(path, out)
        name = f"kafkatap-{version}"
        wheel = next((each for each in built if "manylinux" in each.name and os.uname().machine in each.name), None)
        if wheel is not None:
            use(wheel, out, name, options)
        elif options.smoke or options.deb or options.image:
            raise ReleaseError("smoke tests, packages and images need a wheel for this machine")
        write_sums(out)
    print(f"{name}: {len(list(out.iterdir()))} files in {out}")


def use(wheel: Path, out: Path, name: str, options: argparse.Namespace) -> None:
    """What is made of the wheel for this machine, and where it is tried."""
    with step(f"third parties of kafkatap[{','.join(EXTRAS)}]"):
        third_parties.write(wheel, EXTRAS, out, name)
    for suite in options.smoke:
        with step(f"smoke test, Debian {suite}"):
            print(smoke_test(suite, wheel, EXTRAS, ROOT / "samples/apache-4.3.pcap.zst", options.roots))
    packages = []
    for suite in options.deb:
        with step(f"package, Debian {suite}"):
            packages.append(make_deb(wheel, suite, out, options.roots, out / f"{name}-constraints.txt"))
            check(packages[-1])
        with step(f"package, Debian {suite}: install, upgrade, purge"):
            print(try_deb(packages[-1], suite, options.roots))
    if options.image:
        with step("image"):
            make_image(packages[0], options.deb[0], out, options.roots)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print the name of a step and its seconds. What runs a program fails with the end of its output."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    try:
        yield
    except subprocess.CalledProcessError as error:
        said = f"{error.stdout or ''}{error.stderr or ''}".strip().splitlines()
        raise ReleaseError("\n".join([f"{name}: {error.cmd} failed", *said[-20:]])) from error
    print(f"   {time.monotonic() - began:.0f} s", flush=True)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def checked_version(is_draft: bool) -> str:
    """The version, if pyproject.toml, CHANGELOG.md, the agent and the tree agree on it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    agent = tomllib.loads((ROOT / "agent/pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = project["version"]
    wrong = []
    if agent["version"] != version:
        wrong.append(f"agent/pyproject.toml has version {agent['version']}, pyproject.toml {version}")
    heading = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if heading is None or heading[1] != version:
        wrong.append(f"the first heading of CHANGELOG.md is not `## {version} (YYYY-MM-DD)`")
    elif not is_draft and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[2]):
        wrong.append(f"CHANGELOG.md has no date for {version}, but: {heading[2]}")
    if not is_draft and git("status", "--porcelain").strip():
        wrong.append("the tree has changes that are not committed")
    if (
        not is_draft
        and git("tag", "--list", f"v{version}").strip()
        and git("rev-parse", f"v{version}^{{commit}}") != (git("rev-parse", "HEAD"))
    ):
        wrong.append(f"v{version} is another commit already")
    if wrong:
        raise ReleaseError("\n  ".join(["no release:", *wrong]))
    return version


def sources(folder: Path) -> Path:
    """What is committed, and nothing else, in a folder."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    git("archive", "--output", str(archive), "HEAD")
    unpack(archive, folder)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, capture_output=True, text=True)


def build(source: Path, folder: Path, platforms: list[str], empty_cache: bool) -> list[Path]:
    """An sdist, wheels made of it, and the wheel of the agent."""
    folder.mkdir()
    settings = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip(), "PYTHONHASHSEED": "0"}
    if empty_cache:
        settings["KAFKATAP_CACHE"] = str(folder.with_suffix(".cache"))

    def run(*words: str | Path, **more: str) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *words]
        subprocess.run(command, env=settings | more, check=True, capture_output=True, text=True)

    again = ", from another folder, without a cache" if empty_cache else ""
    with step(f"sdist{again}"):
        run("--sdist", source)
        (sdist,) = folder.glob("*.tar.gz")
        unpacked = folder.with_suffix(".unpacked")
        unpacked.mkdir()
        unpack(sdist, unpacked)
        (unpacked,) = unpacked.iterdir()
    for platform in platforms:
        with step(f"wheel for {platform}{again}"):
            run("--wheel", unpacked, KAFKATAP_PLATFORM=platform)
    with step(f"wheel of the agent{again}"):
        run("--wheel", unpacked / "agent")
    return sorted(folder.iterdir())


def compare(first: list[Path], second: list[Path]) -> None:
    if [path.name for path in first] != [path.name for path in second]:
        raise ReleaseError(f"two builds have other files: {first} and {second}")
    differ = [one.name for one, other in zip(first, second, strict=True) if one.read_bytes() != other.read_bytes()]
    if differ:
        raise ReleaseError(f"two builds differ: {', '.join(differ)}")
    print(f"   {len(first)} files")


def write_sums(out: Path) -> None:
    """SHA256SUMS, for `sha256sum --check`."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
