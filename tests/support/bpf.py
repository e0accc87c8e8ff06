"""Programs of classic BPF, run here as the kernel runs them: on a packet and where its network header begins."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

_MASK = 0xFFFFFFFF
_NETWORK, _PROTOCOL = 0xFFF00000, 0xFFFFF000
_SIZES = {0x00: 4, 0x08: 2, 0x10: 1}
_DOES: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add, 0x20: operator.mul, 0x50: operator.and_, 0x60: operator.lshift, 0x70: operator.rshift,
    0xA0: operator.xor,
}  # fmt: skip


class _BehindEnd(Exception):
    """A load from behind the packet: the program returns 0."""


def run(program: bytes, packet: bytes, network: int, protocol: int) -> int:
    """What a program returns for a packet. `network`: where its network header begins; `protocol`: its ethertype."""
    try:
        return _run(list(struct.iter_unpack("HBBI", program)), packet[network:], protocol)
    except _BehindEnd:
        return 0


def _run(steps: list[tuple[int, int, int, int]], data: bytes, protocol: int) -> int:
    a = x = at = 0
    kept = dict[int, int]()

    def load(place: int, size: int) -> int:
        if place == _PROTOCOL:
            return protocol
        offset = place - _NETWORK
        if not 0 <= offset <= len(data) - size:
            raise _BehindEnd
        return int.from_bytes(data[offset : offset + size], "big")

    while True:
        code, yes, no, k = steps[at]
        at += 1
        kind, value = code & 7, x if code & 8 else k
        if kind == 0:  # load
            mode, size = code & 0xE0, _SIZES[code & 0x18]
            a = k if mode == 0 else kept[k] if mode == 0x60 else load(k + (x if mode == 0x40 else 0), size)
        elif kind == 1:
            x = k if code == 0x01 else kept[k] if code == 0x61 else (load(k, 1) & 15) * 4
        elif kind in (2, 3):
            kept[k] = a if kind == 2 else x
        elif kind == 4:
            a = _DOES[code & 0xF0](a, value) & _MASK
        elif kind == 5:
            holds = {0x00: None, 0x10: a == value, 0x40: bool(a & value)}[code & 0xF0]
            at += k if holds is None else yes if holds else no
        elif kind == 6:
            return a if code & 0x10 else k
        else:
            a, x = (x, x) if code & 0x80 else (a, a)
