"""Tables in an object store, and the names of stores for deltalake."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafkatap.spark.output import delta
from kafkatap.spark.output.compaction import compact
from kafkatap.spark.output.folders import Folder
from kafkatap.spark.output.stores import delta_location
from tests.spark.rows import TABLES_MADE, run, seen
from tests.support.s3_server import s3_server


def test_tables_in_an_object_store() -> None:
    with s3_server() as uri:
        out = uri("deep/tables")
        run(out, {1: (0, 1), 2: (0, 30)}, 1)
        run(out, {2: (0,), 3: (0,)}, 2)
        wanted = [(1, 100, 1), (1, 101, 1), (2, 200, 2), (3, 300, 2)]
        assert seen(out)["exchanges"] == seen(out)["results"] == wanted
        assert all(name.partition("/")[0] in TABLES_MADE for name in Folder(out).sizes(""))
        assert [(c.table, c.after) for c in compact(out)][:2] == [("exchanges", 1), ("results", 1)]
        run(out, {3: (0,)}, 3)  # of a file with other captures too
        assert seen(out)["exchanges"] == [*wanted[:3], (3, 300, 3)]
        before = len(Folder(out).sizes(""))
        assert sum(c.deleted for c in compact(out, retention_hours=0)) > 0
        assert len(Folder(out).sizes("")) < before
        assert seen(out)["exchanges"] == [*wanted[:3], (3, 300, 3)]


def test_commits_at_the_same_time_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store lets only one of them be the next version of a table."""
    both = threading.Barrier(2)
    commit = delta.TableChanges._commit
    waited: set[tuple[str, str]] = set()

    def at_once(self: delta.TableChanges) -> None:
        if (self.run, self.table) not in waited:
            waited.add((self.run, self.table))
            both.wait(60)
        commit(self)

    with s3_server() as uri:
        out = uri("tables")
        run(out, {1: (0,)}, 1)
        monkeypatch.setattr(delta.TableChanges, "_commit", at_once)
        errors: list[BaseException] = []

        def write(capture: int) -> None:
            try:
                run(out, {1: (0,), capture: (0,)}, capture)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(capture,)) for capture in (2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        rows = seen(out)["exchanges"]
    assert [row[:2] for row in rows] == [(1, 100), (2, 200), (3, 300)]
    assert rows[0][2] in (2, 3)


S3 = "s3://bucket/a/b"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{S3}?region=eu-west-1", ("s3://bucket/a/b/t", {"AWS_REGION": "eu-west-1"})),
        ("s3a://bucket/a/?region=x", ("s3://bucket/a/t", {"AWS_REGION": "x"})),
        ("S3://bucket?region=x", ("s3://bucket/t", {"AWS_REGION": "x"})),
        (
            "s3://k:s%2Fe@bucket/a?endpoint_override=minio:9000&scheme=http",
            ("s3://bucket/a/t", {
                "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s/e",
            }),
        ),
        (
            f"{S3}?endpoint_override=https://m&force_virtual_addressing=true",
            ("s3://bucket/a/b/t", {"AWS_ENDPOINT_URL": "https://m", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}),
        ),
        ("gcs://bucket/a", ("gs://bucket/a/t", {})),
        ("abfss://box@account.dfs.core.windows.net/a", ("abfss://box@account.dfs.core.windows.net/a/t", {})),
        ("hdfs://name:8020/a?user=me", ("hdfs://name:8020/a/t", {})),
        ("file:///a%20b/c", ("/a b/c/t", {})),
        ("/a/b", ("/a/b/t", {})),
    ],
)  # fmt: skip
def test_the_names_of_stores(path: str, wanted: tuple[str, dict[str, str]]) -> None:
    assert delta_location(path, "t") == wanted


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert delta_location("tables", "t") == (f"{tmp_path}/tables/t", {})


def test_options_that_deltalake_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"connect_timeout is no option of Delta tables"):
        delta_location(f"{S3}?region=x&connect_timeout=3")
