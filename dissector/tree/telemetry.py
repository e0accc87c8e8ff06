"""The names of the metrics that clients push (KIP-714), without values.

The bytes are OpenTelemetry's MetricsData in protobuf, with the compression that the request names. Only the fields that
lead to the names are parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..kafka.varints import varint
from ..records.codecs import CODECS, DONE, NONE, Bounds, decompress

#: Field numbers from MetricsData down: resource_metrics, scope_metrics, metrics, name.
_PATH = (1, 2, 2, 1)
_BOUNDS = Bounds(absolute=4 << 20, floor=1 << 20)
#: The names that are shown, and that are counted.
_SHOWN, _MOST = 8, 10_000


def describe_metrics(codec: int, raw: bytes) -> str:
    """`zstd, 14 metrics: org.apache.kafka.producer.connection.creation.total, ...`; only the codec if the bytes cannot
    be decoded."""
    name = CODECS[codec] if 0 <= codec < len(CODECS) else f"codec {codec}"
    word = "not compressed" if codec == NONE else name
    unpacked = decompress(codec, 2, raw, _BOUNDS) if codec != NONE else None
    if unpacked is not None and unpacked.problem != DONE:
        return word
    try:
        names = list(dict.fromkeys(islice(_names(raw if unpacked is None else bytes(unpacked.data), _PATH), _MOST)))
    except ValueError:
        return word
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    count = f"{len(names)} metric" + ("" if len(names) == 1 else "s")
    return f"{word}, {count}" + (f": {', '.join(names[:_SHOWN])}{more}" if names else "")


def _names(raw: bytes, path: tuple[int, ...]) -> Iterator[str]:
    for number, content in _fields(raw):
        if number != path[0]:
            continue
        if len(path) == 1:
            yield content.decode("utf-8", "surrogateescape")
        else:
            yield from _names(content, path[1:])


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of the fields with a length. ValueError if the bytes are no protobuf."""
    at = 0
    while at < len(raw):
        key, at = _number(raw, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(raw, at)
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(kind)
            size, at = _number(raw, at)
        if size > len(raw) - at:
            raise ValueError(size)
        if kind == 2:
            yield key >> 3, raw[at : at + size]
        at += size


def _number(raw: bytes, at: int) -> tuple[int, int]:
    value, following = varint(raw, at, len(raw))
    if following < 0:
        raise ValueError("a varint")
    return value, following
