"""Interned strings: each distinct string is kept once, and tables hold its number.

`intern` runs in kernels; `StringTable` owns the arrays. The table is an open-addressing hash table with a secret seed
(`kernels.hashing`). The caller of `intern` makes room first (`StringTable.reserve`).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, overload

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.arrays import grown, new_numbers, taken, untouched
from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import hash_start, mix, new_seed, spread
from kafkatap.kernels.readers import be32, same_bytes

Array = np.ndarray[Any, Any]

#: Where a string's bytes lie in the text.
STRING = record_dtype(("at", "i8"), ("hash", "i8"), ("length", "i4"))
STRINGS_STATE = record_dtype(
    ("count", "i8"),
    ("text_used", "i8"),
    ("seed", "i8"),
    ("limit", "i8"),  # of `count`; later strings are OTHER
    ("text_limit", "i8"),  # of `text_used`
    ("refused", "i8"),  # how often OTHER took the place of a string
    ("other", "i8"),  # the number of OTHER
)
#: The string in place of those beyond the limit.
OTHER = b"(other)"
_UNLIMITED = 1 << 62
#: Bytes of text for each string of the limit.
_LENGTH = 256


class Strings(NamedTuple):
    """The arrays of a string table. `buckets` holds 1 + the number of a string, 0 if a bucket is free. The number of
    buckets is a power of two."""

    entries: Annotated[Array, STRING]
    text: Annotated[Array, np.uint8]
    buckets: Annotated[Array, np.int32]
    state: Annotated[Array, STRINGS_STATE]


#: Rows, bytes of text, and buckets of a new table. Memory is used only where strings are.
_ENTRIES, _TEXT, _BUCKETS = 65_536, 64 << 20, 1 << 17


@helper
def hash_bytes(buf, at, length, seed):  # type: ignore[no-untyped-def]
    """A hash of buf[at:at+length], 30 bits, four bytes at a time."""
    h = mix(hash_start(seed), length, seed)
    words = length >> 2
    for k in range(words):
        h = mix(h, be32(buf, at + 4 * k), seed)
    rest = np.int64(0)
    for k in range(4 * words, length):
        rest = (rest << 8) | np.int64(buf[np.uintp(at + k)])
    return spread(mix(h, rest, seed))


@helper
def intern(strings, buf, at, length):  # type: ignore[no-untyped-def]
    """The number of the string buf[at:at+length], which is added if it is new. -1 for null (length < 0).

    Beyond the limits of the table, it is that of OTHER.
    """
    if length < 0:
        return np.int64(-1)
    state = strings.state[0]
    mask = strings.buckets.shape[0] - 1
    h = hash_bytes(buf, at, length, np.int64(state.seed))
    bucket = h & mask
    while True:
        number = np.int64(strings.buckets[bucket]) - 1
        if number < 0:
            break
        entry = strings.entries[number]
        if entry.hash == h and entry.length == length and same_bytes(strings.text, entry.at, buf, at, length):
            return number
        bucket = (bucket + 1) & mask
    number = np.int64(state.count)
    if number >= state.limit or state.text_used + length > state.text_limit:
        state.refused += 1
        return np.int64(state.other)
    state.count = number + 1
    strings.buckets[bucket] = number + 1
    entry = strings.entries[number]
    first = np.int64(state.text_used)
    entry.at = first
    entry.hash = h
    entry.length = length
    for k in range(length):
        strings.text[first + k] = buf[at + k]
    state.text_used = first + length
    return number


@kernel(STRING, int, np.int32)
def enter_strings(entries, count, buckets):  # type: ignore[no-untyped-def]
    """Enter entries[:count] into buckets that are all free."""
    mask = buckets.shape[0] - 1
    for number in range(count):
        bucket = entries[number].hash & mask
        while buckets[bucket] != 0:
            bucket = (bucket + 1) & mask
        buckets[bucket] = number + 1
    return 0


class StringTable:
    """The owner of the arrays. `arrays` is what kernels work on; it is replaced when the table grows."""

    def __init__(self) -> None:
        self.arrays = Strings(
            untouched(_ENTRIES, STRING), untouched(_TEXT, np.uint8), untouched(_BUCKETS, np.int32),
            np.zeros(1, STRINGS_STATE),
        )  # fmt: skip
        self.arrays.state["seed"] = new_seed()
        self.arrays.state["limit"] = self.arrays.state["text_limit"] = _UNLIMITED
        self._numbers: dict[bytes, int] = {}  # of the strings that Python asked for
        self.arrays.state["other"] = self.number_of(OTHER)

    def limit(self, count: int) -> None:
        """Add no strings from now on if there are `count`, or much text."""
        self.arrays.state["limit"], self.arrays.state["text_limit"] = count, count * _LENGTH

    @property
    def refused(self) -> int:
        """How often OTHER took the place of a string beyond the limit."""
        return int(self.arrays.state["refused"][0])

    @property
    def other(self) -> int:
        """The number of OTHER."""
        return int(self.arrays.state["other"][0])

    def __len__(self) -> int:
        return int(self.arrays.state["count"][0])

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | list[bytes]:
        if isinstance(number, slice):
            text = self.arrays.text[: self.text_used].tobytes()
            entries = self.arrays.entries[: len(self)][number]
            spans = zip(entries["at"].tolist(), entries["length"].tolist(), strict=True)
            return [text[at : at + length] for at, length in spans]
        entry = self.arrays.entries[number]
        value: Array = self.arrays.text[entry["at"] : entry["at"] + entry["length"]]
        return value.tobytes()

    @property
    def text_used(self) -> int:
        """Bytes of all strings."""
        return int(self.arrays.state["text_used"][0])

    @property
    def text_left(self) -> int:
        """Bytes that the text has room for."""
        return len(self.arrays.text) - self.text_used

    def number_of(self, value: bytes) -> int:
        """The number of a string, which is added if it is new."""
        number = self._numbers.get(value)
        if number is None:
            self.reserve(1, len(value))
            number = int(intern(self.arrays, np.frombuffer(value or b"\0", np.uint8), 0, len(value)))
            self._numbers[value] = number
        return number

    def reserve(self, count: int, size: int) -> None:
        """Make room for `count` more strings with `size` bytes in all."""
        arrays, used = self.arrays, len(self)
        if used + count > len(arrays.entries):
            arrays = arrays._replace(entries=grown(arrays.entries, used + count, used))
        if 2 * (used + count) > len(arrays.buckets):
            arrays = arrays._replace(buckets=np.zeros(1 << (4 * (used + count)).bit_length(), np.int32))
            enter_strings(arrays.entries, used, arrays.buckets)
        if size > self.text_left:
            arrays = arrays._replace(text=grown(arrays.text, self.text_used + size, self.text_used))
        self.arrays = arrays

    def grow(self) -> None:
        """Make room for twice as many strings."""
        self.reserve(len(self.arrays.entries) + 1, 0)

    def grow_text(self) -> None:
        """Make room for twice as many bytes."""
        self.reserve(0, len(self.arrays.text) + 1)

    def keep(self, needed: Array) -> Array:
        """Forget all strings but those of `needed` (bool, one for each string). Return the new numbers by the old ones,
        int64 with one item more: -1 for a forgotten string, and at the end -1 for -1. OTHER is never forgotten."""
        needed[self.other] = True
        numbers = new_numbers(np.append(needed, False))
        entries = taken(self.arrays.entries, np.flatnonzero(needed))
        lengths = entries["length"].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        old_text = self.arrays.text[np.repeat(entries["at"] - starts, lengths) + np.arange(int(lengths.sum()))]
        entries["at"] = starts
        text = untouched(max(_TEXT, 2 * len(old_text)), np.uint8)
        text[: len(old_text)] = old_text
        kept = untouched(max(_ENTRIES, 2 * len(entries)), STRING)
        kept[: len(entries)] = entries
        buckets = untouched(max(_BUCKETS, 1 << (4 * len(entries)).bit_length()), np.int32)
        enter_strings(kept, len(entries), buckets)
        self.arrays.state["count"], self.arrays.state["text_used"] = len(entries), len(old_text)
        self.arrays.state["other"] = numbers[self.other]
        self.arrays = Strings(kept, text, buckets, self.arrays.state)
        self._numbers.clear()
        return numbers
