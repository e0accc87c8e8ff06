"""The structure of records of magic 2: which of their bytes are sizes, times and lengths, rather than contents."""

from __future__ import annotations

import numpy as np

from kafkatap.kernels import kernel
from kafkatap.kernels.decorator import helper

#: Times of records of a batch (ms), and their offsets, without a right CRC.
_LONGEST_DELTA, _MOST_DELTA = 1 << 34, 1 << 24
#: The highest type of control records: the voters of KRaft.
_MOST_MARKER = 6
#: Printable bytes in a row that are text.
_TEXT = 6
#: Bytes of the longest varint. Numbers from the other on are this one: none of them is possible.
_LONGEST, _HUGE = 10, 1 << 62

#: Places in `found`: of the longest content, and how long it is; those of the latest record; where its fields end (-1:
#: behind its bytes); whether nothing in it is impossible; its time and its offset.
PLACE, ROOM, _RECORD_PLACE, _RECORD_ROOM, _AT, _IS_VALID, _TIME, _OFFSET = range(8)
FOUND = 8


@helper
def _varint(body, at, end):  # type: ignore[no-untyped-def]
    """A signed varint (zigzag), and the place behind it; -1 if there is none before `end`."""
    value = np.uint64(0)
    for k in range(_LONGEST):
        if at + k >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(body[np.uintp(at + k)])
        value |= (byte & np.uint64(127)) << np.uint64(7 * k)
        if byte < np.uint64(128):
            half = np.int64(value >> np.uint64(1))
            if half >= _HUGE or (k == _LONGEST - 1 and byte > np.uint64(1)):
                half = np.int64(_HUGE)
            return -half - 1 if value & np.uint64(1) else half, np.int64(at + k + 1)
    return np.int64(0), np.int64(-1)


@helper
def _mark(kept, first, last):  # type: ignore[no-untyped-def]
    for k in range(first, last):
        kept[np.uintp(k)] = 1


@helper
def _number(body, end, kept, found):  # type: ignore[no-untyped-def]
    """Pass a varint of the record; 0 if there is none."""
    at = found[_AT]
    if at < 0:
        return np.int64(0)
    value, following = _varint(body, at, end)
    if following >= 0:
        _mark(kept, at, following)
    found[_AT] = following
    return value


@helper
def _content(body, end, declared, kept, found):  # type: ignore[no-untyped-def]
    """Pass a length and so many bytes; return where these begin, and how many there are."""
    size = _number(body, end, kept, found)
    start = found[_AT]
    if start < 0:
        return np.int64(0), np.int64(0)
    if size < -1 or start + size > declared:
        found[_AT] = -1
        found[_IS_VALID] = 0
        return np.int64(0), np.int64(0)
    size = max(size, np.int64(0))
    if start + size > end:
        found[_AT] = -1
        return np.int64(0), np.int64(0)
    if size > found[_RECORD_ROOM]:
        found[_RECORD_PLACE] = start
        found[_RECORD_ROOM] = size
    found[_AT] = start + size
    return start, size


@helper
def _begins_with_zeros(body, at):  # type: ignore[no-untyped-def]
    return body[np.uintp(at)] | body[np.uintp(at + 1)] | body[np.uintp(at + 2)] == 0


@helper
def _mark_record(body, first, start, declared, is_control, kept, found):  # type: ignore[no-untyped-def]
    """Mark the structure of the record whose size is at body[first:start], and which ends at `declared`, maybe behind
    the captured bytes."""
    end = min(declared, np.int64(len(body)))
    found[_RECORD_PLACE] = 0
    found[_RECORD_ROOM] = 0
    found[_TIME] = 0
    found[_OFFSET] = 0
    found[_IS_VALID] = 1
    found[_AT] = -1
    _mark(kept, first, start)
    if start >= end:
        return
    if body[np.uintp(start)]:  # no attributes are defined
        found[_IS_VALID] = 0
        return
    found[_AT] = start + 1
    _mark(kept, start, start + 1)
    found[_TIME] = _number(body, end, kept, found)
    found[_OFFSET] = _number(body, end, kept, found)
    key, key_size = _content(body, end, declared, kept, found)
    value, value_size = _content(body, end, declared, kept, found)
    if is_control:
        found[_RECORD_ROOM] = 0
        # The key stays, and so does the value of a transaction's marker: version and epoch.
        if key_size == 4 and _begins_with_zeros(body, key) and body[np.uintp(key + 3)] <= _MOST_MARKER:
            _mark(kept, key, key + 4)
            if body[np.uintp(key + 3)] <= 1 and value_size == 6 and _begins_with_zeros(body, value):
                _mark(kept, value, value + 6)
    left = _number(body, end, kept, found)
    while left > 0:
        for _ in range(2):
            if found[_AT] < 0:
                return
            _content(body, end, declared, kept, found)
        left -= 1


@helper
def _is_plausible(body, first, end, kept, found):  # type: ignore[no-untyped-def]
    """Whether the numbers of a record are those of one, and no text."""
    if not -_LONGEST_DELTA < found[_TIME] < _LONGEST_DELTA or not 0 <= found[_OFFSET] < _MOST_DELTA:
        return False
    run = 0
    for k in range(first, end):
        byte = body[np.uintp(k)]
        run = run + 1 if kept[np.uintp(k)] and 0x20 <= byte <= 0x7E else 0
        if run == _TEXT:
            return False
    return True


@kernel(np.uint8, int, int, int, np.uint8, np.int64)
def mark_structure(body, is_control, is_cut, is_right, kept, found):  # type: ignore[no-untyped-def]
    """Mark in `kept` (zeros) the structure of the records in `body`, up to the first bytes that are none; return where
    these begin. `found` (zeros, FOUND) has the place and the size of the longest content then.

    `is_cut`: the last record may be a part of one. `is_right`: the CRC says that these are records; else their numbers
    have to be plausible.
    """
    total = np.int64(len(body))
    at = np.int64(0)
    while at < total:
        size, start = _varint(body, at, total)
        end = start + size
        if start < 0 or size < 0 or (end > total and not is_cut):
            break
        _mark_record(body, at, start, end, is_control, kept, found)
        stop = min(end, total)
        # What looks like structure may be anything, if it is not a record.
        if (
            not found[_IS_VALID]
            or (found[_AT] != end and end <= total)
            or (not is_right and not _is_plausible(body, at, stop, kept, found))
        ):
            for k in range(at, stop):
                kept[np.uintp(k)] = 0
            break
        if found[_RECORD_ROOM] > found[ROOM]:
            found[PLACE] = found[_RECORD_PLACE]
            found[ROOM] = found[_RECORD_ROOM]
        at = end
    return at
