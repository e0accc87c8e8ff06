"""Options of Java for jobs whose work is done in Python.

A job of this package needs Java for seconds. By default Java compiles its hot code twice, the second time for hours of
use, and runs a garbage collector with several threads. Both take more time than the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

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
