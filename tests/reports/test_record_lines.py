"""Lines of records whose columns are null."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kafkatap.reports.record_rows import RecordRows
from kafkatap.reports.rendering.record_lines import Rendering, json_lines, text_lines
from kafkatap.selected_messages.selected_records import RecordReader


@pytest.fixture
def rows(samples: Path) -> RecordRows:
    found = next(RecordReader([str(samples / "apache-4.3.pcap.zst")]).rows())
    found.leave(40)
    return found


def without(rows: RecordRows, *names: str) -> RecordRows:
    """The same with nulls in some columns."""
    for name in names:
        if name == "key":
            rows.chunk.records["key_length"] = -1
        else:
            column = rows.columns[name]
            rows.columns[name] = column._replace(missing=np.ones(len(column.numbers), bool))
    return rows


def lines(rows: RecordRows) -> Iterator[str]:
    return text_lines(rows, Rendering(), utc=True)


def test_an_unknown_offset_is_not_relative(rows: RecordRows) -> None:
    assert any("@+" in line for line in lines(rows))
    for line in lines(without(rows, "offset", "partition", "topic", "client_id", "timestamp", "message_first")):
        assert "  --:--:--.---  " in line
        assert "  -  ?-?@?  " in line


def test_json_has_them_as_null(rows: RecordRows) -> None:
    names = ("offset", "timestamp", "crc_ok", "key", "producer_id")
    found = [json.loads(line) for line in json_lines(without(rows, *names), Rendering())]
    assert [row["exchange"] for row in found] == [str(n) for n in rows.values("exchange")]
    assert all(row[name] is None for row in found for name in names)


@pytest.mark.parametrize("made", [lambda rows: list(json_lines(rows, Rendering())), lambda rows: list(lines(rows))])
def test_the_first_rows_have_their_own_headers(rows: RecordRows, made: Callable[[RecordRows], list[str]]) -> None:
    whole = made(rows)
    assert len(whole) == 40
    for count in (39, 7, 1, 0):
        rows.leave(count)
        assert made(rows) == whole[:count]
