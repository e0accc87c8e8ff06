"""Options of Java for jobs whose work is done in Python, and the archive of Spark's classes (`class_archive` makes it).

A job of this package needs Java for seconds. By default Java compiles its hot code twice, the second time for hours of
use, and runs a garbage collector with several threads. Both take more time than the job.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from kafkatap.kernels import cache

from .java import Java

#: Compile hot code once, simply. (A setting of the user that comes later overrides it.)
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
#: A garbage collector of one thread. Java does not start with two collectors, so the user's must not be another one.
ONE_COLLECTOR = "-XX:+UseSerialGC"
_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def light_options(settings: Mapping[str, str], of: str) -> str:
    """Options for the Java of `driver` or `executor`, given the user's settings."""
    theirs = [settings.get(f"spark.{of}.extraJavaOptions", ""), *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    has_collector = any(word.startswith("-XX:+Use") and word.endswith("GC") for text in theirs for word in text.split())
    return ONE_COMPILER if has_collector else f"{ONE_COMPILER} {ONE_COLLECTOR}"


def archive_options(java: Java) -> str:
    """The option for the archive of classes that fits this Java and pyspark; "" if there is none."""
    path = archive_path(java)
    if path is None or not path.is_file() or " " in str(path):
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:class+path=off"


def archive_path(java: Java) -> Path | None:
    """Where the archive for this Java and pyspark lies; None if the folder is not this user's alone."""
    root = cache.open_root()
    if not cache.trusted(root):
        return None
    import pyspark

    words = (java.output, str(java.command.resolve()), version("pyspark"), *pyspark.__path__)
    return root / f"spark-{hashlib.blake2b(repr(words).encode(), digest_size=8).hexdigest()}.jsa"


def remove_others(path: Path) -> None:
    """Remove archives of other versions, and unfinished ones."""
    for other in path.parent.glob("spark-*"):
        if other != path and other.suffix in (".jsa", ".new"):
            other.unlink(missing_ok=True)
