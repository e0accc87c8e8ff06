"""What fuzzing revealed, each with the shortest input that shows it."""

from __future__ import annotations

import gzip
import io
import random
import time
import zipfile
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import zstandard

from kafkatap.captures import decompression
from kafkatap.captures.decompression import open_decompressor
from kafkatap.dissector.layouts.definition_files import DefinitionError, read_source
from kafkatap.kernels.decorator import kernel_mode
from kafkatap.reassembly.dtypes import CHUNK_DATA
from kafkatap.reassembly.errors import DamagedCapture
from tests.support.captures import pcap_bytes, write_capture
from tests.support.copies import with_ids
from tests.support.newer import newer_texts
from tests.support.tcp import ACK, START_NS, SYN, Segment, encode, frame
from tests.wire.harness import decode_files, decode_packets
from tests.wire.kafkatalk import METADATA, SASL_HANDSHAKE, KafkaTalk, small_talk
from tests.wire.two_paths import assert_same_streams


@pytest.mark.parametrize("data", [b"\x28\xb5\x2f\xfd\x04\x00\xf5", b"\x1f\x8b\x08\0"])
def test_a_capture_that_cannot_be_decompressed_has_no_link_type(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    (info,) = decode_files([tmp_path / "x"]).files
    assert info.kind in ("zstd", "gzip")
    assert info.link_types == ()
    assert "cut short" in info.damage


def test_an_unknown_file_has_a_size_whichever_way_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xa1\xb2\xc3\xff" * 30)
    alone = decode_files([tmp_path / "x"]).files[0]
    beside = decode_files([tmp_path / "x", tmp_path / "x"]).files[0]
    assert alone.bytes == beside.bytes > 0


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_of_definitions_is_called_so(method: int, tmp_path: Path) -> None:
    """Each way to compress has errors of its own. Some left the reader."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as jar:
        jar.writestr("common/message/FetchRequest.json", newer_texts()["FetchRequest.json"])
    whole = made.getvalue()
    path = tmp_path / "x.jar"
    seen = set()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x85]) + whole[at + 1 :])
        try:
            seen.update(read_source(path).texts)
        except DefinitionError as error:
            seen.add(str(error).partition(":")[0])
    assert str(path) in seen


def damaged_zstd(content: bytes) -> bytes:
    """A zstd stream whose checksum, at its end, is wrong."""
    whole = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(content)
    return whole[:-1] + bytes([whole[-1] ^ 1])


def read_damaged(data: bytes, size: int) -> tuple[bytes, int]:
    """What is read before the damage, in views of `size` bytes, and where the damage is said to be."""
    _, decompressor = open_decompressor(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(data))))
    assert decompressor is not None
    read = bytearray()
    view = memoryview(bytearray(size))

    def read_all() -> None:
        while count := decompressor.readinto(view):
            read.extend(view[:count])

    with pytest.raises(DamagedCapture) as raised:
        read_all()
    return bytes(read), raised.value.offset


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("size", [65_537, 4 << 20, 6 << 20])
def test_damage_costs_as_little_where_much_is_decompressed_at_once(
    place: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(7).randbytes(1 << 16) + bytes(range(256)) * 50_000
    packed = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(content)
    packed += zstandard.ZstdCompressor(level=1, write_checksum=True).compress(random.Random(8).randbytes(3 << 20))
    at = min(int(place * len(packed)), len(packed) - 1)
    damaged = packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :]
    found = read_damaged(damaged, size)
    monkeypatch.setattr(decompression, "_ZSTD_STEPS", decompression._ZSTD_STEP)
    assert found == read_damaged(damaged, size)


@pytest.mark.parametrize("size", [1, 7, 1_000, 65_535, 65_536, 65_537, 300_000])
def test_as_much_of_a_damaged_zstd_stream_is_read_whatever_the_views(size: int) -> None:
    content = bytes(range(256)) * 1_000
    read, offset = read_damaged(damaged_zstd(content), size)
    assert len(read) == offset == 196_608  # three times 64 KiB: damage costs the last step
    assert content.startswith(read)


@pytest.mark.parametrize("size", [1, 7, 1_000, 65_537, 300_000])
@pytest.mark.parametrize("at", [30, 20_000, -6])
def test_as_much_of_a_damaged_gzip_stream_is_read_whatever_the_views(size: int, at: int) -> None:
    """All that zlib makes of the bytes before the damage, and the place behind it."""
    content = b"".join(b"%d\n" % (number * 2_654_435_761 % (1 << 32)) for number in range(60_000))
    packed = bytearray(gzip.compress(content, 1, mtime=0))
    packed[at] ^= 0xFF
    whole, byte = zlib.decompressobj(31), bytearray()
    with suppress(zlib.error):
        for n in range(len(packed)):
            byte += whole.decompress(packed[n : n + 1])
    read, offset = read_damaged(bytes(packed), size)
    assert offset == len(read)
    assert 0 <= len(read) - len(byte) < 300  # those that the last byte makes before it fails
    assert read == read_damaged(bytes(packed), 100)[0]
    assert read.startswith(byte)


def test_the_blocks_of_a_damaged_zstd_capture(tmp_path: Path) -> None:
    """Before, the packets that were read depended on the size of blocks."""
    data = pcap_bytes(encode(small_talk(400).segments))
    path = tmp_path / "x.pcap.zst"
    path.write_bytes(damaged_zstd(data))
    wanted = decode_files([path])
    assert wanted.packets > 500
    for block_size in (100, 5_000, 70_000):
        seen = decode_files([path], block_size=block_size)
        assert (seen.exchanges, seen.ledger) == (wanted.exchanges, wanted.ledger)


@pytest.mark.parametrize("sent", [11, 12, 60, 179])
def test_a_gap_before_each_segment_in_both_directions(sent: int, tmp_path: Path) -> None:
    """Each held segment waits for bytes of its own direction, and acknowledges others that were not captured either:
    three chunks each. Before, more were written than the table holds."""
    client, broker = ("10.0.0.1", 40_000), ("10.0.0.2", 9_092)
    segments = [
        Segment(START_NS, client, broker, 999, 0, SYN),
        Segment(START_NS, broker, client, 4_999, 1_000, SYN | ACK),
        Segment(START_NS, client, broker, 1_000, 5_000, ACK),
    ]
    for n in range(1, sent + 1):
        segments.append(Segment(START_NS + n, client, broker, 1_000 + 20 * n, 5_000 + 10 * n, ACK, b"x" * 10))
    path = write_capture(tmp_path / "x.pcap", pcap_bytes(encode(segments), nanoseconds=True))
    got, _ = assert_same_streams(path, 1 << 20, 1)
    (chunks,) = got.chunks.values()
    assert sum(chunk[0] == CHUNK_DATA for chunk in chunks) == sent


@pytest.mark.skipif(kernel_mode() == "python", reason="measures compiled kernels")
def test_many_packets_after_the_one_that_is_repeated(tmp_path: Path) -> None:
    """A packet that comes again and again, with 16,000 others in between at the same time. Before, the search for what
    it is a copy of went through all of them each time, which took two seconds."""
    client, broker = ("10.0.0.1", 40_000), ("10.0.0.2", 9_092)
    segments = [Segment(START_NS, client, broker, 1_000 + 10 * n, 1, ACK, b"x" * 10) for n in range(16_000)]
    packets = with_ids(encode(segments))
    again = replace(packets[0], data=encode(segments[:1])[0].data)  # another id: not a copy
    path = write_capture(tmp_path / "x.pcap", pcap_bytes([*packets, *[again] * 40_000], nanoseconds=True))
    decode_files([path])
    started = time.process_time()
    seen = decode_files([path])
    assert time.process_time() - started < 1
    assert seen.packets == 56_000


@pytest.mark.parametrize("end", [0, 1])
def test_a_gap_in_a_sasl_token(end: int) -> None:
    """The ledger counts the bytes of a token that came. Before, missing ones were taken from the Kafka messages."""
    talk = KafkaTalk(mss=200)
    talk.tcp.open()
    talk.respond(talk.request(SASL_HANDSHAKE, 0, 2, Mechanism="PLAIN"))
    token = frame(b"\0a\0b" * 250)
    for sender in (0, 1):
        talk.tcp.send(sender, token[:200])
        if sender == end:
            talk.tcp.skip(sender, 300)
        talk.tcp.send(sender, token[500:] if sender == end else token[200:])
    talk.respond(talk.request(METADATA, 4, 3))
    seen = decode_packets(encode(talk.segments))
    assert seen.ledger["payload bytes"]["sasl_tokens"] == 2 * len(token) - 300
    assert seen.outcomes.count("answered") == 2
