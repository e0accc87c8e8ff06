"""Pack one archive for executors without this package: `python -m kafkatap.spark.pack kafkatap.tar.gz`.

The archive has `site/`: the package and its dependencies, as installed for the Python that packs. Its kernels are those
that were compiled with the package, so executors need no compiler. `bin/python` is a script that starts the
executor's own Python, of the same version, with these packages. The archive works wherever it is unpacked.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from kafkatap.kernels import store
from kafkatap.kernels.source_list import move_source_list
from kafkatap.reports.units import size

from ..complaints import complain
from ..output_file import OutputFile, check_file
from ..replaceable import ARCHIVE
from .cluster.package import package_files, python_version

_NOT_NEEDED = {"__pycache__", "tests", "include"}
_NOT_NEEDED_KINDS = {".a", ".h", ".hpp", ".c", ".cc", ".pyx", ".pxd", ".pxi", ".pyi", ".pyc"}
#: The time of all files, so that packing twice gives the same bytes. Not 1970, which tar warns about.
_TIME = 1_577_836_800
#: Seconds between two lines of progress.
_LINE_EVERY = 5.0

_PYTHON = """\
#!/bin/sh
# Start this machine's Python {version} with the packages beside this script. KAFKATAP_PYTHON names another Python.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 127
PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
for python in ${{KAFKATAP_PYTHON:-python{version} python3 python}}; do
    if "$python" -c 'import sys; sys.exit("{version}" != "%d.%d" % sys.version_info[:2])' 2>/dev/null; then
        exec "$python" "$@"
    fi
done
echo "kafkatap: this archive is for Python {version}, and $(uname -n) has none; KAFKATAP_PYTHON can name one" >&2
exit 127
"""

#: Run where kernels have changed since they were compiled with the package: make for the archive what comes with it.
_COMPILE = """\
import pathlib, sys
from kafkatap.dissector.programs.make_programs import make_programs
from kafkatap.kernels.make_library import NoLibraryError, make_library
from kafkatap.kernels.modules import KERNEL_MODULES
folder = pathlib.Path(sys.argv[1], "kernels", "compiled")
make_programs(folder, installed=False)
try:
    for line in make_library(folder, KERNEL_MODULES, installed=False):
        pass
except NoLibraryError as error:
    sys.exit(f"kafkatap: the kernels cannot be compiled for the archive: {error}")
"""


def _ignore(text: str) -> None:
    """Show no progress."""


def pack(
    out: str | os.PathLike[str], without: Iterable[str] = (), level: int = 6,
    watch: Callable[[str], None] = _ignore, overwrite: bool = False,
) -> int:  # fmt: skip
    """Write the archive (.tar.gz) and return its size in bytes. `without`: distributions that executors have already.
    `level`: of compression, 1 to 9. `watch` gets a line of progress at least every few seconds. `overwrite`: as
    of `OutputFile`.

    OSError if it cannot be written, subprocess.SubprocessError if the kernels cannot be compiled.
    """
    out = Path(out)
    left_out = {_canonical(name) for name in without}
    with tempfile.TemporaryDirectory(prefix="kafkatap-pack-") as name:
        folder = Path(name)
        site = folder / "site"
        own, *others = _needed("kafkatap", left_out)
        watch(f"copying {', '.join(sorted(d.name for d in (own, *others)))}")
        for distribution in others:
            _copy(_files_of(distribution), site)
        _copy(package_files().items(), site)
        _write_metadata(own, site)
        made_ahead = store.made_ahead()
        if made_ahead is not None:
            copy = site / "kafkatap" / "kernels" / "compiled"
            shutil.copytree(made_ahead, copy)
            for path in copy.glob("*.txt"):
                move_source_list(str(path), str(site / "kafkatap"))
        else:
            watch("compiling kernels for any machine of this type (about 20 s)")
            _run_in(site, _COMPILE)
        _set_times(site)
        python = folder / "bin" / "python"
        python.parent.mkdir()
        python.write_text(_PYTHON.format(version=python_version()))
        python.chmod(0o755)
        with OutputFile(str(out), is_private=False, overwrite=overwrite) as made:
            _write(made.file, folder, level, watch)
            made.publish()
    return out.stat().st_size


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed(name: str, left_out: set[str]) -> list[metadata.Distribution]:
    """A distribution and its installed dependencies: with the extra of tables, and without any other."""
    found: dict[str, metadata.Distribution] = {}
    first, open_ = _canonical(name), [name]
    while open_:
        name = _canonical(open_.pop())
        if name in found or name in left_out:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on other systems
        for requirement in found[name].requires or ():
            wanted = re.match(r"[\w.-]+", requirement)
            is_of_tables = name == first and re.search(r"extra == ['\"]arrow['\"]", requirement) is not None
            if wanted and (is_of_tables or "extra ==" not in requirement):
                open_.append(wanted.group())
    return list(found.values())


def _files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """The installed files of a distribution, with metadata, without scripts, tests and headers."""
    for file in distribution.files or ():
        if file.parts[0] in ("..", "/") or file.suffix in _NOT_NEEDED_KINDS or _NOT_NEEDED & set(file.parts):
            continue
        path = Path(str(distribution.locate_file(file)))
        if path.is_file() and file.name not in ("RECORD", "direct_url.json"):
            yield file.as_posix(), path


def _copy(files: Iterable[tuple[str, Path]], site: Path) -> None:
    for name, path in files:
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _write_metadata(own: metadata.Distribution, site: Path) -> None:
    """Write the metadata of the package (its version), also from a checkout."""
    folder = site / f"kafkatap-{own.version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(own.read_text("METADATA") or own.read_text("PKG-INFO") or "")


def _set_times(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (_TIME, _TIME))


def _run_in(site: Path, code: str) -> None:
    """Run code with the copy of the package, because the files of this one may change meanwhile."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "KAFKATAP_", "PYTHON"))}
    subprocess.run(
        [sys.executable, "-P", "-c", code, str(site / "kafkatap")],
        env=clean | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _write(out: BinaryIO, folder: Path, level: int, watch: Callable[[str], None]) -> None:
    """Write the folder as a gzipped tar, without owners and times."""
    paths = sorted(folder.rglob("*"))
    whole = sum(path.stat().st_size for path in paths if path.is_file()) or 1
    done, shown = 0, 0.0

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = _TIME
        entry.mode = 0o755 if entry.isdir() or entry.mode & stat.S_IXUSR else 0o644
        return entry

    with (
        gzip.GzipFile("kafkatap.tar", "wb", level, out, _TIME) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for path in paths:
            if time.monotonic() - shown > _LINE_EVERY:
                shown = time.monotonic()
                watch(f"compressing: {done / whole:.0%} of {size(whole)}")
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)
            done += path.stat().st_size if path.is_file() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kafkatap.spark.pack",
        description="Write one archive with all that executors need to run kafkatap: itself, the packages that it "
        "imports, its kernels compiled. Executors need a Python of the same version, and nothing else.",
    )
    parser.add_argument("out", metavar="OUT.tar.gz", help="the archive to write")
    parser.add_argument(
        "--without", metavar="NAMES", type=lambda names: names.split(","), default=[],
        help="packages that the executors' Python has already: numpy,pyarrow",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace an archive that was made by other programs")
    options = parser.parse_args(arguments)
    if not re.search(r"\.(tar\.gz|tgz)$", options.out):
        parser.error(f"{options.out}: Spark tells archives by their ending, which has to be .tar.gz or .tgz")
    try:
        check_file("OUT", options.out, ARCHIVE, overwrite=options.overwrite)
        packed = pack(options.out, options.without, watch=complain, overwrite=options.overwrite)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"kafkatap: cannot pack: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}: {packed / 1e6:.0f} MB, for Python {python_version()} on {os.uname().machine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
