"""Files of decrypted traffic are for their user alone."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.delta import active_files, open_table
from kafkatap.spark.output.publication import open_publication
from tests.spark.rows import TABLES_MADE, run, seen, write_run


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def public(out: Path) -> list[str]:
    """Files and folders that are not for their user alone. Delta's logs are left out: they are in private folders."""
    found = [out, *(path for path in out.rglob("*") if "_delta_log" not in path.parts)]
    assert len(found) > 1
    return [f"{path}: {mode_of(path):o}" for path in found if mode_of(path) != (0o700 if path.is_dir() else 0o600)]


def private_run(out: Path, captures: dict[int, tuple[int, ...]], tag: int = 0) -> None:
    with open_publication(str(out), is_private=True) as publication:
        assert pickle.loads(pickle.dumps(publication.writer)).is_private  # as executors get it
        publication.publish(write_run(publication, captures, tag), (*TABLES_MADE, "records"), captures)


def test_a_private_run(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "tables"
    private_run(out, {1: (0, 30), 2: (0,)})
    assert public(out) == []
    assert (out / "records" / "_delta_log").is_dir()  # a table without rows
    assert mode_of(out.parent) == 0o755


def test_a_run_without_a_key_log_leaves_rights_to_the_umask(tmp_path: Path) -> None:
    run(tmp_path / "tables", {1: (0,)})
    modes = {mode_of(path) for path in (tmp_path / "tables").rglob("*.parquet")}
    assert modes == {0o644}


def test_a_private_run_in_a_folder_of_others(tmp_path: Path) -> None:
    """What is there keeps its rights."""
    out = tmp_path / "tables"
    run(out, {1: (0,)}, 1)
    before = {path: mode_of(path) for path in [out, *out.rglob("*")]}
    private_run(out, {2: (0, 30)}, 2)
    assert {path: mode_of(path) for path in before} == before
    made = [path for path in out.rglob("*") if path not in before and "_delta_log" not in path.parts]
    assert {(path.is_dir(), mode_of(path)) for path in made} == {(True, 0o700), (False, 0o600)}


def test_files_that_replace_private_ones_are_private(tmp_path: Path) -> None:
    """By a run without a key log, and by a compaction."""
    out = tmp_path / "tables"
    run(out, {9: (0,)}, 0)  # so that its folders are not private
    with open_publication(str(out), is_private=True) as publication:  # a file with two captures
        written = write_run(publication, {1: (0,), 2: (0,)}, 1)
        publication.publish(written, TABLES_MADE, {1, 2})
    assert any(table.after < table.before for table in compact(str(out)))
    assert {oct(mode) for mode in modes_of_active(out, "exchanges")} == {"0o600"}
    run(out, {1: (0,)}, 2)  # the file of the compaction is written again without capture 1
    assert seen(out)["exchanges"] == [(1, 100, 2), (2, 200, 1), (9, 900, 0)]
    assert sorted(modes_of_active(out, "exchanges")) == [0o600, 0o644]


def modes_of_active(out: Path, table: str) -> list[int]:
    return [mode_of(out / table / file.path) for file in active_files(open_table(str(out), table))]
