"""Settings of stores (`spark.hadoop.fs.*`) from Spark, for pyarrow and deltalake in all processes.

The driver takes them from options of the command, spark-defaults.conf or a session (`take_settings`, `adopt`). Tasks
get them beside their function (`executors.checked`), and data sources in their class (`with_settings`): no plan, event
log, row or text has any.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ...captures.store_settings import S3_NAMES, StoreSettings, use, used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Source = TypeVar("Source", bound=type)


def take_settings(chosen: Mapping[str, str]) -> None:
    """Use the settings that a session of the command will have. It is not there yet."""
    from .session import defaults_file

    found = defaults_file()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has read options of its own
        from pyspark import SparkConf

        found |= dict(SparkConf().getAll())
    use(StoreSettings.of(found | dict(chosen)))


def adopt(spark: SparkSession | None) -> None:
    """Use the settings of a session. Those of a Spark Connect server stay there: it keeps its secrets."""
    context: Any = getattr(spark, "_sc", None)
    if spark is None or context is None:
        return
    found = dict(context.getConf().getAll())
    java = context._jsc.hadoopConfiguration()
    changed = {name: java.get(name) for name in S3_NAMES}  # a program may have changed these since
    found |= {f"spark.hadoop.{name}": value for name, value in changed.items() if value}
    with suppress(AttributeError):
        found |= {name: value for name, value in dict(spark.conf.getAll).items() if name.startswith("fs.")}
    use(StoreSettings.of(found))


def with_settings(source: Source) -> Source:
    """A data source with the settings of this process: Spark ships its class. See `use_of`."""
    if not used().values:
        return source
    shipped: Any = type(source.__name__, (source,), {"store_settings": used(), "__doc__": source.__doc__})
    return shipped  # type: ignore[no-any-return]


def use_of(source: Any) -> None:
    """Use the settings that a data source came with."""
    settings = getattr(source, "store_settings", None)
    if settings is not None:
        use(settings)
