"""The packets of a span of time as a capture of their own, with the times of this host's clock."""

from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple

import numpy as np

from kafkatap.kernels.arrays import copied, untouched
from kafkatap.reassembly import pcap_writer as writer
from kafkatap.reassembly import pcapng_blocks as blocks

from ..captures.capture_reader import CaptureReader
from ..installation import own_version

Array = np.ndarray[Any, Any]
#: Bytes of records that are written at once.
_ROOM = 4 << 20


class Written(NamedTuple):
    """What was written: packets, their first and last time (ns since the epoch), and what is wrong with the files that
    they come from."""

    packets: int
    first: int
    last: int
    damage: str


def write_span(path: str, file: BinaryIO, begin: int, end: int, ahead: int, host: str, comment: str) -> Written:
    """Write the packets of the capture at `path` from `begin` on and before `end`. `ahead`: ns that are taken off their
    times. `host`: the name of their interfaces."""
    reader = CaptureReader(path)
    file.write(blocks.section_header(f"kafkatap {own_version()} (collect)", comment))
    state, links = np.zeros(1, writer.PACK_STATE), np.zeros(64, writer.LINK)
    state["form"], out = writer.NEXT_GENERATION, untouched(_ROOM, np.uint8)
    state["end"] = len(out)
    packets, first, last = 0, 0, 0
    try:
        while reader.fill():
            rows = copied(reader.packets[reader.position : reader.count])
            reader.position = reader.count
            rows["ts"] -= ahead
            rows = rows[(rows["ts"] >= begin) & (rows["ts"] < end)]
            done = 0
            while done < len(rows):
                done = writer.pack_packets(reader.buffer, rows, done, len(rows), links, state, out)
                file.write(out[: int(state["position"][0])].tobytes())
                state["position"] = 0
                if state["stopped"][0] == writer.PACK_NEW_LINK:
                    _add_link(links, state, int(rows["link_type"][done]), file, host)
            if len(rows):
                low, high = int(rows["ts"].min()), int(rows["ts"].max())
                first, last = (min(first, low) if packets else low), max(last, high)
                packets += len(rows)
        report = reader.report
        if report.drops and packets:
            file.write(blocks.interface_statistics(0, last, packets + report.drops, report.drops))
        return Written(packets, first, last, report.damage or "")
    finally:
        reader.close()


def _add_link(links: Array, state: Array, link_type: int, file: BinaryIO, host: str) -> None:
    number = int(state["links"][0])
    if number == len(links):
        raise ValueError("a capture has too many link types")
    links[number] = link_type, number
    state["links"] += 1
    file.write(blocks.captured_interface(link_type, host))
