"""Rewrites `records` fields: keys, values and headers of records become filler; sizes, times and structure stay.

A batch keeps its header if its CRC is right, or if all numbers in it are plausible; else it becomes filler altogether.
Its CRC is computed anew. A compressed batch is decompressed under the reader's bounds and
compressed again into as many bytes (`exact_compression`). If that is impossible, its compressed bytes become filler,
and `unfitted` counts it. Bytes that are no batch become filler.

Reports sample batches by their CRC. So two bytes of filler are chosen such that a batch is in the sample if it was in
that of the original.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkatap.dissector.batch_headers import (
    BATCH_HEADER,
    CODEC_BITS,
    LOG_OVERHEAD,
    MESSAGE_0,
    MESSAGE_1,
    NO_BATCH,
    OTHER_MAGIC,
    UNKNOWN_END,
    batch_header,
)
from kafkatap.dissector.facts.fact_rows import SAMPLED
from kafkatap.dissector.programs.tape import as_array
from kafkatap.dissector.records.batches import CONTROL
from kafkatap.dissector.records.checksums import crc_of
from kafkatap.dissector.records.codecs import DONE, Bounds, decompress

from .exact_compression import recompressed
from .fields import FILLER
from .names import Names
from .plausible import is_plausible
from .record_structure import FOUND, PLACE, ROOM, mark_structure

_NESTED = 2
#: Where the CRC is, by magic.
_CRC_AT = {0: 12, 1: 12, 2: 17}
#: Tries to have a batch in the sample: one in SAMPLED succeeds.
_TRIES = 10 * SAMPLED
#: Bytes of batches that are kept to be found again, with those that they became.
_MOST_KEPT = 64 << 20
#: Of the longest value of a batch, so many bytes are noted for the audit if they are not all alike.
_SAMPLE, _DIFFERENT = 32, 8


class RecordRewriter:
    """Rewrites the records of one run. `batches`, `unfitted`: how many batches there were, and how many of them do not
    decompress any more. `implausible`: batches without a right CRC whose header became filler."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.batches = self.unfitted = self.implausible = 0
        self._bounds = Bounds()
        #: What batches of magic 2 became, from their CRC on, by what they were: brokers pass them on as they are. Then
        #: how many were unfitted.
        self._known: dict[bytes, tuple[bytes, int]] = {}
        self._kept = 0  # bytes

    def rewrite(self, raw: bytes | memoryview, depth: int = 0) -> bytearray:
        """The captured bytes of a field without its contents, in as many bytes. A `memoryview` is not copied."""
        made = bytearray(FILLER) * len(raw)
        following = 0
        while following < len(raw):
            header = batch_header(raw, following, len(raw), UNKNOWN_END)
            at, following, magic = int(header.at), int(header.following), int(header.magic)
            if header.state == OTHER_MAGIC:
                if following <= len(raw):  # its size leads to the next batch
                    made[at + 8 : at + LOG_OVERHEAD] = raw[at + 8 : at + LOG_OVERHEAD]
                continue
            if header.state == NO_BATCH or magic < 0:
                break
            self.batches += 1
            batch = raw[at : min(following, len(raw))]
            self._batch(batch, memoryview(made)[at : at + len(batch)], magic, following <= len(raw), depth)
        return made

    def _batch(self, raw: bytes | memoryview, made: memoryview, magic: int, is_whole: bool, depth: int) -> None:
        """Write a batch to `made`, which is filler."""
        crc = _CRC_AT[magic]
        covered = bytes(raw[crc:]) if magic == 2 and is_whole else b""
        known = self._known.get(covered)
        if known is not None:
            made[:crc], made[crc:] = raw[:crc], known[0]
            self.unfitted += known[1]
            return
        before = self.unfitted
        old = int.from_bytes(raw[crc : crc + 4], "big")
        is_right = is_whole and crc_of(magic, memoryview(raw)) == old
        if not is_right and not is_plausible(raw, magic):
            self.implausible += 1
            return
        if magic == 2 and len(raw) < BATCH_HEADER:  # a part of a header, at the end of a response
            made[:crc] = raw[:crc]
            return
        right = 0  # that of a batch that was not captured whole says nothing
        if magic < 2:
            self._message(raw, made, magic, depth, is_right)
            right = crc_of(magic, made) if is_whole else 0
        else:
            made[:BATCH_HEADER] = raw[:BATCH_HEADER]
            found = 0  # unfitted ones of the last try
            for body in self._bodies(raw[BATCH_HEADER:], int.from_bytes(raw[21:23], "big"), is_whole, is_right):
                found, self.unfitted = self.unfitted - before, before
                made[BATCH_HEADER:] = body
                right = crc_of(magic, made) if is_whole else 0
                if not is_right or (right % SAMPLED == 0) == (old % SAMPLED == 0):
                    break
            self.unfitted += found
        if not is_right:  # it stays wrong
            right ^= 0xFFFFFFFF
            right = right - right % SAMPLED + (old % SAMPLED > 0)
        made[crc : crc + 4] = right.to_bytes(4, "big")
        if is_right and covered:
            self._keep(covered, (bytes(made[crc:]), self.unfitted - before))

    def _keep(self, covered: bytes, made: tuple[bytes, int]) -> None:
        """Keep what became of a batch, and forget the oldest ones beyond _MOST_KEPT."""
        self._known[covered] = made
        self._kept += 2 * len(covered)
        while self._kept > _MOST_KEPT:
            oldest = next(iter(self._known))
            self._kept -= 2 * len(oldest)
            del self._known[oldest]

    def _bodies(
        self, body: bytes | memoryview, attributes: int, is_whole: bool, is_right: bool
    ) -> Iterator[bytes | bytearray]:
        """What may be in place of a batch's records: all the same but for two letters."""
        codec, is_control = attributes & CODEC_BITS, bool(attributes & CONTROL)
        unpacked = decompress(codec, 2, body, self._bounds) if codec and is_whole else None
        if codec and (unpacked is None or unpacked.problem != DONE):
            yield FILLER * len(body)
            return
        plain = body if unpacked is None else bytes(unpacked.data)
        made, place, room = overwritten(plain, is_control, not is_whole, is_right)
        if len(set(plain[place : place + min(room, _SAMPLE)])) >= _DIFFERENT:
            self.names.forget(bytes(plain[place : place + min(room, _SAMPLE)]))
        for number in range(_TRIES if room else 1):
            if number:
                made[place] = 0x61 + number % 26
                made[place + min(room, 2) - 1] = 0x61 + (number // 26 if room > 1 else number) % 26
            yield made if unpacked is None else self._packed(codec, 2, bytes(body), bytes(made))

    def _packed(self, codec: int, magic: int, old: bytes, data: bytes) -> bytes:
        packed = recompressed(codec, magic, old, data)
        if packed is None:
            self.unfitted += 1
            return FILLER * len(old)
        return packed

    def _message(self, raw: bytes | memoryview, made: memoryview, magic: int, depth: int, is_right: bool) -> None:
        """A message of magic 0 or 1, whose value may be a compressed message set."""
        key_at = MESSAGE_1 - 4 if magic else MESSAGE_0 - 4
        if len(raw) < key_at:
            return
        made[:key_at] = raw[:key_at]
        key = int.from_bytes(raw[key_at - 4 : key_at], "big", signed=True)
        value_at = key_at + max(key, 0) + 4
        if key < -1 or value_at > len(raw):
            return
        size = int.from_bytes(raw[value_at - 4 : value_at], "big", signed=True)
        end = LOG_OVERHEAD + int.from_bytes(raw[8:12], "big", signed=True)
        if not is_right and (size < -1 or value_at + max(size, 0) != end):
            return
        made[value_at - 4 : value_at] = raw[value_at - 4 : value_at]
        codec = raw[17] & CODEC_BITS
        if size <= 0 or not codec or value_at + size > len(raw):
            return
        value = raw[value_at : value_at + size]
        unpacked = decompress(codec, magic, value, self._bounds)
        if unpacked.problem == DONE and depth < _NESTED:
            inner = self.rewrite(bytes(unpacked.data), depth + 1)
            made[value_at : value_at + size] = self._packed(codec, magic, bytes(value), bytes(inner))


def overwritten(
    body: bytes | memoryview, is_control: bool, is_cut: bool = False, is_right: bool = True
) -> tuple[bytearray, int, int]:
    """The records of a batch of magic 2 (decompressed) with filler in place of keys, values and headers; the place of
    the longest filler, and its length. `is_cut`: the last record may be a part of one. `is_right`: the CRC says that
    these are records; else their numbers have to be plausible."""
    raw, kept, found = as_array(body), np.zeros(len(body), np.uint8), np.zeros(FOUND, np.int64)
    mark_structure(raw, int(is_control), int(is_cut), int(is_right), kept, found)
    made = bytearray(np.where(kept, raw, np.uint8(FILLER[0])).data)
    return made, int(found[PLACE]), int(found[ROOM])
