"""The last packets of flows, read from the end of a split on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkatap.spark.captures import Captures
from kafkatap.splits.plan import Corrections
from kafkatap.splits.seams import Seam, part_of
from kafkatap.splits.split_engine import NOTHING
from tests.splits.join_talks import busy, large, lossy, pipelined
from tests.support.captures import pcap_bytes
from tests.support.encapsulation import fragment
from tests.support.tcp import encode, merge


def contents(seam: Seam) -> list[tuple[int, bytes, int]]:
    rows = zip(seam.packets, seam.times.tolist(), strict=True)
    return [(int(p["number"]), seam.data[p["at"] : p["at"] + p["captured"]].tobytes(), t) for p, t in rows]


@pytest.mark.parametrize("split_size", [0, 9_000_000])
@pytest.mark.parametrize(("files", "mtu"), [(1, 65_535), (40, 65_535), (40, 1_400)])
def test_the_last_packets_are_those_of_all(tmp_path: Path, files: int, mtu: int, split_size: int) -> None:
    talks = busy(1), lossy(2), large(12_000_000), pipelined(client=("10.0.0.7", 999))
    packets = fragment(encode(merge(*talks)), mtu)
    packets[1::7], packets[2::7] = packets[2::7][: len(packets[1::7])], packets[1::7][: len(packets[2::7])]
    step = -(-len(packets) // files)
    for number in range(files):
        (tmp_path / f"{number:03d}.pcap").write_bytes(pcap_bytes(packets[number * step : (number + 1) * step]))
    captures = Captures(None, str(tmp_path), split_size)
    tasks = captures._plan(Corrections()).tasks
    for task in tasks:
        place, flows = captures.places[task.split], captures.surveys.surveys[task.split].flows
        heads = dict.fromkeys(flows, NOTHING)
        whole = place.cut(heads, task.bases, task.datagrams)
        for most in (1, 5, 100):
            last = place.cut(heads, task.bases, task.datagrams, most)
            assert last.keys() == whole.keys()
            for key, seam in last.items():
                count, has = len(seam.packets), len(whole[key].packets)
                assert min(most, has) <= count <= has
                assert contents(seam) == contents(part_of(whole[key], has - count, has))
