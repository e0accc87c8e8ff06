"""Decompression that gives every byte before damage: `open_stream(file)` tells gzip and zstd by their first bytes.

A stream has `readinto(view)`, which gives 0 only at the end, and raises `DamagedCapture` (with the offset in the
decompressed bytes) only after all that could be decompressed before was given. Output is bounded by the caller's view,
whatever the input claims.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Generator
from typing import Any, Protocol, cast

from kafkatap.reassembly.errors import DamagedCapture, NotACapture, TruncatedCapture

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: Compressions that are not read, by their first bytes, with the command that undoes them.
FOREIGN = {b"BZh": ("bzip2", "bunzip2"), b"\xfd7zXZ": ("xz", "unxz"), b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
           b"PK\x03\x04": ("zip", "unzip"), b"\x1f\x9d": ("compress", "uncompress")}  # fmt: skip
_CHUNK = 65_536
#: What is lost of a zstd stream before damage: at most so many decompressed bytes.
_PIECE = 65_536
#: In zstd: the type of a block that is one byte repeated, and the flag of a frame that ends with a checksum.
_RUN, _CHECKSUM = 1, 4


class Stream(Protocol):
    def readinto(self, view: memoryview) -> int: ...


def open_stream(file: io.BufferedReader) -> tuple[str, Stream | None]:
    """The compression's name and its stream; ("", None) where the bytes are as they are."""
    head = file.peek(6)[:6]
    if head[:2] == GZIP:
        return "gzip", Gzip(file)
    if head[:4] == ZSTD:
        return "zstd", Zstd(file)
    for magic, (name, command) in FOREIGN.items():
        if head.startswith(magic):
            raise NotACapture(f"compressed by {name}, which is not read here: {command} it first")
    return "", None


class Gzip:
    """gzip, also of several members (as bgzip, pigz and `cat a.gz b.gz` make them)."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._member = zlib.decompressobj(31)
        self._input = b""
        self._given = 0
        self._over = False
        self._error: DamagedCapture | None = None

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view) and not self._over:
            if not self._input:
                self._input = self._file.read1(_CHUNK)
                if not self._input:
                    self._over = True
                    self._error = TruncatedCapture("the gzip stream is cut short", self._given + done)
                    break
            output = self._decompress(len(view) - done)
            view[done : done + len(output)] = output
            done += len(output)
            if self._member.eof:
                self._next_member()
        self._given += done
        if done == 0 and self._error is not None:
            raise self._error
        return done

    def _decompress(self, room: int) -> bytes:
        before = self._member.copy()
        try:
            output = self._member.decompress(self._input, room)
        except zlib.error as error:
            output = self._up_to_the_damage(before, room)
            self._over = True
            at = self._given + len(output)
            self._error = DamagedCapture(f"the gzip stream is damaged ({str(error).rpartition(': ')[2]})", at)
            return output
        self._input = self._member.unconsumed_tail
        return output

    def _up_to_the_damage(self, member: Any, room: int) -> bytes:
        """zlib gives nothing of a chunk in which it fails: byte by byte up to there."""
        parts: list[bytes] = []
        try:
            for n in range(len(self._input)):
                parts.append(member.decompress(self._input[n : n + 1]))
        except zlib.error:
            pass
        return b"".join(parts)[:room]

    def _next_member(self) -> None:
        rest = self._member.unused_data
        while len(rest) < 2:
            more = self._file.read1(_CHUNK)
            if not more:
                break
            rest += more
        # What follows the last member and is none (zeros of a tape block) is not part of the capture.
        self._over = rest[:2] != GZIP
        self._input = rest
        self._member = zlib.decompressobj(31)


class _ZstdFrames:
    """Reads a zstd file, and follows its frames: the decompressor does not tell whether the last one is whole."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.is_inside = False
        self._file = file
        self._parts = self._follow()
        self._left = next(self._parts)
        self._part = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        at = 0
        while at < len(data):
            some = data[at : at + self._left]
            at += len(some)
            self._left -= len(some)
            self._part = (self._part + some)[:8]
            if not self._left:
                part, self._part = self._part, b""
                self._left = self._parts.send(part)
        return data

    def _follow(self) -> Generator[int, bytes, None]:
        """Yields the size of each part in turn, above 0; is sent its first bytes (RFC 8878, section 3.1)."""
        while True:
            self.is_inside = False
            magic = yield 1
            self.is_inside = True
            magic += yield 3
            if magic != ZSTD:  # a skippable frame, or what the decompressor refuses
                size = int.from_bytes((yield 4), "little")
                if size:
                    yield size
                continue
            [flags] = yield 1
            is_single = flags >> 5 & 1
            content_size = (is_single, 2, 4, 8)[flags >> 6]
            rest = (1 - is_single) + (0, 1, 2, 4)[flags & 3] + content_size
            if rest:
                yield rest
            is_last = False
            while not is_last:
                block = int.from_bytes((yield 3), "little")
                is_last = bool(block & 1)
                size = 1 if block >> 1 & 3 == _RUN else block >> 3
                if size:
                    yield size
            if flags & _CHECKSUM:
                yield 4


class Zstd:
    """zstd, also of several frames."""

    def __init__(self, file: io.BufferedReader) -> None:
        import zstandard

        self._damage = zstandard.ZstdError
        self._frames = _ZstdFrames(file)
        self._stream = zstandard.ZstdDecompressor().stream_reader(cast(Any, self._frames), read_across_frames=True)
        self._given = 0
        self._error: DamagedCapture | None = None

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view) and self._error is None:
            try:
                count = self._stream.readinto(view[done : done + _PIECE])
            except self._damage as error:
                reason = str(error).rpartition(": ")[2]
                self._error = DamagedCapture(f"the zstd stream is damaged ({reason})", self._given + done)
                break
            if not count:
                if self._frames.is_inside:
                    self._error = TruncatedCapture("the zstd stream is cut short", self._given + done)
                break
            done += count
        self._given += done
        if done == 0 and self._error is not None:
            raise self._error
        return done
