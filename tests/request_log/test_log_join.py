"""Request logs joined with captures: the sample's, against a join of its own; and crafted logs."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.sections.broker_times import finding_of
from kafkatap.request_log import log_files
from tests.support.captures import read_bytes

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CAPTURE, LOG = SAMPLES / "apache-4.3.pcap.zst", SAMPLES / "apache-4.3.request.log.zst"
PARTS = ("total", "request_queue", "local", "remote", "throttle", "response_queue", "send")
_LINE = re.compile(r"\[(.*?)\] DEBUG Completed request:(\{.*\}) \(kafka\.request\.logger\)")


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, dict[str, Any]]]:
    """The time and the JSON of each line of the sample."""
    found = [_LINE.fullmatch(line) for line in read_bytes(LOG).decode().splitlines()]
    return [(match[1], json.loads(match[2])) for match in found if match]


@pytest.fixture(scope="module")
def exchanges() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = analyze(CAPTURE).exchanges.to_pylist()
    return rows


@pytest.fixture(scope="module")
def joined() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = analyze(CAPTURE).request_log(LOG).to_pylist()
    return rows


def written(path: Path, chosen: list[tuple[str, dict[str, Any]]]) -> Path:
    """A log of these lines."""
    text = "".join(f"[{time}] DEBUG Completed request:{json.dumps(entry)}\n" for time, entry in chosen)
    path.write_text(text)
    return path


def test_joined_as_by_hand(
    joined: list[dict[str, Any]], lines: list[tuple[str, dict[str, Any]]], exchanges: list[dict[str, Any]]
) -> None:
    """Every pair of (connection, correlation id) that is unique on both sides is joined, with the log's numbers."""
    log_keys = Counter((e["connection"], e["requestHeader"]["correlationId"]) for _, e in lines)
    ours = Counter((_ends(row), row["correlation_id"]) for row in exchanges)
    entries = {
        (e["connection"].rsplit("-", 2)[0], e["requestHeader"]["correlationId"]): e
        for _, e in lines
        if log_keys[e["connection"], e["requestHeader"]["correlationId"]] == 1
    }
    expected = {row["exchange"]: entries[key] for row in exchanges
                if ours[key := (_ends(row), row["correlation_id"])] == 1 and key in entries}  # fmt: skip
    assert len(expected) > 1_000
    by_exchange = {row["exchange"]: row for row in joined}
    assert len(by_exchange) == len(joined)
    assert set(expected) <= set(by_exchange)
    for exchange, entry in expected.items():
        row = by_exchange[exchange]
        names = ("totalTimeMs", "requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "throttleTimeMs",
                 "responseQueueTimeMs", "sendTimeMs")  # fmt: skip
        for part, name in zip(PARTS, names, strict=True):
            assert row[f"log_{part}_ns"] == round(entry[name] * 1e6)
        assert row["api_key"] == entry["requestHeader"]["requestApiKey"]
        assert row["listener"] == entry["listener"]
    for row in joined:
        _, entry = lines[row["log_line"] - 1]
        assert entry["requestHeader"]["correlationId"] == row["correlation_id"]


def _ends(row: dict[str, Any]) -> str:
    return f"{row['broker_ip']}:{row['broker_port']}-{row['client_ip']}:{row['client_port']}"


def test_every_request_and_line_is_accounted_for(exchanges: list[dict[str, Any]], joined: list[dict[str, Any]]) -> None:
    report = analyze(CAPTURE).report(sections=["broker-times"], request_log=LOG)
    rows = report.table("request_log_unmatched").rows
    of_capture = sum(int(str(row[2])) for row in rows if row[0] == "capture")
    of_log = sum(int(str(row[2])) for row in rows if row[0] == "log")
    (file,) = report.table("request_logs").rows
    assert of_capture + len(joined) == len(exchanges)
    assert of_log + len(joined) == file[1] == 1_416
    assert file[4] == len(joined)
    by_api = {row[0]: row for row in report.table("broker_times").rows}
    assert by_api["Produce"][1:3] == (393, 1.0)
    assert sum(int(str(row[1])) for row in by_api.values()) == sum(row["outcome"] == "answered" for row in joined)


def test_the_clock_of_the_log_may_be_another(
    tmp_path: Path, lines: list[tuple[str, dict[str, Any]]], joined: list[dict[str, Any]]
) -> None:
    """A log in local time, two hours ahead, in two rotated files, one compressed."""
    moved = [(time.replace(" 04:", " 06:"), entry) for time, entry in lines]
    first = written(tmp_path / "kafka-request.log.2026-11-21-06", moved[:700])
    last = written(tmp_path / "rest", moved[700:])
    (tmp_path / "kafka-request.log.gz").write_bytes(gzip.compress(last.read_bytes()))
    found = analyze(CAPTURE).request_log([tmp_path / "kafka-request.log.gz", first]).to_pylist()
    assert [row["exchange"] for row in found] == [row["exchange"] for row in joined]
    assert all(abs(row["log_offset_ns"] - 7_200_000_000_000) < 50_000_000 for row in found)
    both = analyze(CAPTURE).request_log(tmp_path / "kafka-request.log*").to_pylist()
    assert len(both) == len(joined)


def test_a_port_that_was_used_again(
    tmp_path: Path, lines: list[tuple[str, dict[str, Any]]], joined: list[dict[str, Any]]
) -> None:
    """Lines of an earlier and a later day with the same connections and correlation ids are not taken."""
    other = [(time.replace("11-21", day), {**entry, "totalTimeMs": 1e6}) for day in ("11-20", "11-22")
             for time, entry in lines]  # fmt: skip
    log = written(tmp_path / "log", [*other, *lines])
    once = written(tmp_path / "once", lines[:300])
    found = analyze(CAPTURE).request_log([once, log]).to_pylist()
    assert [row["exchange"] for row in found] == [row["exchange"] for row in joined]
    assert max(row["log_total_ns"] for row in found) < 1e12


def test_forwarded_lines_and_other_brokers_are_left(
    tmp_path: Path, lines: list[tuple[str, dict[str, Any]]], joined: list[dict[str, Any]]
) -> None:
    """Fifty lines that have a partner, as if they were forwarded: all of them lose it, and no other line does."""
    chosen = {row["log_line"] for row in joined[400:450]}
    log = written(
        tmp_path / "log",
        [(time, {**entry, "isForwarded": n in chosen}) for n, (time, entry) in enumerate(lines, 1)],
    )
    report = analyze(CAPTURE).report(sections=["broker-times"], request_log=log)
    reasons = {(row[0], row[1]): row[2] for row in report.table("request_log_unmatched").rows}
    assert reasons["log", "forwarded in an Envelope"] == len(chosen) == 50
    left = analyze(CAPTURE).request_log(log).to_pylist()
    assert {row["log_line"] for row in left} == {row["log_line"] for row in joined} - chosen
    moved = [(time, {**entry, "connection": entry["connection"].replace("10.77.0.1:", "192.168.9.9:", 1)})
             for time, entry in lines if entry["connection"].startswith("10.77.0.1:")]  # fmt: skip
    translated = analyze(CAPTURE).request_log(written(tmp_path / "nat", moved))
    assert translated.num_rows > 1_000  # behind NAT, the broker knows itself by another address


def test_what_is_no_request_log(tmp_path: Path, lines: list[tuple[str, dict[str, Any]]]) -> None:
    empty = tmp_path / "server.log"
    empty.write_text("[2026-11-21 04:43:58,884] INFO started\n")
    with pytest.raises(ValueError, match=r"kafka\.request\.logger"):
        analyze(CAPTURE).request_log(empty)
    with pytest.raises(FileNotFoundError):
        analyze(CAPTURE).request_log(tmp_path / "none")
    cut = written(tmp_path / "cut", lines[:20])
    cut.write_bytes(cut.read_bytes()[:-300])
    report = analyze(CAPTURE).report(sections=["broker-times"], request_log=cut)
    assert report.table("request_logs").rows[0][1:4] == (20, 19, 1)


def test_times_beyond_64_bits_are_unreadable(tmp_path: Path, lines: list[tuple[str, dict[str, Any]]]) -> None:
    wrong = ["9999-12-31 23:59:59,999", "0001-01-01 00:00:00,000", "1960-01-01 00:00:00,000"]
    log = written(tmp_path / "log", [*lines[:20], *((time, lines[20][1]) for time in wrong)])
    report = analyze(CAPTURE).report(sections=["broker-times"], request_log=log)
    assert report.table("request_logs").rows[0][1:4] == (23, 20, 3)


def test_files_with_too_many_bad_lines_are_given_up(
    tmp_path: Path, lines: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "MOST_UNREADABLE", 1_000)
    monkeypatch.setattr(log_files, "CHUNK", 5_000)
    good = written(tmp_path / "good", lines[:50]).read_text()
    other, bad = "an application's own line\n" * 700, "Completed request:{\n"
    log = tmp_path / "log"
    log.write_text(good + other + bad * 999 + good)
    (file,) = log_files.read_logs([log]).files
    assert file == (str(log), 50 + 700 + 999 + 50, 100, 999, None)
    log.write_text(good + other + bad * 5_000 + good)
    (file,) = log_files.read_logs([log]).files
    assert file == (str(log), 1_750, 50, 1_000, "given up at line 1,750: 1,000 lines cannot be read")
    assert log_files.read_logs([log]).lines["line"].tolist() == list(range(1, 51))


def test_other_captures_have_nothing_in_common() -> None:
    report = analyze(SAMPLES / "live-4.3.pcap.zst").report(sections=["broker-times"], request_log=LOG)
    assert report.table("broker_times").rows == []
    assert report.table("broker_time_differences").rows == []
    assert {tuple(row[:2]) for row in report.table("request_log_unmatched").rows} == {
        ("capture", "of another broker"), ("log", "of another broker")
    }  # fmt: skip
    assert sum(int(str(row[2])) for row in report.table("request_log_unmatched").rows) == 1_416 + 480


def test_a_few_requests_show_nothing_about_a_broker_s_settings() -> None:
    table = analyze(CAPTURE).report(sections=["broker-times"], request_log=LOG).table("broker_times")
    names = [column.name for column in table.columns]
    found = [dict(zip(names, row, strict=True)) for row in table.rows]
    few = [row for row in found if int(str(row["joined"])) < 100 and row["dominant"] not in (None, "remote")]
    assert few
    assert not any(row["finding"] for row in few)
    assert any(row["finding"] for row in found)
    assert table.notes[-1].startswith("Percentiles of this table are exact")


def test_findings() -> None:
    assert "num.io.threads" in finding_of("request_queue", 3)
    assert "num.network.threads" in finding_of("response_queue", 3)
    assert "replication" in finding_of("remote", 0)
    assert "data" in finding_of("remote", 1)
    assert "disk" in finding_of("local", 0)


def test_old_formats_are_joined_too(
    tmp_path: Path, lines: list[tuple[str, dict[str, Any]]], joined: list[dict[str, Any]]
) -> None:
    """The same lines as brokers before 2.7 and before 0.9 would write them: text, and without the broker's address."""
    texts, oldest = [], []
    for time, entry in lines:
        header, connection = entry["requestHeader"], entry["connection"].rsplit("-", 2)[0]
        times = (f"totalTime:{entry['totalTimeMs']},requestQueueTime:{entry['requestQueueTimeMs']},"
                 f"localTime:{entry['localTimeMs']},remoteTime:{entry['remoteTimeMs']},"
                 f"responseQueueTime:{entry['responseQueueTimeMs']},sendTime:{entry['sendTimeMs']}")  # fmt: skip
        texts.append(
            f"[{time}] DEBUG Completed request:{{api_key={header['requestApiKey']},api_version=1,correlation_id="
            f"{header['correlationId']},client_id=x}} -- {{}} from connection {connection};{times},"
            "securityProtocol:PLAINTEXT,principal:User:ANONYMOUS (kafka.request.logger)"
        )  # fmt: skip
        oldest.append(
            f"[{time}] TRACE Completed request:Name: {header['requestApiKeyName'].title().replace('_', '')}Request; "
            f"Version: 0; CorrelationId: {header['correlationId']}; ClientId: x from client "
            f"/{connection.split('-')[1]};{times} (kafka.request.logger)"
        )  # fmt: skip
    for name, found in (("0.10", texts), ("0.8", oldest)):
        log = tmp_path / name
        log.write_text("\n".join(found))
        rows = analyze(CAPTURE).request_log(log).to_pylist()
        assert [row["exchange"] for row in rows] == [row["exchange"] for row in joined]
        assert [row["log_local_ns"] for row in rows] == [row["log_local_ns"] for row in joined]
        assert all(row["log_throttle_ns"] is None for row in rows)
