"""Captures with packets lost, moved, repeated or cut. Each function needs a seeded `random.Random` and nothing else.

A damaged capture is a list of `Numbered` packets: each with the place that it had in the whole capture, from 1 on. So a
comparison knows what survived (`tests.support.survival`).

    whole = numbered(read_capture("x.pcap").packets)
    damaged = lose(whole, random.Random(1), 0.01)
    Path("damaged.pcap").write_bytes(pcap_bytes(packets_of(damaged)))
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .captures import ETHERNET, Packet
from .segments import Way, tcp_at, tcp_part, way_of
from .tcp import SYN


class Numbered(NamedTuple):
    """A packet, and the number that it had in the whole capture (from 1 on, as the product counts)."""

    number: int
    packet: Packet


Numbers = list[Numbered]


def numbered(packets: Iterable[Packet]) -> Numbers:
    """The packets of a whole capture."""
    return [Numbered(n, p) for n, p in enumerate(packets, 1)]


def packets_of(packets: Iterable[Numbered]) -> list[Packet]:
    """The packets without their numbers."""
    return [p.packet for p in packets]


def _later(packet: Packet, nanoseconds: int) -> Packet:
    return replace(packet, time_ns=packet.time_ns + nanoseconds)


def lose(packets: Sequence[Numbered], chance: random.Random, share: float) -> Numbers:
    """Lose each packet with a probability of `share`."""
    return [p for p in packets if chance.random() >= share]


def lose_bursts(packets: Sequence[Numbered], chance: random.Random, share: float, length: int = 50) -> Numbers:
    """Lose about `share` of the packets, in runs of about `length`, as a full buffer does."""
    kept: Numbers = []
    at = 0
    while at < len(packets):
        passed = int(chance.expovariate(share / (1 - share) / length))
        kept += packets[at : at + passed]
        at += passed + 1 + int(chance.expovariate(1 / length))
    return kept


def reorder(packets: Sequence[Numbered], chance: random.Random, share: float, most_ns: int) -> Numbers:
    """Delay `share` of the packets by up to `most_ns`: they are captured later, and their time is later."""
    late = [
        p._replace(packet=_later(p.packet, chance.randrange(most_ns))) if chance.random() < share else p
        for p in packets
    ]
    return sorted(late, key=lambda p: p.packet.time_ns)


def _has_syn(*packets: Packet, link: int) -> bool:
    return any(part is not None and part.flags & SYN for part in (tcp_part(packet, link) for packet in packets))


def swap(
    packets: Sequence[Numbered], chance: random.Random, share: float, distance: int, most_ns: int, link: int = ETHERNET
) -> Numbers:
    """Swap `share` of the packets with the packet of their direction that is `distance` behind them, unless it came
    more than `most_ns` later. Times stay in order. A SYN moves by two packets at most."""
    found = list(packets)
    ways: dict[Way | None, list[int]] = {}
    for place, p in enumerate(found):
        ways.setdefault(way_of(p.packet, link), []).append(place)
    ways.pop(None, None)
    for places in ways.values():
        at = 0
        while at + distance < len(places):
            first, second = places[at], places[at + distance]
            one, other = found[first].packet, found[second].packet
            is_far = other.time_ns - one.time_ns > most_ns
            at += 1
            if not is_far and not (distance > 2 and _has_syn(one, other, link=link)) and chance.random() < share:
                found[first], found[second] = (
                    found[second]._replace(packet=replace(other, time_ns=one.time_ns)),
                    found[first]._replace(packet=replace(one, time_ns=other.time_ns)),
                )
                at += distance
    return found


def shuffle(packets: Sequence[Numbered], chance: random.Random, share: float, most_ns: int) -> Numbers:
    """Write `share` of the packets up to `most_ns` too late. Their times stay as they are, so these step back."""
    order = [
        (p.packet.time_ns + (chance.randrange(most_ns) if chance.random() < share else 0), n)
        for n, p in enumerate(packets)
    ]
    return [packets[n] for _, n in sorted(order)]


def duplicate(packets: Sequence[Numbered], chance: random.Random, share: float, most_ns: int = 2_000_000) -> Numbers:
    """Capture `share` of the packets twice. The copy comes up to `most_ns` later."""
    both = list(packets)
    for p in packets:
        if chance.random() < share:
            both.append(p._replace(packet=_later(p.packet, chance.randrange(most_ns))))
    return sorted(both, key=lambda p: p.packet.time_ns)


def cut(packets: Sequence[Numbered], snap_length: int) -> Numbers:
    """Keep the first `snap_length` bytes of each packet."""
    return [
        p._replace(packet=replace(p.packet, data=p.packet.data[:snap_length], original_length=p.packet.wire_length))
        for p in packets
    ]


def keep_if(packets: Sequence[Numbered], is_kept: Callable[[Packet], bool]) -> Numbers:
    """Keep the packets for which a condition holds, such as those to the brokers."""
    return [p for p in packets if is_kept(p.packet)]


def step_clock(packets: Sequence[Numbered], chance: random.Random, steps: int, most_ns: int) -> Numbers:
    """Set the capturing host's clock `steps` times, by up to `most_ns` forwards or backwards."""
    places = {chance.randrange(len(packets)) for _ in range(steps)} if packets else set()
    offset = 0
    moved: Numbers = []
    for n, p in enumerate(packets):
        if n in places:
            offset += chance.randrange(-most_ns, most_ns)
        moved.append(p._replace(packet=_later(p.packet, offset)))
    return moved


def _retimed(packets: Sequence[Numbered], times: Iterable[int]) -> Numbers:
    return [p._replace(packet=replace(p.packet, time_ns=t)) for p, t in zip(packets, times, strict=True)]


def spread_days(packets: Sequence[Numbered], chance: random.Random) -> Numbers:
    """Give each packet the date of another day, within 400 days."""
    day = 86_400_000_000_000
    return _retimed(packets, (p.packet.time_ns + (n + chance.randrange(3)) % 400 * day for n, p in enumerate(packets)))


def freeze_clock(packets: Sequence[Numbered], chance: random.Random) -> Numbers:
    """Let the clock stand still for runs of up to 1,000 packets, and from time to time fall back to zero."""
    times: list[int] = []
    while len(times) < len(packets):
        now = packets[len(times)].packet.time_ns if chance.random() < 0.8 else 0
        times += [now] * chance.randrange(1, 1_000)
    return _retimed(packets, times[: len(packets)])


def set_back(packets: Sequence[Numbered], chance: random.Random) -> Numbers:
    """Set the clock back by up to two hours for one run of packets."""
    begin = chance.randrange(max(len(packets), 1))
    end = begin + chance.choice((3, 50, 200, len(packets)))
    by = chance.choice((100_000_000, 1_000_000_000, 7_200_000_000_000))
    return _retimed(packets, (p.packet.time_ns - by * (begin <= n < end) for n, p in enumerate(packets)))


def exchange_times(packets: Sequence[Numbered], chance: random.Random) -> Numbers:
    """Give the packets each other's times, at random or in reverse."""
    times = [p.packet.time_ns for p in reversed(packets)]
    if chance.random() < 0.5:
        chance.shuffle(times)
    return _retimed(packets, times)


def shake(packets: Sequence[Numbered], chance: random.Random) -> Numbers:
    """Move each time by up to a millisecond, 100 ms or 5 s, or by a century for half of the packets."""
    most = chance.choice((1_000_000, 100_000_000, 5_000_000_000, 0))
    moves = (chance.randrange(-most, most) if most else chance.choice((0, 2 * 10**18)) for _ in packets)
    return _retimed(packets, (p.packet.time_ns + move for p, move in zip(packets, moves, strict=True)))


def rotate(packets: Sequence[Numbered], count: int) -> list[Numbers]:
    """The capture as `count` files, one after the other, as `tcpdump -C` writes them."""
    size = max(1, -(-len(packets) // count))
    return [list(packets[at : at + size]) for at in range(0, len(packets), size)]


def shift_numbers(packets: Sequence[Numbered], shifts: tuple[int, int], link_type: int = ETHERNET) -> Numbers:
    """Add to all sequence numbers: `shifts[0]` to those of the end that sends the first packet, `shifts[1]` to the
    other's. All packets are of one connection."""
    first = way_of(packets[0].packet, link_type)
    shifted: Numbers = []
    for p in packets:
        own, other = shifts if way_of(p.packet, link_type) == first else (shifts[1], shifts[0])
        data = bytearray(p.packet.data)
        at = tcp_at(p.packet, link_type)
        for place, by in ((at + 4, own), (at + 8, other)):
            number = (int.from_bytes(data[place : place + 4], "big") + by) % 2**32
            data[place : place + 4] = number.to_bytes(4, "big")
        shifted.append(p._replace(packet=replace(p.packet, data=bytes(data))))
    return shifted
