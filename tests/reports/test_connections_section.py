"""The section `connections` beside what the kernels and clients of the recordings say themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkatap import analyze
from kafkatap.engine.engine import engine_for
from kafkatap.engine.selection import EVERYTHING
from kafkatap.reports.batch import Context
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.model import Report
from kafkatap.reports.section_parts.section_counts import SectionCounts
from kafkatap.run import Run
from tests.support.captures import Packet, pcap_bytes, read_capture, write_capture
from tests.support.segments import way_of

QUESTIONS = Path(__file__).resolve().parents[2] / "samples" / "questions"
MS = 1_000_000


class _Read(NamedTuple):
    report: Report
    context: Context

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, by the names of columns."""
        found = self.report.table(table)
        return [dict(zip([c.name for c in found.columns], row, strict=True)) for row in found.rows]

    def connection(self, address: str, port: int) -> Any:
        """A CONNECTION_ROW by the client's end."""
        rows = self.context.connections
        chosen = [r for r in rows if (self.context.addresses[r["client_ip"]], r["client_port"]) == (address, port)]
        assert len(chosen) == 1
        return chosen[0]


@cache
def read(path: Path) -> _Read:
    engine = engine_for(EVERYTHING, measures=True)
    run, counts = Run([str(path)], engine), ReportCounts()
    sections = SectionCounts(("connections",), engine.limits.names, lambda: engine.dissector.strings.other)
    engine.on_connections(sections.add_connections)
    for batch in run.batches():
        counts.add(batch)
        sections.add(batch)
    context = run.context()
    return _Read(build_report(counts, context, sections=("connections",), over_facts=sections), context)


def kernel_rows() -> list[dict[str, Any]]:
    """What `ss -ti` showed of each connection in the broker's namespace."""
    rows: list[dict[str, Any]] = json.loads((QUESTIONS / "tcp.ss.json").read_text())["connections"]
    return rows


NAMES = [f"{row['host']}-{row['client_port']}" for row in kernel_rows()]


@pytest.mark.parametrize("kernel", kernel_rows(), ids=NAMES)
def test_connections_are_as_the_brokers_kernel_saw_them(kernel: dict[str, Any]) -> None:
    """The kernel counts limits in ticks of 4 ms, and its last sample of a connection may be 100 ms old."""
    row = read(QUESTIONS / "tcp.pcap.zst").connection(kernel["client_ip"], kernel["client_port"])
    for end, name in (("client", "peer_wscale"), ("broker", "own_wscale")):
        assert row[f"{end}_window_scale"] == kernel.get(name, -2)
        assert row[f"{end}_mss"] == kernel["mss"] + 12
        assert row[f"{end}_timestamps"] == row[f"{end}_sack_permitted"] == 1
    least = min(row["handshake_rtt_ns"], row["client_rtt_min_ns"])
    assert least / MS == pytest.approx(kernel["minrtt_ms"], rel=0.15, abs=0.05)
    assert row["client_window_max"] >= kernel["snd_wnd_range"][1]
    assert row["broker_retransmitted_bytes"] == kernel.get("bytes_retrans", 0)
    limited = row["response_receiver_ns"] / MS
    assert limited == pytest.approx(kernel.get("rwnd_limited_ms", 0), rel=0.02, abs=8)
    assert row["response_transfer_ns"] / MS <= kernel.get("busy_ms", 0) + 110


def test_findings_name_the_causes() -> None:
    rows = {row["client_id"]: row for row in reversed(read(QUESTIONS / "tcp.pcap.zst").rows("slow_connections"))}
    slow, unscaled, lossy, remote = (
        rows[name] for name in ("slow-reader", "remote-unscaled", "remote-lossy", "remote")
    )  # fmt: skip
    assert slow["receiver_share"] > 0.95
    assert "responses wait for the receive window of the client (8,688 bytes at most)" in slow["finding"]
    assert unscaled["receiver_share"] > 0.75
    assert "no window scaling (both SYNs): at most 64 KiB a round trip, here 1.4 MiB/s" in unscaled["finding"]
    assert lossy["loss_share"] > 0.1
    assert lossy["receiver_share"] == 0
    assert "12 retransmissions, 1 after a timeout, longest wait 218 ms" in lossy["finding"]
    assert "a congestion window that losses cut" in lossy["finding"]
    assert remote["path_share"] > 0.9  # the broker sends up to 4 ms after it was released
    assert "path: round trips of 40.6 ms" in remote["finding"]
    for row in rows.values():
        shares = sum(row[f"{name}_share"] for name in ("loss", "receiver", "sender", "unexplained", "path"))
        assert shares == pytest.approx(1)


def at_the_client(capture: Path, way: float) -> list[Packet]:
    """The capture of a broker as one of its client would be that is `way` ns away, one way."""
    moved = []
    for packet in read_capture(capture).packets:
        found = way_of(packet, 1)
        assert found is not None
        shift = way if found[1] == 9092 else -way
        moved.append(replace(packet, time_ns=packet.time_ns + round(shift)))
    return sorted(moved, key=lambda packet: packet.time_ns)


@pytest.mark.parametrize(("host", "way"), [("slow-reader", 5.3 * MS), ("remote-unscaled", 20.5 * MS)])
def test_a_capture_at_the_other_end_shows_the_same_limit(host: str, way: float, tmp_path: Path) -> None:
    """There the receiver acknowledges at once, so nothing is ever in flight."""
    path = write_capture(tmp_path / "x.pcap", pcap_bytes(at_the_client(QUESTIONS / "tcp.pcap.zst", way)))
    kernel = max((row for row in kernel_rows() if row["host"] == host), key=lambda row: row["bytes_sent"])
    row = read(path).connection(kernel["client_ip"], kernel["client_port"])
    assert row["response_receiver_ns"] / MS == pytest.approx(kernel["rwnd_limited_ms"], rel=0.1, abs=8)


def test_storms_are_as_the_clients_counted() -> None:
    truth = json.loads((QUESTIONS / "storms.truth.json").read_text())
    rows = {(row["client_ip"], row["broker"].rsplit(":")[-1]): row for row in read(
        QUESTIONS / "storms.pcap.zst").rows("connections")}  # fmt: skip
    hosts, clients = truth["hosts"], truth["clients"]
    reconnector = rows[hosts["reconnector"], "9092"]
    assert reconnector["connections"] == reconnector["client_fin"] == clients["reconnector"]["closed"]
    assert reconnector["finding"].startswith("storm: ")
    passwords = rows[hosts["wrong-password"], "9093"]
    assert passwords["connections"] == passwords["sasl"] == clients["wrong-password"]["error 58"]
    assert rows[hosts["crasher"], "9092"]["client_rst"] == clients["crasher"]["reset"]
    assert rows[hosts["idler"], "9092"]["broker_fin"] == clients["idler"]["closed by broker"]
    assert rows[hosts["half-open"], "9092"]["half_open"] == clients["half-open"]["no answer"]
    assert rows[hosts["scanner"], "9098"]["refused"] == clients["scanner"]["refused"]
    assert rows[hosts["scanner"], "9099"]["half_open"] == clients["scanner, filtered port"]["no answer"]
    accepted = sum(row["connections"] - row["half_open"] - row["refused"] for row in rows.values())
    assert accepted == truth["kernel"]["PassiveOpens"]


@pytest.mark.parametrize("name", ["account/lossy-broker", "account/lossy-client", "events/hang", "live-4.3"])
def test_shares_of_a_transfer_add_up(name: str) -> None:
    """Also where lost data delayed the first byte of messages."""
    path = QUESTIONS.parent / f"{name}.pcap.zst"
    if not path.exists():
        pytest.fail(f"no sample {path}")
    rows = analyze(path).report(sections=["connections"]).table("slow_connections").named_rows()
    shares = [[row[f"{part}_share"] for part in ("loss", "receiver", "sender", "unexplained", "path")] for row in rows]
    known = [row for row in shares if row[0] is not None]
    assert known
    for row in known:
        assert all(0 <= share <= 1 for share in row)
        assert sum(row) == pytest.approx(1)
