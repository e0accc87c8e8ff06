"""`interruptible`: a Spark job that Ctrl-C cancels.

The job runs in its own thread, so that no call to Java is interrupted. The main thread waits for it. On Ctrl-C it
cancels Spark's jobs until the thread ends. A second Ctrl-C ends the waiting too.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = TypeVar("Made")
#: Seconds between two cancellations: the work may have started another job.
CANCELLED_EVERY = 0.5


def interruptible(session: SparkSession, work: Callable[[], Made]) -> Made:
    """The result of `work`, or its error. KeyboardInterrupt if Ctrl-C ended it before it had a result."""
    made: list[Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="kafkatap-job", daemon=True)
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if main else None  # Spark has set one of its own
    try:
        try:
            thread.start()
            thread.join()
        except KeyboardInterrupt:
            while thread.is_alive():
                _cancel(session)
                thread.join(CANCELLED_EVERY)
            if not made:
                raise
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if failed:
        raise failed[0]
    return made[0]


def _cancel(session: SparkSession) -> None:
    context: Any = getattr(session, "_sc", None)  # Spark Connect has none
    if context is not None:
        context.cancelAllJobs()
    else:
        session.interruptAll()
