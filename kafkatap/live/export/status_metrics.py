"""The series of metrics without a table: the monitor's status, the ledger, and this process."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import cache

from ..governor import LEVELS
from ..status import Status
from .label_slots import BROKERS, label
from .metric_list import COUNTER, LEDGER, UNWRITTEN, Family, Metric, Point, ledger_metric

#: Series by the name of their metric.
Points = dict[str, list[Point]]


class LedgerCounters:
    """The ledger as counters, which only grow. What an open connection speaks may turn out to be something else: its
    bytes then have another place, and the place that they had grows again when it has more than before."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self._base: dict[str, dict[str, int]] = {}  # of the engines before this one
        self._before: Mapping[str, Mapping[str, int]] = {}

    def add(self, ledger: Mapping[str, Mapping[str, int]]) -> None:
        """Add what is new in a ledger."""
        for section, parts in ledger.items():
            base, sums = (each.setdefault(section, {}) for each in (self._base, self._sums))
            if parts["total"] < self._before.get(section, {}).get("total", 0):  # another engine
                base.update(sums)
            for part, number in parts.items():
                sums[part] = max(sums.get(part, 0), base.get(part, 0) + number)
        self._before = ledger

    def sums(self) -> dict[str, dict[str, int]]:
        """A copy of all counts, by section and place."""
        return {section: dict(parts) for section, parts in self._sums.items()}


def ledger_points(ledger: Mapping[str, Mapping[str, int]], started: int) -> Points:
    """The places of the ledger, how much has no place yet, and the totals. `started`: ns since the epoch."""
    points: Points = {}
    for section in LEDGER:
        places = dict(ledger.get(section, {}))
        total = places.pop("total", 0)
        name = ledger_metric(section)
        points[f"kafkatap_ledger_{name}_total"] = [Point((place,), n, started) for place, n in places.items()]
        points[f"kafkatap_ledger_open_{name}"] = [Point((), max(total - sum(places.values()), 0))]
        if section == "packets":
            points["kafkatap_captured_packets_total"] = [Point((), total, started)]
        elif section == "payload bytes":
            points["kafkatap_payload_bytes_total"] = [Point((), total, started)]
    return points


def status_points(status: Status, started: int) -> Points:
    return {
        "kafkatap_dropped_packets_total": [Point((), status.dropped, started)],
        "kafkatap_detail_level": [Point((name,), int(i == status.level)) for i, name in enumerate(LEVELS)],
        "kafkatap_open_connections": [Point((), status.connections)],
        "kafkatap_waiting_requests": [Point((), status.waiting)],
        "kafkatap_longest_wait_seconds": [Point((label(name),), ns / 1e9) for name, ns in _longest(status)],
        "kafkatap_events_late_seconds": [Point((), status.events_late)],
        "kafkatap_encrypted_ratio": [Point((), status.encrypted_share)],
        "kafkatap_decrypted_ratio": [Point((), status.decrypted_share)],
        "kafkatap_last_second_timestamp_seconds": [Point((), status.now / 1e9)],
        "kafkatap_last_packet_timestamp_seconds": [Point((), status.last_packet / 1e9)] if status.last_packet else [],
        **{
            f"kafkatap_unwritten_{name}_total": [
                Point((), n, started) for key, n in status.unwritten.items() if key == name
            ]
            for name in UNWRITTEN
        },
        "kafkatap_interface_info": [Point((label(name),), 1) for name in status.interfaces],
        "kafkatap_build_info": [Point(_versions(), 1)],
    }


def _longest(status: Status) -> list[tuple[str, int]]:
    """The brokers whose oldest requests wait longest."""
    return sorted(status.longest_waits.items(), key=lambda item: (-item[1], item[0]))[:BROKERS]


@cache
def _versions() -> tuple[str, str]:
    from ...installation import own_version

    return own_version(), platform.python_version()


def process_families(started: int) -> Iterator[Family]:
    """Processor time, memory and open files of this process, under the names that all exporters use."""
    from prometheus_client import ProcessCollector

    for metric in ProcessCollector(registry=None).collect():
        for sample in metric.samples:
            since = started if metric.type == COUNTER else 0
            yield Family(Metric(sample.name, metric.type, metric.documentation), [Point((), sample.value, since)])
