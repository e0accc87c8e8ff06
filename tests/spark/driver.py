"""A driver of its own: `python driver.py JSON`. Opens a session with the arguments given, asks executors for the
package, and counts the exchanges of a capture with a job. Tells as JSON what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kafkatap.spark import exchanges
from kafkatap.spark.cluster.executors import require_package
from kafkatap.spark.cluster.session import SetupError, open_session


def where() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Tells of an executor's Python: which it is, where its kernels come from, and whether it has numba loaded."""

    def tell(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import sys

        import pyarrow

        from kafkatap.analysis import Analysis
        from kafkatap.kernels import store

        for batch in batches:
            rows = Analysis(batch["path"].to_pylist()).exchanges.num_rows
            folder = store.open_folder()
            told = (rows, os.path.realpath(sys.executable), sys.prefix, str(folder), str(store.SHIPPED))
            names = ("rows", "python", "prefix", "kernels", "shipped")
            row = {name: [value] for name, value in zip(names, told, strict=True)}
            yield pyarrow.RecordBatch.from_pydict({**row, "numba": ["numba" in sys.modules]})

    return tell


def main(capture: str, **session: Any) -> dict[str, Any]:
    try:
        spark = open_session(**session)
    except SetupError as error:
        return {"refused": str(error)}
    try:
        require_package(spark)
        schema = "rows long, python string, prefix string, kernels string, shipped string, numba boolean"
        one = spark.createDataFrame([(capture,)], "path string").mapInArrow(where(), schema)
        (row,) = one.collect()
        return {"count": exchanges(spark, capture, split_size=100_000).count(), **row.asDict()}
    except SetupError as error:
        return {"refused": str(error)}
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
