"""A driver that kills itself: `python stream_killed.py FOLDER OUT CHECKPOINT WHEN`, in the second batch of a stream."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kafkatap.spark import stream
from kafkatap.spark.session import open_session


def main(folder: str, out: str, checkpoint: str, when: str) -> None:
    publish = stream._publish
    calls: list[int] = []

    def last(*given: Any) -> Any:
        calls.append(1)
        if len(calls) < 2:
            return publish(*given)
        if when == "after publishing":
            publish(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    stream._publish = last
    following = stream.Following(out, checkpoint, split_size=60_000, records=True)
    query = stream.start_stream(open_session("local[2]", name="killed"), folder, following, quiet=0, files=2)
    query.processAllAvailable()


if __name__ == "__main__":
    main(*sys.argv[1:])
