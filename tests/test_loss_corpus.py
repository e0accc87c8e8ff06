"""What is lost with packets, and what is not: recordings of real brokers with packets taken out, or begun anywhere.

Of an exchange whose own packets are all there, nothing may be lost; no row may come of nothing.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkatap import analyze
from tests.support.captures import ETHERNET, PcapRecords, read_capture
from tests.support.segments import tcp_part
from tests.support.truth import (
    WITHOUT_RESPONSE,
    compare_exchanges,
    exchanges_frame,
    match_exchanges,
    read_truth,
    seen_by_parsers,
)

#: (capture, cuts that a capture is begun at)
BEGUN = (("apache-4.3-broker1", 6), ("apache-2.8", 8), ("apache-0.10.2", 8), ("apache-0.8.2", 8), ("diverse", 8))


@dataclass
class Recording:
    """A capture, its truth, and which packet carries payload of which direction. Packets count from 0 here."""

    records: PcapRecords
    truth: Any
    owner: list[tuple[int, int, int, int] | None]

    @classmethod
    def read(cls, corpus: Path, name: str) -> Recording:
        folder = corpus / "captures"
        path = folder / f"{name}.pcap"
        records = PcapRecords(path if path.exists() else folder / f"{name}.pcap.zst")
        truth = read_truth(folder / f"{name}.exchanges.tsv.zst")
        return cls(records, truth, [_direction(records.record(n)[16:]) for n in range(len(records))])


def _direction(frame: bytes) -> tuple[int, int, int, int] | None:
    """(source, port, destination, port) of an Ethernet frame with IPv4, TCP and payload, else None."""
    ip = 14 + (frame[14] & 15) * 4
    payload = int.from_bytes(frame[16:18], "big") - (ip - 14) - (frame[ip + 12] >> 4) * 4
    if payload <= 0:
        return None
    return (
        int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[ip : ip + 2], "big"),
        int.from_bytes(frame[30:34], "big"), int.from_bytes(frame[ip + 2 : ip + 4], "big"),
    )  # fmt: skip


def survivors(recording: Recording, whole: Any, lost: list[int]) -> Any:
    """Which rows of the whole capture's frame have lost no packet of their own: bool (n,)."""
    gone: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for number in lost:
        direction = recording.owner[number]
        if direction is not None:
            gone[direction].append(number + 1)
    kept = np.ones(len(whole), bool)
    ends = zip(whole["client_ip"], whole["client_port"], whole["broker_ip"], whole["broker_port"], strict=True)
    for i, (client, client_port, broker, broker_port) in enumerate(ends):
        to = (int(IPv4Address(client)), client_port, int(IPv4Address(broker)), broker_port)
        for direction, part in ((to, "request"), ((*to[2:], *to[:2]), "response")):
            first, last = whole[f"{part}_packet_first"][i], whole[f"{part}_packet_last"][i]
            kept[i] &= not any(first <= number <= last for number in gone.get(direction, ()))
    return kept


@pytest.mark.parametrize("name", ["apache-4.3-broker1", "apache-2.8", "apache-0.8.2"])
def test_lost_packets_cost_only_their_own_exchanges(corpus: Path, tmp_path: Path, name: str) -> None:
    recording = Recording.read(corpus, name)
    whole_path, path = tmp_path / "whole.pcap", tmp_path / "lossy.pcap"
    whole_path.write_bytes(recording.records.data)
    table = seen_by_parsers(analyze(whole_path).exchanges)
    whole = {column: table[column].to_pylist() for column in table.column_names if "packet" in column}
    frame = exchanges_frame(table)
    for column, values in whole.items():
        frame[column] = [0 if v is None else v for v in values]
    for burst, seed in ((1, 1), (1, 2), (50, 1), (50, 2)):
        data, lost = recording.records.drop(0.01, burst=burst, seed=seed)
        path.write_bytes(data)
        ours = analyze(path).exchanges
        # Nothing that the truth does not have ...
        extra = compare_exchanges(ours, recording.truth, missing=False, columns=())
        assert extra == [], (burst, seed)
        # ... and all of what lost no packet of its own.
        kept = survivors(recording, frame, lost)
        wanted = frame[kept].reset_index(drop=True)
        rows, found = match_exchanges(ours, wanted)
        same = found >= 0
        # Where a part of that stream is lost, an answer that never came may as well be a lost one.
        rows["outcome"] = rows["outcome"].replace(WITHOUT_RESPONSE, "unanswered")
        wanted["outcome"] = wanted["outcome"].replace(WITHOUT_RESPONSE, "unanswered")
        for column in ("request_last", "response_first", "response_last", "response_bytes", "outcome", "errors"):
            same[same] &= (rows[column].to_numpy()[found[same]] == wanted[column].to_numpy()[same]).astype(bool)
        assert kept.sum() > 0.9 * len(frame)
        assert same.mean() > 0.999, (burst, seed, int((~same).sum()))


def test_packets_out_of_order_make_no_false_pair(corpus: Path) -> None:
    """Lost and reordered packets of which each carries one message."""
    path = corpus / "captures" / "repro" / "wrong-response-503725.pcap"
    sizes = [len(part.payload) - 4 if (part := tcp_part(p, ETHERNET)) else 0 for p in read_capture(path).packets]
    table = analyze(path).exchanges.select(
        [f"{side}_{column}" for side in ("request", "response") for column in ("packet_first", "packet_last", "bytes")]
    )
    rows = [row for row in table.to_pylist() if row["request_packet_first"] and row["response_packet_first"]]
    assert len(rows) > 200
    for row in rows:
        for side in ("request", "response"):
            assert row[f"{side}_packet_first"] == row[f"{side}_packet_last"]
            assert sizes[row[f"{side}_packet_first"] - 1] == row[f"{side}_bytes"]


@pytest.mark.parametrize(("name", "cuts"), BEGUN)
def test_a_capture_may_begin_anywhere(corpus: Path, tmp_path: Path, name: str, cuts: int) -> None:
    recording = Recording.read(corpus, name)
    records, truth = recording.records, recording.truth
    path = tmp_path / "begun.pcap"
    path.write_bytes(records.data)
    table = analyze(path).exchanges
    frame, found = match_exchanges(table, truth)
    packets = np.array([p or 0 for p in seen_by_parsers(table)["request_packet_first"].to_pylist()])
    first = packets[found]
    assert (found >= 0).all()
    assert len(frame) == len(truth)
    chance = random.Random(name)
    for cut in sorted(chance.randrange(1, len(records) - 10) for _ in range(cuts)):
        path.write_bytes(records.slice(cut, len(records)))
        exchanges = analyze(path).exchanges
        wanted = truth[first > cut].reset_index(drop=True)
        assert compare_exchanges(exchanges, wanted, extra=False) == [], cut
        assert compare_exchanges(exchanges, truth, missing=False, columns=()) == [], cut
