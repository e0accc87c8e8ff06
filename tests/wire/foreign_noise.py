"""Random protocols that look like Kafka: small numbers and short texts behind a size, often with a counter.

Each seed is a protocol: the form of its size, its fields in order, the numbers that they have, and who answers whom.
"""

from __future__ import annotations

import random
import struct

from tests.wire.foreign_talks import Talk

_SIZES = (">I", ">I", ">I", ">H", "<I", ">Q")
_NUMBERS: tuple[tuple[int, ...], ...] = ((0, 0, 0, 1), (0, 1, 2, 3, 4, 5), (0,), tuple(range(20)), (0, 1, 256, 65_536))
#: Integers by their sizes; texts whose lengths have 2, 4 and 1 bytes; zeros.
_FIELDS = ("h", "h", "i", "b", "q", "text2", "text4", "zeros", "text1")
_INTEGERS = {"h": (">H", 0xFFFF), "i": (">I", 0xFFFFFFFF), "b": (">B", 0xFF), "q": (">Q", 2**64 - 1)}
_LENGTHS = {"text2": ">H", "text4": ">I", "text1": ">B"}


def _field(kind: str, number: int, chance: random.Random) -> bytes:
    if kind in _INTEGERS:
        form, mask = _INTEGERS[kind]
        return struct.pack(form, number & mask)
    if kind == "zeros":
        return bytes(chance.randrange(9))
    text = bytes(chance.choice(b"abcdef-0") for _ in range(chance.randrange(12)))
    return struct.pack(_LENGTHS[kind], len(text)) + text


def noise(seed: int) -> Talk:
    """The talk of a seed."""
    chance = random.Random(seed)
    in_turn, shorter_answers = chance.random() < 0.25, chance.random() < 0.5
    size, numbers = chance.choice(_SIZES), chance.choice(_NUMBERS)
    fields = [chance.choice(_FIELDS) for _ in range(chance.randrange(2, 9))]
    counter = chance.choice((-1, 0, 1, 2))
    talk: Talk = []
    for n in range(chance.randrange(4, 14)):
        for end in (n & 1,) if in_turn else (0, 1):
            kinds = fields[: chance.randrange(1, len(fields) + 1)] if end and shorter_answers else fields
            values = [n if place == counter else chance.choice(numbers) for place in range(len(kinds))]
            message = b"".join(_field(kind, value, chance) for kind, value in zip(kinds, values, strict=True))
            talk.append((end, (struct.pack(size, len(message)) + message) * chance.choice((1, 1, 1, 1, 2))))
    return talk
