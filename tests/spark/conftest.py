"""One Spark session for all tests of a run: it costs seconds, and so does every Java process that is started beside it.

Those that start clusters run whole drivers as processes, so that no session of theirs meets this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_clusters import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that need Spark into one worker of pytest-xdist: a second session would only cost another start.

    They come first (`--dist worksteal` takes tests from the end of a queue) and are one group (`--dist loadgroup`).
    """
    ours = [item for item in items if HERE in item.path.parents and _needs_spark(item)]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group("spark"))
    chosen = set(ours)
    items[:] = ours + [item for item in items if item not in chosen]


def _needs_spark(item: pytest.Item) -> bool:
    return not {"spark", "java"}.isdisjoint(getattr(item, "fixturenames", ()))


def missing() -> str:
    """What this machine lacks for Spark, in plain words; "" where it lacks nothing."""
    from kafkatap.spark.cluster.java import SetupError, require_java

    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        return "needs Spark: pip install 'kafkatap[spark]'"
    try:
        require_java()
    except SetupError as error:
        return str(error).splitlines()[0]
    return ""


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where Spark or the Java that it needs is missing."""
    why = missing()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A local session with two cores, as `open_session` makes it."""
    from kafkatap.spark.cluster.session import open_session

    session = open_session("local[2]", name="tests", config={"spark.driver.extraJavaOptions": SHORT_LIVED})
    yield session
    session.stop()
