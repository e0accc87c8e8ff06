"""Records fields through the collector: what a field of these bytes gives, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from kafkatap.dissector.programs.loading import load_programs
from kafkatap.dissector.records import batches as b
from kafkatap.dissector.records.codecs import Bounds
from kafkatap.dissector.records.record_inspector import RecordCollector

Row = dict[str, Any]

_programs = cache(load_programs)


def collect(
    fields: Sequence[bytes], *, fetch: bool = True, cut: bool = False, bounds: Bounds | None = None
) -> tuple[list[Row], RecordCollector]:
    """The records of fields, each of an exchange of its own, and the collector that read them."""
    collector = RecordCollector(_programs("records"), bounds=bounds)
    whole = b"".join(fields)
    parts = np.zeros(len(fields), b.PART)
    parts["exchange"] = np.arange(len(fields))
    parts["fetch"], parts["cut"] = fetch, cut
    lengths = np.array([len(field) for field in fields], np.int64)
    at = np.cumsum(lengths) - lengths
    buffer = np.frombuffer(whole or b"\0", np.uint8).copy()
    collector.take(parts, at, lengths, np.zeros(len(fields), np.int64), (buffer,))
    buffer[:] = 0xAA  # what was looked at may be gone
    rows = []
    for chunk in collector.chunks():
        rows += _rows(chunk)
    return rows, collector


def read(field: bytes, **options: Any) -> list[Row]:
    """The records of one field."""
    return collect([field], **options)[0]


def _rows(chunk: Any) -> list[Row]:
    rows: list[Row] = []
    used = 0
    for record in chunk.records:
        batch = chunk.batches[record["batch"]]
        count = int(record["headers"])
        rows.append(
            {
                "exchange": int(chunk.parts[batch["part"]]["exchange"]),
                "batch": int(batch["number"]),
                "magic": int(batch["magic"]),
                "codec": int(batch["codec"]),
                "attributes": int(batch["attributes"]),
                "producer": (int(batch["producer_id"]), int(batch["producer_epoch"]), int(record["sequence"])),
                "crc": int(min(batch["crc_state"], record["crc_state"])),
                "offset": int(record["offset"]),
                "timestamp": int(record["timestamp"]),
                "key": _piece(chunk.arena, record["key_at"], record["key_length"]),
                "value": _piece(chunk.arena, record["value_at"], record["value_length"]),
                "headers": tuple(
                    (
                        _piece(chunk.arena, header["key_at"], header["key_length"]),
                        _piece(chunk.arena, header["value_at"], header["value_length"]),
                    )
                    for header in chunk.headers[used : used + count]
                ),
                "control": int(record["control"]),
                "status": b.RECORD_STATUSES[record["status"]],
            }
        )
        used += count
    assert used == len(chunk.headers)
    return rows


def _piece(arena: Any, at: Any, length: Any) -> bytes | None:
    return None if length < 0 else arena[int(at) : int(at) + int(length)].tobytes()
