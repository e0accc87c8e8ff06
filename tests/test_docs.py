"""What the documents say is so: the columns of the tables, and the examples of the library."""

from __future__ import annotations

import doctest
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from kafkatap.dissector.kafka.releases import RELEASES
from kafkatap.dissector.layouts.catalog import load_messages
from kafkatap.dissector.layouts.schema import REQUEST
from kafkatap.reports.comparison.wording import WAITS_FOR, WHERE
from kafkatap.reports.expressions.names import WIRESHARK
from kafkatap.reports.rollup_tables import ROLLUP_TABLES
from kafkatap.reports.sections.clients import by_verdict
from kafkatap.reports.sections.time_shares import NOTHING
from kafkatap.reports.table_columns import Declared
from kafkatap.reports.tables import TABLES
from kafkatap.request_log import joined_table
from tests.cli.running import kafkatap

ROOT = Path(__file__).resolve().parent.parent
#: The rows of a table on columns.
_ROWS = re.compile(r"(?:^\| `\w+`(?:, `\w+`)* \| .+ \|\n)+", re.MULTILINE)


def rows_of_columns(columns: Iterable[Declared], earlier: Mapping[str, Iterable[Declared]]) -> str:
    """The rows of the document on a table. Columns of the same type and meaning share one. So do those that are as in
    an earlier table: their types are there."""
    names: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        there = next((table for table, others in earlier.items() if _row(column) in map(_row, others)), "")
        doc = f"as in `{there}`" if there else column.doc
        kind = "" if doc.startswith("as in ") else f"{column.type}{'?' * column.nullable}"
        names.setdefault((kind, doc), []).append(f"`{column.name}`")
    return "".join(f"| {', '.join(found)} | {kind} | {doc} |\n" for (kind, doc), found in names.items())


def _row(column: Declared) -> tuple[str, str, bool, str]:
    return column.name, column.type, column.nullable, column.doc


def test_tables_are_documented_as_they_are_declared() -> None:
    """KAFKATAP_UPDATE=1 writes the rows of each table anew."""
    earlier: dict[str, Iterable[Declared]] = {}
    for name, first, tables in (
        ("tables.md", ["Keys"], {**TABLES, "request_log": joined_table.COLUMNS}),
        ("contributors/rollup.md", [], ROLLUP_TABLES),
    ):
        check_tables(ROOT / "docs" / name, first, tables, earlier)


def check_tables(
    path: Path, first: list[str], tables: Mapping[str, Iterable[Declared]], earlier: dict[str, Iterable[Declared]]
) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [*first, *tables]
    for name, columns in tables.items():
        assert all(column.doc for column in columns), name
        head, section = re.split(rf"^## {name}$", text, flags=re.MULTILINE)
        rows, earlier[name] = rows_of_columns(columns, earlier), columns
        text = f"{head}## {name}{re.sub(_ROWS, lambda _, rows=rows: rows, section, count=1)}"
    if os.environ.get("KAFKATAP_UPDATE"):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


def test_the_examples_of_the_library_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "library.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 8
    assert failed == 0


#: Documents that count what is built in, each with sentences that must be in it.
COUNTED = {
    "README.md": "every request and response of Kafka 0.8 to {newest} ({apis} APIs, {pairs} versions)",
    "docs/contributors/notation.md": "every request and response of Kafka 0.8.2 to {newest}, one file for each API: "
    "{apis} files, {pairs} (key, version) pairs",
    "docs/wireshark-users.md": "knows 48 of the {apis} APIs",
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_apis_and_versions_are_those_of_the_layouts(name: str) -> None:
    requests = [message for (_, direction), message in load_messages().items() if direction == REQUEST]
    pairs = sum(len(list(message.versions)) for message in requests)
    wanted = COUNTED[name].format(newest=RELEASES[-1], apis=len(requests), pairs=pairs)
    assert wanted in " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_page_for_users_of_wireshark_has_each_name_that_filters_understand() -> None:
    text = (ROOT / "docs" / "wireshark-users.md").read_text(encoding="utf-8")
    section = text.partition("## Display filters\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+`) \| `([\w.]+)` \|$", section, re.MULTILINE)
    assert {name: ours for names, ours in rows for name in re.findall(r"`([\w.]+)`", names)} == WIRESHARK


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").rglob("*.md"),
         *(ROOT / "benchmarks").glob("*.md")]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_table_of_contents_has_each_page_for_users() -> None:
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md", "ARCHITECTURE.md", "dependencies.md"}
    assert pages <= set(re.findall(r"\]\(([\w-]+\.md)", text))


def test_the_examples_of_commands_print_what_the_page_shows() -> None:
    """Up to an ellipsis."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n\$ kafkatap ([^\n]+)\n(.*?)```\n", text, re.DOTALL)
    assert len(blocks) == 3
    for arguments, shown in blocks:
        assert kafkatap(*shlex.split(arguments)).out.startswith(shown.removesuffix("…\n")), arguments


def test_extract_prints_what_its_page_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "extract.md").read_text(encoding="utf-8")
    [(arguments, shown)] = re.findall(r"```\n\$ kafkatap ([^\n]+)\n(.*?)```\n", text, re.DOTALL)
    out = str(tmp_path / "slow.pcapng")
    done = kafkatap(*shlex.split(arguments.replace("slow.pcapng", out)))
    assert done.err.replace(out, "slow.pcapng") == shown


def test_users_have_at_most_30000_words_to_read() -> None:
    """Without code, examples of output, and the bars of tables."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = [
        page.read_text(encoding="utf-8") for page in pages if page.name not in ("ARCHITECTURE.md", "dependencies.md")
    ]
    prose = [re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL) for text in texts]
    assert sum(len(re.findall(r"\S*\w\S*", text)) for text in prose) <= 30_000


def row_of(document: str, first: str) -> str:
    """The row of a table in a document that begins with this cell."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if line.startswith(f"| {first} |"))


def test_compare_names_the_waits_and_verdicts_that_it_has() -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    means = re.search(r"^- Mean .*?(?=^- )", text, re.MULTILINE | re.DOTALL)
    assert means is not None
    assert not [wait for wait in WAITS_FOR.values() if wait not in " ".join(means[0].split())]
    assert not [verdict for verdict in WHERE.values() if verdict not in row_of("compare.md", "where")]


def test_json_names_the_verdicts_that_there_are() -> None:
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert not [verdict for verdict in by_verdict(NOTHING) if f"`{verdict}`" not in text]
