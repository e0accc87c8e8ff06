"""Check, before any work, that executors have this copy of the package and this version of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .failures import SHIPPING, explain
from .java import SetupError
from .package import fingerprint, python_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Tasks that check. Spark chooses their executors; a problem on any other one shows when its task fails.
CHECKS = 4
_SCHEMA = "host string, python string, package string"


def require_package(spark: SparkSession) -> None:
    """SetupError if executors lack this package, or have another copy of it or another Python than the driver. The
    message says what to do."""
    try:
        answers = spark.range(0, CHECKS, 1, CHECKS).mapInArrow(_check(), _SCHEMA).distinct().collect()
    except Exception as error:
        raise SetupError(explain(error)) from error
    for host, python, package in answers:
        if python != python_version():
            raise SetupError(
                f"The executor on {host} runs Python {python}, the driver Python {python_version()}: they have to be "
                "the same. spark.pyspark.python (or PYSPARK_PYTHON) names the executors' Python."
            )
        if not package:
            raise SetupError(f"The executors' Python on {host} has no kafkatap. {SHIPPING}")
        if package.startswith("!"):
            raise SetupError(f"kafkatap cannot be used by the executors' Python on {host}: {package[1:]}. {SHIPPING}")
        if package.rpartition("+")[2] != fingerprint().rpartition("+")[2]:
            raise SetupError(
                f"The executors on {host} have another copy of kafkatap ({package}) than the driver ({fingerprint()}). "
                + SHIPPING
            )


def _check() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A local function, which Spark sends whole: executors may not have this module."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import pyarrow

        for _ in batches:
            pass
        try:
            from ...engine import Engine  # noqa: F401  # imports numpy and everything else that tasks need
            from .package import fingerprint

            found = fingerprint()
        except ModuleNotFoundError as error:
            name = str(error.name)
            found = "" if name == "kafkatap" else f"!{error}"
        except Exception as error:  # an older copy, or a binary for another system
            found = f"!{type(error).__name__}: {error}"
        row = {"host": [os.uname().nodename], "python": ["{}.{}".format(*sys.version_info[:2])], "package": [found]}
        yield pyarrow.RecordBatch.from_pydict(row)

    return check
