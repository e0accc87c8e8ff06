"""Cells and rows of text and of the page have limits, whatever names a sender chooses. JSON and CSV are whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kafkatap.reports.model import Column, ReportTable, Value
from kafkatap.reports.rendering.html.page import table_data
from kafkatap.reports.rendering.table_files import cell as csv_cell
from kafkatap.reports.rendering.text_tables import (
    LONGEST_CELL,
    LONGEST_COMMAND,
    LONGEST_SENTENCE,
    MOST_WHOLE_ROWS,
    cell_text,
    render_table,
)
from tests.cli.running import kafkatap
from tests.support.captures import pcap_bytes
from tests.support.tcp import encode
from tests.wire.kafkatalk import METADATA, KafkaTalk

NAME, NAMES = Column("client", "client", "text", ""), Column("clients", "clients", "texts", "")
SENTENCE = Column("finding", "finding", "text", "")
MANY = tuple(f"client-{n}" for n in range(80_000))


def lines_of(table: ReportTable, width: int | None = None, top: int = 12) -> list[str]:
    return ["".join(text for text, _ in line) for line in render_table(table, width, top, True)]


def test_a_list_ends_with_the_number_of_the_others() -> None:
    text = cell_text(MANY)
    shown = text.split(" and ")[0].split(", ")
    assert shown == list(MANY[: len(shown)])
    assert text.endswith(f" and {80_000 - len(shown):,} more")
    assert LONGEST_CELL - 20 < len(text) <= LONGEST_CELL + 20
    assert cell_text(MANY[:20]) == ", ".join(MANY[:20])
    assert cell_text(("x" * 32_767, "y")) == "x" * (LONGEST_CELL - 1) + "… and 1 more"
    versions = tuple((f"Api{n}", tuple(range(n % 9))) for n in range(9_000))
    assert len(cell_text(versions)) <= LONGEST_CELL + 20


@pytest.mark.parametrize("value", ["x" * 32_767, "\x1b" * 32_767, "表" * 32_767])
@pytest.mark.parametrize("width", [None, 120])
def test_a_name_does_not_widen_the_rows_of_others(value: str, width: int | None) -> None:
    rows: list[tuple[Value, ...]] = [(value, MANY, value), ("app", ("app",), "It is slow.")]
    lines = lines_of(ReportTable("t", "T", (NAME, NAMES, SENTENCE), rows), width)
    most = 2 * LONGEST_CELL + LONGEST_SENTENCE + 40 if width is None else width
    assert max(map(len, lines)) <= (4 * most if "\x1b" in value else most)
    if "\x1b" not in value and width is None:
        assert len(lines) == 5


def test_usual_texts_are_not_cut() -> None:
    """A topic's name has 249 characters at most."""
    rows: list[tuple[Value, ...]] = [("t" * 249, MANY[:20], "word " * 190)]
    (line,) = lines_of(ReportTable("t", "T", (NAME, NAMES, SENTENCE), rows))[3:]
    assert "…" not in line
    assert " more" not in line


def test_rows_of_a_table_that_is_shown_whole() -> None:
    rows: list[tuple[Value, ...]] = [(f"client {n}",) for n in range(MOST_WHOLE_ROWS + 2)]
    few, many = (ReportTable("t", "T", (NAME,), part, whole=True) for part in (rows[:-1], rows))
    assert len(lines_of(few)) == MOST_WHOLE_ROWS + 4  # no line says that one more is left: it is shown
    assert lines_of(many)[-1] == f"… and 2 more rows (-n {MOST_WHOLE_ROWS + 2} shows all)"
    assert len(lines_of(many, top=0)) == len(lines_of(many, top=MOST_WHOLE_ROWS + 2)) == MOST_WHOLE_ROWS + 5


def test_the_page_has_the_same_cells() -> None:
    table = ReportTable("t", "T", (NAME, NAMES), [("x" * 32_767, MANY)])
    made = table_data(table, True, None, lambda table, row: ["short", "x" * (LONGEST_COMMAND + 1)])
    assert len(json.dumps(made)) < 3 * LONGEST_CELL + 500
    assert made["commands"] == [["short"]]


def test_json_and_csv_are_whole() -> None:
    assert NAMES.plain(MANY) == list(MANY)
    assert csv_cell(NAMES, MANY) == ", ".join(MANY)


def test_a_report_of_long_client_ids(tmp_path: Path) -> None:
    """Three clients with the longest id that a request header can hold."""
    talk, path, ids = KafkaTalk(), tmp_path / "long.pcap", [chr(97 + n) * 32_767 for n in range(3)]
    talk.tcp.open()
    for number, name in enumerate(ids):
        talk.client_id = name
        talk.respond(talk.request(METADATA, 1, number), ControllerId=1)
    path.write_bytes(pcap_bytes(encode(talk.tcp.segments), nanoseconds=True))
    done = kafkatap("report", path, "--by", "client", "--sections", "latency,clients", "--csv", tmp_path / "csv")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) < 4_000
    assert len(done.out) < 20_000
    csv.field_size_limit(1 << 20)
    with open(tmp_path / "csv" / "latency.csv", encoding="utf-8", newline="") as file:
        assert {row["client_id"] for row in csv.DictReader(file)} == set(ids)
