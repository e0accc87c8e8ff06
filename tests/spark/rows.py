"""Small tables, of the declared schemas, to be written and published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkatap.partitions import broker_names, exchange_times
from kafkatap.reports.tables import TABLES, arrow_schema, arrow_type
from kafkatap.spark.output.publish import Staging, Written

TABLES_MADE = ("exchanges", "results", "connections", "files", "ledger")
#: 2026-11-21T04:00:00Z
HOUR_4 = 1_795_233_600_000_000_000
HOUR = 3_600_000_000_000
_PLAIN = {"string": "x", "bool": True, "binary": b"x"}


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


def exchanges(*hours: int, broker: str = "10.0.0.1", tag: int = 0) -> Any:
    """One exchange in each of the hours (since HOUR_4)."""
    return made(
        "exchanges",
        [
            {
                "exchange": n,
                "connection": tag,
                "broker_ip": broker,
                "broker_port": 9092,
                "request_first": HOUR_4 + h * HOUR + 123_456_789,
                "broker_ns": 123_456_789,
            }
            for n, h in enumerate(hours)
        ],
    )


def connections(*hours: int, broker: str = "10.0.0.1", protocol: str = "kafka") -> Any:
    rows = [
        {
            "connection": n,
            "broker_ip": broker,
            "broker_port": 9092,
            "connection_first": HOUR_4 + h * HOUR,
            "connection_last": HOUR_4 + h * HOUR,
            "protocol": protocol,
        }
        for n, h in enumerate(hours)
    ]
    return made("connections", rows)


def results_of(table: Any, tag: int = 0) -> tuple[Any, Any, Any]:
    """(results, one for each exchange; the times and the brokers of their exchanges)."""
    rows = [{"exchange": n, "error_code": tag} for n in table["exchange"].to_pylist()]
    return made("results", rows), exchange_times(table), broker_names(table)


def write_run(staging: Staging, tag: int, hours: Sequence[int] = (0, 1), splits: int = 2) -> list[Written]:
    """What the tasks of a run write: so many splits, with rows in these hours. Rows tell by `tag` whose they are."""
    written = []
    for split in range(splits):
        table = exchanges(*hours, tag=tag)
        results, times, brokers = results_of(table, tag)
        written += staging.write("exchanges", table, split)
        written += staging.write("results", results, split, 0, times, brokers)
        if split == 0:
            written += staging.write("connections", connections(hours[0]), split)
    written += staging.write("files", made("files", [{"path": f"capture-{tag}"}]))
    written += staging.write("ledger", made("ledger", [{"section": "packets", "part": "total", "count": tag}]))
    return [*written, staging.write_text("report.json", f'{{"run": {tag}}}')]
