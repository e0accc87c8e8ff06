"""Lines of key logs: a kernel finds those with secrets, and `parse_line` reads one.

A place is a hash of the line's client random above the offset of the line. So a sorted array of places is an index of
8 bytes for each line. Hashes may be equal by chance: whoever looks up a place compares the client random.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from kafkatap.kernels.decorator import helper, kernel
from kafkatap.kernels.hashing import hash_start, mix, spread

from .secrets import LABELS

Array = np.ndarray[Any, np.dtype[Any]]

#: Bits of a place that are the offset; the hash is above.
OFFSET_BITS = 40
HASH_MASK = (1 << 63 - OFFSET_BITS) - 1
#: The shortest line with a secret, and a bound of the longest one. Lines may have more spaces than one.
SHORTEST, LONGEST = 112, 512
#: The label of lines with the id of a session, and what they have before its digits and those of the secret.
_SESSION, _BEFORE_ID, _BEFORE_SECRET = b"RSA", b"Session-ID:", b"Master-Key:"

#: What the kernel reads: its kind, its place, and where to go on.
Line = namedtuple("Line", "kind place end")
#: Counts of a scan: lines that are no lines of a key log; lines without a secret that is needed; lines with one.
PROBLEMS, IGNORED, USED = range(3)


def _row(text: bytes) -> bytes:
    return bytes((len(text),)) + text.ljust(39, b"\0")


#: The words of lines as rows of 40 bytes: a length, and the word.
_WORDS = np.frombuffer(bytearray().join(map(_row, (*LABELS, _SESSION, _BEFORE_ID, _BEFORE_SECRET))), np.uint8)
_ROW = 40
_LABEL_COUNT = len(LABELS)
_SPACE, _TAB, _RETURN, _NEWLINE, _COMMENT = 32, 9, 13, 10, 35


class KeyLine(NamedTuple):
    """One line. `name`: the attribute of `Secrets`; empty for a session id of TLS 1.2, which is `owner` then."""

    name: str
    owner: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "KeyLine(...)"


def parse_line(line: bytes) -> KeyLine | None:
    """Read a line that the kernel found. None if it is another one now."""
    words = line.split(None, 3)
    if len(words) != 3:
        return None
    label, owner, secret = words
    name = LABELS.get(label, "")
    if label == _SESSION:
        owner, secret = owner[len(_BEFORE_ID) :], secret[len(_BEFORE_SECRET) :]
    elif not name:
        return None
    try:
        found = KeyLine(name, bytes.fromhex(owner.decode("latin-1")), bytes.fromhex(secret.decode("latin-1")))
    except ValueError:
        return None
    # A line that had no end yet may have another length now.
    lengths = (48,) if name in ("", "master") else (32, 48)
    return found if len(found.secret) in lengths else None


def hash_of(owner: bytes, seed: int) -> int:
    """The hash of a client random or session id in places."""
    digits = np.frombuffer(bytearray(owner.hex().encode()), np.uint8)
    return hash_digits(digits, digits.size, seed)


@kernel(np.uint8, int, int)
def hash_digits(data, count, seed):  # type: ignore[no-untyped-def]
    """Return the hash of data[0:count], hexadecimal digits."""
    return _hash(data, 0, count, seed)


@kernel(np.uint8, int, int, int, int, np.uint8, np.int64, np.int64)
def _find_lines(data, start, end, base, seed, words, places, counts):  # type: ignore[no-untyped-def]
    """Find the lines with secrets in data[start:end]; return the number of their places. A line's offset is its place
    in `data` and `base`. `places` has room for all; `counts` is added to."""
    found = 0
    at = start
    while at < end:
        first = _skip_spaces(data, at, end)
        if first < end and not _is_end(data, first) and data[np.uint64(first)] != _COMMENT:
            line = _read(data, first, end, base + at, seed, words)
            counts[line.kind] += 1
            if line.kind == USED:
                places[found] = line.place
                found += 1
            first = line.end
        while first < end and not _is_end(data, first):
            first += 1
        at = first + 1
    return found


@helper
def _read(data, at, end, offset, seed, words):  # type: ignore[no-untyped-def]
    """Read the line at `at`."""
    number = 0
    while number <= _LABEL_COUNT and not _is_word(data, at, end, words, number):
        number += 1
    if number > _LABEL_COUNT:
        return Line(_kind_of_other(data, at, end), np.int64(0), at)
    owner = _skip_spaces(data, at + np.int64(words[number * _ROW]), end)
    if number == _LABEL_COUNT and _begins(data, owner, end, words, number + 1):
        owner += np.int64(words[(number + 1) * _ROW])
        owner_end = _skip_digits(data, owner, end)
        secret = _skip_spaces(data, owner_end, end)
        if owner_end == owner or owner_end - owner > 64 or not _begins(data, secret, end, words, number + 2):
            return Line(np.int64(PROBLEMS), np.int64(0), at)
        secret += np.int64(words[(number + 2) * _ROW])
    elif number == _LABEL_COUNT:
        return Line(_kind_of_other(data, at, end), np.int64(0), at)
    else:
        owner_end = _skip_digits(data, owner, end)
        secret = _skip_spaces(data, owner_end, end)
        if owner_end - owner != 64 or secret == owner_end:
            return Line(np.int64(PROBLEMS), np.int64(0), at)
    secret_end = _skip_digits(data, secret, end)
    length = secret_end - secret
    is_master = number == 0 or number == _LABEL_COUNT
    if secret_end - at > LONGEST - 64 or not (length == 96 or (length == 64 and not is_master)):
        return Line(np.int64(PROBLEMS), np.int64(0), at)
    after = _skip_spaces(data, secret_end, end)
    if after < end and not _is_end(data, after):
        return Line(np.int64(PROBLEMS), np.int64(0), at)
    return Line(np.int64(USED), (_hash(data, owner, owner_end, seed) << OFFSET_BITS) | offset, after)


@helper
def _kind_of_other(data, at, end):  # type: ignore[no-untyped-def]
    """IGNORED for a label and two words of digits, else PROBLEMS."""
    stop = at
    while stop < end:
        byte = np.int64(data[np.uint64(stop)])
        if not (65 <= byte <= 90 or 48 <= byte <= 57 or byte == 95):
            break
        stop += 1
    owner = _skip_spaces(data, stop, end)
    owner_end = _skip_digits(data, owner, end)
    secret = _skip_spaces(data, owner_end, end)
    secret_end = _skip_digits(data, secret, end)
    is_line = stop > at and owner > stop and owner_end > owner and secret > owner_end and secret_end > secret
    after = _skip_spaces(data, secret_end, end)
    return np.int64(IGNORED if is_line and (after == end or _is_end(data, after)) else PROBLEMS)


@helper
def _is_end(data, at):  # type: ignore[no-untyped-def]
    """Whether a line ends here."""
    byte = data[np.uint64(at)]
    return byte == _NEWLINE or byte == _RETURN


@helper
def _is_word(data, at, end, words, number):  # type: ignore[no-untyped-def]
    """Whether the word at `at` is this one: a space is behind it."""
    after = at + np.int64(words[number * _ROW])
    if after >= end or (data[np.uint64(after)] != _SPACE and data[np.uint64(after)] != _TAB):
        return False
    return _begins(data, at, end, words, number)


@helper
def _begins(data, at, end, words, number):  # type: ignore[no-untyped-def]
    """Whether these bytes are at `at`."""
    row = number * _ROW
    length = np.int64(words[row])
    if at + length > end:
        return False
    for i in range(length):  # noqa: SIM110
        if data[np.uint64(at + i)] != words[np.uint64(row + 1 + i)]:
            return False
    return True


@helper
def _skip_spaces(data, at, end):  # type: ignore[no-untyped-def]
    while at < end and (data[np.uint64(at)] == _SPACE or data[np.uint64(at)] == _TAB):
        at += 1
    return at


@helper
def _skip_digits(data, at, end):  # type: ignore[no-untyped-def]
    while at < end:
        byte = np.int64(data[np.uint64(at)])
        if not (48 <= byte <= 57 or 97 <= (byte | 32) <= 102):
            break
        at += 1
    return at


@helper
def _hash(data, at, end, seed):  # type: ignore[no-untyped-def]
    """The hash of digits, the same for capital letters. Four of them are one step."""
    h = hash_start(seed)
    word = np.int64(0)
    for i in range(at, end):
        word = ((word << 8) | np.int64(data[np.uint64(i)]) | 32) & 0xFFFFFFFF
        if (i - at) & 3 == 3:
            h = mix(h, word, seed)
    return spread(mix(h, word, seed)) & HASH_MASK


def find_lines(data: bytearray, start: int, end: int, base: int, seed: int, counts: Array) -> Array:
    """The places of lines with secrets in data[start:end], in order."""
    places = np.empty((end - start) // SHORTEST + 1, np.int64)
    array = np.frombuffer(data, np.uint8)
    found = _find_lines(array, start, end, base, seed, _WORDS, places, counts)
    return places[:found].copy()
