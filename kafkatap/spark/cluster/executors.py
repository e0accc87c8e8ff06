"""`checked`: a task that first checks its executor: this copy of the package, this version of Python, these folders.

The check needs no job of its own. Spark ships a `checked` task whole, so it starts without this package. The check
costs some milliseconds, once in each Python process. A task whose executor fails it raises an error with a marked
sentence: `explain` prints that sentence, and `setup_error` returns it as a SetupError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from ...captures.store_settings import used
from .failures import MARK, SHIPPING, marked
from .java import SetupError
from .package import fingerprint, python_version

if TYPE_CHECKING:
    import pyarrow as pa

    from .shared_folders import SharedFolders

    #: A function for `mapInArrow`.
    Task: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def checked(task: Task, folders: SharedFolders | None = None) -> Task:
    """`task` for `mapInArrow`, behind a check of the executor that runs it.

    `folders`: what executors must share with the driver. Executors unpickle `task`, and the settings of stores of this
    process, after the check has succeeded.
    """
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps((task, folders, used()))  # type: ignore[no-untyped-call]
    return _shipped_whole(pickled, python_version(), fingerprint(), SHIPPING, MARK)


def setup_error(error: BaseException) -> SetupError | None:
    """The SetupError of a job that failed because an executor failed the check. None for another failure."""
    text = marked(str(error))
    return None if text is None else SetupError(text)


def _shipped_whole(pickled: bytes, python: str, package: str, shipping: str, mark: str) -> Task:
    """The check and the task, as a local function. It has only text and bytes of the driver, and imports the rest."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import pickle
        import sys

        host, own = os.uname().nodename, "{}.{}".format(*sys.version_info[:2])
        wrong = ""
        if own != python:
            wrong = (
                f"The executor on {host} runs Python {own}, the driver Python {python}: they have to be the same. "
                "spark.pyspark.python (or PYSPARK_PYTHON) names the executors' Python."
            )
        else:
            try:
                from kafkatap.engine.engine import Engine  # noqa: F401  # imports all that tasks need
                from kafkatap.spark.cluster.package import fingerprint

                found = fingerprint()  # kept by the process
                if found.rpartition("+")[2] != package.rpartition("+")[2]:
                    wrong = (
                        f"The executors on {host} have another copy of kafkatap ({found}) than the driver ({package}). "
                        + shipping
                    )
            except ModuleNotFoundError as error:
                if error.name == "kafkatap":
                    wrong = f"The executors' Python on {host} has no kafkatap. {shipping}"
                else:
                    wrong = f"kafkatap cannot be used by the executors' Python on {host}: {error}. {shipping}"
            except Exception as error:  # an older copy, or a binary for another system
                wrong = (
                    f"kafkatap cannot be used by the executors' Python on {host}: {type(error).__name__}: {error}. "
                    + shipping
                )
        if not wrong:
            from kafkatap.captures.store_settings import use

            task, folders, settings = pickle.loads(pickled)
            use(settings)
            wrong = "" if folders is None else folders.problem()
        if wrong:
            raise RuntimeError(mark + " ".join(wrong.split()) + mark)
        yield from task(batches)

    return run
