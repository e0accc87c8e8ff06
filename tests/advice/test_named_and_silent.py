"""Each signature names the recordings in which its setting is wrong, and is silent where it is right.

The numbers of findings agree with what brokers, kernels and scripts noted beside the captures.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.reports.findings import Finding
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.reports.sections.advice import findings
from tests.reports.rows import MS, batch, connection, context, counted, exchange
from tests.support.section_runs import section_input

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "advice"
#: A recording with a wrong setting, and the ids of all its findings. NAME-right has none.
NAMED = {
    "nagle": ["nagle"],
    "advertised": ["advertised_unreachable"] * 3,
    "one-connection": ["one_connection"],
    "single-records": ["single_records"],
    "refused-produce": ["refused_produce"],
    "connection-limit": ["connection_limit"],
    "receive-buffer": ["small_buffer"],
    "black-hole": ["mtu_black_hole"],
    "black-hole-producer": ["mtu_black_hole"],
    "idle-dropped": ["idle_dropped"],
    "session-expired": ["session_expired"],
    "lifetime-limit": ["lifetime_limit"],
    "held-rebalance": ["held_rebalance"] * 3,
}
LARGEST = 40_000


@cache
def found(name: str, sections: str = "advice") -> list[Finding]:
    return findings(section_input(FOLDER / f"{name}.pcap.zst", sections))


def truth(name: str) -> dict[str, Any]:
    given: dict[str, Any] = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return given


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_setting_is_named_and_a_right_one_is_not(name: str) -> None:
    assert [finding.id for finding in found(name)] == NAMED[name]
    assert found(f"{name}-right") == []
    for finding in found(name):
        assert all((finding.setting, finding.remedy, finding.parties, finding.numbers, finding.text, finding.begin))


def test_recordings_are_small_and_described() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name in NAMED:
        for path in (FOLDER / f"{name}.pcap.zst", FOLDER / f"{name}-right.pcap.zst"):
            assert path.stat().st_size <= LARGEST
            assert f"`{path.name.removesuffix('.pcap.zst')}`" in readme


def test_nagle_costs_what_the_kernel_held_back() -> None:
    """The time until the kernel had sent the second piece of each request."""
    (finding,) = found("nagle")
    held_ms = sum(sent for sent, _ in truth("nagle")["requests"])
    assert finding.time_lost_ns == pytest.approx(held_ms * 1e6, rel=0.15)
    assert finding.party("client") == "order-service"


def test_one_connection_costs_what_the_client_waited() -> None:
    """The client's latencies, of batches of four records, without the broker's time by its request log."""
    (finding,) = found("one-connection")
    given = truth("one-connection")
    batch = given["settings"]["batch.num.messages"]
    waited_ms = given["latency_ms"][0] / batch - sum(total for total, *_ in given["request_log"])
    assert finding.time_lost_ns == pytest.approx(waited_ms * 1e6, rel=0.15)
    mean_ms = sum(total for total, *_ in given["request_log"]) / len(given["request_log"])
    assert finding.numbers["broker_mean_ns"] == pytest.approx(mean_ms * 1e6, rel=0.15)


def test_batches_are_those_of_the_log() -> None:
    (finding,) = found("single-records")
    batches = {int(records): count for records, count in truth("single-records")["batches"]}
    assert finding.numbers["batches"] == sum(batches.values())
    records = sum(records * count for records, count in batches.items())
    assert finding.numbers["records_per_batch"] == pytest.approx(records / sum(batches.values()), abs=0.01)


def test_the_usual_report_counts_no_batches() -> None:
    (finding,) = found("single-records", "first-lines")
    assert finding.id == "single_records"
    assert "batches" not in finding.numbers


def test_connects_are_those_that_the_firewall_counted() -> None:
    by_client = {finding.party("client"): finding for finding in found("advertised")}
    given = truth("advertised")
    assert by_client["checkout"].numbers["refused"] == given["syns"]["9999"]
    assert by_client["billing"].numbers["unanswered"] == given["syns"]["9998"]
    for client in ("checkout", "billing", "audit"):
        assert by_client[client].party("broker") == given["advertised"][client]
        assert given["clients"][client]["delivered"] == 0
    assert set(by_client) == {"checkout", "billing", "audit"}


@pytest.mark.parametrize("name", ["black-hole", "black-hole-producer"])
def test_what_is_stuck_is_what_the_kernel_could_not_send(name: str) -> None:
    (finding,) = found(name)
    stuck = [row for row in truth(name)["connections"] if row.get("bytes_retrans")]
    assert len(stuck) == finding.numbers["connections"] == 1
    assert finding.numbers["segment_bytes"] == stuck[0]["mss"]


def test_a_small_window_is_that_of_the_kernel() -> None:
    """The window that `ss -ti` shows at the broker; and what passed, by the client's clock and bytes."""
    (finding,) = found("receive-buffer")
    rows = truth("receive-buffer")["connections"]
    largest = max(rows, key=lambda row: row.get("bytes_sent", 0))
    assert finding.numbers["window_bytes"] == pytest.approx(largest["snd_wnd"], rel=0.15)
    assert finding.numbers["rtt_ns"] == pytest.approx(largest["minrtt_ms"] * 1e6, rel=0.15)
    assert finding.numbers["transfer_ns"] == pytest.approx(largest["busy_ms"] * 1e6, rel=0.15)


def test_requests_behind_a_broker_that_hangs_are_no_queue() -> None:
    """One request takes 5 s, and all others of the connection wait behind it."""
    given = section_input(FOLDER.parent / "events" / "hang.pcap.zst", "advice")
    assert "one_connection" not in [finding.id for finding in findings(given)]


def test_a_small_send_buffer_is_not_named() -> None:
    """On the wire it looks like an interface of the sender that is as slow."""
    assert found("send-buffer") == found("send-buffer-right") == []


@pytest.mark.parametrize("is_request", [False, True])
@pytest.mark.parametrize("closed", ["", "client", "broker"])
def test_a_window_that_its_receiver_closed_is_no_small_buffer(closed: str, is_request: bool) -> None:
    """It read too slowly. What the other end closed says nothing of it."""
    size = {"request_bytes": 9_000, "response_bytes": 100} if is_request else {}
    row = exchange(1, connection=7, receiver_ns=200 * MS, total_ns=201 * MS, **size)
    closes = {f"{closed}_zero_windows": 1} if closed else {}
    counts = SectionCounts(("advice",), 1000, lambda: 0)
    counts.add(batch([row]))
    counts.add_connections(connection(connection=7, handshake_rtt_ns=2 * MS, **closes))
    counts.finish()
    named = [one.id for one in findings(SectionInput(counts, counted([row]), context(), {}))]
    assert named == ([] if closed == ("broker" if is_request else "client") else ["small_buffer"])


def test_the_corpus_has_nagle_and_a_listener_out_of_reach(corpus: Path) -> None:
    given = section_input(corpus / "captures" / "repro" / "nagle.pcap", "advice")
    assert [finding.id for finding in findings(given)] == ["nagle", "advertised_unreachable"]
    nagle, advertised = findings(given)
    assert nagle.numbers["exchanges"] == 60
    assert advertised.party("broker") == "localhost:9999"


def test_refused_requests_are_those_that_the_broker_logged() -> None:
    """The client believed that all records were delivered, and the log has fewer."""
    (finding,) = found("refused-produce")
    given = truth("refused-produce")
    closed = [datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC) for line in given["closed"]]
    assert finding.numbers["connections"] == len(closed)
    assert finding.begin is not None
    assert finding.end is not None
    assert finding.begin / 1e9 == pytest.approx(closed[0].timestamp(), abs=0.05)
    assert finding.end / 1e9 == pytest.approx(closed[-1].timestamp(), abs=0.05)
    assert finding.party("client") == "catalog-feed"
    limit = int(given["config"]["max.message.bytes"])
    assert finding.numbers["largest_passed_bytes"] < limit < finding.numbers["smallest_refused_bytes"]
    assert given["records"] < given["delivered"] == 120


def test_connections_over_the_limit_are_those_that_the_broker_logged() -> None:
    """Each page of report-ui leaves a connection open, and report-mail has the other two."""
    (finding,) = found("connection-limit")
    given = truth("connection-limit")
    times = [datetime.fromisoformat(f"{given['date']}T{line[:12]}+00:00").timestamp() for line in given["closed"]]
    assert finding.numbers["connections"] == len(times)
    assert finding.begin is not None
    assert finding.end is not None
    assert finding.begin / 1e9 == pytest.approx(times[0], abs=0.05)
    assert finding.end / 1e9 == pytest.approx(times[-1], abs=0.05)
    assert finding.numbers["open"] == int(given["config"]["max.connections.per.ip"])
    assert finding.numbers["open_of_client"] == finding.numbers["idle_of_client"] == len(given["pages"])
    assert [party.name for party in finding.parties] == [
        "report-ui", "10.99.0.23", "report-export", "10.99.0.11:9092",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "client", "evidence"),
    [
        ("refused-produce", "catalog-feed", "data lost"),
        ("black-hole-producer", "uploader", "path broken"),
        ("advertised", "billing", "unreachable"),
    ],
)
def test_a_client_with_an_error_is_not_fine(name: str, client: str, evidence: str) -> None:
    wrong, right = (
        analyze(FOLDER / f"{recording}.pcap.zst").report(sections=("clients", "advice")).table("clients").named_rows()
        for recording in (name, f"{name}-right")
    )
    assert (client, "failing", evidence) in [(row["client_id"], row["verdict"], row["evidence"]) for row in wrong]
    assert "failing" not in [row["verdict"] for row in right]
