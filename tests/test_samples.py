"""The samples are what their README says: the truth's rows are in the capture, and the cuts are made anew the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafkatap import analyze
from tests.support.broker import NEWEST_KAFKA, KafkaBroker, missing_compiler
from tests.support.captures import read_bytes, read_capture
from tests.support.kafka_truth import truth_of as kafkas_truth_of
from tests.support.truth import compare_exchanges, read_truth

CUT = (
    "apache-4.3.pcap.zst",
    "apache-4.3-two-interfaces.pcapng",
    "apache-2.8.pcap.zst",
    "apache-0.10.2.pcap.zst",
    "apache-0.8.2.pcap.zst",
)


def truth_of(sample: str) -> str:
    return f"{sample.partition('.pcap')[0]}.exchanges.tsv"


@pytest.mark.parametrize("sample", CUT)
def test_truth_is_timed_by_packets_of_the_sample(samples: Path, sample: str) -> None:
    capture = read_capture(samples / sample)
    truth = read_truth(samples / truth_of(sample))
    assert len(truth) > 400
    if "two-interfaces" in sample:  # timed on another host
        assert capture.drops == 499
        assert set(capture.link_types) == {1}
        return
    times = {packet.time_ns // 1000 for packet in capture.packets}
    for name in ("request_first", "request_last", "response_first", "response_last"):
        assert set(truth[name][truth[name] > 0]) <= times


def test_first_sample_shows_latency_throttling_and_errors(samples: Path) -> None:
    truth = read_truth(samples / "apache-4.3.exchanges.tsv")
    assert truth["throttle_time_ms"].max() == 3972
    assert (truth["throttle_time_ms"] > 0).sum() > 20
    codes = {pair.partition("x")[0] for text in truth["errors"] for pair in text.split(",") if pair}
    assert len(codes) == 14


def test_cuts_are_made_anew_the_same(samples: Path, corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, "samples/make_cuts.py", str(corpus / "captures"), str(tmp_path)]
    subprocess.run(command, cwd=samples.parent, check=True, capture_output=True, timeout=120)
    for sample in CUT:
        assert [p.data for p in read_capture(tmp_path / sample).packets] == [
            p.data for p in read_capture(samples / sample).packets
        ]
        assert (tmp_path / truth_of(sample)).read_bytes() == (samples / truth_of(sample)).read_bytes()
    log = "apache-4.3.request.log.zst"
    assert read_bytes(tmp_path / log) == read_bytes(samples / log)


def test_the_newest_sample_is_read_as_kafka_reads_it(samples: Path) -> None:
    truth = read_truth(samples / "live-4.4.exchanges.tsv")
    analysis = analyze(samples / "live-4.4.pcap.zst")
    assert compare_exchanges(analysis.exchanges, truth) == []
    new = {(18, 5), (28, 6), (42, 3), (88, 1), (89, 1), (93, 0), (94, 0)}
    assert new <= set(zip(truth["api_key"], truth["api_version"], strict=True))
    errors = ",".join(truth["errors"])
    assert all(f"{code}x" in errors for code in (129, 136))  # REBOOTSTRAP_REQUIRED, CONTROLLER_ID_NOT_REGISTERED
    topics = {topic for row in analysis.exchanges.to_pylist() if row["api_key"] == 28 for topic in row["topics"]}
    assert topics == {"orders"}  # the messages have only its id


def test_the_truth_of_the_newest_sample_is_made_anew_the_same(samples: Path, tmp_path: Path) -> None:
    if why := missing_compiler():
        pytest.skip(why)
    path = tmp_path / "live-4.4.pcap"
    path.write_bytes(read_bytes(samples / "live-4.4.pcap.zst"))
    wanted = (samples / "live-4.4.exchanges.tsv").read_text()
    port = int(wanted.splitlines()[1].split("\t")[1].rpartition(":")[2])
    assert kafkas_truth_of(path, port, NEWEST_KAFKA) == wanted


def test_live_sample_has_what_its_clients_saw(samples: Path) -> None:
    seen = json.loads((samples / "live-4.3.clients.json").read_text())
    payload = b"".join(packet.data for packet in read_capture(samples / "live-4.3.pcap.zst").packets)
    for client in [*seen["delivered"], *seen["read"]]:
        assert client.encode() in payload


def test_a_real_broker_answers(kafka_broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    assert list(admin.list_topics(timeout=20).brokers) == [1]
