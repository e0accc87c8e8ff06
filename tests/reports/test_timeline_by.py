"""The timeline of each broker and client, and marks of events in charts, beside the rows of exchanges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.rendering.plots import draw

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "events"


@pytest.mark.parametrize("by", ["broker", "client"])
@pytest.mark.parametrize("scene", ["kill", "quota"])
def test_rows_add_up_to_the_exchanges(scene: str, by: str) -> None:
    analysis = analyze(FOLDER / f"{scene}.pcap.zst")
    table = analysis.report(by=by)["timeline_by"]
    names = [column.name for column in table.columns]
    found = {name: Counter[str]() for name in ("answered", "error_codes", "throttled")}
    for row in (dict(zip(names, values, strict=True)) for values in table.rows):
        for name, counts in found.items():
            counts[str(row[by])] += int(str(row[name]))
    wanted = {name: Counter[str]() for name in found}
    for row in analysis.exchanges.to_pylist():
        who = f"{row['broker_ip']}:{row['broker_port']}" if by == "broker" else row["client_id"] or "(none)"
        if row["outcome"] == "answered":
            wanted["answered"][who] += 1
            wanted["error_codes"][who] += sum(error["count"] for error in row["errors"] or [])
            wanted["throttled"][who] += (row["throttle_time_ms"] or 0) > 0
    for name, counts in wanted.items():
        assert +found[name] == +counts, name


def test_intervals_of_a_broker_that_is_gone_have_no_answer() -> None:
    table = analyze(FOLDER / "kill.pcap.zst").report(by="broker")["timeline_by"]
    mine = [row for row in table.rows if row[1] == "10.77.0.2:9092"]
    refused = [row for row in mine if row[6]]
    assert sum(int(str(row[6])) for row in refused) == 33  # RSTs to a SYN, as tcpdump shows them
    assert not sum(int(str(row[2])) for row in refused)


@pytest.mark.parametrize("name", ["latency-over-time", "latency-heat-map", "errors-over-time"])
def test_charts_over_time_have_marks(name: str) -> None:
    pytest.importorskip("matplotlib")
    report = analyze(FOLDER / "hang.pcap.zst").report(curves=True)
    plot = draw(name, report, utc=True)
    assert plot is not None
    texts = [text for gid, text in plot.titles.items() if gid.startswith("event-")]
    assert any("hung for 10.0 s" in text for text in texts)
    assert any("works again" in text for text in texts)
