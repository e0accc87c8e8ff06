"""The identity of a capture file depends on its bytes alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kafkatap.captures.identity import SAMPLE, capture_identity, identity_of_bytes, missing_identity


@pytest.mark.parametrize("size", [0, 1, SAMPLE - 1, SAMPLE, SAMPLE + 1, 2 * SAMPLE, 2 * SAMPLE + 1, 5 * SAMPLE])
def test_name_and_time_do_not_matter(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    one, two = tmp_path / "one.pcap", tmp_path / "deep" / "two"
    two.parent.mkdir()
    one.write_bytes(data)
    shutil.copy(one, two)
    os.utime(two, (1, 1))
    identity = capture_identity(str(one))
    assert 0 < identity < 2**63
    assert capture_identity(str(two)) == capture_identity(f"file://{two}") == identity
    assert identity_of_bytes(size, data[:SAMPLE], data[max(size - SAMPLE, SAMPLE) :]) == identity


def test_size_head_and_tail_matter(tmp_path: Path) -> None:
    data = bytearray(os.urandom(3 * SAMPLE))
    path = tmp_path / "capture"

    def identity() -> int:
        path.write_bytes(data)
        return capture_identity(str(path))

    known = {identity()}
    for place in (0, SAMPLE - 1, 2 * SAMPLE, 3 * SAMPLE - 1):
        data[place] ^= 1
        known.add(identity())
    assert len(known) == 5
    data[SAMPLE] ^= 1
    assert identity() in known
    data += b"\0"
    assert identity() not in known


def test_bytes_that_are_added_later_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    for size in (10, 3 * SAMPLE):
        path.write_bytes(bytes(range(10)) * (size // 10))
        size = path.stat().st_size
        identity = capture_identity(str(path))
        with path.open("ab") as file:
            file.write(b"more")
        assert capture_identity(str(path)) != identity
        assert capture_identity(str(path), size) == identity


def test_a_file_that_is_gone_has_the_identity_of_its_name(tmp_path: Path) -> None:
    gone = [str(tmp_path / name) for name in ("a.pcap", "b.pcap")]
    with pytest.raises(FileNotFoundError):
        capture_identity(gone[0])
    assert 0 < missing_identity(gone[0]) != missing_identity(gone[1])
