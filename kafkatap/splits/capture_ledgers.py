"""The ledger of each capture that a split reads.

Packets and bytes count in the capture that has them, requests and their outcome in that of the request. What a capture
has of a connection counts there whenever the connection ends: a capture whose connections are in no other has the same
ledger in every run. Only messages that a capture cuts go to its part "unfinished", and to another part of the capture
that has their rest, which has so much less "unfinished".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kafkatap.dissector.dtypes import ORPHAN_RESPONSE, OUTCOMES
from kafkatap.reassembly.dtypes import ROW_OPEN

from ..engine.ended_connections import BYTE_PLACES, Counted
from ..engine.known_twins import SEEN_TWICE

if TYPE_CHECKING:
    from ..engine.engine import Engine

Array = np.ndarray[Any, Any]
#: A connection when a capture was over. `waits`: some of its segments wait for others.
_SEEN = np.dtype([("serial", "i8"), ("packets", "i8"), ("waits", "?")])
#: What an engine counts: by section and part.
Ledger = dict[str, dict[str, int]]
#: The outcomes that are parts of the section "requests".
_OF_REQUESTS = tuple(name for code, name in enumerate(OUTCOMES) if code != ORPHAN_RESPONSE)
#: What connections and rows of exchanges count, by section.
_OF_ROWS = {"payload bytes": BYTE_PLACES, "requests": (*_OF_REQUESTS, SEEN_TWICE)}


@dataclass(frozen=True, slots=True)
class CaptureIndex:
    """The capture file of each packet. `firsts`: the first packet of each file, int64, ascending. `captures`: the
    identities of the files."""

    firsts: Array
    captures: Array

    @staticmethod
    def of(files: Iterable[tuple[int, int, int]]) -> CaptureIndex:
        """`files`: (first packet, packets, identity) of each file, in any order."""
        known = sorted((first, capture) for first, packets, capture in files if packets)
        found = np.array(known or [(1, 0)], np.int64)
        return CaptureIndex(found[:, 0], found[:, 1])

    def captures_of(self, packets: Array) -> Array:
        """Packet numbers (n,) -> identities, int64 (n,)."""
        at = np.maximum(np.searchsorted(self.firsts, packets, side="right") - 1, 0)
        found: Array = self.captures[at]
        return found

    def capture_of(self, packet: int) -> int:
        """The identity of the file of a packet."""
        return int(self.captures_of(np.array([packet]))[0])


def sum_ledgers(ledgers: Iterable[Mapping[str, Mapping[str, int]]]) -> Ledger:
    """The sum of ledgers."""
    found: Ledger = {}
    for ledger in ledgers:
        for section, parts in ledger.items():
            total = found.setdefault(section, {})
            for part, count in parts.items():
                total[part] = total.get(part, 0) + count
    for total in found.values():
        if total.get("unfinished") == 0:
            del total["unfinished"]
    return found


class CaptureLedgers:
    """Counts what an engine counts, by capture. Call `begin` before the packets of a capture, `add` with the rows of
    all exchanges, and `finish` at the end."""

    def __init__(self, engine: Engine, index: CaptureIndex) -> None:
        self._engine, self._index = engine, index
        self._capture: int | None = None
        self._before: Ledger = {}
        self._open = Counted.none()  # as they were when the capture began
        self._last: Array = np.zeros(0, np.int64)  # the last capture with packets of each of them
        self._seen: Array = np.zeros(0, _SEEN)  # by number, all connections as they were then
        self._ledgers: dict[int, list[Ledger]] = {}
        self._ended: dict[int, Array] = {}  # counts of connections
        self._resumed: dict[int, int] = {}  # by serial, the last capture of an earlier run that has it
        self._outcomes: dict[int, Array] = {}  # by _OF_ROWS["requests"]
        engine.on_counted(self._add_ended)
        engine.twins.on_left_out = partial(self.add, of_twins=True)

    def resume(self, serial: int, packet: int) -> None:
        """A connection goes on from an earlier run, whose last packet of it this is."""
        self._resumed[serial] = self._index.capture_of(packet)

    def discount(self) -> None:
        """Forget the connections that ended so far: another run has counted them."""
        self._ended.clear()

    def begin(self, packet: int) -> None:
        """The next packets are those of the capture with a packet."""
        capture = self._index.capture_of(packet)
        if self._capture is not None and capture != self._capture:
            self._close()
        self._capture = capture

    @property
    def capture(self) -> int:
        """The capture that is read; the last one of all if none was."""
        return self._capture or int(self._index.captures[-1])

    def add(self, exchanges: Array, of_twins: bool = False) -> None:
        """Add EXCHANGE rows. Responses without a request do not count here. `of_twins`: they are left out."""
        outcomes = exchanges["outcome"]
        is_request, kinds = outcomes != ORPHAN_RESPONSE, len(OUTCOMES)
        packets = exchanges["request_packet_first"][is_request]
        captures, codes = np.unique(self._index.captures_of(packets), return_inverse=True)
        codes = codes * kinds + (ORPHAN_RESPONSE if of_twins else outcomes[is_request])
        counts = np.bincount(codes, minlength=kinds * len(captures)).reshape(-1, kinds)
        for capture, row in zip(captures.tolist(), counts, strict=True):
            self._outcomes[capture] = self._outcomes.get(capture, 0) + row

    def finish(self) -> dict[int, Ledger]:
        """The ledgers. All connections have ended, or are left to another split."""
        self._close()
        for capture, counts in self._ended.items():
            *places, copies = counts.tolist()
            found = {"payload bytes": dict(zip(BYTE_PLACES, places, strict=True))}
            if copies:
                found["packets"] = {"tcp": -copies, "duplicate": copies}
            self._ledgers.setdefault(capture, []).append(found)
        for capture, counts in self._outcomes.items():
            parts = dict(zip((*_OF_REQUESTS, SEEN_TWICE), counts.tolist(), strict=True))
            self._ledgers.setdefault(capture, []).append({"requests": parts})
        made = {capture: sum_ledgers(ledgers) for capture, ledgers in self._ledgers.items()}
        for ledger in made.values():  # requests count with their rows
            requests = ledger.get("requests", {})
            requests["total"] = sum(requests.values())
        return {capture: _with_unfinished(ledger) for capture, ledger in made.items()}

    def _close(self) -> None:
        """Count what was read of a capture."""
        capture = self._capture or 0
        now = self._engine.ledger()
        before, self._before = self._before, now
        new = {s: {p: n - before.get(s, {}).get(p, 0) for p, n in parts.items()} for s, parts in now.items()}
        for section, parts in _OF_ROWS.items():
            new[section].update(dict.fromkeys(parts, 0))
        new["requests"]["total"] = 0
        copies, new["packets"]["duplicate"] = new["packets"]["duplicate"], 0  # they count with their connections
        new["packets"]["tcp"] += copies
        self._ledgers.setdefault(capture, []).append(new)
        changed = self._changed()
        if not len(changed):
            return
        found = self._engine.open_counts(changed)
        at = self._add(found)
        is_new, places = at < 0, at[at >= 0]
        has_more = found.packets[~is_new] != self._open.packets[places]
        self._last[places[has_more]] = capture
        self._open.packets[places], self._open.counts[places] = found.packets[~is_new], found.counts[~is_new]
        if is_new.any():
            whole = Counted(
                *(np.concatenate((mine, more[is_new])) for mine, more in zip(self._open, found, strict=True))
            )
            order = np.argsort(whole.serials)
            self._open = Counted(*(column[order] for column in whole))
            self._last = np.append(self._last, np.full(int(is_new.sum()), capture))[order]

    def _changed(self) -> Array:
        """The numbers of the connections that count more than when the last capture was over, and perhaps others."""
        assembler, before = self._engine.assembler, self._seen
        rows, held = assembler.connections, assembler.directions["held"]
        now = self._seen = np.zeros(len(rows), _SEEN)
        now["serial"], now["packets"] = rows["serial"], rows["packets"]
        now["waits"] = (held[: 2 * len(rows)].reshape(-1, 2) >= 0).any(axis=1)
        if self._engine.key_log is not None:  # what waits there is decrypted when others know the secrets
            now["waits"][list(self._engine.tls.tracked)] = True
        before = np.append(before, np.zeros(max(len(rows) - len(before), 0), _SEEN))[: len(rows)]
        has_more = (now["serial"] != before["serial"]) | (now["packets"] != before["packets"])
        return np.flatnonzero((rows["used"] == ROW_OPEN) & (has_more | now["waits"] | before["waits"]))

    def _add_ended(self, ended: Counted) -> None:
        """Add connections that ended."""
        at = self._add(ended)
        known = at[at >= 0]
        self._open, self._last = self._open.without(known), np.delete(self._last, known)

    def _add(self, counted: Counted) -> Array:
        """Add what connections have more than before: to their last capture if no packet of this one is among them.
        Return their places in `_open`, -1 if they began since then."""
        at = self._open.places_of(counted.serials)
        more = counted.counts.copy()
        captures = np.full(len(at), self._capture or 0, np.int64)
        if self._capture is None:  # no packet was read since
            captures[:] = [self._resumed.get(serial, 0) for serial in counted.serials.tolist()]
        known = np.flatnonzero(at >= 0)
        more[known] -= self._open.counts[at[known]]
        is_over = known[counted.packets[known] == self._open.packets[at[known]]]
        captures[is_over] = self._last[at[is_over]]
        for capture in np.unique(captures).tolist():
            self._ended[capture] = self._ended.get(capture, 0) + more[captures == capture].sum(axis=0)
        return at


def _with_unfinished(ledger: Ledger) -> Ledger:
    """The ledger, whose total of bytes and requests is that of all parts."""
    for section in _OF_ROWS:
        parts = ledger.get(section, {})
        if rest := 2 * parts.get("total", 0) - sum(parts.values()):
            parts["unfinished"] = rest
    return ledger
