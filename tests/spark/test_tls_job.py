"""A job on Spark decrypts what one process decrypts, and Spark writes no secret anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkatap.engine.read_options import ReadOptions
from kafkatap.engine.tls.key_log import KeyLog
from kafkatap.parquet.partitions import to_microseconds
from kafkatap.splits.run_options import RunOptions
from tests.spark.test_permissions import public
from tests.splits.join_support import compared, differences, local, published
from tests.splits.test_tls import conversations, write
from tests.support.tcp import merge
from tests.support.tls_talk import OverTls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_job_and_its_plans(spark: SparkSession, tmp_path: Path) -> None:
    from kafkatap.spark.captures import Captures
    from kafkatap.spark.job import run_job

    over = OverTls(tmp_path)
    path = write(tmp_path / "tls.pcap", merge(*conversations(over, 80)))
    options = RunOptions(ReadOptions(key_log=KeyLog([str(over.key_log)])), records=True)
    size = path.stat().st_size // 4
    run_job(spark, [str(path)], str(tmp_path / "out"), split_size=size, options=options)
    assert public(tmp_path / "out") == []
    wanted = local([str(path)], records=True, keylog=over.key_log)
    lines = differences(
        compared(published(tmp_path / "out")),
        compared({name: to_microseconds(table) for name, table in wanted.items()}),
    )
    assert not lines, "\n".join(lines)

    captures = Captures(spark, [str(path)], size, options)
    frame = captures.table("exchanges")
    plans = str(frame._jdf.queryExecution().toString())  # type: ignore[attr-defined]
    texts = plans + repr(captures) + repr(options) + repr(captures.rows_of("exchanges"))
    for secret in secrets_of(over.key_log):
        assert secret not in texts
        assert repr(bytes.fromhex(secret)) not in texts


def secrets_of(key_log: Path) -> list[str]:
    return [line.split()[-1] for line in key_log.read_text().splitlines() if not line.startswith("#")]
