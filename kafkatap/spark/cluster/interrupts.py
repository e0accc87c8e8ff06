"""Ctrl-C in a Spark job.

Work is done in a thread of its own, so that no call to Java is cut off in the middle: the main thread waits, and when
interrupted cancels what runs until the work ends by that. Pressed again, Ctrl-C ends the waiting as well.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = TypeVar("Made")
#: Seconds between two cancellations: the work may have begun another job.
CANCELLED_EVERY = 0.5


def interruptible(session: SparkSession, work: Callable[[], Made]) -> Made:
    """What `work` gives, or its error; KeyboardInterrupt where Ctrl-C ended it. What was done all the same counts."""
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
