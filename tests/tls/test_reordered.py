"""Decryption where packets of one direction were captured in another order: nothing is missing."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from tests.support.captures import Capture, pcap_bytes, read_capture
from tests.support.damage import numbered, packets_of, swap
from tests.support.tcp import Segment
from tests.support.tls_talk import OverTls

from .layer_runs import decode, facts, small_talk
from .real_endpoints import FOLDER, SAME, exchanges
from .test_layer import VERSIONS

#: A packet moves by so much at most, ns.
NEAR = 5_000_000
SAMPLES = ("matrix", "broker", "libraries")


@cache
def capture(name: str) -> Capture:
    return read_capture(FOLDER / f"{name}.pcap.zst")


def counts(rows: Any) -> Counter[tuple[str, ...]]:
    """The exchanges without their times and packets."""
    return Counter(tuple(repr(row[name]) for name in ("client_port", *SAME)) for row in rows)


@pytest.mark.parametrize("distance", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SAMPLES)
def test_exchanges_of_swapped_packets(name: str, distance: int, tmp_path: Path) -> None:
    whole = counts(exchanges(name, name))
    link = capture(name).link_types[0]
    path = tmp_path / "swapped.pcap"
    for seed, share in ((1, 0.03), (2, 0.2)):
        swapped = swap(numbered(capture(name).packets), random.Random(seed), share, distance, NEAR, link)
        assert any(p.number != place for place, p in enumerate(swapped, 1))
        path.write_bytes(pcap_bytes(packets_of(swapped), link))
        found = counts(analyze(path, keylog=FOLDER / f"{name}.keys.log").exchanges.to_pylist())
        assert whole - found == Counter(), seed
        assert found - whole == Counter(), seed


def opening(segments: list[Segment], order: tuple[int, ...]) -> list[Segment]:
    """The segments with the first three in another order. Packets keep their times."""
    return [segments[n] for n in order] + segments[3:]


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (1, 2), (2,), ()])
def test_the_server_s_flight_behind_a_syn_that_is_late_or_lost(
    name: str, order: tuple[int, ...], tmp_path: Path
) -> None:
    """Its records share segments, so no record ends with one."""
    talk = small_talk(6)
    over = OverTls(tmp_path)
    segments = opening(over.replayed(talk.segments, *VERSIONS[name]), order)
    assert facts(decode(segments, over.key_log).exchanges) == facts(talk.wanted)
