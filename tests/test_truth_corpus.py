"""Exchange by exchange the same as Kafka's own parsers, on long recordings of real brokers.

A capture that several hosts or tcpdumps took is compared within the difference of their clocks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafkatap import Analysis, analyze
from tests.support.truth import HEADER, TIMES, compare_exchanges, match_exchanges, read_truth

SAME = (
    "apache-4.3-broker1.pcap.zst", "apache-2.8.pcap.zst", "apache-0.10.2.pcap.zst", "apache-0.8.2.pcap.zst",
    "diverse.pcap", "mtu1500.pcap.zst",
)  # fmt: skip
ENDS = ("client_ip", "client_port", "broker_ip", "broker_port")


@pytest.mark.parametrize("name", SAME)
def test_every_exchange_is_the_same(corpus: Path, name: str) -> None:
    folder = corpus / "captures"
    truth = read_truth(folder / f"{name.partition('.pcap')[0]}.exchanges.tsv.zst")
    analysis = analyze(folder / name)
    assert compare_exchanges(analysis.exchanges, truth) == []
    for section, parts in ledger_of(analysis).items():
        assert sum(n for part, n in parts.items() if part != "total") == parts["total"], section
    cut = pc.sum(pc.greater(analysis.exchanges["request_cut_bytes"], 0)).as_py()
    assert ledger_of(analysis)["requests"]["total"] == len(truth) + cut


def ledger_of(analysis: Analysis) -> dict[str, dict[str, int]]:
    sections: dict[str, dict[str, int]] = {}
    for row in analysis.ledger.to_pylist():
        sections.setdefault(row["section"], {})[row["part"]] = row["count"]
    return sections


def within(truth: Any, analysis: Analysis, tolerance_us: int) -> Any:
    """Rows of the truth whose request came after a capture's first packet and whose response before its last."""
    file = analysis.files.to_pylist()[0]
    first, last = (int(file[end].value) // 1000 for end in ("first", "last"))
    ends = np.maximum(truth["request_last"], truth["response_last"])
    chosen = (truth["request_first"] > first + tolerance_us) & (ends < last - tolerance_us)
    return truth[chosen].reset_index(drop=True)


@pytest.fixture(scope="module")
def broker1(corpus: Path) -> Any:
    return read_truth(corpus / "captures" / "apache-4.3-broker1.exchanges.tsv.zst")


def test_cooked_capture_of_all_interfaces(corpus: Path, broker1: Any) -> None:
    analysis = analyze(corpus / "captures" / "apache-4.3-broker1-any.pcap.zst")
    wanted = within(broker1, analysis, 100)
    assert len(wanted) > 4000
    # What the file's end cut off is answered in the truth only.
    assert compare_exchanges(analysis.exchanges, wanted, 100, extra=False) == []
    assert compare_exchanges(analysis.exchanges, broker1, 100, missing=False, columns=()) == []


def test_packets_cut_to_128_bytes_still_give_latency_and_client(corpus: Path, broker1: Any) -> None:
    analysis = analyze(corpus / "captures" / "apache-4.3-broker1-s128.pcap.zst")
    # This capture ended later than the one that the truth was read from.
    end = int(max(broker1[name].max() for name in TIMES))
    answered = (broker1["outcome"] != "unanswered") | (broker1["request_first"] < end - 1_000_000)
    wanted = within(broker1[answered].reset_index(drop=True), analysis, 200)
    columns = (*HEADER, "client_id")
    assert compare_exchanges(analysis.exchanges, wanted, 200, missing=False, extra=False, columns=columns) == []
    table = analysis.exchanges.filter(
        pc.less(analysis.exchanges["request_first"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), end)
    )
    ours, found = match_exchanges(table, broker1, 200)
    assert len(ours) == (found >= 0).sum()
    # A header lies beyond what was captured where its frame begins after another one in the same segment.
    missing = wanted[match_exchanges(table, wanted, 200)[1] < 0]
    assert 0 < len(missing) < 150
    seen: Counter[tuple[Any, ...]] = Counter()
    for row in wanted.to_dict("records"):
        for side in ("request", "response"):
            seen.update({(side, *(row[name] for name in ENDS), row[f"{side}_{at}"]) for at in ("first", "last")})
    for row in missing.to_dict("records"):
        shared = [seen[side, *(row[name] for name in ENDS), row[f"{side}_first"]] for side in ("request", "response")]
        assert max(shared) > 1, row


def test_pcapng_of_another_host_that_dropped_packets(corpus: Path) -> None:
    folder = corpus / "captures"
    analysis = analyze(folder / "apache-4.3-broker3.pcapng.zst")
    truth = read_truth(folder / "apache-4.3-broker3.client-exchanges.tsv.zst")
    table = analysis.exchanges
    ports = pc.is_in(table["broker_port"], pa.array([9092, 9094], pa.int32()))
    table = table.filter(pc.and_(pc.equal(table["client_ip"], "10.77.0.10"), ports))
    assert compare_exchanges(table, truth, 200, match_request_bytes=True) == []
    file = analysis.files.to_pylist()[0]
    assert (file["drops"], file["packets"]) == (499, 79_336)


def test_no_request_waits_longer_for_a_quota_than_the_quota_lasted(corpus: Path) -> None:
    """Brokers since 2.0 mute a connection for throttle_time_ms after each throttled response. A request, also one that
    stands half-sent before the closed window, waits at most for what these windows take of its time. Of a run of
    windows, that is known by the share that they take of it: single requests may have somewhat more."""
    table = analyze(corpus / "captures" / "apache-4.3-broker1.pcap.zst", client="greedy-producer").exchanges
    names = ("connection", "request_first", "response_first", "throttle_time_ms", "throttle_wait_ns")
    columns = {name: pc.cast(table[name], pa.int64()).to_pylist() for name in names}
    rows = list(zip(*columns.values(), strict=True))
    windows: dict[int, list[tuple[int, int]]] = {}
    for connection, _, answered, throttle_ms, _ in sorted(rows, key=lambda row: row[2] or 0):
        if throttle_ms:
            windows.setdefault(connection, []).append((answered, answered + throttle_ms * 1_000_000))
    checked = beyond = 0
    for connection, asked, answered, _, wait in rows:
        muted, until = 0, 0
        for begin, end in windows.get(connection, ()):
            begin, end = max(begin, until, asked), min(end, answered or 0)
            muted += max(end - begin, 0)
            until = max(until, end)
        checked += (wait or 0) > 100_000_000
        assert (wait or 0) <= 1.4 * muted + 5_000_000, (asked, wait, muted)
        beyond += max((wait or 0) - muted, 0)
    assert checked > 10
    assert beyond < 0.03 * sum(row[-1] or 0 for row in rows)
