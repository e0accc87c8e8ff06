"""Values in options and expressions."""

from __future__ import annotations

import pytest

from kafkatap.reports.literals import read_size


@pytest.mark.parametrize("text", ["67108864", "65536k", "64m", "64M", "64MiB", "64mb", "0.0625g", " 64 m "])
def test_sizes(text: str) -> None:
    assert read_size(text) == 64 << 20


@pytest.mark.parametrize("text", ["", "m", "-1", "1.m", "64 MB of them", "1e6"])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        read_size(text)


def test_no_bytes_are_a_size() -> None:
    assert read_size("0") == read_size("0k") == 0
