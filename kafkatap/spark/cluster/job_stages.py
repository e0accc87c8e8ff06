"""`Stages`: names the stages of a job for Spark, follows their tasks, and adds up what Spark reports about them.

In a classic session, Spark's own status store has the tasks of each job and the bytes that they shuffled and sent to
the driver. Spark Connect reports finished tasks while an operation runs, and no bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..job_result import Watch

#: Seconds between two looks at the progress of a stage.
LOOK_EVERY = 0.5
_GROUP = ("spark.jobGroup.id", "spark.job.description")
_NUMBERS = count()


@dataclass(slots=True)
class StageFigures:
    """What Spark reports about the jobs of one stage. `task_s`: seconds of all tasks together."""

    jobs: int = 0
    tasks: int = 0
    task_s: float = 0.0
    bytes_shuffled: int = 0
    bytes_to_driver: int = 0


class Stages:
    """`stages(name, sizes)` before a stage, with the bytes that each of its tasks reads; call the result after it.

    `figures` has the figures of each finished stage, in a classic session. Spark's own interface shows each job with a
    description such as `kafkatap decode: 39 tasks, 2.6 GB`.
    """

    def __init__(self, spark: SparkSession | None, watch: Watch) -> None:
        self._spark = spark
        self._watch = watch
        self.figures: dict[str, StageFigures] = {}

    def __call__(self, name: str, sizes: Sequence[int]) -> Callable[[], None]:
        read = [0, *accumulate(sizes)]
        self._watch(name, 0, len(sizes), 0)
        seen = threading.Lock()

        def show(done: int, total: int) -> None:
            with seen:  # tasks finish about in their order
                self._watch(name, min(done, total - 1), total, read[min(done, len(sizes))])

        context = getattr(self._spark, "_sc", None)
        if context is not None:
            end = self._follow(context, name, sizes, show)
        elif self._spark is not None:
            end = _follow_connect(self._spark, show, len(sizes))
        else:
            end = _nothing

        def finished() -> None:
            end()
            total = max(len(sizes), self.figures[name].tasks if name in self.figures else 0)
            self._watch(name, total, total, read[-1])

        return finished

    def _follow(
        self, context: Any, name: str, sizes: Sequence[int], show: Callable[[int, int], None]
    ) -> Callable[[], None]:
        """Put the jobs of this thread into a group, and look at them until the returned function is called."""
        from kafkatap.reports.units import size

        group = f"kafkatap-{name}-{next(_NUMBERS)}"
        before = [context.getLocalProperty(key) for key in _GROUP]
        context.setJobGroup(group, f"kafkatap {name}: {len(sizes):,} tasks, {size(sum(sizes))}")
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY):
                with suppress(Exception):  # the session may have ended
                    done, total = _tasks_of(context, group)
                    show(done, max(total, len(sizes)))

        thread = threading.Thread(target=look, name="kafkatap-progress", daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()
            for key, value in zip(_GROUP, before, strict=True):
                context.setLocalProperty(key, value)
            with suppress(Exception):
                self.figures[name] = figures_of(context, group)

        return end


def _nothing() -> None:
    pass


def _tasks_of(context: Any, group: str) -> tuple[int, int]:
    """The finished tasks of a group's jobs so far, and all of them."""
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for number in info.stageIds if info is not None else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
    return done, total


def figures_of(context: Any, group: str) -> StageFigures:
    """What Spark's status store has about the jobs of a group."""
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    store = java.statusStore()
    found = StageFigures()
    seen: set[int] = set()
    for job in context.statusTracker().getJobIdsForGroup(group):
        found.jobs += 1
        numbers = store.job(job).stageIds()
        for number in {int(numbers.apply(i)) for i in range(numbers.size())} - seen:
            seen.add(number)
            with suppress(Exception):  # a stage that was not needed has no attempt
                stage = store.lastStageAttempt(number)
                found.tasks += stage.numCompleteTasks()
                found.task_s += stage.executorRunTime() / 1e3
                found.bytes_shuffled += stage.shuffleWriteBytes()
                found.bytes_to_driver += stage.resultSize()
    return found


def _follow_connect(spark: Any, show: Callable[[int, int], None], tasks: int) -> Callable[[], None]:
    """Follow the operations of a Spark Connect session until the returned function is called."""

    def progress(stages: Any = None, **_: Any) -> None:
        if stages:
            done, total = sum(s.num_completed_tasks for s in stages), sum(s.num_tasks for s in stages)
            show(done, max(total, tasks))

    spark.registerProgressHandler(progress)
    return lambda: spark.removeProgressHandler(progress)
