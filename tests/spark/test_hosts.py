"""Names of addresses go along with a job: rows have them, also where the files are not; reports of lakes read them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from kafkatap import analyze
from kafkatap.engine.host_names import open_hosts
from kafkatap.engine.read_options import ReadOptions
from kafkatap.spark.output.delta import read_table
from kafkatap.spark.source import KafkatapSource
from kafkatap.splits.run_options import RunOptions
from tests.cli.running import ROOT, kafkatap

from .jobs import run_job

MOVES = ROOT / "samples" / "questions"
CAPTURE, NAMES = MOVES / "hosts.pcap.zst", MOVES / "hosts.hosts.csv"


def test_the_data_source_names_hosts() -> None:
    source = KafkatapSource({"path": str(CAPTURE), "hosts": str(NAMES)})
    reader = source.reader(source.schema())
    read = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
    found = {row["exchange"]: row["client_host"] for row in read.to_pylist()}
    wanted = analyze(CAPTURE, hosts=NAMES).exchanges.to_pylist()
    assert found == {row["exchange"]: row["client_host"] for row in wanted}
    assert {"payments-7f9", "orders-1b2", "audit-c41"} < set(found.values())


def test_a_lake_has_names_and_its_reports_too(tmp_path: Path) -> None:
    out, copy = str(tmp_path / "lake"), tmp_path / "gone.csv"
    copy.write_bytes(NAMES.read_bytes())
    hosts = open_hosts([copy])
    copy.unlink()
    run_job(str(CAPTURE), out, options=RunOptions(ReadOptions(hosts=hosts)))
    for table, time in (("exchanges", "request_first"), ("connections", "connection_first")):
        rows = read_table(out, table, ("client_ip", "client_host", "broker_host", time)).to_pylist()
        assert {row["broker_host"] for row in rows} == {"kafka-1"}
        for row in rows:
            named = hosts.name_at(row["client_ip"], row[time].value if hasattr(row[time], "value") else _ns(row[time]))
            assert row["client_host"] == (None if named is None else named.text)
    said = json.loads(kafkatap("report", "--json", "--sections", "clients", "--hosts", NAMES, out).out)["reports"]
    assert {row["client_id"]: row["client_host"] for row in said["clients"]}["audit-c41"].startswith(
        "payments-7f9, then"
    )
    chosen = kafkatap("report", "--json", "--hosts", NAMES, "--client", "audit*", out).out
    assert {row["client_id"] for row in json.loads(chosen)["reports"]["clients"]} >= {"audit-c41"}


def _ns(time: object) -> int:
    import pandas as pd

    return int(pd.Timestamp(time).value)  # type: ignore[arg-type]
