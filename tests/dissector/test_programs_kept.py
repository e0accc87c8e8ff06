"""Programs are kept beside the compiled kernels, and compiled anew where what is kept is stale or damaged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kafkatap.dissector.programs import compiler, loading
from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.program import Programs
from kafkatap.kernels import store
from tests.dissector.machine_support import programs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "open_folder", lambda build=True: tmp_path)
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
    monkeypatch.setattr(loading, "_sources", lambda: "other")
    load_programs("summary")
    names = sorted(path.name for path in folder.iterdir())
    assert names[1] == "programs-summary-other.npy"
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
    for other in (np.zeros(9), np.zeros((2, 9), np.int32), np.zeros(9, np.int32), np.load(path)[:-1]):
        np.save(path, other)
        assert equal(load_programs("nothing"), compiled)


def test_no_folder_and_a_closed_one_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (None, tmp_path / "missing"):
        monkeypatch.setattr(store, "open_folder", lambda build=True, place=place: place)
        assert equal(load_programs("summary"), programs("summary"))
    assert os.listdir(tmp_path) == []


def test_an_unknown_profile_is_refused(folder: Path) -> None:
    with pytest.raises(KeyError):
        load_programs("sumary")
