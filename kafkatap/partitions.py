"""Cut rows into Hive-style folders by UTC hour and broker, with times in microseconds.

Folder names are escaped as in Hive and Spark. Spark, pandas and pyarrow read the columns `date`, `hour` and `broker`
back from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kafkatap.reports.batch import P_KAFKA, PROTOCOLS, endpoint

Array = np.ndarray[Any, Any]

#: A table of one split has at most this many hours and brokers. The rarer ones share a partition (see `_limit`).
MOST = 256
OTHER = "other"
_HOUR_NS = 3_600_000_000_000
#: Hive and Spark escape these characters in folder names, as %XX.
_ESCAPED = {c: f"%{c:02X}" for c in [*range(1, 32), 127, *b"\"#%'*/:=?\\{[]^"]}


def exchange_times(exchanges: Any) -> Array:
    """The time of each exchange, int64 ns (n,): the first byte of its request, or else of its response."""
    import pyarrow.compute as pc

    return as_ns(pc.coalesce(exchanges["request_first"], exchanges["response_first"]))


def broker_names(table: Any) -> Any:
    """The broker of each exchange or connection by name: a pyarrow dictionary array of strings."""
    import pyarrow as pa

    addresses = table["broker_ip"].combine_chunks().dictionary_encode()
    ports = table["broker_port"].to_numpy().astype(np.int64) & 0xFFFF
    keys, codes = np.unique(addresses.indices.to_numpy().astype(np.int64) << 16 | ports, return_inverse=True)
    texts = addresses.dictionary.to_pylist()
    names = [endpoint(texts[key >> 16] or None, key & 0xFFFF) for key in keys.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.string()))


def kafka_brokers(connections: Any) -> Any:
    """As `broker_names`, with OTHER for each connection that is not Kafka: captures may hold any number of servers."""
    import pyarrow.compute as pc

    names = broker_names(connections).cast("string")
    return pc.if_else(pc.equal(connections["protocol"].combine_chunks(), PROTOCOLS[P_KAFKA]), names, OTHER)


def as_ns(times: Any) -> Array:
    """Times as int64 ns, 0 for null."""
    import pyarrow.compute as pc

    found: Array = pc.fill_null(times.cast("int64"), 0).to_numpy()
    return found


def cut(table: Any, times: Array, brokers: Any) -> Iterator[tuple[str, Any]]:
    """Yield each partition and its rows, which keep their order."""
    import pyarrow as pa

    if isinstance(brokers, pa.ChunkedArray):
        brokers = brokers.combine_chunks()
    encoded = brokers if isinstance(brokers, pa.DictionaryArray) else pa.array(brokers, pa.string()).dictionary_encode()
    names = [*encoded.dictionary.to_pylist(), OTHER]
    broker = _limit(encoded.indices.to_numpy().astype(np.int64), len(names) - 1)
    hour = _limit(times // _HOUR_NS, 0)
    keys, codes = np.unique(hour * len(names) + broker, return_inverse=True)
    ordered = table if len(keys) == 1 else table.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes)).tolist()
    for key, begin, end in zip(keys.tolist(), [0, *ends], ends, strict=False):
        yield partition_name(key // len(names), names[key % len(names)]), ordered.slice(begin, end - begin)


def _limit(values: Array, rest: int) -> Array:
    """Keep the MOST most frequent values and replace the others by `rest`, so that no capture makes a file per row."""
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= MOST:
        return values
    kept = np.full(len(distinct), rest, np.int64)
    often = np.argsort(-counts, kind="stable")[:MOST]
    kept[often] = distinct[often]
    found: Array = kept[inverse]
    return found


def partition_name(hour: int, broker: str) -> str:
    """The folder of an hour (hours since the epoch) and a broker."""
    date, _, clock = str(np.datetime64(hour, "h")).partition("T")
    return f"date={date}/hour={clock}/broker={broker.translate(_ESCAPED)}"


def to_microseconds(table: Any) -> Any:
    """The same rows with all times in microseconds, the only unit that Spark reads."""
    import pyarrow as pa

    us = pa.timestamp("us", "UTC")
    fields = [f.with_type(us) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields), safe=False)
