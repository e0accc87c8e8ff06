"""Keep Spark's Java classes ready: `python -m kafkatap.spark.class_archive`, once on each machine.

Java spends most of the start of a session on loading and checking 13,000 classes. It can keep them in an archive
(application class-data sharing), and then a session needs a third of the processor time to start. The archive lies in
the folder of the compiled kernels, has about 160 MB, and fits one Java and one pyspark. `open_session` uses the one
that fits. Java ignores an archive that does not fit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .cluster.class_data import archive_path, remove_others
from .cluster.java import SetupError, require_java

#: A session runs the kind of job that `kafkatap spark` runs. Java writes the archive when it ends.
_TRAIN = """\
import sys
from kafkatap.spark.cluster.session import open_session
from kafkatap.spark.cluster.executors import checked

def same(batches):
    yield from batches

options = {"spark.driver.defaultJavaOptions": "-XX:ArchiveClassesAtExit=" + sys.argv[1]}
spark = open_session("local[1]", config=options, for_jobs=True)
spark.range(0, 2, 1, 2).mapInArrow(checked(same), "id long").toArrow()
spark.stop()
from pyspark import SparkContext
SparkContext._gateway.shutdown()
SparkContext._gateway.proc.stdin.close()
sys.exit(SparkContext._gateway.proc.wait())
"""


def write_archive() -> Path:
    """Write the archive for this Java and this pyspark, and return its path. It takes about 30 seconds.

    SetupError if Java or Spark is missing or Java writes no archive, OSError if it cannot be kept.
    """
    path = archive_path(require_java())
    if path is None:
        raise SetupError("the folder of compiled kernels must belong to this user alone (mode 0700)")
    new = path.with_name(f"{path.stem}-{os.getpid()}.new")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRAIN, str(new)], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if not new.exists():
            raise SetupError("Java wrote no archive: " + " ".join(done.stderr.split())[-300:])
        new.replace(path)
    finally:
        with suppress(FileNotFoundError):
            new.unlink()
    remove_others(path)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kafkatap.spark.class_archive",
        description="Keep Spark's Java classes ready on this machine. Later runs of kafkatap spark start in a third "
        "of the processor time. It takes about 30 seconds and 160 MB.",
    )
    parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        path = write_archive()
    except (SetupError, OSError) as error:
        print(f"kafkatap: {error}", file=sys.stderr)
        return 2
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
