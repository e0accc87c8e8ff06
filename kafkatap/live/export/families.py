"""Metric families without a format, for `prometheus` and `otlp` to write, and those that tell of the monitor itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..governor import LEVELS
from .labels import label

if TYPE_CHECKING:
    from ..monitor import Status

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Point(NamedTuple):
    """One series: its label values in the order of its family's labels, and its number, in base units.

    Of a histogram `value` is the sum, and `counts` the values in each bucket alone: len(BOUNDS) + 1. `since`: ns since
    the epoch at or before the first thing counted; 0 where that is not known.
    """

    labels: tuple[str, ...]
    value: float
    since: int = 0
    counts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """`name` as Prometheus has it, of counters with `_total`. `unit`: "seconds", "bytes" or "" (just a number)."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    points: Sequence[Point]

    @property
    def unit(self) -> str:
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in ("seconds", "bytes") else ""


_LEDGER_HELP = {
    "packets": "Packets by what they are.",
    "payload_bytes": "TCP payload by where it ended, counted when its connection is over.",
    "requests": "Requests by where they ended.",
    "responses": "Responses by where they ended.",
}


def ledger_families(ledger: Mapping[str, Mapping[str, int]], started: int) -> Iterator[Family]:
    for section, parts in ledger.items():
        name, total = section.replace(" ", "_"), parts.get("total", 0)
        places = [Point((part,), number, started) for part, number in parts.items() if part != "total"]
        text = _LEDGER_HELP.get(name, f"{section.capitalize()} by where they ended.")
        yield Family(f"kafkatap_ledger_{name}_total", COUNTER, text, ("place",), places)
        yield Family(
            f"kafkatap_ledger_open_{name}", GAUGE, f"{section.capitalize()} that are in no place of the ledger so far.",
            (), [Point((), total - sum(p.value for p in places))],
        )  # fmt: skip
    for section, name, text in (
        ("packets", "captured_packets_total", "Packets that were analysed."),
        ("payload bytes", "payload_bytes_total", "TCP payload on the wire."),
    ):
        yield _one(name, COUNTER, text, ledger.get(section, {}).get("total", 0), started)


def status_families(status: Status, started: int) -> Iterator[Family]:
    yield _one(
        "dropped_packets_total", COUNTER, "Packets that the kernel dropped, as nobody took them in time.",
        status.dropped, started,
    )  # fmt: skip
    yield Family(
        "kafkatap_detail_level", GAUGE, "How much is decoded, so as not to hurt the host: 1 for the level that holds.",
        ("level",), [Point((name,), int(i == status.level)) for i, name in enumerate(LEVELS)],
    )  # fmt: skip
    yield _one("open_connections", GAUGE, "TCP connections that are open.", status.connections)
    yield _one("waiting_requests", GAUGE, "Requests without a response so far.", status.waiting)
    yield _one("encrypted_ratio", GAUGE, "The part of the TCP payload that is TLS, 0 to 1.", status.encrypted_share)
    yield _one(
        "last_second_timestamp_seconds", GAUGE, "When the counts were last added to, since the epoch.",
        status.now / 1e9,
    )  # fmt: skip
    yield Family(
        "kafkatap_interface_info", GAUGE, "Where packets are captured; always 1.", ("interface",),
        [Point((label(name),), 1) for name in status.interfaces],
    )  # fmt: skip
    yield Family(
        "kafkatap_build_info", GAUGE, "The version of kafkatap and of Python; always 1.", ("version", "python"),
        [Point(_versions(), 1)],
    )  # fmt: skip


@cache
def _versions() -> tuple[str, str]:
    from ...installation import own_version

    return own_version(), platform.python_version()


def _one(name: str, kind: str, text: str, value: float, since: int = 0) -> Family:
    """A family of one series."""
    return Family(f"kafkatap_{name}", kind, text, (), [Point((), value, since)])


def process_families(started: int) -> Iterator[Family]:
    """Processor time, memory and open files of this process, under the names that all exporters have for them."""
    from prometheus_client import ProcessCollector

    for metric in ProcessCollector(registry=None).collect():
        for sample in metric.samples:
            since = started if metric.type == COUNTER else 0
            yield Family(sample.name, metric.type, metric.documentation, (), [Point((), sample.value, since)])
