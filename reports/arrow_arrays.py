"""Arrow arrays of numpy arrays and texts, made from buffers.

`pyarrow.array` imports pandas where it is installed, to see whether it got a Series: 0.2 s and 40 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .batch import Array

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_numbers(values: Array, kind: pa.DataType, missing: Array | None = None) -> pa.Array:
    """Numbers, booleans or times (numbers in the unit of `kind`), null where `missing` (bool) is true."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(bool), bitorder="little")
    else:
        # A copy: Arrow shares the memory, and callers use theirs again.
        data = values.astype(f"i{kind.bit_width // 8}", order="C", casting="same_kind")
    validity = None if missing is None or not missing.any() else np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(
        kind, len(values), [None if validity is None else pa.py_buffer(validity), pa.py_buffer(data)]
    )


def arrow_texts(values: Sequence[str | None]) -> pa.Array:
    """Strings, null where a value is None. OverflowError if they have more than 2 GiB."""
    import pyarrow as pa

    raw = [b"" if value is None else value.encode("utf-8", "backslashreplace") for value in values]
    ends = np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)))
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("the texts of one Arrow array have more than 2 GiB")
    offsets = np.zeros(len(raw) + 1, np.int32)
    offsets[1:] = ends
    missing = np.fromiter((value is None for value in values), bool, len(raw))
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.string(), len(raw), [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))])


def arrow_indices(numbers: Array, missing: Array | None = None) -> pa.Array:
    """Indices for `pyarrow.Array.take`, null where `missing` is true."""
    import pyarrow as pa

    return arrow_numbers(numbers, pa.int64(), missing)
