"""Damage captures, and print how many of the surviving exchanges kafkatap finds, as a Markdown table.

    python benchmarks/damage.py CAPTURE... [--seeds N] [--packets N] [--only NAME...] [--missed] [--tshark]

The captures must be good ones: their exchanges, as found without damage, are the truth. An exchange survives *whole* if
each byte of its request and response is in a packet that is left. It survives *begun* if the first 12 bytes of the
request and the first 8 of the response are. A row is *wrong* if nobody sent such a request or response, or if the two
do not belong together. --packets uses the first packets of each capture. --missed lists what was not found.
--tshark counts what tshark finds of the answered exchanges that survived whole.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafkatap import analyze
from tests.support.captures import Packet, pcap_bytes, read_capture
from tests.support.damage import (
    Numbered,
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
from tests.support.wireshark import TSHARK, read_pairs

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
        rows: list[dict[str, Any]] = table.drop_columns(["errors"]).to_pylist()
        return rows

    return read_rows


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


HEADINGS = (
    "| damage | whole | found | begun | found | wrong | tshark: answered and whole, found |\n"
    "|---|---|---|---|---|---|---|"
)


def row_of(name: str, o: Outcome, by_tshark: str) -> str:
    """A row of the table."""
    wrong = len(o.invented) + len(o.wrong) + len(o.orphans)
    return (
        f"| {name} | {o.whole:,} | {share(o.whole_found, o.whole)} | {o.begun:,} | {share(o.begun_found, o.begun)} "
        f"| {wrong:,} | {by_tshark} |"
    )


def found_by_tshark(path: Path, damaged: Sequence[Numbered], outcome: Outcome) -> int:
    """How many of the answered exchanges that survived whole tshark pairs in a damaged capture."""
    ports = {exchange.row["broker_port"] for exchange in outcome.answered}
    pairs = Counter(
        {
            (damaged[request - 1].number, damaged[response - 1].number): count
            for (request, response), count in read_pairs(path, ports).items()
        }
    )
    wanted = Counter((x.row["request_packet_last"], x.row["response_packet_last"]) for x in outcome.answered)
    return (pairs & wanted).total()


def tshark_share(path: Path, damaged: Sequence[Numbered], outcome: Outcome) -> str:
    """The same as a share."""
    return share(found_by_tshark(path, damaged, outcome), len(outcome.answered)) if TSHARK else "-"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--packets", type=int, default=None)
    parser.add_argument("--only", nargs="+", default=list(DAMAGES), choices=list(DAMAGES))
    parser.add_argument("--missed", action="store_true")
    parser.add_argument("--tshark", action="store_true")
    options = parser.parse_args(arguments)
    totals = {name: Outcome() for name in options.only}
    by_tshark: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in options.captures:
            capture = read_capture(path)
            packets = capture.packets[: options.packets]
            whole = WholeCapture(packets, rows_reader(Path(folder)), capture.link_types[0])
            print(f"{path.name}: {len(packets):,} packets, {len(whole.exchanges):,} exchanges", file=sys.stderr)
            for name in options.only:
                for seed in range(options.seeds):
                    damaged = DAMAGES[name](numbered(packets), random.Random(seed))
                    outcome = whole.compare(damaged)
                    totals[name] += outcome
                    if options.tshark and TSHARK:
                        by_tshark[name] += found_by_tshark(Path(folder) / "damaged.pcap", damaged, outcome)
                    for missed in outcome.missed if options.missed else ():
                        print(f"{path.name}, {name}, seed {seed}: {missed.row}", file=sys.stderr)
    print(HEADINGS)
    for name, outcome in totals.items():
        print(row_of(name, outcome, share(by_tshark[name], len(outcome.answered)) if name in by_tshark else "-"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
