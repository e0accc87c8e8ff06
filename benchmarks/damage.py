"""Damage captures, and print how many of the surviving exchanges kafkatap finds, as a Markdown table.

    python benchmarks/damage.py CAPTURE... [--seeds N] [--packets N] [--only NAME...] [--missed]

The captures must be good ones: their exchanges, as found without damage, are the truth. An exchange survives *whole* if
each byte of its request and response is in a packet that is left. It survives *begun* if the first 12 bytes of the
request and the first 8 of the response are. A row is *wrong* if nobody sent such a request or response, or if the two
do not belong together. --packets uses the first packets of each capture. --missed lists what was not found.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafkatap import analyze
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.damage import (
    Numbers,
    cut,
    duplicate,
    lose,
    lose_bursts,
    numbered,
    reorder,
    shuffle,
    step_clock,
)
from tests.support.survival import Outcome, RowsReader, WholeCapture

SECOND = 1_000_000_000

DAMAGES: dict[str, Callable[[Numbers, random.Random], Numbers]] = {
    "nothing": lambda packets, chance: packets,
    "0.1 % of packets lost": lambda packets, chance: lose(packets, chance, 0.001),
    "1 % lost": lambda packets, chance: lose(packets, chance, 0.01),
    "5 % lost": lambda packets, chance: lose(packets, chance, 0.05),
    "20 % lost": lambda packets, chance: lose(packets, chance, 0.2),
    "1 % lost in bursts of 50": lambda packets, chance: lose_bursts(packets, chance, 0.01),
    "5 % lost in bursts of 5": lambda packets, chance: lose_bursts(packets, chance, 0.05, 5),
    "5 % lost in bursts of 50": lambda packets, chance: lose_bursts(packets, chance, 0.05),
    "5 % lost in bursts of 500": lambda packets, chance: lose_bursts(packets, chance, 0.05, 500),
    "the first half missing, 1 % lost": lambda packets, chance: lose(packets[len(packets) // 2 :], chance, 0.01),
    "cut to 128 bytes": lambda packets, chance: cut(packets, 128),
    "cut to 128 bytes, 5 % lost": lambda packets, chance: lose(cut(packets, 128), chance, 0.05),
    "cut to 96 bytes": lambda packets, chance: cut(packets, 96),
    "1 % up to 5 ms late": lambda packets, chance: reorder(packets, chance, 0.01, SECOND // 200),
    "1 % up to 2 s late": lambda packets, chance: reorder(packets, chance, 0.01, 2 * SECOND),
    "1 % up to 2 s late in the file": lambda packets, chance: shuffle(packets, chance, 0.01, 2 * SECOND),
    "5 % captured twice": lambda packets, chance: duplicate(packets, chance, 0.05),
    "5 % captured twice, 5 % lost": lambda packets, chance: lose(duplicate(packets, chance, 0.05), chance, 0.05),
    "10 clock steps of up to 20 s": lambda packets, chance: step_clock(packets, chance, 10, 20 * SECOND),
}


def rows_reader(folder: Path) -> RowsReader:
    """A function that writes packets to a capture in a folder, and reads their exchanges as a user of the library."""

    def read_rows(packets: Sequence[Packet], link_type: int) -> list[dict[str, Any]]:
        path = folder / "damaged.pcap"
        path.write_bytes(pcap_bytes(packets, link_type, nanoseconds=True))
        table = analyze(path).exchanges
        return table.select([name for name in table.column_names if name != "errors"]).to_pylist()

    return read_rows


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def row_of(name: str, o: Outcome) -> str:
    wrong = len(o.invented) + len(o.wrong) + len(o.orphans)
    return (
        f"| {name} | {o.whole:,} | {share(o.whole_found, o.whole)} | {o.begun:,} | {share(o.begun_found, o.begun)} "
        f"| {wrong:,} |"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--packets", type=int, default=None)
    parser.add_argument("--only", nargs="+", default=list(DAMAGES), choices=list(DAMAGES))
    parser.add_argument("--missed", action="store_true")
    options = parser.parse_args(arguments)
    totals = {name: Outcome() for name in options.only}
    with tempfile.TemporaryDirectory() as folder:
        for path in options.captures:
            capture = read_capture(path)
            packets = capture.packets[: options.packets]
            whole = WholeCapture(packets, rows_reader(Path(folder)), capture.link_types[0])
            print(f"{path.name}: {len(packets):,} packets, {len(whole.exchanges):,} exchanges", file=sys.stderr)
            for name in options.only:
                for seed in range(options.seeds):
                    outcome = whole.compare(DAMAGES[name](numbered(packets), random.Random(seed)))
                    totals[name] += outcome
                    for missed in outcome.missed if options.missed else ():
                        print(f"{path.name}, {name}, seed {seed}: {missed.row}", file=sys.stderr)
    print("| damage | whole | found | begun | found | wrong |\n|---|---|---|---|---|---|")
    for name, outcome in totals.items():
        print(row_of(name, outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
