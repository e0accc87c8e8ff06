"""Records add up to what Kafka's own classes counted, on long recordings of real brokers."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafkatap import analyze

SAME = (
    "apache-0.8.2.pcap.zst", "apache-0.10.2.pcap.zst", "apache-2.8.pcap.zst", "apache-4.3-broker1.pcap.zst",
    "diverse.pcap", "mtu1500.pcap.zst",
)  # fmt: skip
KEY = ("direction", "topic", "partition", "magic", "codec")
COUNTS = ("batches", "records", "key_bytes", "value_bytes", "bad_crc")

Counts = dict[tuple[str, ...], tuple[int, ...]]


def truth_of(path: Path) -> Counts:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {tuple(row[name] for name in KEY): tuple(int(row[name]) for name in COUNTS) for row in rows}


def counted(records: pa.Table) -> Counts:
    """What the truth counts: records of batches with a wrong CRC are none there, and topics have their ids alone where
    the message does."""
    right = records["crc_ok"]
    table = pa.table(
        {
            "direction": records["direction"],
            "topic": pc.coalesce(records["topic_id"], records["topic"]),
            "partition": records["partition"],
            "magic": records["magic"],
            "codec": pc.binary_join_element_wise(
                records["codec"],
                pc.if_else(records["is_control"], ",control", ""),
                pc.if_else(records["is_transactional"], ",transactional", ""),
                "",
            ),
            "exchange": records["exchange"],
            "batch": records["batch"],
            "right": right,
            "records": right.cast(pa.int64()),
            "key_bytes": pc.if_else(right, pc.fill_null(pc.binary_length(records["key"]), 0), 0),
            "value_bytes": pc.if_else(right, pc.fill_null(pc.binary_length(records["value"]), 0), 0),
        }
    )
    sums = [(name, "sum") for name in ("records", "key_bytes", "value_bytes")]
    batches = table.group_by([*KEY, "exchange", "batch", "right"]).aggregate(sums)
    found: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for row in batches.to_pylist():
        counts = found[tuple(str(row[name]) for name in KEY)]
        counts[0] += 1
        for place, (name, _) in enumerate(sums, 1):
            counts[place] += row[f"{name}_sum"]
        counts[4] += not row["right"]
    return {key: tuple(counts) for key, counts in found.items()}


@pytest.mark.parametrize("name", SAME)
def test_records_are_the_truth_s(corpus: Path, name: str) -> None:
    folder = corpus / "captures"
    records = analyze(folder / name).records
    assert set(records["status"].to_pylist()) <= {"ok", "cut_off"}
    cut = records.filter(pc.equal(records["status"], "cut_off"))["exchange"]
    records = records.filter(pc.invert(pc.is_in(records["exchange"], cut)))  # Kafka's parsers see whole messages
    assert_same(counted(records), truth_of(folder / f"{name.partition('.pcap')[0]}.records.tsv"))


def assert_same(ours: Counts, truth: Counts) -> None:
    differing: dict[Any, Any] = {
        key: (ours.get(key), truth.get(key)) for key in ours.keys() | truth.keys() if ours.get(key) != truth.get(key)
    }
    assert differing == {}
