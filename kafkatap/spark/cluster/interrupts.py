"""`interruptible`: a Spark job that Ctrl-C and SIGTERM cancel.

The job runs in its own thread, so that no call to Java is interrupted. The main thread waits for it. On Ctrl-C or
SIGTERM it cancels Spark's jobs and stops its streams until the thread ends: the job removes its files then. A second
Ctrl-C ends the waiting too.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = TypeVar("Made")
#: Set once Ctrl-C or SIGTERM has ended the work of `interruptible`: what waits between jobs is to raise it then.
STOPPED = threading.Event()
#: Seconds between two cancellations: the work may have started another job.
CANCELLED_EVERY = 0.5


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the job."""


def interruptible(session: Callable[[], SparkSession | None], work: Callable[[], Made]) -> Made:
    """The result of `work`, or its error. `session` returns the session whose jobs are cancelled, once there is one.
    KeyboardInterrupt (Terminated) if Ctrl-C (SIGTERM) ended the work before it had a result."""
    made: list[Made] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # Thread.is_alive is False once a signal interrupted join: CPython 90882, until 3.13

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="kafkatap-job", daemon=True)
    STOPPED.clear()
    with _signals():
        try:
            thread.start()
            ended.wait()
        except KeyboardInterrupt:
            is_stopped = False
            STOPPED.set()
            while not ended.is_set():
                is_stopped |= _cancel(session())
                ended.wait(CANCELLED_EVERY)
            if is_stopped or not made:
                raise
    if failed:
        raise failed[0]
    return made[0]


@contextmanager
def _signals() -> Iterator[None]:
    """Raise an exception for both signals, if this is the main thread. Spark has set handlers of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _terminate),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _cancel(session: SparkSession | None) -> bool:
    """Cancel all jobs and stop all streams; return whether there was a stream. One that waits has no job."""
    if session is None:
        return False
    is_stopped = False
    context: Any = getattr(session, "_sc", None)  # Spark Connect has none
    with suppress(Exception):  # Java may have ended: it gets the signals of a process group too
        if context is None:
            session.interruptAll()
        else:
            context.cancelAllJobs()
            for query in session.streams.active:
                is_stopped = True
                query.stop()
    return is_stopped
