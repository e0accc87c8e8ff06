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
from kafkatap.kernels import kernel
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
#: Shorter names are not searched: they would be found by chance.
SHORTEST = 6
_MAC = 6
#: Strings of these bytes only are not searched: fillers, padding, numbers. Nor are separators, which stay in names.
_FILLERS = b"x\0 "
#: Where packets of a link type have MAC addresses.
_MACS_AT = {ETHERNET: (0, 6), SLL: (6,), SLL2: (12,)}


class Originals:
    """Strings to search for."""

    def __init__(self, strings: Iterable[bytes]) -> None:
        kept = b"\n".join(sorted(kept_words()))
        self._by_start: dict[int, list[bytes]] = {}
        #: MAC addresses, which are searched where packets have them.
        self.macs: frozenset[bytes] = frozenset()
        searched = {s for s in strings if len(s) >= SHORTEST and s not in kept and s.strip(_FILLERS) and WORD.search(s)}
        for string in searched:
            self._by_start.setdefault(int.from_bytes(string[:SHORTEST], "little"), []).append(string)
        self.longest = max((len(s) for some in self._by_start.values() for s in some), default=0)
        self._starts = np.array(sorted(self._by_start), np.uint64)
        self._may_start = np.zeros(1 << 16, np.uint8)
        self._may_start[(self._starts & np.uint64(0xFFFF)).astype(np.int64)] = 1

    def __len__(self) -> int:
        return sum(map(len, self._by_start.values()))

    def found_in(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """One of the strings that `data` contains, or None."""
        return next(self.all_in(data), None)

    def all_in(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yield the strings that `data` contains, some more than once."""
        raw, view = as_array(data), memoryview(data)
        at = -1
        while len(self._starts) and (at := next_start(raw, at + 1, self._starts, self._may_start)) >= 0:
            for string in self._by_start[int.from_bytes(view[at : at + SHORTEST], "little")]:
                if view[at : at + len(string)] == string:
                    yield string


@kernel(np.uint8, int, np.uint64, np.uint8)
def next_start(data, at, starts, may_start):  # type: ignore[no-untyped-def]
    """The first place from `at` on where one of `starts` is: SHORTEST bytes, the lowest first, in ascending order. If
    there is none, -1. `may_start`: by the first two bytes, whether one begins with them."""
    last = len(data) - SHORTEST
    while at <= last:
        if may_start[np.uintp(data[np.uintp(at)]) | np.uintp(data[np.uintp(at + 1)]) << np.uintp(8)]:
            wanted = np.uint64(0)
            for k in range(SHORTEST):
                wanted |= np.uint64(data[np.uintp(at + k)]) << np.uint64(8 * k)
            low, high = 0, len(starts)
            while low < high:
                middle = (low + high) // 2
                if starts[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            if low < len(starts) and starts[low] == wanted:
                return at
        at += 1
    return -1


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
        for at, end, body, body_end in chunk.batches[["at", "end", "body", "body_end"]].tolist():
            # Elsewhere the arena has memory of before.
            for first, last in ((at, end), (body, body_end)):
                found = originals.found_in(chunk.arena[max(first, 0) : max(last, 0)].data)
                if found is not None:
                    return found
    return None


def _mac_in(reader: CaptureReader, macs: frozenset[bytes]) -> bytes | None:
    """One of the MAC addresses, where the packets of a block have theirs."""
    if not macs:
        return None
    rows = reader.packets[reader.position : reader.count]
    for at, link_type in zip(rows["at"].tolist(), rows["link_type"].tolist(), strict=True):
        for place in _MACS_AT.get(link_type, ()):
            mac = reader.buffer[at + place : at + place + _MAC].tobytes()
            if mac in macs:
                return mac
    return None
