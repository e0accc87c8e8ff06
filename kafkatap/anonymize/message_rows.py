"""Rewrites many frames at once, those in which nothing is unusual (`dissector.tree.message_rows`).

All of such a frame is known: numbers, lengths and counts stay, and the other values are replaced one by one, by the
rules of `messages`. So a copy of all frames is changed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafkatap.dissector.tree import node_rows as r
from kafkatap.dissector.tree.message_rows import Frames, RowMaker
from kafkatap.dissector.tree.view import Viewer
from kafkatap.kernels import kernel

from .fields import FILLER, WITH_SIBLINGS, rewritten_string
from .names import Names
from .plausible import FIRST_PRINTABLE, LAST_PRINTABLE, SHORTEST_TEXT
from .record_batches import RecordRewriter

Array = np.ndarray[Any, Any]
_FILLER = FILLER[0]
_STRINGS = (r.STRING, r.ODD)
_REPLACED = np.zeros(256, bool)
_REPLACED[[*_STRINGS, r.UUID, r.BYTES, r.SIZE]] = True


class FramesRewriter:
    """Rewrites frames. `viewer`: what makes trees of the others."""

    def __init__(self, names: Names, records: RecordRewriter, viewer: Viewer) -> None:
        self._names, self._records = names, records
        self._texts: dict[str, int] = {}
        self._fields: list[str] = []
        self._maker = RowMaker(viewer, self._text_of, 1 << 30, for_lines=False, left_out=WITH_SIBLINGS)

    def rewritten(self, frames: Frames) -> list[bytes | None]:
        """Each frame in as many bytes; None for one that needs a tree."""
        made = self._maker.rows(frames)
        sizes = np.array(list(map(len, frames.frames)), np.int64)
        ends = np.cumsum(sizes)
        counts = np.where(made.firsts < 0, 0, made.lasts - made.firsts)
        places = np.repeat(ends - sizes, counts) + made.nodes["offset"]
        rows = list(zip(made.firsts.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True))
        headers = np.where(frames.are_responses, 8, 12).tolist()
        hidden = [
            (start, end if first < 0 else start + size) for (first, start, end), size in zip(rows, headers, strict=True)
        ]
        new = self._written(made.nodes, places, made.data, hidden)
        return [None if first < 0 else bytes(new[start:end]) for first, start, end in rows]

    def _text_of(self, text: str) -> int:
        """The number of a field's name."""
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._fields)
            self._fields.append(text)
        return number

    def _written(self, nodes: Array, places: Array, old: bytes, hidden: list[tuple[int, int]]) -> bytearray:
        """The new bytes of all frames. `places`: where the bytes of each node begin, `hidden`: ranges of headers, from
        sizes to correlation ids, and of frames without nodes, which are left as they are."""
        new, numbers = bytearray(old), bytearray(old)  # `numbers`: without strings and records, and their sizes
        for start, end in hidden:
            numbers[start:end] = bytes(end - start)
        rows = np.flatnonzero(_REPLACED[nodes["form"]])
        stops = places + nodes["length"]
        columns = [nodes[name][rows].tolist() for name in ("form", "value", "bytes", "name")]
        for form, at, size, name, stop in zip(*columns, stops[rows].tolist(), strict=True):
            if form == r.SIZE:
                at, size = stop - at, at
            if not size:
                continue
            raw, end = old[at : at + size], at + size
            if form == r.BYTES:
                new[at:end] = FILLER * size
            elif form == r.UUID:
                new[at:end] = self._names.uuid(raw)
            else:
                numbers[at:end] = bytes(size)
                if form == r.SIZE:
                    new[at:end] = self._records.rewrite(raw)
                else:
                    new[at:end] = rewritten_string(self._names, self._fields[name], raw, {})
        if len(new) != len(old):
            raise AssertionError("a rewritten frame has another size")
        are_numbers = np.flatnonzero((nodes["form"] == r.NUMBER) | (nodes["form"] == r.BOOL))
        made, left = (np.frombuffer(some, np.uint8) for some in (new, numbers))
        overwrite_printable(made, left, places[are_numbers], stops[are_numbers])
        return new


@kernel(np.uint8, np.uint8, np.int64, np.int64)
def overwrite_printable(new, old, firsts, stops):  # type: ignore[no-untyped-def]
    """Put filler in place of numbers within runs of printable bytes that stayed: they may be misread. `old`: the
    original bytes, those of strings and records as zeros; the numbers lie in firsts:stops, ascending."""
    start, row, is_filler = 0, 0, True
    for at in range(len(new) + 1):
        if at < len(new):
            byte = new[np.uintp(at)]
            if byte == old[np.uintp(at)] and FIRST_PRINTABLE <= byte <= LAST_PRINTABLE:
                is_filler = is_filler and byte == _FILLER
                continue
        if at - start >= SHORTEST_TEXT and not is_filler:
            while row < len(stops) and stops[row] <= start:
                row += 1
            while row < len(firsts) and firsts[row] < at:
                for k in range(max(firsts[row], start), min(stops[row], at)):
                    new[np.uintp(k)] = _FILLER
                row += 1
            row = max(row - 1, 0)  # it may go on behind the run
        start, is_filler = at + 1, True
    return 0
