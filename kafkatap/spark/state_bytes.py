"""A state as bytes, and back.

Everyone who can write to the folder of a state can change it. So damage is found by a checksum, and what is read makes
values of known kinds only: a prepared state cannot run code.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import is_dataclass
from typing import Any

from ..splits.task_rows import dump, plain

#: Classes and functions of others that states have, besides the types that need no name.
_OF_OTHERS = frozenset({
    ("builtins", "frozenset"), ("builtins", "set"), ("collections", "Counter"), ("numpy", "dtype"),
    ("numpy", "ndarray"), ("numpy", "record"), ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"), ("numpy._core.numeric", "_frombuffer"),
})  # fmt: skip
#: Packages without input and output of their own.
_PACKAGES = tuple(f"kafkatap.{name}." for name in ("dissector", "reassembly", "reports", "splits"))
_CHECKSUM = 4


class DamagedState(ValueError):
    """Bytes that are not those that were written."""


def state_bytes(state: Any) -> bytes:
    """A copy of a state; `state_of` reads it."""
    data = dump(state)
    return zlib.crc32(data).to_bytes(_CHECKSUM, "little") + data


def state_of(data: bytes) -> Any:
    """The state of `state_bytes`. DamagedState if it is not whole, or has what no state has."""
    if len(data) <= _CHECKSUM or zlib.crc32(memoryview(data)[_CHECKSUM:]) != int.from_bytes(data[:_CHECKSUM], "little"):
        raise DamagedState("its checksum is wrong")
    try:
        return _Values(io.BytesIO(plain(data[_CHECKSUM:]))).load()
    except pickle.UnpicklingError as error:
        raise DamagedState(str(error)) from None


class _Values(pickle.Unpickler):
    """Reads values of the classes in `_PACKAGES`, of other dataclasses and named tuples of kafkatap, and of
    `_OF_OTHERS`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OF_OTHERS:
            return super().find_class(module, name)
        if module.startswith("kafkatap.") and "." not in name:
            found = super().find_class(module, name)
            is_value = module.startswith(_PACKAGES) or is_dataclass(found) or hasattr(found, "_fields")
            if isinstance(found, type) and is_value and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it has {module}.{name}, which is of no state")
