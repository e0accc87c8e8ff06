"""Small files of a pack are read before their turn; whatever is read ahead, each is opened as it is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kafkatap.captures.pack_reader import AHEAD, LARGEST, FilesAhead
from kafkatap.captures.splits import Split


def splits_of(folder: Path, sizes: list[int]) -> list[Split]:
    splits = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.pcap"
        path.write_bytes(os.urandom(size))
        splits.append(Split(f"file://{path}", file=number, size=size))
    return splits


def path_of(split: Split) -> Path:
    return Path(split.path.removeprefix("file://"))


def everything(files: FilesAhead, number: int) -> bytes:
    file = files.open(number)
    data = bytearray(LARGEST + 10)
    count = 0
    while got := file.readinto(memoryview(data)[count:]):
        count += got
    file.close()
    return bytes(data[:count])


def test_files_of_all_sizes_in_order(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, [0, 1, 100_000, LARGEST, LARGEST + 1, 150_000, 7, 7, 7, 7, 7])
    files = FilesAhead(splits)
    for number, split in enumerate(splits):
        if number != 6:  # not every file has a turn
            assert everything(files, number) == path_of(split).read_bytes()
    files.close()


def test_bytes_that_are_added_later_are_not_read(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, [200_000, 200_000])
    for split in splits:
        with path_of(split).open("ab") as file:
            file.write(b"more")
    files = FilesAhead(splits)
    for number in (0, 1):
        assert len(everything(files, number)) == 200_000
    files.close()


def test_a_file_that_is_gone_is_an_error_at_its_turn(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, [10, 10, 10])
    path_of(splits[1]).unlink()
    files = FilesAhead(splits)
    assert len(everything(files, 0)) == 10
    with pytest.raises(FileNotFoundError):
        files.open(1)
    assert len(everything(files, 2)) == 10
    files.close()


def test_only_the_next_files_are_read(tmp_path: Path) -> None:
    """Files that the reader is far from are not touched: they may be deleted and cost no memory."""
    splits = splits_of(tmp_path, [10] * 50)
    files = FilesAhead(splits)
    files.open(0)
    for split in splits[AHEAD + 1 :]:
        path_of(split).write_bytes(b"new bytes!")
    deadline = time.monotonic() + 5
    while len(files._reading) < AHEAD and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(files._reading) == set(range(1, AHEAD + 1))
    assert everything(files, AHEAD + 1) == b"new bytes!"
    assert set(files._reading) == set(range(AHEAD + 2, 2 * AHEAD + 2))
    files.close()
