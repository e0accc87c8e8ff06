"""Lines of records whose columns are null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkatap import analyze
from kafkatap.reports.rendering.record_lines import Rendering, json_lines, text_lines


@pytest.fixture(scope="module")
def table(samples: Path) -> Any:
    return analyze(samples / "apache-4.3.pcap.zst").records.slice(3, 40)


def without(table: Any, *names: str) -> Any:
    """A table with nulls in some columns."""
    for name in names:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.nulls(table.num_rows, table.schema.field(at).type))
    return table


def lines(table: Any) -> Iterator[str]:
    return text_lines(table, Rendering(), utc=True)


def test_an_unknown_offset_is_not_relative(table: Any) -> None:
    assert any("@+" in line for line in lines(table))
    for line in lines(without(table, "offset", "partition", "topic", "client_id", "timestamp", "message_first")):
        assert "  --:--:--.---  " in line
        assert "  -  ?-?@?  " in line


def test_json_has_them_as_null(table: Any) -> None:
    names = ("offset", "timestamp", "crc_ok", "key", "producer_id")
    found = [json.loads(line) for line in json_lines(without(table, *names), Rendering())]
    assert [row["exchange"] for row in found] == [str(n) for n in table["exchange"].to_pylist()]
    assert all(row[name] is None for row in found for name in names)


def test_a_part_of_a_table_has_its_own_headers(table: Any) -> None:
    whole = list(json_lines(table, Rendering()))
    assert [line for n in range(40) for line in json_lines(table.slice(n, 1), Rendering())] == whole
