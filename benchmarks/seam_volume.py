"""How many bytes one split sends to another: measured on captures, and simulated for other traffic.

    python benchmarks/seam_volume.py [CAPTURE ...] [--sizes 1m 4m 16m 64m 256m]

Measured: survey and plan in this process, without Spark. A *flow-split* is the packets of one connection in one split;
n is the number of exchanges in one. Seams are compressed before they are sent.

Simulated: C connections with exchanges at random times (Poisson). Their rates are lognormal (sigma 1), and so are the
sizes of requests and responses around their means. A split holds S bytes of all packets in time order. Each connection
with packets in the split has this seam:

    the response that it waits for (in a share `waiting` of the time), and one complete exchange;
    the first two segments, if it is encrypted (a share `tls`); or all of its packets, if there are no more

A segment holds up to 1,448 bytes behind 82 bytes of headers; every second one has an acknowledgement. A packet in a
seam has a row beside its bytes. An exchange has E bytes, so a split has n = S / (C E) exchanges per connection. The
seams are about (1 + waiting * response / E) / n of a split where n is well above 1, and never more than the split.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kafkatap.captures.split_checks import misplaced
from kafkatap.captures.splits import plan_splits
from kafkatap.captures.storage import find
from kafkatap.commands.values import parse_size
from kafkatap.reassembly.dtypes import PACKET
from kafkatap.splits.seams import Seam

Array = np.ndarray[Any, Any]
SIZES = ("1m", "4m", "16m", "64m", "256m")
MIB = 1 << 20
SEGMENT, HEADERS, RECORD = 1_448, 66, 16


@dataclass(frozen=True, slots=True)
class Traffic:
    """`request`, `response`: mean bytes; `waiting`: share of the time in which a connection waits for a response."""

    name: str
    connections: int
    request: float
    response: float
    waiting: float
    tls: float = 0.0


KINDS = (
    Traffic("50 producers and consumers, batches of 16 KiB", 50, 8_000, 8_000, 0.5),
    Traffic("1,000 producers, batches of 16 KiB", 1_000, 16_000, 100, 0.1),
    Traffic("1,000 consumers that wait, 50 KiB a response", 1_000, 150, 50_000, 1.0),
    Traffic("1,000 of each, a third of them encrypted", 2_000, 8_000, 25_000, 0.5, 1 / 3),
    Traffic("10,000 clients, small messages", 10_000, 600, 600, 0.5),
    Traffic("6 replication fetchers, 1 MiB a response", 6, 200, 1_048_576, 1.0),
)


# ---------------------------------------------------------------- measured


def measured(path: str, size: int) -> tuple[int, int, int, int]:
    """Cut a capture into splits of `size`. Return the numbers of splits and of flow-splits that continue another one,
    and the bytes of the seams, plain and compressed."""
    from kafkatap.captures.pack_reader import PackReader
    from kafkatap.splits.located_split import LocatedSplit
    from kafkatap.splits.plan import make_plan
    from kafkatap.splits.survey import survey_split

    splits = plan_splits(find(path), size)
    surveys, told, places = [], [], []
    for number, split in enumerate(splits):
        reader = PackReader((split,))
        surveys.append(survey_split(number, reader))
        told.append((split, reader.begins, reader.ends))
        places.append(LocatedSplit((split,), reader.begins))
        reader.close()
    if misplaced(told):
        raise SystemExit(f"{path}: the search for records was misled; take another size")
    plan = make_plan(surveys, [place.file_numbers for place in places])
    seams: list[Seam] = []
    flow_splits = 0
    for source, heads in ((split, heads) for task in plan.tasks for split, heads in task.follows.items()):
        seams += places[source].cut(heads, plan.bases[source]).values()
        flow_splits += len(heads)
    return len(splits), flow_splits, sum(s.size for s in seams), sum(len(s.dump()) for s in seams)


def measured_table(paths: list[str], sizes: list[str]) -> str:
    from kafkatap import analyze

    lines = [
        "| capture | split size | splits | flow-splits | n | seams | of the capture | as sent |",
        "|---|" + "---|" * 7,
    ]
    for path in paths:
        exchanges = sum(analyze(path).ledger.filter(_is_request())["count"].to_pylist())
        whole = Path(path).stat().st_size
        for size in sizes:
            splits, flows, found, sent = measured(path, parse_size(size))
            if splits < 2:
                continue
            each = f"{exchanges * (splits - 1) / splits / max(flows, 1):,.0f}"
            lines.append(
                f"| {Path(path).name}, {whole / 1e6:,.0f} MB | {size} | {splits} | {flows:,} | {each} | "
                f"{found / 1e6:,.2f} MB | {found / whole:.2%} | {sent / whole:.2%} |"
            )
    return "\n".join(lines)


def _is_request() -> Any:
    import pyarrow.compute as pc

    return (pc.field("section") == "requests") & (pc.field("part") == "total")


# ---------------------------------------------------------------- simulated


def on_the_wire(payload: Array) -> tuple[Array, Array]:
    """The bytes that messages of these sizes take in the capture and in a seam."""
    segments = np.ceil(payload / SEGMENT)
    packets = segments + np.ceil(segments / 2)
    return payload + packets * (HEADERS + RECORD), payload + packets * (HEADERS + PACKET.itemsize)


def simulated(traffic: Traffic, size: int, random: np.random.Generator) -> float:
    """The share of one random split that is sent to another."""
    count = traffic.connections
    rates = random.lognormal(0, 1, count)
    encrypted = random.random(count) < traffic.tls
    # Sizes are of exchanges (lognormal of sigma 1 has the mean exp(1/2) at scale 1).
    share_of = sum(float(part.mean()) for part in _messages(traffic, 10_000, random)[0])
    exchanges = random.poisson(rates / rates.mean() * size / count / share_of)
    there = exchanges > 0
    (request, response), (of_request, of_response) = _messages(traffic, count, random)
    waits = random.random(count) < traffic.waiting
    (_, _), (_, before) = _messages(traffic, count, random)
    seams = of_request + of_response + np.where(waits, before, 0)
    all_of_it = exchanges * (of_request + of_response)
    two_segments = 2 * (SEGMENT + HEADERS + PACKET.itemsize)
    seams = np.where(encrypted, np.minimum(two_segments, all_of_it), np.minimum(seams, all_of_it + before * waits))
    total = exchanges.sum() * float((request + response).mean())
    return float(seams[there].sum() / max(total, 1.0))


def _messages(traffic: Traffic, count: int, random: np.random.Generator) -> Any:
    """(requests, responses) in the capture and in seams: `count` of each."""
    scale = np.exp(-0.5)
    request = on_the_wire(np.ceil(traffic.request * scale * random.lognormal(0, 1, count)))
    response = on_the_wire(np.ceil(traffic.response * scale * random.lognormal(0, 1, count)))
    return (request[0], response[0]), (request[1], response[1])


def simulated_table(sizes: list[str], rounds: int = 200) -> str:
    random = np.random.default_rng(1)
    lines = [f"| traffic | {' | '.join(sizes)} |", "|---|" + "---|" * len(sizes)]
    for traffic in KINDS:
        shares = [
            min(1.0, float(np.mean([simulated(traffic, parse_size(size), random) for _ in range(rounds)])))
            for size in sizes
        ]
        lines.append(f"| {traffic.name} | {' | '.join(f'{share:.2%}' for share in shares)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="How many bytes of captures go from one split to another.")
    parser.add_argument("captures", nargs="*", help="pcap or pcapng, not compressed")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help=f"split sizes (default {' '.join(SIZES)})")
    options = parser.parse_args()
    if options.captures:
        print("Measured:\n\n" + measured_table(options.captures, list(options.sizes)) + "\n")
    print("Simulated, share of the capture by split size:\n\n" + simulated_table(list(options.sizes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
