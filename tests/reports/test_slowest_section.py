"""The section `slowest`: the slowest exchanges of each API, and the first of each error code."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.dissector.time_parts import parts_of
from kafkatap.reports.model import ReportTable
from kafkatap.reports.section_parts import section_counts
from kafkatap.reports.sections.slowest import _KEPT
from tests.support.section_runs import rows, section_tables


@pytest.fixture(scope="module")
def tables(samples: Path) -> dict[str, ReportTable]:
    return section_tables([samples / "apache-4.3.pcap.zst"], "slowest")


def test_the_slowest_are_those_of_the_table_of_exchanges(samples: Path, tables: dict[str, ReportTable]) -> None:
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in analyze(samples / "apache-4.3.pcap.zst").exchanges.to_pylist():
        if row["outcome"] == "answered" and not row["long_poll"]:
            times[row["api_name"]].append((row["total_ns"], row["request_packet_first"]))
    shown: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows(tables["slowest"]):
        shown[row["api"]].append((row["total_ns"], row["packet"]))
    assert set(shown) == set(times)
    for api, found in shown.items():
        assert (
            sorted((total for total, _ in found), reverse=True)
            == sorted((total for total, _ in times[api]), reverse=True)[:_KEPT]
        )
        assert set(found) <= set(times[api])


def test_the_parts_add_up(tables: dict[str, ReportTable]) -> None:
    for row in rows(tables["slowest"]):
        parts = parts_of(row).values()
        assert sum(parts) == row["total_ns"]
        assert min(parts) >= 0
        assert row["response_packet"] >= row["packet"] > 0


def test_waits_for_data_and_members_do_not_hide_others(tables: dict[str, ReportTable]) -> None:
    """The slowest of all is a Fetch, which a quota delayed."""
    found = rows(tables["slowest"])
    own = [row["total_ns"] - row["waiting_ns"] for row in found]
    assert own == sorted(own, reverse=True)
    assert (found[0]["api"], found[0]["client_id"]) == ("Fetch", "greedy-consumer")
    assert found[0]["throttle_wait_ns"] > 0.9 * found[0]["total_ns"]


def test_the_first_of_each_error_code(samples: Path, tables: dict[str, ReportTable]) -> None:
    totals = analyze(samples / "apache-4.3.pcap.zst").report().table("error_totals")
    wanted = {(row["error"], row["api"]): (row["first"], row["packet"]) for row in rows(totals)}
    found = {(row["error"], row["api"]): (row["start"], row["response_packet"]) for row in rows(tables["first_errors"])}
    assert found == wanted
    assert [row["start"] for row in rows(tables["first_errors"])] == sorted(start for start, _ in wanted.values())


def test_few_rows_are_kept_however_exchanges_are_gathered(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.section_runs import section_input

    monkeypatch.setattr(section_counts, "_EXCHANGES", 1)
    given = section_input(samples / "apache-4.3.pcap.zst", "slowest")
    exchanges = len(analyze(samples / "apache-4.3.pcap.zst").exchanges)
    assert len(given.keys("slowest.exchanges")["api_key"]) < exchanges / 2
