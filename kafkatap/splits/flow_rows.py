"""Flows, and the histories and states of their connections, as rows of arrays: a million of them are cheap to send and
to sort.

Strings of a row are numbers in a list of strings beside the array, -1 for unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from kafkatap.dissector.connection_state import NAMES, NUMBERS, SOURCE, ConnectionFacts
from kafkatap.reassembly.connection_state import SynOptions
from kafkatap.reassembly.flows import KEY_BYTES

from .flow_state import FlowState, History

Array = np.ndarray[Any, Any]

_FACTS = (*NUMBERS, *NAMES)
_TCP = ("syn_at", "syn_ack_at", "handshake_rtt_ns")
_BASE_SEQS = ("base_seq_a", "base_seq_b")
_TLS_RECORDS = ("tls_records_a", "tls_records_b")
#: Strings of a history.
TEXTS = (*NAMES, "tls")
#: The options of the SYN of each direction: fields of DIRECTION.
_OPTIONS = tuple((f"{name}_{end}", kind) for end in "ab" for name, kind in (
    ("shift", "i1"), ("mss", "i4"), ("sack_permitted", "u1"), ("timestamps", "u1"),
))  # fmt: skip
#: The fields of a `History`.
HISTORY_FIELDS: list[Any] = [
    *((name, "i8") for name in ("serial", "key", "began", *_BASE_SEQS, *_TCP, *SOURCE[:2], *_TLS_RECORDS)),
    *((name, "i4") for name in (*TEXTS, SOURCE[2], "rebalance_ms")),
    ("client", "i1"),
    ("protocol", "u1"),
    ("answers_at_once", "i1"),
    *_OPTIONS,
]
#: The key of a flow: `reassembly.flows.flow_keys`.
FLOW_KEY = np.dtype(f"V{KEY_BYTES}")
#: A flow in one split: the fields of `survey.FlowSeen`, its first and last packet there, and those of its `History`.
FLOW_ROW = np.dtype([
    ("flow", FLOW_KEY), ("first", "i8"), ("last", "i8"), ("head", "i8"), ("settled", "i8"), ("first_packet", "i8"),
    ("last_packet", "i8"), *HISTORY_FIELDS, ("opened", "?"), ("renewed", "?"),
])  # fmt: skip
#: The state of a flow at the head in a split: the digest and the `History` of its connection.
STATE_ROW = np.dtype([("flow", FLOW_KEY), ("split", "i4"), ("digest", "V16"), *HISTORY_FIELDS])


@dataclass(slots=True)
class FlowStates:
    """STATE_ROW of some flows, and their strings."""

    rows: Array = field(default_factory=lambda: np.zeros(0, STATE_ROW))
    strings: Sequence[bytes] = ()

    def by_flow(self) -> dict[bytes, FlowState]:
        """The states by the keys of their flows."""
        digests = (digest.tobytes() for digest in self.rows["digest"])
        states = map(FlowState, digests, histories(self.rows, self.strings))
        return dict(zip(flow_bytes(self.rows["flow"]), states, strict=True))


@cache
def _seed() -> int:
    """That of the hashes of this process: secret, so that no traffic can have flows with equal hashes."""
    return int.from_bytes(os.urandom(7), "little")


def flow_bytes(keys: Array) -> list[bytes]:
    """The keys of flows (FLOW_KEY) as bytes."""
    whole = keys.tobytes()
    return [whole[at : at + KEY_BYTES] for at in range(0, len(whole), KEY_BYTES)]


def hash_flows(keys: Array, seed: int) -> Array:
    """A hash of each flow (FLOW_KEY): uint64."""
    words = np.ascontiguousarray(keys).view(np.uint64).reshape(len(keys), KEY_BYTES // 8)
    hashes = np.full(len(keys), seed | 1, np.uint64)
    for column in words.T:
        hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def group_flows(keys: Array) -> tuple[Array, Array]:
    """Sort flows (FLOW_KEY) so that equal ones are adjacent, in their order: the places in that order, and where the
    groups begin in it. In one process, groups are always in the same order."""
    seed = _seed()
    while True:
        hashes = hash_flows(keys, seed)
        order = np.argsort(hashes, kind="stable")
        is_first = np.diff(hashes[order], prepend=~hashes[order[:1]]) != 0
        words = np.ascontiguousarray(keys).view(np.uint64).reshape(len(keys), KEY_BYTES // 8)
        before, after = order[:-1][~is_first[1:]], order[1:][~is_first[1:]]
        if np.array_equal(words[before], words[after]):  # else two flows have the same hash
            return order, np.flatnonzero(is_first)
        seed += 1


def as_keys(keys: Iterable[bytes]) -> Array:
    """Bytes as an array of FLOW_KEY."""
    return np.frombuffer(b"".join(keys), FLOW_KEY)


def fill_histories(rows: Array, known: Array, connections: Array, directions: Array) -> None:
    """Write the histories of connections to rows, but for `began` and what is known of TLS.

    `known`: their rows in the dissector, `connections` and `directions` (two each) those in the assembler. Strings keep
    the numbers of the dissector."""
    for name in _FACTS:
        rows[name] = known[name]
    for name in _TCP:
        rows[name] = connections[name]
    for end, name in enumerate(_BASE_SEQS):
        sent = directions[end::2]
        rows[name] = np.where(sent["started"] > 0, sent["base_seq"], -1)
    for name, _ in _OPTIONS:
        rows[name] = directions[name[:-2]]["ab".index(name[-1]) :: 2]
    rows["tls"] = -1


def fill_tls(rows: Array, strings: list[bytes], known: Iterable[tuple[bytes | None, int, int]]) -> None:
    """Write what is known of TLS to rows, as of `tls.hand_over.hand_overs`. Their strings are added to `strings`."""
    for i, (given, first, second) in enumerate(known):
        if given is not None:
            rows["tls"][i] = len(strings)
            strings.append(given)
            rows["tls_records_a"][i], rows["tls_records_b"][i] = first, second


def renumber_strings(rows: Array, strings: Any) -> list[bytes]:
    """Number the strings of rows anew, by a list of those that they use; return it. `strings`: by the old numbers."""
    used = np.unique(np.concatenate([rows[name] for name in TEXTS]))
    used = used[used >= 0]
    for name in TEXTS:
        rows[name] = np.where(rows[name] < 0, -1, np.searchsorted(used, rows[name]))
    return [strings[number] for number in used.tolist()]


def histories(rows: Array, strings: Sequence[bytes]) -> Iterator[History]:
    """The history in each row."""
    order = ("began", *_BASE_SEQS, *_TCP, *_TLS_RECORDS)
    options = zip(*(rows[name].tolist() for name, _ in _OPTIONS), strict=True)
    more = zip(*(rows[name].tolist() for name in order), strict=True)
    numbers = zip(*(rows[name].tolist() for name in NUMBERS), strict=True)
    texts = zip(*(rows[name].tolist() for name in TEXTS), strict=True)
    for known, (began, base_a, base_b, *tcp), places, syn in zip(numbers, more, texts, options, strict=True):
        names: dict[str, Any] = {n: None if i < 0 else strings[i] for n, i in zip(TEXTS, places, strict=True)}
        tls = names.pop("tls")
        facts = ConnectionFacts(**dict(zip(NUMBERS, known, strict=True)), **names)
        syn_at, syn_ack_at, rtt, *sent = tcp
        offered = SynOptions(*syn[:4]), SynOptions(*syn[4:])
        yield History(facts, began, (base_a, base_b), (syn_at, syn_ack_at), rtt, offered, tls, (sent[0], sent[1]))


def history_rows(known: Sequence[History], dtype: np.dtype[Any]) -> tuple[Array, list[bytes]]:
    """Histories as rows of a dtype with HISTORY_FIELDS, and the strings of these rows."""
    rows = np.zeros(len(known), dtype)
    numbers: dict[bytes, int] = {}
    for name in NAMES:
        texts = (getattr(history.facts, name) for history in known)
        rows[name] = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    rows["tls"] = [-1 if h.tls is None else numbers.setdefault(h.tls, len(numbers)) for h in known]
    for direction, name in enumerate(_TLS_RECORDS):
        rows[name] = [history.tls_records[direction] for history in known]
    for name in NUMBERS:
        rows[name] = [getattr(history.facts, name) for history in known]
    rows["began"] = [history.first for history in known]
    for end, name in enumerate(_BASE_SEQS):
        rows[name] = [history.base_seqs[end] for history in known]
    for end, name in enumerate(("syn_at", "syn_ack_at")):
        rows[name] = [history.handshake[end] for history in known]
    rows["handshake_rtt_ns"] = [history.handshake_rtt_ns for history in known]
    for name, _ in _OPTIONS:
        rows[name] = [getattr(history.options["ab".index(name[-1])], name[:-2]) for history in known]
    return rows, list(numbers)
