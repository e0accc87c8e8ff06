"""The library that is compiled with the package: used where it fits processor and sources, and left alone elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkatap.kernels import library, make_library, platforms
from kafkatap.kernels.source_list import move_source_list, sources_fit, write_source_list

from .test_store import HERE, expected, result_of, start

pytestmark = pytest.mark.skipif(platforms.here() != platforms.PLATFORMS["linux-x86_64"], reason="needs Linux on x86-64")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the small kernels."""
    folder = tmp_path_factory.mktemp("library") / "compiled"
    lines = list(make_library.make_library(folder, ["tests.kernels.small"], installed=True))
    assert lines[-1] == "linked 2 kernels for linux-x86_64"
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of that library, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path / "compiled"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache that has the small kernels."""
    folder = tmp_path_factory.mktemp("library") / "cache"
    assert "compiling once" in result_of(start(folder))[2]
    return folder


def start_with(folder: Path, cache: Path, **environment: str) -> subprocess.Popen[str]:
    return start(cache, LIBRARY=str(folder), **environment)


@pytest.fixture
def without_numba(tmp_path: Path) -> dict[str, str]:
    """An environment in which numba and llvmlite are not installed."""
    folder = tmp_path / "without"
    for name in ("numba", "llvmlite"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise ModuleNotFoundError('not installed', name='{name}')\n")
        (folder / name / "_version.py").write_text("")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{HERE}"}


def test_it_needs_no_cache_and_no_numba(made: Path, tmp_path: Path, without_numba: dict[str, str]) -> None:
    process = start_with(made, tmp_path / "cache", **without_numba)
    assert result_of(process) == (expected(), False, "kafkatap: kernels: compiled with the package, for x86-64-v2")
    assert not (tmp_path / "cache").exists()


def test_neither_a_compiler_nor_a_linker_makes_it(made: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/nowhere", "CC": "", "PYTHONPATH": str(HERE), "KAFKATAP_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "kafkatap.kernels.make_library", tmp_path / "made", "tests.kernels.small"]
    subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    assert (tmp_path / "made" / library.LIBRARY).read_bytes() == (made / library.LIBRARY).read_bytes()


def test_it_needs_nothing_of_the_system_but_memcpy_and_the_like(made: Path) -> None:
    """No other library, and no version of a symbol: it loads wherever numpy does."""
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    path = made / library.LIBRARY
    dynamic = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" not in dynamic
    assert "TEXTREL" not in dynamic
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in symbols.splitlines() if line.strip()[:1].isdigit()][1:]
    undefined = {row[7] for row in rows if row[6] == "UND"}
    assert undefined <= {"memcpy", "memmove", "memset", "memcmp"}
    defined = {row[7] for row in rows if row[6] != "UND"}
    assert defined == {library.CHECK, "tests.kernels.small.read_pairs", "tests.kernels.small.spread"}


def test_kernels_that_did_not_change_stay_in_use_where_sources_did(
    copy: Path, tmp_path: Path, without_numba: dict[str, str]
) -> None:
    sources = copy / library.SOURCES
    digest, *lines = sources.read_text().splitlines()
    sources.write_text("\n".join([digest[::-1], *(f"1{line}" for line in lines)]))
    cache = tmp_path / "cache"
    given, numba, errors = result_of(start_with(copy, cache, **without_numba))
    assert (given, numba) == (expected(), False)
    assert "compiling" not in errors
    digests = json.loads((copy / library.DIGESTS).read_text())
    (copy / library.DIGESTS).write_text(json.dumps(digests | {"tests.kernels.small.spread": "another"}))
    shutil.rmtree(cache)
    given, numba, errors = result_of(start_with(copy, cache))
    assert (given, numba) == (expected(), False)
    assert "compiling 1 of 2 kernels, which changed" in errors
    assert result_of(start_with(copy, cache))[2] == ""


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "unreadable", "gone"])
def test_a_damaged_library_gives_way_to_the_user_s_cache(copy: Path, cache: Path, damage: str) -> None:
    path = copy / library.LIBRARY
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-2000])
    elif damage in ("empty", "text"):
        path.write_text("" if damage == "empty" else "no library" * 100)
    elif damage == "unreadable":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()
    given, numba, errors = result_of(start_with(copy, cache))
    assert (given, numba) == (expected(), False), errors
    assert "compiled with the package" not in errors


def test_a_processor_that_lacks_a_feature_does_not_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_numba: dict[str, str]
) -> None:
    monkeypatch.setattr(make_library, "_BASIC_BITS", (*make_library._BASIC_BITS, 16))  # which no processor has
    list(make_library.make_library(tmp_path / "compiled", ["tests.kernels.small"], installed=True))
    given, numba, errors = result_of(start_with(tmp_path / "compiled", tmp_path / "cache"))
    assert (given, numba) == (expected(), False)
    process = start_with(tmp_path / "compiled", tmp_path / "other", **without_numba)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "KernelsMissingError: they need a processor of the level x86-64-v2" in errors


def test_the_reason_why_there_is_none_is_kept(made: Path, tmp_path: Path, without_numba: dict[str, str]) -> None:
    copy = tmp_path / "compiled"
    shutil.copytree(made, copy)
    environment = {**os.environ, "KAFKATAP_CACHE": str(tmp_path / "cache"), **without_numba}
    command = [sys.executable, "-m", "kafkatap.kernels.make_library", copy, "tests.kernels.small"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no kernels are compiled with the package: ")
    assert [path.name for path in copy.iterdir()] == [library.REASON]
    process = start_with(copy, tmp_path / "none", **without_numba)
    assert "numba" in process.communicate(timeout=60)[1].splitlines()[-1]


def test_a_list_of_sources_fits_until_one_changes(tmp_path: Path) -> None:
    package, path = tmp_path / "package", str(tmp_path / "sources.txt")
    (package / "inner").mkdir(parents=True)
    files = [package / "a.py", package / "inner" / "b.py"]
    for file in files:
        file.write_text("A = 1\n")
    for installed in (True, False):
        write_source_list(path, [str(file) for file in files], str(package), installed)
        assert sources_fit(path, str(package))
        os.utime(files[0], (1, 1))  # other times, the same contents
        assert sources_fit(path, str(package))
        os.utime(files[0], (2e9, 2e9))
        assert sources_fit(path, str(package))
        for changed in ("A = 2\n", "A = 11\n", None):
            if changed is None:
                files[0].unlink()
            else:
                files[0].write_text(changed)
                os.utime(files[0], (2e9, 2e9))
            assert not sources_fit(path, str(package))
        files[0].write_text("A = 1\n")
    shutil.copytree(package, tmp_path / "copy")
    move_source_list(path, str(tmp_path / "copy"))
    assert sources_fit(path, str(tmp_path / "copy"))
    Path(path).write_text("")
    assert not sources_fit(path, str(package))
    assert not sources_fit(str(tmp_path / "none"), str(package))
