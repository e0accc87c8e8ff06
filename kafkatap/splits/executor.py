"""`Executor`: what runs the tasks of a run. Forked processes, this process, and Spark are executors.

A task is a function that can go to another process. It is called once for each input, and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Place(NamedTuple):
    """Where a task runs. `worker`: the number of its process, from 0. `progress` is called with bytes of captures that
    are done."""

    worker: int = 0
    progress: Callable[[int], None] = lambda units: None


HERE = Place()


class Task(Protocol):
    """`name`: of the work, in one word."""

    @property
    def name(self) -> str: ...

    def __call__(self, mine: Any, place: Place = HERE) -> Any: ...


class Executor(Protocol):
    """Runs tasks."""

    def run(self, task: Task, inputs: Sequence[Any]) -> list[Any]:
        """The result of a task for each input."""


class InProcess:
    """Runs tasks in this process, one after another."""

    def run(self, task: Task, inputs: Sequence[Any]) -> list[Any]:
        """As of `Executor`."""
        return [task(mine) for mine in inputs]
