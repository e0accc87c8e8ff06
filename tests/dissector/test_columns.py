"""The declared columns of exchanges and results: their rows, and what is null in them."""

from __future__ import annotations

import numpy as np
import pytest

from kafkatap.dissector.dtypes import EXCHANGE, EXCHANGE_COLUMNS, RESULT, RESULT_COLUMNS
from kafkatap.dissector.framing.correlation import _clear_exchange
from kafkatap.dissector.time_parts import DURATIONS, TIME_PARTS


def test_an_exchange_before_any_frame_has_nulls() -> None:
    rows = np.zeros(1, EXCHANGE)
    _clear_exchange(rows[0])
    nulls = {column.field: rows[column.field][0] for column in EXCHANGE_COLUMNS if column.null is not None}
    assert nulls == {column.field: column.null for column in EXCHANGE_COLUMNS if column.null is not None}


@pytest.mark.parametrize(("columns", "dtype"), [(EXCHANGE_COLUMNS, EXCHANGE), (RESULT_COLUMNS, RESULT)])
def test_each_column_is_declared_once(columns: tuple, dtype: np.dtype) -> None:
    fields = [column.field for column in columns if column.dtype]
    assert sorted(fields) == sorted(dtype.names or ())
    assert len({column.name for column in columns}) == len(columns)
    assert dtype.itemsize == sum(dtype[name].itemsize for name in fields)


def test_each_part_of_the_total_time_is_a_duration() -> None:
    assert {name for part in TIME_PARTS for name in part.columns} < set(DURATIONS)
    assert DURATIONS[-1] == "total_ns"
