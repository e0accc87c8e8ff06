"""A driver that kills itself: `python stream_killed.py FOLDER OUT CHECKPOINT`, after a stream's second batch."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kafkatap.spark import stream
from kafkatap.spark.cluster.session import open_session
from kafkatap.splits.run_options import RunOptions
from tests.support.spark_clusters import SHORT_LIVED


def main(folder: str, out: str, checkpoint: str) -> None:
    publish = stream._publish
    calls: list[int] = []

    def last(*given: Any) -> Any:
        calls.append(1)
        result = publish(*given)
        if len(calls) < 2:
            return result
        os.kill(os.getpid(), signal.SIGKILL)

    stream._publish = last
    options = stream.StreamOptions(out, checkpoint, split_size=250_000, reading=RunOptions(records=True))
    session = open_session("local[2]", name="killed", config={"spark.driver.extraJavaOptions": SHORT_LIVED})
    query = stream.start_stream(session, folder, options, quiet=0, files=2)
    query.processAllAvailable()


if __name__ == "__main__":
    main(*sys.argv[1:])
