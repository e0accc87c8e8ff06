"""The comparison with truth files finds every kind of difference, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.truth import NONE, TIMES, compare_exchanges, error_text, match_exchanges, read_truth


def table_of(truth: Any) -> pa.Table:
    """An `exchanges` table that says what the truth says."""
    columns: dict[str, pa.Array] = {}
    for name in ("client_ip", "broker_ip", "client_id", "outcome"):
        columns[name] = pa.array(truth[name].tolist(), pa.string())
    for name in ("client_port", "broker_port", "api_key", "api_version", "correlation_id"):
        columns[name] = pa.array(truth[name].to_numpy(), pa.int32())
    for name in TIMES:
        times = truth[name].to_numpy()
        columns[name] = pa.array(times * 1000 + 999, mask=times < 0).cast(pa.timestamp("ns", "UTC"))
    for name, missing in (("request_bytes", -1), ("response_bytes", -1), ("throttle_time_ms", NONE)):
        values = truth[name].to_numpy()
        columns[name] = pa.array(values, mask=values == missing)
    errors = [
        [dict(zip(("code", "count"), map(int, pair.split("x")), strict=True)) for pair in text.split(",") if pair]
        for text in truth["errors"]
    ]
    columns["errors"] = pa.array(errors, pa.list_(pa.struct([("code", pa.int16()), ("count", pa.int32())])))
    return pa.table(columns)


@pytest.fixture(scope="module")
def truth(samples: Path) -> Any:
    return read_truth(samples / "apache-4.3.exchanges.tsv")


@pytest.mark.parametrize("tolerance", [0, 200])
def test_equal_tables_have_no_differences(truth: Any, tolerance: int) -> None:
    table = table_of(truth)
    assert compare_exchanges(table, truth, tolerance) == []
    assert compare_exchanges(pa.concat_tables([table.slice(700), table.slice(0, 700)]), truth, tolerance) == []


def test_lost_responses_and_orphans_are_as_good(truth: Any) -> None:
    said = truth.copy()
    said.loc[said["outcome"] == "unanswered", "outcome"] = "response_lost"
    orphan = said.head(1).assign(outcome="orphan_response", client_port=1)
    assert compare_exchanges(pa.concat_tables([table_of(said), table_of(orphan)]), truth) == []


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("request_last", lambda v: v + 1),
        ("response_first", lambda v: v - 1),
        ("request_bytes", lambda v: v + 1),
        ("response_bytes", lambda v: v + 1),
        ("outcome", lambda v: "no_reply_expected"),
        ("client_id", lambda v: None),
        ("throttle_time_ms", lambda v: NONE),
        ("errors", lambda v: error_text({29: 2, 3: 1})),
    ],
)
def test_each_column_is_compared(truth: Any, column: str, change: Callable[[Any], Any]) -> None:
    row = truth.index[(truth["status"] == "paired") & (truth["throttle_time_ms"] > 0)][3]
    said = truth.copy()
    said.loc[row, column] = change(said.loc[row, column])
    (difference,) = compare_exchanges(table_of(said), truth)
    assert difference.startswith(f"1 of {len(truth)} rows differ in {column}")


def test_bodies_of_trailing_rows_are_not_compared(truth: Any) -> None:
    row = truth.index[truth["status"] == "paired,request_trailing"][0]
    said = truth.copy()
    said.loc[row, "errors"] = "3x1"
    assert compare_exchanges(table_of(said), truth) == []


def test_missing_and_extra_rows_are_told_and_no_row_is_given_twice(truth: Any) -> None:
    table = table_of(truth)
    (missing,) = compare_exchanges(table.slice(5), truth)
    assert missing.startswith(f"5 of {len(truth)} rows of the truth are not in the table")
    (extra,) = compare_exchanges(table, truth[5:])
    assert extra.startswith(f"5 of {len(truth)} rows of the table are not in the truth")
    (twice,) = compare_exchanges(pa.concat_tables([table, table.slice(0, 2)]), truth)
    assert twice.startswith("2 of")
    assert compare_exchanges(table.slice(5), truth, missing=False) == []


def test_nearest_rows_are_matched_within_the_tolerance(truth: Any) -> None:
    moved = truth.assign(**{name: truth[name].where(truth[name] < 0, truth[name] + 150) for name in TIMES})
    table = table_of(moved)
    assert compare_exchanges(table, truth, 200) == []
    assert (match_exchanges(table, truth, 100)[1] < 0).mean() > 0.9
