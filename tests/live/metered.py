"""Captures through a monitor with metrics, a second at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkatap.engine.engine import Engine
from kafkatap.live.export.metric_list import Family
from kafkatap.live.export.metrics import Metrics
from kafkatap.live.governor import Governor
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor

from .support import FileSource


class Metered:
    """A monitor that takes a capture as if it came now, and the metrics of it."""

    def __init__(self, path: Path, metrics: Metrics | None = None, limits: MemoryLimits | None = None) -> None:
        self.metrics = metrics or Metrics()
        self.source = FileSource(str(path))
        self.monitor = Monitor(
            self.source, Engine(all_results=True), sinks=[self.metrics], limits=limits, clock=self.source.clock,
            governor=Governor(None),
        )  # fmt: skip

    def run(self) -> Metered:
        for _ in self.steps():
            pass
        return self

    def steps(self) -> Iterator[None]:
        """Takes what came in a tenth of a second at each step; the counts change once a second."""
        while not self.source.over:
            self.source.wait(0.1)
            self.monitor.step()
            yield
        self.monitor.finish()
        yield

    def families(self) -> dict[str, Family]:
        return by_name(self.metrics, self.monitor)


def by_name(metrics: Metrics, monitor: Monitor) -> dict[str, Family]:
    return {family.metric.name: family for family in metrics.families(monitor.status)}


def sums(family: Family, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a family added up over all labels but these."""
    places = [family.metric.labels.index(name) for name in labels]
    result: dict[tuple[str, ...], float] = {}
    for point in family.points:
        key = tuple(point.labels[i] for i in places)
        result[key] = result.get(key, 0) + point.value
    return result
