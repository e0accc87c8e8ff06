"""Small tables, of the declared schemas, to be written and published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkatap.reports.tables import TABLES, arrow_schema, arrow_type
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.output.publication import Publication, Published, open_publication
from kafkatap.spark.output.writing import Written, with_capture
from kafkatap.splits.capture_ledgers import CaptureIndex

TABLES_MADE = ("exchanges", "results", "connections", "ledger", "files")
#: 2026-11-21T04:00:00Z
HOUR_4 = 1_795_233_600_000_000_000
HOUR = 3_600_000_000_000
_PLAIN = {"string": "x", "bool": True, "binary": b"x"}
#: Packets of each capture that `captures_of` names.
PACKETS = 1000


def made(table: str, rows: list[dict[str, Any]]) -> Any:
    """A table of rows; what a row does not say is null, or something plain."""
    import pyarrow as pa

    whole = []
    for n, row in enumerate(rows):
        plain = {
            c.name: None if c.nullable else [] if c.type.startswith("list") else _PLAIN.get(c.type, n)
            for c in TABLES[table]
        }
        whole.append({**plain, **row})
    columns = [
        pa.array([row[c.name] for row in whole], pa.int64()).cast(arrow_type(c.type))
        if c.type.startswith("timestamp")
        else pa.array([row[c.name] for row in whole], arrow_type(c.type))
        for c in TABLES[table]
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(TABLES[table]))


def index_of(captures: Sequence[int]) -> CaptureIndex:
    """These captures one after the other, PACKETS packets each."""
    return CaptureIndex.of([(1 + n * PACKETS, PACKETS, capture) for n, capture in enumerate(captures)])


def exchanges(place: int, hours: Sequence[int], key: int = 0, tag: int = 0) -> Any:
    """An exchange in each of the hours (since HOUR_4), in the capture at this place of an index. `key` is the first
    exchange's, `tag` is told by `correlation_id`."""
    rows = [
        {
            "exchange": key + n, "correlation_id": tag, "broker_ip": "10.0.0.1", "broker_port": 9092,
            "request_first": HOUR_4 + h * HOUR + 123_456_789, "request_packet_first": 1 + place * PACKETS + n,
            "broker_ns": 123_456_789, "topics": ["orders"],
        }
        for n, h in enumerate(hours)
    ]  # fmt: skip
    return made("exchanges", rows)


def results_of(table: Any, tag: int = 0) -> Any:
    """A result of each exchange."""
    return made("results", [{"exchange": n, "error_code": tag} for n in table["exchange"].to_pylist()])


def connections(hours: Sequence[int]) -> Any:
    rows = [
        {"connection": n, "connection_first": HOUR_4 + h * HOUR, "connection_last": HOUR_4 + h * HOUR}
        for n, h in enumerate(hours)
    ]
    return made("connections", rows)


def write_run(publication: Publication, captures: Mapping[int, Sequence[int]], tag: int = 0) -> list[Written]:
    """What the tasks and the driver of a run write: a split for each capture, with rows in its hours."""
    import numpy as np

    index = index_of(list(captures))
    written: list[Written] = []
    for split, (capture, hours) in enumerate(captures.items()):
        table = exchanges(split, hours, capture * 100, tag)
        with publication.writer.with_captures(index).open(split) as files:
            files.write("exchanges", table)
            files.write("results", results_of(table, tag))
            files.write("connections", connections(hours[:1]), np.array([1 + split * PACKETS]))
        written += files.written
        ledger = made("ledger", [{"section": "packets", "part": "total", "count": tag}])
        written += publication.write("ledger", with_capture(ledger, np.array([capture])))
        name = made("files", [{"path": f"capture-{capture}"}])
        written += publication.write("files", with_capture(name, np.array([capture])))
    return written


def run(out: Path | str, captures: Mapping[int, Sequence[int]], tag: int = 0, **options: Any) -> Published:
    """A whole run over captures: the hours in which each has exchanges."""
    with open_publication(str(out)) as publication:
        return publication.publish(write_run(publication, captures, tag), TABLES_MADE, captures, **options)


def seen(out: Path | str) -> dict[str, list[tuple[Any, ...]]]:
    """The committed rows: (capture, key, tag), of `files` (capture, path)."""
    columns = {
        "exchanges": ("capture", "exchange", "correlation_id"), "results": ("capture", "exchange", "error_code"),
        "connections": ("capture", "connection"), "ledger": ("capture", "count"), "files": ("capture", "path"),
    }  # fmt: skip
    found = {}
    for table, names in columns.items():
        rows = read_table(str(out), table, names)
        found[table] = sorted(zip(*(rows[name].to_pylist() for name in names), strict=True))
    return found
