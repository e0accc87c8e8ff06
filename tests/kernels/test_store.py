"""Kernels give the same from the store, through numba and as plain Python; the store trusts nothing that it did not
write, heals itself, and is built once however many ask for it at the same time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kafkatap.kernels import cache as cache_module
from kafkatap.kernels import calling, kept_objects
from kafkatap.kernels.build import kernels_of, work
from kafkatap.kernels.calling import caller

from . import small

SCRIPT = """
import json, os, sys
from kafkatap.kernels import library, store
library.FOLDER = os.environ.get("LIBRARY", "/nowhere")
store.use(["tests.kernels.small"])
store.verbose = True
from tests.kernels import small
print(json.dumps([small.run(), "numba" in sys.modules]))
"""
HERE = Path(__file__).parents[2]


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "KAFKATAP_"))}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**clean, "PYTHONPATH": str(HERE), "KAFKATAP_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )


def result_of(process: subprocess.Popen[str]) -> tuple[object, bool, str]:
    """What `small.run` gave, whether numba was imported, standard error."""
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    given, numba = json.loads(out)
    lines = (line for line in errors.splitlines() if "the kernels of the package cannot be used" not in line)
    return given, numba, "\n".join(lines)


def expected() -> object:
    """The same without a kernel."""
    words = np.frombuffer(small.data(), ">i4").astype(int).tolist()
    keys, values = words[0::2], words[1::2]
    weighed = [min(max(3 * v, -1000), 1000) for v in values]
    out = [min(max(v, -10), 10) for v in weighed]
    changed = sum(a != b for a, b in zip(out, weighed, strict=True))
    return [sum(keys), changed, [list(p) for p in zip(keys, weighed, strict=True)], out]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with a store of the small kernels."""
    folder = tmp_path_factory.mktemp("store") / "cache"
    assert "compiling once" in result_of(start(folder))[2]
    return folder


def store_in(cache: Path) -> Path:
    (folder,) = [p for p in cache.iterdir() if p.is_dir() and p.name != kept_objects.FOLDER]
    return folder


def test_later_runs_load_what_was_built_and_import_no_numba(cache: Path) -> None:
    assert result_of(start(cache)) == (expected(), False, "")
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "environment", [{"KAFKATAP_KERNELS": "numba"}, {"KAFKATAP_KERNELS": "python"}, {"NUMBA_DISABLE_JIT": "1"}]
)
def test_every_mode_gives_the_same(cache: Path, environment: dict[str, str]) -> None:
    given, numba, _ = result_of(start(cache, **environment))
    assert given == expected()
    assert numba == (environment == {"KAFKATAP_KERNELS": "numba"})


def test_a_folder_that_others_could_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    given, numba, errors = result_of(start(tmp_path))
    assert (given, numba) == (expected(), True)
    assert "is not this user's alone" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_folder_is_refused(tmp_path: Path, cache: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(cache)
    given, numba, errors = result_of(start(link))
    assert (given, numba) == (expected(), True)
    assert "is not this user's alone" in errors


def test_a_folder_that_cannot_be_made_leaves_numba(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    given, numba, errors = result_of(start(tmp_path / "file" / "cache"))
    assert (given, numba) == (expected(), True)
    assert "cannot be used" in errors


def test_two_first_runs_at_once_build_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    both = [result_of(p) for p in (start(cache), start(cache))]
    assert [b[:2] for b in both] == [(expected(), False)] * 2
    assert sum("compiling once" in b[2] for b in both) == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "index", "gone"])
def test_a_damaged_store_is_built_anew(cache: Path, damage: str) -> None:
    folder = store_in(cache)
    code = folder / "tests.kernels.small.spread.o"
    if damage == "cut":
        code.write_bytes(code.read_bytes()[:1000])
    elif damage == "changed":
        code.write_bytes(code.read_bytes()[:-1] + b"?")
    elif damage == "index":
        (folder / "index.json").write_text('{"tests')
    else:
        code.unlink()
    given, numba, errors = result_of(start(cache))
    assert (given, numba) == (expected(), False)
    assert "is damaged" in errors
    assert "compiling" not in errors  # the objects are kept
    assert result_of(start(cache)) == (expected(), False, "")


def test_the_key_changes_with_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "kernels_of_a_test.py"
    source.write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    cache_module._key.cache_clear()
    before = cache_module._key(("kernels_of_a_test",), "")
    assert cache_module._key(("kernels_of_a_test",), "1") != before
    source.write_text("A = 2\nB = 3\n")
    cache_module._key.cache_clear()
    assert cache_module._key(("kernels_of_a_test",), "") != before


def test_without_a_home_the_store_is_among_temporary_files(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = tmp_path / f"kafkatap-{os.geteuid()}"
    shutil.copytree(cache, root)
    environment = {"KAFKATAP_CACHE": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    assert result_of(start(cache, **environment)) == (expected(), False, "")
    root.chmod(0o755)
    assert "is not this user's alone" in result_of(start(cache, **environment))[2]


def test_old_stores_are_forgotten(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"s{number}").mkdir()
        os.utime(tmp_path / f"s{number}", (number, number))
    cache_module.forget_old(tmp_path / "s0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s0", "s3", "s4", "s5"]


def test_the_longest_kernel_is_told_by_all_that_it_reaches() -> None:
    assert kernels_of("tests.kernels.small") == [small.read_pairs, small.spread]
    assert work(small.read_pairs) > work(small.spread) > len(small.spread.function.__code__.co_code)


def test_arrays_of_another_kind_are_refused() -> None:
    call = caller(small.spread, lambda *flat: len(flat))
    pairs, out = np.zeros(4, small.PAIR), np.zeros(4, np.int64)
    limits = small.Limits(np.zeros(1, np.int32))
    assert call(10, small.Pairs(pairs, limits, out)) == 7
    for wrong in (out.astype(np.int32), out[::2], out.reshape(2, 2)):
        with pytest.raises(TypeError, match="spread: needs a contiguous 1-D array"):
            call(10, small.Pairs(pairs, limits, wrong))
    with pytest.raises(TypeError, match="spread: needs a Pairs, not a tuple"):
        call(10, (pairs, out))
    with pytest.raises(ValueError, match="argument"):
        call(10)


@pytest.mark.parametrize("reads_objects", [True, False])
def test_pointers_are_those_of_numpy(reads_objects: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_HAS_DATA", calling._HAS_DATA and reads_objects)
    call = caller(small.spread, lambda *flat: flat[1:3])
    limits, out = small.Limits(np.zeros(1, np.int32)), np.zeros(4, np.int64)
    whole = np.zeros(9, small.PAIR)
    whole.tofile(tmp_path / "pairs")
    for pairs in (whole, whole[3:7], whole[9:], np.memmap(tmp_path / "pairs", small.PAIR), whole.view(np.recarray)):
        assert call(10, small.Pairs(pairs, limits, out)) == (pairs.ctypes.data, len(pairs))


def test_all_kernels_of_the_product_belong_to_its_store() -> None:
    from kafkatap.kernels.modules import KERNEL_MODULES

    declared = set()
    for folder in ("dissector", "reassembly", "reports", "kernels", "kafkatap"):
        for path in (HERE / folder).rglob("*.py"):
            if "\n@kernel(" in path.read_text():
                parts = path.relative_to(HERE).with_suffix("").parts
                declared.add(".".join(parts if parts[0] == "kafkatap" else ("kafkatap", *parts)))
    assert declared == set(KERNEL_MODULES)
