"""`PacketSequence`: the packets of one connection around a moment, as a page draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class SequencePacket(NamedTuple):
    """One packet. `number`: in the capture. `time`: ns since the epoch. `seq`, `ack`: from the first byte of the
    sequence in each direction on. `flags`: such as "SYN ACK", without ACK alone. `note`: what is unusual about it."""

    number: int
    time: int
    from_client: bool
    seq: int
    length: int
    ack: int | None
    flags: str = ""
    note: str = ""


class LeftOut(NamedTuple):
    """Usual packets that are not drawn: how many, and their payload."""

    packets: int
    from_client: int
    from_broker: int


class PacketSequence(NamedTuple):
    """`client`, `broker`: addresses with ports. `rows`: packets in order of time, and places where some are left
    out."""

    client: str
    broker: str
    rows: tuple[SequencePacket | LeftOut, ...]


#: Sequences by the number of the packet that they are of.
Sequences = Mapping[int, PacketSequence]


def sequence_data(sequence: PacketSequence) -> dict[str, Any]:
    """The sequence as JSON for the script: times in ns from `start`, in ms since the epoch."""
    start = next((row.time for row in sequence.rows if isinstance(row, SequencePacket)), 0)
    rows = [
        [row.number, row.time - start, int(row.from_client), row.seq, row.length, row.ack, row.flags, row.note]
        if isinstance(row, SequencePacket)
        else list(row)
        for row in sequence.rows
    ]
    return {"client": sequence.client, "broker": sequence.broker, "start": start / 1e6, "rows": rows}
