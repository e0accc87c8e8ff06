"""Decompression of gzip and zstd that returns the bytes before damage.

`open_decompressor(file)` detects the compression by the file's first bytes. A decompressor's `readinto(view)` returns 0
only at the end. It raises `DamagedCapture` only after it has returned everything before the damage; the offset counts
decompressed bytes. The caller's view limits the output, whatever the input claims.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Generator
from typing import Any, Protocol, cast

from kafkatap.reassembly.errors import DamagedCapture, NotACapture, TruncatedCapture

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: Compressions that kafkatap does not read, by their first bytes: the name, and the command that decompresses it.
UNSUPPORTED = {b"BZh": ("bzip2", "bunzip2"), b"\xfd7zXZ": ("xz", "unxz"), b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
           b"PK\x03\x04": ("zip", "unzip"), b"\x1f\x9d": ("compress", "uncompress")}  # fmt: skip
_CHUNK = 1 << 19
#: Damage of zstd costs at most so many bytes before it, the same ones whatever the caller's views.
_ZSTD_STEP = 65_536
#: Bytes that one call of zstd decompresses, where the view has room, and compressed bytes that it reads. With fewer, a
#: run would be slower: after each call this thread waits until the other one lets go of the interpreter.
_ZSTD_STEPS, _ZSTD_READ = 4 << 20, 1 << 20
#: zstd: the type of a block that repeats one byte, and the flag of a frame that ends with a checksum.
_RUN, _CHECKSUM = 1, 4


class Decompressor(Protocol):
    def readinto(self, view: memoryview) -> int: ...


def open_decompressor(file: io.BufferedReader) -> tuple[str, Decompressor | None]:
    """The compression's name and its decompressor; ("", None) for a file that is not compressed.

    NotACapture for a compression that kafkatap does not read.
    """
    head = file.peek(6)[:6]
    if head[:2] == GZIP:
        return "gzip", GzipDecompressor(file)
    if head[:4] == ZSTD:
        return "zstd", ZstdDecompressor(file)
    for magic, (name, command) in UNSUPPORTED.items():
        if head.startswith(magic):
            raise NotACapture(f"compressed by {name}, which is not read here: {command} it first")
    return "", None


class GzipDecompressor:
    """gzip of one or more members. bgzip, pigz and `cat a.gz b.gz` write several."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._member = zlib.decompressobj(31)
        self._input = b""  # compressed bytes that are not decompressed yet
        self._rest = b""  # those behind them that were read, too
        self._position = 0  # decompressed bytes returned so far
        self._is_over = False
        self._error: DamagedCapture | None = None

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view) and not self._is_over:
            if not self._input:
                self._input, self._rest = self._rest or self._file.read1(_CHUNK), b""
                if not self._input:
                    self._is_over = True
                    self._error = TruncatedCapture("the gzip stream is cut short", self._position + done)
                    break
            output = self._decompress(len(view) - done, self._position + done)
            view[done : done + len(output)] = output
            done += len(output)
            if self._member.eof:
                self._next_member()
        self._position += done
        if done == 0 and self._error is not None:
            raise self._error
        return done

    def _decompress(self, room: int, position: int) -> bytes:
        """Decompress some of `_input`, up to `room` bytes. `position`: of the first one.

        zlib returns nothing of a chunk in which it fails. So such a chunk is halved until a byte fails alone, and that
        byte is decompressed a byte at a time.
        """
        before = self._member.copy()
        try:
            output = self._member.decompress(self._input, room)
        except zlib.error as error:
            self._member = before
            if (half := len(self._input) // 2) > 0:
                self._input, self._rest = self._input[:half], self._input[half:] + self._rest
            elif room > 1:
                return self._decompress(1, position)
            else:
                self._is_over = True
                reason = str(error).rpartition(": ")[2]
                self._error = DamagedCapture(f"the gzip stream is damaged ({reason})", position)
            return b""
        self._input = self._member.unconsumed_tail
        return output

    def _next_member(self) -> None:
        rest, self._rest = self._member.unused_data + self._rest, b""
        while len(rest) < 2:
            more = self._file.read1(_CHUNK)
            if not more:
                break
            rest += more
        # Other bytes behind the last member (zeros of a tape block) are not part of the capture.
        self._is_over = rest[:2] != GZIP
        self._input = rest
        self._member = zlib.decompressobj(31)


class _ZstdFrames:
    """Reads a zstd file and follows its frames, as the library does not say whether the last one is complete.

    `is_inside`: whether the bytes read so far end inside a frame.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self.is_inside = False
        self._file = file
        self._fields = self._field_sizes()
        self._left = next(self._fields)  # bytes of the current field that are not read yet
        self._field = b""  # its first bytes, at most 8

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        at = 0
        while at < len(data):
            some = data[at : at + self._left]
            at += len(some)
            self._left -= len(some)
            self._field = (self._field + some)[:8]
            if not self._left:
                field, self._field = self._field, b""
                self._left = self._fields.send(field)
        return data

    def _field_sizes(self) -> Generator[int, bytes, None]:
        """Yield the size of each field (RFC 8878, section 3.1), above 0; receive the field's first bytes."""
        while True:
            self.is_inside = False
            magic = yield 1
            self.is_inside = True
            magic += yield 3
            if magic != ZSTD:  # a skippable frame, or bytes that the decompressor refuses
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


class ZstdDecompressor:
    """zstd of one or more frames."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._open()
        self._most = _ZSTD_STEPS if file.seekable() else _ZSTD_STEP
        self._position = 0  # decompressed bytes so far
        self._step = memoryview(b"")  # those that the caller had no room for
        self._error: DamagedCapture | None = None

    def _open(self) -> None:
        import zstandard

        self._damage = zstandard.ZstdError
        self._frames = _ZstdFrames(self._file)
        self._stream = zstandard.ZstdDecompressor().stream_reader(
            cast(Any, self._frames), read_size=_ZSTD_READ, read_across_frames=True
        )

    def readinto(self, view: memoryview) -> int:
        done = 0
        while done < len(view):
            if not self._step:
                if whole := (len(view) - done) // _ZSTD_STEP * _ZSTD_STEP:
                    count = self._read_step(view[done : done + min(whole, self._most)])
                    if not count:
                        break
                    done += count
                    continue
                step = memoryview(bytearray(_ZSTD_STEP))
                self._step = step[: self._read_step(step)]
                if not self._step:
                    break
            some = self._step[: len(view) - done]
            view[done : done + len(some)] = some
            self._step = self._step[len(some) :]
            done += len(some)
        if done == 0 and self._error is not None:
            raise self._error
        return done

    def _read_step(self, view: memoryview) -> int:
        """Decompress up to as many bytes as there is room for; 0 at the end, and where `_error` says what is wrong."""
        if self._error is not None:
            return 0
        count = 0
        try:
            count = int(self._stream.readinto(cast(Any, view)))
        except self._damage as error:
            if len(view) > _ZSTD_STEP:  # the library does not say how many it has decompressed
                self._begin_anew()
                return self._read_step(view[:_ZSTD_STEP])
            reason = str(error).rpartition(": ")[2]
            self._error = DamagedCapture(f"the zstd stream is damaged ({reason})", self._position)
        if not count and self._error is None and self._frames.is_inside:
            self._error = TruncatedCapture("the zstd stream is cut short", self._position)
        self._position += count
        return count

    def _begin_anew(self) -> None:
        """Decompress the file again up to where it was, to go on in the smallest steps."""
        self._file.seek(0)
        self._open()
        self._most = _ZSTD_STEP
        scratch, left = memoryview(bytearray(_ZSTD_STEPS)), self._position
        while left and (count := self._stream.readinto(cast(Any, scratch[:left]))):
            left -= count
