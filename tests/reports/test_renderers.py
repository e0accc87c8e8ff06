"""Text, JSON and CSV: golden output, and nothing from the wire that acts where it is shown."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap import analyze
from kafkatap.reports import units
from kafkatap.reports.batch import FileInfo
from kafkatap.reports.build import build_report
from kafkatap.reports.counting.counts import SECOND
from kafkatap.reports.model import Column
from kafkatap.reports.rendering.json_report import report_object, schema, write_json
from kafkatap.reports.rendering.table_files import cell, write_csv
from kafkatap.reports.rendering.text import render_table, render_text, write_text

from . import rows as made
from .test_reports import report, small

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def text_of(width: int = 120, **options: bool) -> str:
    out = io.StringIO()
    write_text(report(), out, utc=True, width=width, **options)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_text_is_as_it_was(width: int, request: pytest.FixtureRequest) -> None:
    """The rendered report is the stored one. KAFKATAP_UPDATE=1 stores it again."""
    golden = HERE / f"report-{width}.txt"
    if os.environ.get("KAFKATAP_UPDATE"):
        golden.write_text(text_of(width), encoding="utf-8")
    assert text_of(width) == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_tables_fit_the_width(width: int) -> None:
    lines = text_of(width).splitlines()
    rules = [line for line in lines if line.startswith("─")]
    assert len(rules) == 6
    assert all(units.cells(line) <= max(width, 96) for line in rules)


def test_the_rows_left_out_are_told() -> None:
    lines = ["".join(t for t, _ in line) for line in render_text(report(), 120, top=1, utc=True)]
    assert "… and 3 more rows (-n 4 shows all)" in lines
    assert not any("more row" in line for line in text_of().splitlines())


def test_of_intervals_the_busiest_are_shown() -> None:
    """In order of time, where an interval was asked for; else all of them."""
    busy = {2: 3, 5: 2, 9: 2, 11: 4}
    times = [at for second in range(12) for at in [second] * busy.get(second, 1)]
    exchanges = [made.exchange(n, at=at * SECOND) for n, at in enumerate(times)]

    def shown(**options: int) -> list[str]:
        whole = build_report(made.counted(exchanges, **options), made.context())
        table = whole.table("timeline")
        lines = ["".join(t for t, _ in line) for line in render_table(table, 120, 3, utc=True)]
        return [line.rstrip() for line in lines if line.startswith(("04:", "…"))]

    few = shown(interval=SECOND)
    assert [line[:8] for line in few[:3]] == ["04:44:01", "04:44:04", "04:44:10"]
    assert few[3] == "… and 9 more rows with as many requests or fewer (-n 12 shows all)"
    assert len(shown()) == 12


def test_files_are_shown_as_far_as_top() -> None:
    files = [FileInfo(f"{n}.pcap", "pcap", 1 + n, 1, 100) for n in range(20)]
    lines = list(render_table(report(files=files).table("files"), 120, 12, utc=True))
    assert ["… and 8 more rows (-n 20 shows all)"] in [[t for t, _ in line] for line in lines]


def test_nothing_is_cut_where_no_terminal_reads() -> None:
    """So that `grep` finds names; a width that was asked for holds."""
    name = "orders-" * 30
    strings = [name.encode() if value == b"billing" else value for value in made.STRINGS]
    files = [FileInfo(f"/captures/{name}/{n}.pcap", "pcap", 1, 1, 1) for n in range(2)]
    whole, out = build_report(small(), made.context(strings=strings, files=files)), io.StringIO()
    write_text(whole, out)
    assert out.getvalue().count(name) == 2 + 2 + 1 + 2  # throttled, errors, the client, files
    assert max(map(len, text_of().splitlines())) <= 120
    narrow = io.StringIO()
    write_text(whole, narrow, width=120)
    commands = [line for line in narrow.getvalue().splitlines() if "kafkatap report" in line]
    assert sum(name in line for line in narrow.getvalue().splitlines()) == sum(name in line for line in commands)
    assert {line.split()[0] for line in out.getvalue().splitlines() if "total" in line} == {
        line.split()[0] for line in narrow.getvalue().splitlines() if "total" in line
    }


def test_an_interrupted_report_says_so_in_every_form(tmp_path: Path) -> None:
    whole = report(interrupted=True)
    said = (
        "Interrupted: this report covers only what was read before that (packets up to 2026-11-21T04:44:01.000000000Z)."
    )
    assert whole.warnings[0].startswith(said)
    out = io.StringIO()
    write_text(whole, out, utc=True, width=200)
    assert f"! {said}" in out.getvalue()
    as_json = report_object(whole, "1")
    assert as_json["capture"]["interrupted"] is True
    assert as_json["warnings"][0].startswith(said)
    assert report_object(report(), "1")["capture"]["interrupted"] is False
    write_csv(whole, tmp_path)
    assert said in (tmp_path / "warnings.csv").read_text()
    with open(tmp_path / "capture.csv", encoding="utf-8", newline="") as file:
        assert [row["interrupted"] for row in csv.DictReader(file)] == ["true"]


def test_tables_that_are_not_there_are_named() -> None:
    with pytest.raises(
        KeyError, match="this report has no table 'nope'; it has heading, summary, latency, throttle, error_totals"
    ):
        report().table("nope")
    with pytest.raises(ValueError, match=r"by must be one of api, client, .*, not 'foo'"):
        build_report(small(), made.context(), by="foo")


def test_what_a_prompt_shows_is_short() -> None:
    whole = report()
    assert repr(whole).startswith("<Report of summary (4), latency (4), throttle (1), ")
    assert repr(whole.table("latency")) == "<ReportTable latency: 4 rows of 35 columns>"
    assert repr(whole.curves) == "<Curves of Fetch, Fetch (long poll), JoinGroup, Produce>"
    assert repr(made.context()) == "<Context of 1 file, 40 packets, 9 strings>"


def test_hostile_names_do_nothing_on_a_terminal() -> None:
    plain = text_of()
    assert "\x1b" not in plain
    assert r"\x1b[31mred\x1b[0m" in plain
    assert "[bold]markup[/bold]" in plain
    coloured = text_of(color=True)
    assert "\x1b[31mred" not in coloured
    assert r"\x1b[31mred" in coloured


def test_colours_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    coloured = text_of(color=True)
    assert "\x1b[1m" in coloured
    without = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in without.splitlines()] == text_of().splitlines()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text_of(color=True))


def test_a_poor_encoding_is_no_error() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    write_text(report(), out, utc=True)
    out.flush()
    assert b"Latency by API" in raw.getvalue()


@given(st.text())
def test_safe_text_is_printable(text: str) -> None:
    shown = units.safe(text)
    assert shown.isprintable()
    assert units.cells(units.cut(shown, 20)) <= 20


def test_json_is_what_was_counted() -> None:
    out = io.StringIO()
    write_json(report(), out, "1.2.3")
    assert out.getvalue().isascii()
    read = json.loads(out.getvalue())
    assert read == report_object(report(), "1.2.3")
    assert read["schema_version"] == 4
    assert read["capture"]["brokers"] == ["10.0.0.2:9092"]
    assert read["capture"]["link_types"] == ["Ethernet"] == read["reports"]["files"][0]["link_types"]
    clients = read["reports"]["clients"]
    assert clients[1]["api_versions"] == clients[1]["removed"] == [{"api": "Produce", "versions": [2]}]
    assert clients[0]["removed"] == []
    assert read["capture"]["first"] == "2026-11-21T04:43:59.000000000Z"
    fetch = read["reports"]["latency"][1]
    assert (fetch["api"], fetch["count"], fetch["broker_max_ns"]) == ("Fetch", 3, 100_000_000)
    assert read["reports"]["clients"][1]["client_id"] == "\x1b[31mred\x1b[0m"
    assert read["warnings"] == ["1 request has no response in this capture."]


def test_the_json_schema_is_the_one_in_docs() -> None:
    """KAFKATAP_UPDATE=1 writes the file again."""
    stored = ROOT / "docs" / "report.schema.json"
    if os.environ.get("KAFKATAP_UPDATE"):
        stored.write_text(json.dumps(schema(), indent=1) + "\n")
    assert json.loads(stored.read_text()) == schema()


def test_json_has_the_fields_of_its_schema() -> None:
    known = schema()["properties"]["reports"]["properties"]
    for name, rows in report_object(report(), "1")["reports"].items():
        for row in rows:
            assert set(known[name]["items"]["required"]) <= set(row) <= set(known[name]["items"]["properties"])


def test_csv_files(tmp_path: Path) -> None:
    paths = write_csv(report(), tmp_path / "new")
    names = [
        "capture", "warnings", "summary", "latency", "throttle", "error_totals", "errors", "clients", "timeline",
        "not_decoded", "files", "ledger",
    ]  # fmt: skip
    assert [p.name for p in paths] == [f"{n}.csv" for n in names]
    with open(tmp_path / "new" / "clients.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["client_id"] for row in rows] == ["billing", r"\x1b[31mred\x1b[0m", "'=cmd|' /C calc'!A0"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@x", "'@x"),
        ("\tx", r"'\x09x"),
        (" =1", "' =1"),
        ("a=1", "a=1"),
        ("-", "-"),
        (None, ""),
    ],
)
def test_formulas_are_texts_in_csv(value: str | None, wanted: str) -> None:
    assert cell(Column("client_id", "client", "text", ""), value) == wanted


@pytest.mark.parametrize(
    ("ns", "wanted"),
    [
        (0, "0"), (812, "812 ns"), (999, "999 ns"), (1000, "1.00 µs"), (14_220, "14.2 µs"), (999_700, "1.00 ms"),
        (3_391_487, "3.39 ms"), (99_960_000, "100 ms"), (1_050_000_000, "1.05 s"), (99_400_000_000, "99.4 s"),
        (204_390_000_000, "3m 24s"), (7_500_000_000_000, "2h 05m"), (90_000_000_000_000, "1d 01h"),
    ],
)  # fmt: skip
def test_durations(ns: int, wanted: str) -> None:
    assert units.duration(ns) == wanted


@pytest.mark.parametrize(
    ("ns", "wanted"),
    [
        (1, "1 ns"), (1_500, "1.5 µs"), (500_000_000, "500 ms"), (1_500_000_000, "1.5 s"), (5_000_000_000, "5 s"),
        (90_000_000_000, "90 s"), (600_000_000_000, "10 min"), (7_200_000_000_000, "2 h"), (86_400 * 10**9, "24 h"),
        (10**9 + 1, "1.000000001 s"),
    ],
)  # fmt: skip
def test_steps(ns: int, wanted: str) -> None:
    assert units.step(ns) == wanted


def test_sizes_shares_and_clocks() -> None:
    assert [units.size(n) for n in (0, 999, 1024, 1_500_000, 3 * 2**30)] == [
        "0 B",
        "999 B",
        "1.0 KiB",
        "1.4 MiB",
        "3.0 GiB",
    ]
    assert [units.share(p) for p in (0, 0.0001, 0.5, 0.9999, 1)] == ["0 %", "<0.1 %", "50.0 %", ">99.9 %", "100 %"]
    assert units.clock(1_795_236_239_392_450_000, True, 3, True) == "2026-11-21 04:43:59.392"
    assert units.iso(1_795_236_239_392_450_001) == "2026-11-21T04:43:59.392450001Z"


def test_a_table_with_packets_says_which_they_are(samples: Path) -> None:
    for path, names in (("apache-4.3.pcap.zst", ("errors", "slowest")), ("questions/timeouts.pcap.zst", ("timeouts",))):
        found = analyze(samples / path).report(sections=names)
        for name in names:
            lines = ["".join(text for text, _ in line) for line in render_table(found.table(name), 200, 5, True)]
            assert [line for line in lines if line.startswith("packet: of the ")], name


def test_json_says_which_tables_have_more_than_the_selection(samples: Path) -> None:
    analysis = analyze(samples / "live-4.4.pcap.zst", filter="api == Fetch")
    notes = report_object(analysis.report(sections=["connections"]), "1")["notes"]
    assert "These tables have all connections: filters select exchanges." in notes["connections"]
