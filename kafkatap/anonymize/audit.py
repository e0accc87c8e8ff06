"""Searches an anonymized capture for what was replaced.

`Originals` are names, addresses, texts and samples of records of the original, of six or more bytes. They are searched
in each packet, in the streams' new bytes without the cuts between packets, and in the records as they decompress.

A text is no original if the copy has it by rule: words that stay (`fields`), what stayed in this capture, and parts of
pseudonyms. To find it means nothing, even if somebody named a topic so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Any

import numpy as np

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.programs.tape import as_array
from kafkatap.dissector.records.record_inspector import RecordCollector
from kafkatap.kernels import helper, kernel
from kafkatap.reassembly.link_types import ETHERNET, SLL, SLL2

from ..captures.capture_reader import CaptureReader
from ..engine.engine import Engine
from ..engine.read_options import AS_USUAL, ReadOptions
from ..run import Run, Watch, never
from ..selected_messages.selected_records import record_chunks
from .addresses import IPV4_TEXT
from .fields import kept_words
from .names import WORD, Names

Array = np.ndarray[Any, Any]
Buffer = bytes | bytearray | memoryview
#: Shorter names are not searched: they would be found by chance.
SHORTEST = 6
_MAC = 6
#: Strings of these bytes only are not searched: fillers, padding, numbers. Nor are separators, which stay in names.
_FILLERS = b"x\0 "
#: Where packets of a link type have MAC addresses.
_MACS_AT = {ETHERNET: (0, 6), SLL: (6,), SLL2: (12,)}


class Originals:
    """Strings to search for.

    They are in ascending order, one behind the other in `_text`: string k ends at `_ends[k + 1]`. `_parents`: the
    longest other string that it begins with, -1 for none. So the strings that begin at a place are the last one that is
    not behind the bytes there, if these begin with it, and its ancestors of which that is true.
    """

    def __init__(self, strings: Iterable[bytes]) -> None:
        kept = b"\n".join(sorted(kept_words()))
        #: MAC addresses, which are searched where packets have them.
        self.macs: frozenset[bytes] = frozenset()
        self._strings = sorted(
            {s for s in strings if len(s) >= SHORTEST and s not in kept and s.strip(_FILLERS) and WORD.search(s)}
        )
        self._text = as_array(b"".join(self._strings))
        self._ends = np.cumsum([0, *map(len, self._strings)])
        self._parents = np.full(len(self._strings), -1, np.int64)
        open_strings: list[int] = []  # each begins with the one before it
        for row, string in enumerate(self._strings):
            while open_strings and not string.startswith(self._strings[open_strings[-1]]):
                open_strings.pop()
            self._parents[row] = open_strings[-1] if open_strings else -1
            open_strings.append(row)
        self._may_start = np.zeros(1 << 16, np.uint8)
        self._may_start[[s[0] | s[1] << 8 for s in self._strings]] = 1

    def __len__(self) -> int:
        return len(self._strings)

    def found_in(self, data: Buffer, ranges: Array | None = None) -> bytes | None:
        """One of the strings that `data` contains, or None. `ranges`: where to search, each from an even item up to
        the one behind it (int64)."""
        return next(self.all_in(data, ranges), None)

    def all_in(self, data: Buffer, ranges: Array | None = None) -> Iterator[bytes]:
        """Yield the strings that `data` contains, some more than once."""
        raw, row = as_array(data), np.zeros(1, np.int64)
        left = np.array([0, len(raw)] if ranges is None else ranges, np.int64)
        table = self._text, self._ends, self._parents, self._may_start
        while len(self._strings) and next_string(raw, left, *table, row):
            found = int(row[0])
            while found >= 0:
                yield self._strings[found]
                found = int(self._parents[found])


@helper
def _is_behind(text, first, end, data, at, stop):  # type: ignore[no-untyped-def]
    """Whether text[first:end] comes behind data[at:stop] in order."""
    k = first
    while k < end and at < stop:
        if text[np.uintp(k)] != data[np.uintp(at)]:
            return text[np.uintp(k)] > data[np.uintp(at)]
        k += 1
        at += 1
    return k < end


@helper
def _begins_with(data, at, stop, text, first, end):  # type: ignore[no-untyped-def]
    """Whether data[at:stop] begins with text[first:end]."""
    while first < end and at < stop and data[np.uintp(at)] == text[np.uintp(first)]:
        at += 1
        first += 1
    return first == end


@kernel(np.uint8, np.int64, np.uint8, np.int64, np.int64, np.uint8, np.int64)
def next_string(data, ranges, text, ends, parents, may_start, row):  # type: ignore[no-untyped-def]
    """Find the next of the strings of `Originals` in data[ranges[k]:ranges[k + 1]], k even. Return 1 and set row[0] to
    the longest string at this place, or return 0 if none is left. Afterwards `ranges` has what is still to be searched.
    `may_start`: by the first two bytes, whether one begins with them."""
    for k in range(0, len(ranges), 2):
        at, stop = ranges[k], ranges[k + 1]
        while at <= stop - SHORTEST:
            if may_start[np.uintp(data[np.uintp(at)]) | np.uintp(data[np.uintp(at + 1)]) << np.uintp(8)]:
                low, high = 0, len(parents)
                while low < high:
                    middle = (low + high) // 2
                    if _is_behind(text, ends[middle], ends[middle + 1], data, at, stop):
                        high = middle
                    else:
                        low = middle + 1
                found = np.int64(low - 1)
                while found >= 0 and not _begins_with(data, at, stop, text, ends[found], ends[found + 1]):
                    found = parents[found]
                if found >= 0:
                    row[0] = found
                    ranges[k] = at + 1
                    return 1
            at += 1
        ranges[k] = stop
    return 0


def originals_of(names: Names) -> Originals:
    """What was replaced by these names, and what became filler."""
    strings = {old for old, new in names.all_names.items() if old != new}
    known = {old: new for old, new in names.addresses.known.items() if old != new}
    pseudonyms = set(known.values())  # one may be the address of another host: to find it means nothing
    texts = {str(ip_address(new)).encode() for new in pseudonyms if len(new) != _MAC}
    strings = {s for s in strings if not any(found[0] in texts for found in IPV4_TEXT.finditer(s))}
    macs = set()
    for old in known:
        if len(old) == _MAC:
            macs.add(old)
        elif old not in pseudonyms:
            if any(old[:8]):
                strings.add(old)
            strings.add(str(ip_address(old)).encode())
    strings |= names.forgotten | {mac for mac in macs if _is_distinctive(mac)}
    copied = b"\0".join((*texts, *pseudonyms, *names.all_names.values(), *names.kept))
    found = Originals(strings.difference(Originals(strings).all_in(copied)))
    found.macs = frozenset(macs - set(names.addresses.known.values()))
    return found


def _is_distinctive(mac: bytes) -> bool:
    """Whether a MAC address hardly comes up by chance among counters and lengths."""
    return mac.count(0) <= 2 and len(set(mac)) >= 4


def find_original(path: str, originals: Originals, read: ReadOptions = AS_USUAL, watch: Watch = never) -> bytes | None:
    """An original that is still in a capture: in its packets, or in its records. None if there is none, or if `watch`
    ends the search."""
    reader = CaptureReader(path)
    try:
        while reader.fill() and not watch(0):
            rows = reader.packets[reader.position : reader.count]
            start, end = int(rows["at"][0]), int(rows["at"][-1]) + int(rows["captured"][-1])
            found = originals.found_in(reader.buffer[start:end].data)
            found = found or _mac_in(reader, originals.macs)
            if found is not None:
                return found
            reader.position = reader.count
    finally:
        reader.close()
    collector = RecordCollector(load_programs("records", read.definitions))
    run = Run([path], Engine(read, inspectors=[collector]), watch)
    for chunk in record_chunks(run, collector, 10_000):
        # Elsewhere the arena has memory of before.
        ranges = np.stack([chunk.batches[name] for name in ("at", "end", "body", "body_end")], axis=1).reshape(-1)
        found = originals.found_in(chunk.arena.data, np.maximum(ranges, 0))
        if found is not None:
            return found
    return None


def _mac_in(reader: CaptureReader, macs: frozenset[bytes]) -> bytes | None:
    """One of the MAC addresses, where the packets of a block have theirs."""
    if not macs:
        return None
    rows = reader.packets[reader.position : reader.count]
    for link_type, places in _MACS_AT.items():
        for place in places:
            starts = rows["at"][(rows["link_type"] == link_type) & (rows["captured"] >= place + _MAC)]
            raw = reader.buffer[starts[:, None] + np.arange(place, place + _MAC)]
            found = macs.intersection(np.unique(raw.view(f"V{_MAC}")).tolist())
            if found:
                return min(found)
    return None
