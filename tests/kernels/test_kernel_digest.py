"""A kernel's digest changes with everything that its object code depends on, and with nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kafkatap.kernels import kept_objects
from kafkatap.kernels.build import build, kernels_of
from kafkatap.kernels.declarations import KernelSource
from kafkatap.kernels.kept_objects import read_object, write_object
from kafkatap.kernels.kernel_digest import kernel_digest, toolchain
from kafkatap.kernels.modules import KERNEL_MODULES

SOURCE = '''
from typing import Annotated, Any, NamedTuple
import numpy as np
from kafkatap.kernels import helper, kernel
from kafkatap.kernels.decorator import inlined, record_dtype

ROW = record_dtype(("key", "i4"), ("value", "i8"))
LIMIT = 7
OTHER = 1
WEIGHTS = (1, 2, 3)

class Rows(NamedTuple):
    rows: Annotated[np.ndarray[Any, Any], ROW]
    out: Annotated[np.ndarray[Any, Any], np.int64]

@helper
def bottom(value):
    """The helper two levels down."""
    return min(value + 1, LIMIT)

@inlined
def middle(value):
    return bottom(value) * WEIGHTS[1]

@helper
def unused(value):
    return value - OTHER

@kernel(Rows, int)
def first(rows, start):
    # a comment
    for i in range(len(rows.rows)):
        start += middle(rows.rows[i].value)
    return start

@kernel(np.int64)
def second(values):
    return values[0]
'''


def module_of(source: str) -> ModuleType:
    module = ModuleType("digested")
    module.__file__ = "digested.py"
    sys.modules["digested"] = module
    exec(compile(source, "digested.py", "exec"), module.__dict__)
    return module


def digests(source: str, compiled_by: str = "numba") -> tuple[str, str]:
    module = module_of(source)
    return kernel_digest(module.first, compiled_by), kernel_digest(module.second, compiled_by)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 7", "LIMIT = 8"),
        ("LIMIT = 7", "LIMIT = 7.0"),
        ("LIMIT = 7", "LIMIT = np.int32(7)"),
        ("WEIGHTS = (1, 2, 3)", "WEIGHTS = (1, 3, 3)"),
        ("WEIGHTS = (1, 2, 3)", "WEIGHTS = np.array([1, 2, 3])"),
        ("value + 1", "value + 2"),
        ("value + 1", "value - 1"),
        ("@inlined", "@helper"),
        ('("key", "i4")', '("key", "u4")'),
        ('("key", "i4"), ("value", "i8")', '("value", "i8"), ("key", "i4")'),
        ('("key", "i4")', '("key", "i4"), ("pad", "i4")'),
        ("out: Annotated[np.ndarray[Any, Any], np.int64]", "out: Annotated[np.ndarray[Any, Any], np.int32]"),
        ("@kernel(Rows, int)", "@kernel(Rows, np.int64)"),
        ("start += middle(", "start -= middle("),
    ],
)
def test_it_changes_with_what_a_kernel_reaches_and_no_other_kernel_s_does(old: str, new: str) -> None:
    assert old in SOURCE
    before, after = digests(SOURCE), digests(SOURCE.replace(old, new))
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("OTHER = 1", "OTHER = 2"),
        ("value - OTHER", "value * OTHER"),
        ("two levels down", "at the bottom"),
        ("    # a comment\n", "\n\n\n"),
        ("def first(", "def zeroth(values):\n    return 0\n\n@kernel(Rows, int)\ndef first("),
    ],
)
def test_it_does_not_change_with_other_code(old: str, new: str) -> None:
    assert old in SOURCE
    assert digests(SOURCE) == digests(SOURCE.replace(old, new))


def test_it_changes_with_the_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digests(SOURCE) != digests(SOURCE, "another numba")
    found = set()
    for name, value in [("", ""), ("NUMBA_CPU_NAME", "generic"), ("NUMBA_CPU_FEATURES", "+avx")]:
        with monkeypatch.context() as patch:
            if name:
                patch.setenv(name, value)
            found.add(toolchain())
    monkeypatch.setenv("KAFKATAP_BOUNDSCHECK", "1")
    assert len(found | {toolchain()}) == 4


def test_a_value_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="no description"):
        digests(SOURCE.replace("LIMIT = 7", "LIMIT = object()"))


def test_every_kernel_has_a_digest_of_its_own() -> None:
    kernels: list[KernelSource] = [k for m in KERNEL_MODULES for k in kernels_of(m)]
    assert len({kernel_digest(k, "numba") for k in kernels}) == len(kernels)


def test_only_the_kernels_that_a_change_reaches_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def compiled(kernels: list[KernelSource], processes: int | None) -> list[tuple[str, bytes]]:
        asked.extend(k.__name__ for k in kernels)
        return [(k.qualified_name, k.__name__.encode()) for k in kernels]

    monkeypatch.setattr("kafkatap.kernels.build.compiled", compiled)
    objects = tmp_path / "objects"
    for source, expected in [
        (SOURCE, ["first", "second"]),
        (SOURCE.replace("OTHER = 1", "OTHER = 2"), []),
        (SOURCE.replace("LIMIT = 7", "LIMIT = 8"), ["first"]),
        (SOURCE, []),
    ]:
        module_of(source)
        asked.clear()
        folder = tmp_path / "store"
        folder.mkdir(exist_ok=True)
        build(folder, objects, ["digested"])
        assert asked == expected
        assert (folder / "digested.first.o").read_bytes() == b"first"
    assert "compiling 1 of 2 kernels" in capsys.readouterr().out


def test_kept_objects_are_checked_and_the_oldest_are_removed(tmp_path: Path) -> None:
    made = b"\x7fELF\n\0code"
    for name in "abc":
        write_object(tmp_path, name, made)
    assert read_object(tmp_path, "a") == made  # used last now
    size = (tmp_path / "a").stat().st_size
    kept_objects.forget_old_objects(tmp_path, 2 * size)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "c"]
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-1] + b"?")
    assert read_object(tmp_path, "c") is None
    assert read_object(tmp_path, "b") is None
