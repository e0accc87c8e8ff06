"""`Workers`: an `Executor` of forked processes, which have all that this process has loaded.

    with Workers(4) as workers:
        results = workers.run(task, inputs)

No worker outlives this process, and none reacts to Ctrl-C: this process ends them.
"""

from __future__ import annotations

import gc
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Self

import numpy as np

from kafkatap.kernels.arrays import shared_zeros

from ..splits.executor import Place, Task

Array = np.ndarray[Any, Any]

#: Seconds between two looks at the progress of workers.
_LOOK = 0.1
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class WorkerEnded(Exception):
    """A worker ended in the midst of a task. The message says how."""


class Interrupted(Exception):  # not an error: `watch` ended the work
    """The caller ended the work before it was done."""


class Workers:
    """`count` processes. They start with the `with` statement and end with it.

    `watch` is called every now and then with the bytes that are done, by all tasks so far; True ends the work
    (`Interrupted`).
    """

    def __init__(self, count: int, watch: Callable[[int], bool] = lambda done: False) -> None:
        self._count = count
        self._watch = watch
        self._units = shared_zeros(max(count, 1), np.int64)
        self._processes: dict[Connection, int] = {}

    def __enter__(self) -> Self:
        try:
            for number in range(self._count):
                self._start(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, task: Task, inputs: Sequence[Any]) -> list[Any]:
        """The result of a task for each input. WorkerEnded if a worker ends. An exception in a task is raised here."""
        results: list[Any] = [None] * len(inputs)
        waiting = list(enumerate(inputs))[::-1]
        busy: dict[Connection, int] = {}
        looked = time.monotonic()
        idle = list(self._processes)
        while waiting or busy:
            while waiting and idle:
                number, mine = waiting.pop()
                connection = idle.pop()
                self._send(connection, (task, mine))
                busy[connection] = number
            ready = wait(list(busy), _LOOK)
            if time.monotonic() - looked >= _LOOK or not (waiting or len(busy) > len(ready)):
                looked = time.monotonic()
                if self._watch(int(self._units.sum())):
                    raise Interrupted
            for connection in list(busy):
                if connection not in ready:
                    continue
                results[busy.pop(connection)] = self._received(connection)
                idle.append(connection)
        return results

    def _start(self, number: int) -> None:
        mine, other = Pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # The only threads are those of numpy's linear algebra, which look after themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process:
            other.close()
            self._processes[mine] = process
            return
        try:
            for connection in (mine, *self._processes):
                connection.close()
            _live_with(parent)
            _serve(other, Place(number, partial(_add, self._units[number : number + 1])))
        finally:
            os._exit(0)

    def _send(self, connection: Connection, value: Any) -> None:
        try:
            connection.send(value)
        except OSError:
            raise self._ended(connection) from None

    def _received(self, connection: Connection) -> Any:
        try:
            is_result, value = connection.recv()
        except (EOFError, OSError):
            raise self._ended(connection) from None
        if not is_result:
            raise value
        return value

    def _ended(self, connection: Connection) -> WorkerEnded:
        """The exception for a worker that ended."""
        _, status = os.waitpid(self._processes.pop(connection), 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            return WorkerEnded("was killed, most likely because memory ran out")
        return WorkerEnded(f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}")

    def _end(self) -> None:
        for connection, process in self._processes.items():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            connection.close()
            os.waitpid(process, 0)
        self._processes.clear()


def _live_with(parent: int) -> None:
    """End this process when its parent ends, and leave Ctrl-C to the parent."""
    import ctypes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(0)
    gc.freeze()


def _add(units: Array, done: int) -> None:
    """Note progress in memory that processes share."""
    units[0] += done


def _serve(connection: Connection, place: Place) -> None:
    """Run tasks until the other end closes the connection."""
    while True:
        try:
            task, mine = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, task(mine, place))
        except Exception as error:  # `run` raises it in the process that started this one
            error.add_note(traceback.format_exc())
            answer = (False, error)
        connection.send(answer)
