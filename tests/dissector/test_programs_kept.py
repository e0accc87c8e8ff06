"""Programs are made with the package or kept in the cache, and compiled again if these are stale or damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kafkatap.dissector.programs import compiler, kept_programs, loading
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.make_programs import make_programs
from kafkatap.dissector.programs.profiles import PROFILES
from kafkatap.dissector.programs.program import Programs
from kafkatap.kernels import store
from tests.dissector.machine_support import programs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "made_ahead", lambda: None)
    monkeypatch.setattr(kept_programs, "_folder", lambda: tmp_path)
    return tmp_path


def equal(one: Programs, other: Programs) -> bool:
    return all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip((one.code, one.index, one.roles), (other.code, other.index, other.roles), strict=True)
    )


def test_kept_programs_need_no_layouts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = load_programs("summary")
    assert [path.name.startswith("programs-summary-") for path in folder.iterdir()] == [True]
    monkeypatch.setattr(compiler, "compile_programs", None)
    kept = load_programs("summary")
    assert equal(compiled, kept)
    assert equal(kept, programs("summary"))
    assert kept.table is None
    assert kept.profile == "summary"
    assert [info.path for info in kept.fields] == [info.path for info in compiled.fields]


def test_changed_sources_are_compiled_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_programs("summary")
    load_programs("results")
    monkeypatch.setattr(kept_programs, "_sources", lambda: "other")
    load_programs("summary")
    names = sorted(path.name for path in folder.iterdir())
    assert names[1] == "programs-summary-other.programs"
    assert len(names) == 2


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"junk" * 100])
def test_damaged_programs_are_compiled_anew(folder: Path, damage: bytes) -> None:
    compiled = load_programs("nothing")
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for content in (damage, whole[:-400], whole[:1000]):
        path.write_bytes(content)
        assert equal(load_programs("nothing"), compiled)
        assert path.read_bytes() == whole


def test_arrays_of_another_form_are_compiled_anew(folder: Path) -> None:
    compiled = load_programs("nothing")
    (path,) = folder.iterdir()
    whole = np.fromfile(path, np.int32)
    for other in (np.zeros(9), np.zeros(9, np.int32), whole[:-1], np.append(whole[:6], whole), -whole):
        other.tofile(path)
        assert equal(load_programs("nothing"), compiled)


def test_no_folder_and_a_closed_one_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "made_ahead", lambda: None)
    for place in (None, tmp_path / "missing"):
        monkeypatch.setattr(kept_programs, "_folder", lambda place=place: place)
        assert equal(load_programs("summary"), programs("summary"))
    assert os.listdir(tmp_path) == []


def test_programs_made_with_the_package_need_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_programs(tmp_path, installed=True)
    monkeypatch.setattr(store, "made_ahead", lambda: str(tmp_path))
    monkeypatch.setattr(loading, "_kept_or_compiled", None)
    for name in PROFILES:
        assert equal(load_programs(name), programs(name))


def test_damaged_or_old_programs_of_the_package_are_not_used(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = tmp_path_factory.mktemp("ahead")
    make_programs(ahead, installed=True)
    monkeypatch.setattr(store, "made_ahead", lambda: str(ahead))
    (ahead / "nothing.programs").write_bytes(b"")
    assert equal(load_programs("nothing"), programs("nothing"))
    assert [path.name.split("-")[1] for path in folder.iterdir()] == ["nothing"]
    lines = (ahead / "programs.txt").read_text().splitlines()
    size, rest = lines[1].split(" ", 1)
    (ahead / "programs.txt").write_text("\n".join((lines[0], f"{int(size) + 1} {rest}", *lines[2:])))
    loading._is_made_of_these_layouts.cache_clear()
    assert equal(load_programs("summary"), programs("summary"))
    assert len(list(folder.iterdir())) == 2


def test_an_unknown_profile_is_refused(folder: Path) -> None:
    with pytest.raises(KeyError):
        load_programs("sumary")
