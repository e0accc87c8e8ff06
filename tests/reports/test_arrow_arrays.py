"""Arrow arrays from buffers equal those of `pyarrow.array`, and keep their values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kafkatap.reports.arrow_arrays import arrow_indices, arrow_numbers, arrow_texts


@pytest.mark.parametrize("kind", [pa.int16(), pa.int32(), pa.int64(), pa.timestamp("ns", "UTC"), pa.bool_()])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_numbers(kind: pa.DataType, count: int) -> None:
    values = np.arange(count, dtype=np.int64) * 3 % 5 - 1
    missing = values == 2
    shown = values > 0 if pa.types.is_boolean(kind) else values
    expected = [None if gone else value for value, gone in zip(shown.tolist(), missing.tolist(), strict=True)]
    assert arrow_numbers(shown, kind, missing).equals(pa.array(expected, kind))
    assert arrow_numbers(shown, kind).equals(pa.array(shown.tolist(), kind))


def test_an_array_keeps_its_values_when_their_memory_is_used_again() -> None:
    for dtype in (np.int32, np.int64):
        values, missing = np.arange(1_000, dtype=dtype), np.zeros(1_000, bool)
        made = arrow_numbers(values, pa.int64(), missing), arrow_indices(values)
        values[:], missing[:] = -1, True
        assert all(array.to_pylist() == list(range(1_000)) for array in made)


def test_texts() -> None:
    texts = ["", None, "topic", "\N{SNOWMAN}", None, "a" * 1_000]
    assert arrow_texts(texts).equals(pa.array(texts, pa.string()))
    assert arrow_texts([]).equals(pa.array([], pa.string()))
