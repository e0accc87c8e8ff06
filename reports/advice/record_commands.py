"""Commands that show the records of a partition from an offset on, for remedies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def record_commands(topic: str, places: Sequence[tuple[int, int | None]], most: str = "") -> str:
    """`kafkatap records ...`, or Kafka's own. `places`: partitions and offsets, negative or None if not known. `most`:
    further options of Kafka's command."""
    name = shlex.quote(topic)
    shown = " or ".join(f"partition == {partition}" for partition, _ in places)
    commands = [
        " ".join(filter(None, (
            f"kafka-console-consumer.sh --topic {name} --partition {partition}",
            "" if offset is None or offset < 0 else f"--offset {offset}", most,
        )))
        for partition, offset in places
    ]  # fmt: skip
    return f"`kafkatap records --topic {name} -f '{shown}'`, or {', '.join(f'`{each}`' for each in commands)}"
