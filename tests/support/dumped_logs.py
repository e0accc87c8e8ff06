"""What a broker's log holds: the batches of a topic as Kafka's own DumpLogSegments lists them, as rows of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from .broker import run_class

COLUMNS = (
    "topic", "partition", "base_offset", "last_offset", "records", "producer_id", "producer_epoch", "base_sequence",
    "is_transactional", "control", "time_ms", "bytes", "crc",
)  # fmt: skip


def dumped(jars: Path, logs: Path, topics: Sequence[str]) -> str:
    """The batches of these topics in a broker's log folder. `control`: COMMIT, ABORT or empty. `time_ms`: the latest
    record's."""
    rows = ["\t".join(COLUMNS)]
    for topic in topics:
        folders = logs.glob(f"{topic}-*")
        for folder in sorted(folders, key=lambda path: int(path.name.rpartition("-")[2])):
            files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
            options = ["--deep-iteration", "--files", files]
            text = run_class(jars, "org.apache.kafka.tools.DumpLogSegments", options, timeout=60)
            partition = folder.name.rpartition("-")[2]
            rows += ["\t".join((topic, partition, *batch)) for batch in _batches(text)]
    return "\n".join(rows) + "\n"


def _batches(text: str) -> Iterator[tuple[str, ...]]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if not line.startswith("baseOffset:"):
            continue
        values = dict(re.findall(r"(\w+): (\S+)", line))
        marker = ""
        if values["isControl"] == "true" and at + 1 < len(lines):
            found = re.search(r"endTxnMarker: (\w+)", lines[at + 1])
            marker = found.group(1) if found else "?"
        place = values["baseOffset"], values["lastOffset"], values["count"]
        writer = values["producerId"], values["producerEpoch"], values["baseSequence"], values["isTransactional"]
        yield (*place, *writer, marker, values["CreateTime"], values["size"], values["crc"])
