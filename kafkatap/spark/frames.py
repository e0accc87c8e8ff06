"""The functions of `kafkatap.spark`: the tables of captures as DataFrames.

    from kafkatap.spark import exchanges
    exchanges(spark, "s3://captures/2026-11-21/*.pcap").groupBy("api_name").count().show()

Each takes a session and paths, folders, globs or URIs. The columns are those of docs/tables.md, with times to the
microsecond. Each call surveys the captures again. For several tables, make one `Captures` with `read_captures`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkatap.reports.literals import moment_of

from ..captures.storage import absolute
from ..engine.host_names import open_hosts
from ..engine.read_options import ReadOptions
from ..engine.selection import Selection
from ..splits.run_options import RunOptions
from ..splits.secrets import read_key_logs
from .captures import Captures
from .cluster.store_access import adopt
from .lake_points import IN_PART, WHOLE_OUTCOMES
from .output.delta import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkatap.reports.model import Report

Paths = str | Sequence[str]


def read_captures(
    spark: SparkSession,
    captures: Paths,
    *,
    split_size: int | None = None,
    ports: Sequence[int] = (),
    definitions: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    strict: bool = False,
    filter: str | None = None,
    client: str | Iterable[str] = (),
    connection: str | Iterable[str] = (),
    topic: str | Iterable[str] = (),
    broker: str | Iterable[str] = (),
    api: str | Iterable[str] = (),
    start: str | float | None = None,
    end: str | float | None = None,
    keylog: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    hosts: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
) -> Captures:
    """Captures whose tables are DataFrames.

    `split_size`: bytes, 0 for whole files (default: of the total size and the number of cores). `ports`: hints where
    brokers listen. `definitions`: message definitions of a newer Kafka or a vendor, as in `kafkatap.analyze`.
    `strict`: raise DamagedCaptureError if a capture is damaged. `keylog`: files with the secrets of TLS connections, on
    the driver or in a store; tasks get the lines of the connections that they decode. `hosts`: files of the
    driver with names of addresses. The other arguments select exchanges, as in `kafkatap.analyze`; each
    exchange keeps all its rows. The tables of connections, files and the ledger are of the whole captures.

    ValueError if definitions or a selection are wrong. FileNotFoundError (at the first read) if a pattern matches
    nothing.
    """
    known = None
    if definitions is not None:
        from ..engine.engine import open_definitions

        known = open_definitions(definitions)
    selection = Selection.of(
        filter=filter, clients=_several(client), connections=_several(connection), topics=_several(topic),
        brokers=_several(broker), apis=_several(api), start=None if start is None else moment_of(start),
        end=None if end is None else moment_of(end), definitions=known,
    )  # fmt: skip
    adopt(spark)
    key_log = None if keylog is None else read_key_logs([keylog] if isinstance(keylog, (str, os.PathLike)) else keylog)
    named = None if hosts is None else open_hosts([hosts] if isinstance(hosts, (str, os.PathLike)) else hosts)
    options = RunOptions(ReadOptions(tuple(ports), known, key_log=key_log, hosts=named), selection=selection)
    return Captures(spark, captures, split_size, options, strict)


def _several(values: str | Iterable[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def exchanges(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """A row for each request with its response, or one without the other. Options: those of `read_captures`."""
    return read_captures(spark, captures, **options).table("exchanges")


def results(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """A row for each topic-partition, group or resource that a response answers on."""
    return read_captures(spark, captures, **options).table("results")


def connections(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """A row for each TCP connection."""
    return read_captures(spark, captures, **options).table("connections")


def records(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """A row for each record of Produce requests and Fetch responses, with key and value."""
    return read_captures(spark, captures, **options).table("records")


def files(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """A row for each capture: format, packets, drops, damage."""
    return read_captures(spark, captures, **options).table("files")


def ledger(spark: SparkSession, captures: Paths, **options: Any) -> DataFrame:
    """Every packet, payload byte, request and response in one named place."""
    return read_captures(spark, captures, **options).table("ledger")


def reports(spark: SparkSession, captures: Paths, *, by: str = "api", **options: Any) -> Report:
    """The reports of `kafkatap report`, added up by Spark. `by`: api, client, broker, connection, version or topic."""
    return read_captures(spark, captures, **options).report(by)


def exchanges_once(spark: SparkSession, lake: str) -> DataFrame:
    """The rows of the table `exchanges` below `lake`, of each exchange the one that `kafkatap report` counts.

    An exchange that several captures have is that of an answered row before one that lacks its response, or a part of
    it; then that of the capture with the most clients of the broker. Connections that are others once more are left
    out. OSError if there is no such table. Spark needs no package of Delta for it. For SQL:
    `exchanges_once(spark, "tables").createOrReplaceTempView("exchanges_once")`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    adopt(spark)
    table = open_table(absolute(lake), "exchanges")
    rows = spark.read.option("basePath", table.table_uri).option("mergeSchema", "true").parquet(*table.file_uris())
    connections = open_table(absolute(lake), "connections")
    if "twin_of" in {field.name for field in connections.schema().fields}:
        ends = spark.read.option("mergeSchema", "true").parquet(*connections.file_uris())
        twins = ends.where("twin_of IS NOT NULL").select("connection").distinct()
        rows = rows.join(twins, "connection", "left_anti").select(*rows.columns)
    of_capture = rows.groupBy("capture").agg(f.count("*").alias("all"))
    ranks = rows.groupBy("broker_ip", "capture").agg(
        f.countDistinct("client_ip").alias("clients"), f.count("*").alias("mine")
    )
    ranks = ranks.join(of_capture, "capture").withColumn("share", f.col("mine") / f.col("all"))
    lacks = f.when(~f.col("outcome").isin(*WHOLE_OUTCOMES), 2).when(f.col("response_status") == IN_PART, 1)
    best = Window.partitionBy("exchange").orderBy(lacks.otherwise(0), f.desc("clients"), f.desc("share"), "capture")
    ranked = rows.join(ranks.select("broker_ip", "capture", "clients", "share"), ["broker_ip", "capture"], "left")
    chosen = ranked.withColumn("place", f.row_number().over(best)).where("place = 1")
    return chosen.select(*rows.columns)
