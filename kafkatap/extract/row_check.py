"""Are the rows of the extracted capture those of the original?

The extracted capture is read as a report reads it. A selected exchange has to be there with the same key and the same
columns, except for packet numbers, and for what is in flight at the end. Its topic ids have to have their names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from kafkatap.dissector.dtypes import EXCHANGE, EXCHANGE_STRINGS, IN_FLIGHT, UNANSWERED
from kafkatap.reports.batch import Names

from ..anonymize.blanking import SecretCounter
from ..engine.engine import Engine
from ..engine.read_options import ReadOptions
from ..run import Run, Watch, never
from .exchange_index import ExchangeIndex, unnamed_ids

Array = np.ndarray[Any, Any]
_PACKETS = ("request_packet_first", "request_packet_last", "response_packet_first", "response_packet_last")


@dataclass
class Difference:
    """What an extracted capture lacks. `connections`: numbers of connections with exchanges whose rows differ.
    `exchanges`: how many these are. `naming`: numbers of exchanges that name topics. `secrets`: messages with secrets
    that can be read, by API."""

    connections: Array
    exchanges: int
    naming: Array
    secrets: Counter[str]


def compare_rows(
    index: ExchangeIndex, path: str, read: ReadOptions, watch: Watch = never, with_secrets: bool = True
) -> Difference:
    """Read an extracted capture, and compare its rows with the selected ones of the original. `with_secrets`: search
    its messages for them."""
    counter = SecretCounter(lambda number: read.key_log is not None and number in engine.tls.tracked, read.definitions)
    engine = Engine(read, all_results=True, inspectors=[counter] if with_secrets else [])
    keys = np.sort(index.rows["key"])
    found: list[Array] = [np.zeros(0, EXCHANGE)]
    topic_ids: set[int] = set()
    for batch in Run([path], engine, watch).batches():
        mask = _are_in(batch.exchanges["key"], keys)
        if mask.any():
            batch = batch.picked(mask)
            found.append(batch.exchanges)
            topic_ids |= unnamed_ids(batch)
    rows = _comparable(np.concatenate(found), engine)
    expected = _comparable(index.rows, index.context)
    rows = rows[np.argsort(rows["key"], kind="stable")]
    at = np.searchsorted(rows["key"], expected["key"])
    is_equal = np.zeros(len(expected), bool)
    there = np.flatnonzero(at < len(rows))
    is_equal[there] = rows[at[there]] == expected[there]
    differ = np.isin(index.connections["key"], index.rows["connection"][~is_equal])
    return Difference(np.flatnonzero(differ), int((~is_equal).sum()), _naming(index, engine, topic_ids), counter.found)


def _are_in(values: Array, ordered: Array) -> Array:
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Array = ordered[at] == values
    return found


def _naming(index: ExchangeIndex, engine: Engine, topic_ids: set[int]) -> Array:
    """The exchanges that name these topics, if the extracted capture has no names for them."""
    missing = [engine.strings[number] for number in topic_ids if number not in engine.topic_names]
    return index.naming_exchanges(missing)


def _comparable(rows: Array, names: Names) -> Array:
    """Rows without numbers of packets and exchanges, with digests of texts in place of their numbers."""
    made = rows.copy()
    made["exchange"] = 0
    # The extracted capture ends earlier. So fewer requests are late, and none that waits for its end waits longer.
    made["outcome"][made["outcome"] == IN_FLIGHT] = UNANSWERED
    is_open = made["closed_by"] < 0
    made["waited_ns"][is_open & (made["waited_ns"] > 0)] = 0
    made["waited_ns"][is_open & (made["outcome"] == UNANSWERED)] = -1
    for name in _PACKETS:
        made[name] = 0
    for name in EXCHANGE_STRINGS:
        made[name] = _digests(made[name], lambda number: names.strings[number] or b"")
    for name in ("client_ip", "broker_ip"):
        made[name] = _digests(made[name], lambda number: names.addresses[number].encode())
    return made


def _digests(numbers: Array, text: Any) -> Array:
    distinct, inverse = np.unique(numbers, return_inverse=True)
    values = [-1 if n < 0 else crc32(text(n)) & 0x7FFFFFFF for n in distinct.tolist()]
    digests: Array = np.array(values, np.int32)[inverse.reshape(-1)] if len(distinct) else numbers
    return digests
