"""The packets of a ring's blocks, made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.reassembly import afpacket as ring
from kafkatap.reassembly.assembler import Assembler
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.reassembly.link_types import ETHERNET
from kafkatap.reassembly.packet_tables import PacketTables
from tests.support.tcp import ACK, START_NS, Segment, on_link, tcp_packet

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


def ring_of(blocks: Sequence[Sequence[bytes]]) -> np.ndarray[Any, Any]:
    """A ring whose blocks are all ours."""
    return np.frombuffer(b"".join(map(block_of, blocks)), np.uint8).copy()


def scanned(memory: np.ndarray[Any, Any], most: int, room: int) -> list[bytes]:
    """The packets of a ring, read a few at a time."""
    rows, state = np.zeros(room, PACKET), np.zeros(1, ring.RING_STATE)
    lanes = np.zeros(ring.LANES, ring.LANE)
    found: list[bytes] = []
    while ring.count_waiting(memory, BLOCK, state):
        waiting = int(state["waiting_packets"][0])
        made = ring.scan_blocks(memory, BLOCK, ETHERNET, state, lanes, rows, most)
        found += [bytes(memory[row["at"] : row["at"] + row["captured"]]) for row in rows[:made]]
        ring.release_blocks(memory, BLOCK, state)
        ring.count_waiting(memory, BLOCK, state)
        assert int(state["waiting_packets"][0]) == waiting - made
    return found


@given(
    blocks=st.lists(st.lists(st.binary(max_size=90), min_size=1, max_size=20), min_size=1, max_size=7),
    most=st.integers(1, 7),
    room=st.integers(1, 100),
)
def test_every_packet_comes_once_in_order(blocks: list[list[bytes]], most: int, room: int) -> None:
    assert scanned(ring_of(blocks), most, room) == [packet for block in blocks for packet in block]


@given(pattern=st.binary(min_size=1, max_size=400), most=st.integers(1, 2))
def test_reading_ends_whatever_stands_there(pattern: bytes, most: int) -> None:
    array = np.frombuffer((pattern * (2 * BLOCK))[: 2 * BLOCK], np.uint8).copy()
    array.view(np.uint32)[ring.STATUS // 4 :: BLOCK // 4] |= ring.OURS
    state, lanes = np.zeros(1, ring.RING_STATE), np.zeros(ring.LANES, ring.LANE)
    rows = np.zeros(1_000, PACKET)
    assert ring.count_waiting(array, BLOCK, state) == 2
    made = ring.scan_blocks(array, BLOCK, ETHERNET, state, lanes, rows, most)
    assert 0 <= made <= len(rows)
    assert (rows["at"][:made] >= 0).all()


def tagged(memory: np.ndarray[Any, Any]) -> None:
    """Mark the first packet as one whose tag Linux removed."""
    memory[FIRST + 20] = ring.TAGGED
    memory[FIRST + 32 : FIRST + 34] = 5, 0


def test_a_packet_whose_table_was_full_is_read_again_with_its_tag() -> None:
    """The tag is put back once."""
    packet = on_link(tcp_packet(Segment(START_NS, ("10.0.0.1", 1), ("10.0.0.2", 9092), 1, 1, ACK, b"x" * 50)))
    memory = ring_of([[packet]])
    tagged(memory)
    rows = np.zeros(1, PACKET)
    for _ in range(2):
        state, lanes = np.zeros(1, ring.RING_STATE), np.zeros(ring.LANES, ring.LANE)
        assert ring.scan_blocks(memory, BLOCK, ETHERNET, state, lanes, rows, 1) == 1
        at = int(rows[0]["at"])
        assert bytes(memory[at : at + int(rows[0]["captured"])]) == packet[:12] + b"\x81\0\0\5" + packet[12:]
        assert rows[0]["original"] == len(packet) + 1 + ring.TAG  # block_of adds one


def _assemble(memory: Any, state: Any, lanes: Any, most: int, tables: PacketTables) -> int:
    return ring.assemble_blocks(memory, BLOCK, ETHERNET, state, lanes, tables, most)


def test_one_pass_makes_the_same_chunks_as_rows() -> None:
    """Whatever the number of blocks at a time, and with tables that have to grow."""
    packets = [
        on_link(tcp_packet(Segment(START_NS, (f"10.0.{n % 3}.1", 5_000 + n), ("10.0.0.2", 9092), 1, 1, ACK, b"y" * 90)))
        for n in range(100)
    ]
    blocks = [packets[n : n + 20] for n in range(0, 100, 20)]
    rows, state, lanes = np.zeros(200, PACKET), np.zeros(1, ring.RING_STATE), np.zeros(ring.LANES, ring.LANE)
    memory = ring_of(blocks)
    made = ring.scan_blocks(memory, BLOCK, ETHERNET, state, lanes, rows, 5)
    by_rows = Assembler(connections=2, chunks=8)
    wanted = [by_rows.chunks[:count].copy() for count in by_rows.feed(memory, rows, 0, made)]
    rows["number"] = 0
    for most in (1, 2, 5):
        memory = ring_of(blocks)
        state = np.zeros(1, ring.RING_STATE)
        one_pass = Assembler(connections=2, chunks=8)
        got = []
        while ready := ring.count_waiting(memory, BLOCK, state):
            read = partial(_assemble, memory, state, lanes, most)
            got += [one_pass.chunks[:count].copy() for count in one_pass.read(read)]
            assert ring.release_blocks(memory, BLOCK, state) == min(most, ready)
        assert np.array_equal(np.concatenate(got), np.concatenate(wanted))
        assert one_pass.packet_counts == by_rows.packet_counts
