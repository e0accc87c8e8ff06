"""One set of rules merges the rows of connections that splits share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkatap.kernels import column_spec
from kafkatap.kernels.column_spec import ADDRESS, FLAG, NAMED, STRING, WORD, ColumnSpec, every_row
from kafkatap.reports.batch import Context
from kafkatap.reports.connection_columns import COLUMNS, CONNECTION_ROW, CONNECTIONS
from kafkatap.reports.connection_words import D_DECRYPTED, D_NO_KEY, NOT_CLOSED, P_KAFKA, P_TLS, SCALE_UNKNOWN
from kafkatap.reports.tables import connections_table
from kafkatap.splits.split_counts import merged_connections

STRINGS = (b"billing", b"orders", "f\u00fcr".encode(), b"")
ADDRESSES = ("10.0.0.1", "::1", "10.0.0.2")
NAMES = Context(strings=STRINGS, addresses=ADDRESSES)
START = 1_700_000_000_000_000_000
_OF_ROWS = [column for column in CONNECTIONS if column in COLUMNS]  # names of hosts are no values of rows


def random_rows(count: int, seed: int) -> np.ndarray:
    """Rows with any values of a column that the table can hold."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, CONNECTION_ROW)
    for column in _OF_ROWS:
        low, high = column.missing if column.nullable else 0, 50
        if column.kind in (STRING, ADDRESS):
            high = len(STRINGS if column.kind == STRING else ADDRESSES)
        elif column.kind in (WORD, FLAG):
            high = len(column.words) or 2
        elif column.kind == NAMED:
            low, high = max(low, -1), 200
        rows[column.field] = rng.integers(low, high, count)
    rows["connection"] = rng.integers(0, count // 3, count)
    rows["is_measured"] = rng.integers(0, 2, count)
    closed = rows["closed_with"] != NOT_CLOSED
    rows["closed_by"][~closed] = rows["closed_at"][~closed] = -1
    return rows


def expected(column: ColumnSpec, rows: np.ndarray) -> int:
    """The value of the rows of one connection, in order of time, by the rule of a column: one row at a time."""
    values = rows[column.field].tolist()
    if column.merge.rule == "sum":
        return sum(values)
    if column.merge.rule == "greatest":
        return max(values, key=column.merge.order.index if column.merge.order else int)
    nulls = column.nulls(rows)
    known = column.merge.among(rows) if column.merge.among else np.ones(len(rows), bool) if nulls is None else ~nulls
    some = [value for value, holds in zip(values, known.tolist(), strict=True) if holds]
    if column.merge.rule == "least":
        return min(some, default=column.missing)
    return (some or values[-1:])[0 if column.merge.rule == "first" else -1] if some else values[-1]


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_connection_become_one(seed: int) -> None:
    rows = random_rows(600, seed)
    merged = merged_connections(rows)
    assert merged["connection"].tolist() == sorted(set(rows["connection"].tolist()))
    for one in merged:
        mine = rows[rows["connection"] == one["connection"]]
        mine = mine[np.argsort(mine["last"], kind="stable")]
        for column in COLUMNS:
            assert one[column.field] == expected(column, mine), column.name


def shared(**columns: Any) -> np.ndarray:
    """Two rows of a connection: each argument is the value in both, or a tuple of the two values."""
    rows = np.zeros(2, CONNECTION_ROW)
    for column in COLUMNS:
        rows[column.field] = column.missing
    rows["protocol"], rows["connection"] = P_KAFKA, 7
    rows["first"], rows["last"] = (START, START + 10), (START + 9, START + 20)
    for name, values in columns.items():
        rows[name] = values
    return rows


def both(**columns: Any) -> dict[str, Any]:
    """The merged row of a table."""
    (found,) = connections_table(merged_connections(shared(**columns)), NAMES).to_pylist()
    return found


def test_what_each_split_counts_is_added_up() -> None:
    sums = [column for column in CONNECTIONS if column.merge.rule == "sum"]
    found = both(**{column.field: 64 for column in sums}, is_measured=1, protocol=P_TLS, tls_decryption=D_DECRYPTED)
    assert {column.name: found[column.name] for column in sums} == {column.name: 128 for column in sums}
    assert len(sums) > 50


def test_what_splits_know_of_the_same_thing_is_not_added_up() -> None:
    found = both(
        client_port=(1, 2), orientation_known=(1, 0), client_id=(0, -1), handshake_rtt_ns=(5, -1), reset_by=(1, -1),
        closed_with=(1, 2), closed_by=(0, 1), closed_at=(START + 8, START + 12), client_window_scale=(7, SCALE_UNKNOWN),
        client_mss=(1460, 0), is_measured=1, client_rtt_count=(3, 0), client_rtt_min_ns=(9, 0),
        client_window_max=(64, 32),
    )  # fmt: skip
    assert (found["client_port"], found["client_id"], found["handshake_rtt_ns"]) == (1, None, 5)
    assert (found["closed_with"], found["closed_by"], found["reset_by"]) == ("FIN", "client", "broker")
    assert (found["client_window_scale"], found["client_mss"]) == (7, 1460)
    assert (found["client_rtt_min_ns"], found["client_rtt_count"], found["client_window_max"]) == (9, 3, 64)


def test_a_certificate_that_was_requested_in_a_later_split() -> None:
    found = both(protocol=P_TLS, tls_decryption=(D_DECRYPTED, D_NO_KEY), tls_asks_certificate=(0, 1))
    assert found["tls_asks_certificate"] is True
    assert found["tls_decryption"] == "decrypted"


def test_a_column_has_to_say_how_it_is_merged() -> None:
    with pytest.raises(TypeError, match="merge"):
        ColumnSpec("retries", column_spec.NUMBER, "i8", doc="retries of the client")  # type: ignore[call-arg]
    assert all(column.merge.rule != "never" for column in COLUMNS)


def test_every_column_is_declared_once() -> None:
    assert len({column.name for column in COLUMNS}) == len({column.field for column in COLUMNS}) == len(COLUMNS)
    assert set(CONNECTION_ROW.names or ()) == {column.field for column in COLUMNS}
    assert every_row(np.zeros(2, CONNECTION_ROW)).all()
