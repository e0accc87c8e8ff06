"""The packets of a ring's blocks, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.reassembly import afpacket as ring
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.headers import ETHERNET

BLOCK = 4_096
FIRST, LINK_LAYER = 48, 82


def block_of(packets: Sequence[bytes]) -> bytes:
    """A block as the kernel fills it."""
    made = bytearray(struct.pack("<8xIIII", ring.OURS, len(packets), FIRST, 0).ljust(FIRST, b"\0"))
    for n, packet in enumerate(packets):
        step = (LINK_LAYER + len(packet) + 15) // 16 * 16
        last = n == len(packets) - 1
        size = len(packet)
        header = struct.pack("<IIIIIIHH", 0 if last else step, 7, n, size, size + 1, 0, LINK_LAYER, LINK_LAYER + 14)
        made += (header.ljust(LINK_LAYER, b"\0") + packet).ljust(step, b"\0")
    return bytes(made).ljust(BLOCK, b"\0")


@given(blocks=st.lists(st.lists(st.binary(max_size=90), min_size=1, max_size=20), min_size=1, max_size=4))
def test_headers_are_fetched_of_every_packet(blocks: list[list[bytes]]) -> None:
    memory = np.frombuffer(b"".join(map(block_of, blocks)), np.uint8).copy()
    places = np.arange(4, dtype=np.int64) * BLOCK
    assert ring.fetch_headers(memory, places, len(blocks)) == sum(map(len, blocks))
    rows, state, made = np.zeros(100, PACKET), np.zeros(1, ring.RING_STATE), 0
    for start in range(0, len(blocks) * BLOCK, BLOCK):
        state["position"] = 0
        made = ring.scan_block(memory, start, start + BLOCK, ETHERNET, state, rows, made)
    found = [bytes(memory[row["at"] : row["at"] + row["captured"]]) for row in rows[:made]]
    assert found == [packet for block in blocks for packet in block]


@given(memory=st.binary(min_size=64, max_size=2 * BLOCK), places=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_fetching_ends_whatever_stands_there(memory: bytes, places: list[int]) -> None:
    before = bytes(memory)
    array = np.frombuffer(memory, np.uint8).copy()
    found = ring.fetch_headers(array, np.array(places, np.int64), len(places))
    assert 0 <= found <= len(places) * len(memory)
    assert array.tobytes() == before
