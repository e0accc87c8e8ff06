"""The data source "pcap-arrivals": one row for each batch of captures that are complete, as a stream.

An offset is the number of batches so far, which an `ArrivalPlanner` plans. It needs Spark 4.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from .arrivals import BATCH_SIZE, ArrivalPlanner
from .cluster.store_access import use_of
from .stream_state import StateFolder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Offset = dict[str, int]


class ArrivedCaptures(DataSource):
    """Options: those of `ArrivalPlanner`, with `paths` as a JSON list."""

    @classmethod
    def name(cls) -> str:
        return "pcap-arrivals"

    def schema(self) -> str:
        return "batch long"

    def streamReader(self, schema: StructType) -> Arrivals:  # noqa: N802
        use_of(self)
        options = self.options
        files = options.get("files")
        return Arrivals(
            tuple(json.loads(options["paths"])), options["checkpoint"], float(options.get("quiet", 60)),
            float(options.get("lateness", 0)), None if files is None else max(int(files), 1),
            int(options.get("batchSize", BATCH_SIZE)), int(options.get("tasks", 0)), int(options.get("splitSize", 0)),
        )  # fmt: skip


class _Batch(InputPartition):
    def __init__(self, batch: int) -> None:
        self.batch = batch


class Arrivals(ArrivalPlanner, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The batches of a planner as offsets."""

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"batches": max(StateFolder(self.checkpoint).batches - 1, 0)}  # the last one may not be published

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self.size)  # Spark's word for "limited"; `files` limits too

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.hold()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        batch = start["batches"]
        return {"batches": batch + self.has_batch(batch, isinstance(limit, ReadAllAvailable))}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [_Batch(batch) for batch in range(start["batches"], end["batches"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Batch)
        yield (partition.batch,)

    def commit(self, end: Offset) -> None:
        self.log.fold(end["batches"])
