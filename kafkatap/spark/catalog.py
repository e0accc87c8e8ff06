"""`Catalog`: the tables of a lake as external tables of a schema in a catalog of Spark (`--table`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..captures.storage import absolute
from .output.delta import is_delta
from .output.delta_schema import LAKE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)?", re.ASCII)
#: What a session needs for Delta tables.
_DELTA = (
    "--table needs Delta's package in Spark: --conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog (docs/spark.md)"
)


@dataclass(frozen=True, slots=True)
class Catalog:
    """`schema`: its name, after that of its catalog and a dot if it is not in the session's. ValueError for others."""

    schema: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.schema):
            raise ValueError(f"--table {self.schema}: name a schema, such as kafka or spark_catalog.kafka")

    def check(self, spark: SparkSession) -> None:
        """ValueError if the session cannot have Delta tables."""
        settings = ("spark.sql.extensions", "spark.databricks.clusterUsageTags.clusterId")
        found = [spark.conf.get(name, None) for name in settings]
        if "delta" not in str(found[0]).lower() and found[1] is None:
            raise ValueError(_DELTA)

    def add(self, spark: SparkSession, out: str) -> None:
        """Add the tables below `out` that the schema lacks. ValueError if one is there with another folder."""
        schema = ".".join(f"`{part}`" for part in self.schema.split("."))
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for table in LAKE_TABLES:
            if not is_delta(out, table):
                continue
            location = f"{absolute(out).partition('?')[0].rstrip('/')}/{table}"
            quoted = location.replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"CREATE TABLE IF NOT EXISTS {schema}.`{table}` USING DELTA LOCATION '{quoted}'")
            there = spark.sql(f"DESCRIBE DETAIL {schema}.`{table}`").collect()[0]["location"]
            if _plain(there) != _plain(location):
                raise ValueError(f"{self.schema}.{table} is a table in {there} already; name another --table")


def _plain(location: str) -> str:
    """A location without a scheme of local files."""
    return unquote(urlsplit(location).path) if location.startswith("file:/") else location
