"""TLS connections that are open between two batches of a stream are decrypted on; checkpoints have no secrets."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.spark.stream import StreamOptions, finish_stream
from kafkatap.spark.stream_state import StateFolder
from kafkatap.splits.run_options import RunOptions
from tests.spark.test_permissions import mode_of, public
from tests.spark.test_stream import Stream, first_time
from tests.splits.join_support import compared, differences, local, packets_at_random, published, rotate
from tests.splits.test_tls import conversations, write
from tests.support.tcp import merge
from tests.support.tls_talk import OverTls


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A capture of all suites as rotated files, in the order in which they were written, and its key log."""
    folder = tmp_path_factory.mktemp("arrived")
    over = OverTls(folder)
    whole = write(folder / "whole.pcap", merge(*conversations(over, 200)))
    names = rotate(whole, folder / "rotated", packets_at_random(whole, 4, 5))
    return sorted(names, key=first_time), over.key_log


def stream_of(folder: Path, key_log: KeyLog | None) -> Stream:
    reading = RunOptions(ReadOptions(key_log=key_log), records=True)
    return Stream(StreamOptions(str(folder / "out"), str(folder / "checkpoint"), split_size=100_000, reading=reading))


@pytest.mark.parametrize("has_keys", [True, False])
def test_batches(arrived: tuple[list[str], Path], tmp_path: Path, has_keys: bool) -> None:
    captures, keylog = arrived
    stream = stream_of(tmp_path, KeyLog([str(keylog)]) if has_keys else None)
    for batch in (captures[:1], captures[1:3], captures[3:4], captures[4:]):
        stream.read(batch)
        state = StateFolder(stream.options.checkpoint).last()
        saved = pickle.dumps(state)
        for line in keylog.read_text().splitlines():
            secret = line.split()[-1]
            if not line.startswith("#"):
                assert secret.encode() not in saved
                assert bytes.fromhex(secret) not in saved
    finish_stream(None, stream.options)
    assert (public(Path(stream.options.out)) == []) == has_keys
    states = list(Path(stream.options.checkpoint).rglob("state-*"))
    assert ({mode_of(path) for path in states} == {0o600}) == has_keys
    wanted = local(captures, records=True, keylog=keylog if has_keys else None)
    wanted = {name: to_microseconds(table) for name, table in wanted.items()}
    lines = differences(compared(published(stream.options.out)), compared(wanted))
    assert not lines, "\n".join(lines)


def test_a_key_log_that_lacks_its_lines_later(arrived: tuple[list[str], Path], tmp_path: Path) -> None:
    """What cannot be decrypted any more counts as encrypted."""
    captures, keylog = arrived
    stream = stream_of(tmp_path, KeyLog([str(keylog)]))
    stream.read(captures[:3])
    stream.options = stream_of(tmp_path, KeyLog()).options
    stream.read(captures[3:])
    finish_stream(None, stream.options)
    found = published(stream.options.out)
    ledger = {(row["section"], row["part"]): row["count"] for row in found["ledger"].to_pylist()}
    assert ledger["payload bytes", "encrypted"] > 0
    whole = local(captures, keylog=keylog)["exchanges"]
    assert 0 < len(found["exchanges"]) < len(whole)
    tls = [row for row in found["connections"].to_pylist() if row["tls_decryption"]]
    assert {row["tls_decryption"] for row in tls} == {"decrypted"}
