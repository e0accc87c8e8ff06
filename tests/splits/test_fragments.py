"""IP fragments and tunnels in splits: several processes make the report that one makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.shards.test_jobs import check
from tests.support.captures import pcap_bytes, read_capture
from tests.support.encapsulation import encapsulate, fragment


@pytest.mark.parametrize(("kind", "mtu", "order"), [("", 300, "reverse"), ("vxlan", 700, "shuffled"), ("gre", 0, "")])
def test_a_sample_in_fragments(
    samples: Path, tmp_path: Path, sweep: Callable[[Sequence[int], int], list[int]], kind: str, mtu: int, order: str
) -> None:
    """Wherever the captures are cut: datagrams begin in one split and end in another."""
    packets = read_capture(samples / "apache-4.3.pcap.zst").packets
    packets = encapsulate(packets, kind) if kind else packets
    packets = fragment(packets, mtu, order) if mtu else packets
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(packets, nanoseconds=True))
    check([path], sweep((2, 3, 5, 7, 11), 2))
    parts = [tmp_path / f"{n}.pcap" for n in range(3)]
    for n, part in enumerate(parts):  # rotated files
        some = packets[n * len(packets) // 3 : (n + 1) * len(packets) // 3]
        part.write_bytes(pcap_bytes(some, nanoseconds=True))
    check(parts, sweep((4, 2, 3), 2))
