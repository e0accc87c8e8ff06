"""Flows and the histories of their connections as rows of arrays, so that a million of them are cheap to send and sort.

Strings of a row are numbers in a list of strings beside the array, -1 for unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kafkatap.dissector.connection_state import NAMES, ConnectionFacts
from kafkatap.dissector.strings import StringTable
from kafkatap.reassembly.flows import KEY_BYTES

from .flow_state import History

Array = np.ndarray[Any, Any]

_FACTS = ("serial", "key", "client", "protocol", "answers_at_once")
_HISTORY: list[Any] = [
    ("serial", "i8"),
    ("key", "i8"),
    ("began", "i8"),
    ("base_seq_a", "i8"),
    ("base_seq_b", "i8"),
    ("syn_at", "i8"),
    ("syn_ack_at", "i8"),
    ("handshake_rtt_ns", "i8"),
    *((name, "i4") for name in NAMES),
    ("client", "i1"),
    ("protocol", "u1"),
    ("answers_at_once", "i1"),
]
#: A flow in one split: the fields of `survey.FlowSeen`, and those of its `History`.
FLOW_ROW = np.dtype([
    ("flow", f"V{KEY_BYTES}"), ("first", "i8"), ("last", "i8"), ("head", "i8"), ("settled", "i8"), *_HISTORY,
    ("opened", "?"), ("renewed", "?"),
])  # fmt: skip


def flow_bytes(keys: Array) -> list[bytes]:
    """The keys of flows (V40) as bytes."""
    whole = keys.tobytes()
    return [whole[at : at + KEY_BYTES] for at in range(0, len(whole), KEY_BYTES)]


def renumber_strings(rows: Array, strings: StringTable) -> list[bytes]:
    """Number the strings of rows anew, by a list of those that they use; return it. `strings`: by the old numbers."""
    used = np.unique(np.concatenate([rows[name] for name in NAMES]))
    used = used[used >= 0]
    for name in NAMES:
        rows[name] = np.where(rows[name] < 0, -1, np.searchsorted(used, rows[name]))
    return [strings[number] for number in used.tolist()]


def histories(rows: Array, strings: Sequence[bytes]) -> Iterable[History]:
    """The history in each row."""
    columns = [rows[name].tolist() for name in (*_FACTS, *NAMES, "began", "base_seq_a", "base_seq_b", "syn_at",
                                                "syn_ack_at", "handshake_rtt_ns")]  # fmt: skip
    for serial, key, client, protocol, at_once, *values in zip(*columns, strict=True):
        texts = (None if number < 0 else strings[number] for number in values[: len(NAMES)])
        began, base_a, base_b, syn_at, syn_ack_at, rtt = values[len(NAMES) :]
        names: dict[str, Any] = dict(zip(NAMES, texts, strict=True))
        facts = ConnectionFacts(serial, client, protocol, at_once, key=key, **names)
        yield History(facts, began, (base_a, base_b), (syn_at, syn_ack_at), rtt)
