"""Pages in a real Chromium: nothing is loaded, all tables sort and filter, hostile names stay texts."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.captures.capture_reader import FileReport
from kafkatap.extract.sequences import read_sequences
from kafkatap.reports.build import build_report
from kafkatap.reports.model import Column, ReportTable
from kafkatap.reports.rendering.html.page import PageFinding, render_page
from kafkatap.reports.rendering.html.report_page import GROUPS, chart_figures, packets_shown, render_report
from kafkatap.reports.section_parts.registry import section_names
from tests.support.browser import OpenedPage

from . import rows as made
from .hostile import HOSTILE, hostile_report
from .rows import MS

expect = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture(scope="module")
def page_file(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all sections of a sample."""
    capture = samples / "apache-4.3.pcap.zst"
    report = analyze(capture).report(sections=section_names())
    files = [FileReport(str(capture), packets=10_000)]
    sequences = read_sequences(files, packets_shown(report), ("10.77.0.1:9092", "10.77.0.1:9094"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(
        render_report(
            report, chart_figures(report, True), captures=[str(capture)], utc=True, sequences=sequences
        ),
        "utf-8",
    )  # fmt: skip
    return path


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_the_page_fits_and_loads_nothing(chromium: Any, page_file: Path, width: int, scheme: str) -> None:
    with OpenedPage(chromium, page_file, width, scheme=scheme) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert dark == (scheme == "dark")
        # Charts follow the theme: their colours are variables.
        ink = page.evaluate("getComputedStyle(document.querySelector('#figure-of-latency text')).fill")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.querySelector('#figure-of-latency text')).fill") != ink
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("figure.chart svg").count() == 4


def test_a_click_sorts_by_value(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        heading = page.locator("#table-latency thead th", has=page.locator("[data-column=broker_p99_ns]"))
        button = heading.locator("button")
        cells = "#table-latency tbody tr.row td.strong:nth-child(5)"
        before = opened.texts(cells)
        button.click()
        assert heading.get_attribute("aria-sort") == "descending"
        largest = opened.texts(cells)
        assert largest[0].endswith(" s")
        assert sorted(map(_ns, largest), reverse=True) == list(map(_ns, largest))
        button.press("Enter")  # a redrawn heading keeps the focus
        assert heading.get_attribute("aria-sort") == "ascending"
        smallest = opened.texts(cells)
        assert sorted(map(_ns, smallest)) == list(map(_ns, smallest))
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") is None
        assert opened.texts(cells) == before


def _ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


def test_a_filter_filters(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        box = page.locator("#table-errors input[type=search]")
        box.fill("leader_not svc-0")
        expect(page.locator("#table-errors .count")).to_contain_text("of 84")
        rows = opened.texts("#table-errors tbody tr.row")
        assert rows
        assert all("LEADER_NOT_AVAILABLE" in row and "svc-0-none" in row for row in rows)
        box.fill(">100")
        expect(page.locator("#table-errors .more")).to_contain_text("The filter compares texts, not numbers")
        box.fill("")
        expect(page.locator("#table-errors .count")).to_have_text("84 rows")
        assert page.locator("#table-errors tbody tr.row").count() == 20
        page.click("#table-errors .more button")
        assert page.locator("#table-errors tbody tr.row").count() == 84


def test_a_row_has_all_values_and_the_command_of_its_packet(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        button = page.locator("#table-slowest .more-of").first
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        command = opened.texts("#table-slowest .detail code")[0]
        assert command.startswith("kafkatap show --tree --filter 'packet == ")
        assert "total" in opened.texts("#table-slowest .detail dt")
        page.locator("#table-slowest .detail .copy").first.click()
        page.wait_for_selector("#table-slowest .detail .copy:text('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == command
        button.press("Enter")
        assert page.locator("#table-slowest .detail").count() == 0
        finding = page.locator("#findings .copy").first
        finding.click()
        page.wait_for_selector("#findings .copy:text('Copied')")


def test_an_open_row_fits_when_the_page_gets_narrower(chromium: Any, page_file: Path) -> None:
    """As on a phone that is turned: one column, and nothing beside the view."""
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        for name in ("slowest", "clients"):
            page.locator(f"#table-{name} .more-of").first.click()
        page.set_viewport_size({"width": 400, "height": 900})
        for name in ("slowest", "clients"):
            page.wait_for_selector(f"[data-table={name}][data-width='400']")
            page.wait_for_function(f"document.querySelector('#table-{name} .inside').clientWidth < 400")
            for part in ("dl", "code", ".copy", "dl div:last-child dd"):
                box = page.locator(f"#table-{name} .detail {part}").first.bounding_box()
                assert box is not None
                assert 0 <= box["x"] <= 400 - box["width"], (name, part)
            columns = page.eval_on_selector(
                f"#table-{name} .detail dl", "list => getComputedStyle(list).gridTemplateColumns"
            )
            assert len(columns.split()) == 1


def test_hidden_columns_and_tooltips(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        shown = page.locator("#table-latency thead th").count()
        page.click("#table-latency .tools button")
        assert page.locator("#table-latency thead th").count() > shown
        assert page.locator("#table-latency thead button").first.get_attribute("title") == "API of the request"
        cell = page.locator("#figure-of-topic-matrix [data-tip]").first
        cell.scroll_into_view_if_needed()
        cell.hover()
        assert "requests" in page.inner_text("#tip")
        assert page.locator("#figure-of-rebalances [data-tip*='generation']").count() == 7
        assert page.locator("#figure-of-topic-matrix [data-tip*='writes']").count() > 5


def test_a_dragged_span_is_in_charts_rows_and_commands(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        commands = opened.texts("#findings code")
        chart = page.locator("#picture svg")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
        page.mouse.up()
        said = page.inner_text("#span .say")
        begin, end = said.partition(":00")[0] and [word.rstrip(":") for word in said.split()[:3:2]]
        times = [text.split()[0] for text in opened.texts("#table-slowest tbody td.right:nth-child(2)") if ":" in text]
        assert all(begin[11:] <= f"{time}Z" <= end[11:] for time in times)
        expect(page.locator("#table-slowest .count")).to_contain_text("of 228")
        assert page.is_visible("#table-clients .sums")
        assert not page.is_visible("#table-slowest .sums")
        assert page.locator("#picture .outside").count() == 2
        chosen = opened.texts("#findings code")
        assert len(chosen) == len(commands)
        for before, after in zip(commands, chosen, strict=True):
            assert after == before if " --from " in before else f" --from {begin} --to {end} " in after
        page.locator("#table-clients .more-of").first.click()
        assert begin in opened.texts("#table-clients .detail code")[0]
        page.keyboard.press("Escape")
        assert page.inner_text("#table-slowest .count") == "228 rows"
        assert opened.texts("#findings code") == commands


def test_the_page_begins_with_a_picture_of_all_requests(chromium: Any, page_file: Path) -> None:
    """Its bars and cells add up to the report, and what is chosen is left in it."""
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        first = page.locator("main section").first
        assert first.get_attribute("id") == "picture"
        total = "[...summed().values()].reduce((all, slot) => all + sum(slot.requests), 0)"
        assert page.evaluate(total) == 1514
        assert page.evaluate("[...summed().values()].reduce((all, slot) => all + slot.trouble[0], 0)") == 79
        assert {"requests/s", "bytes/s", "broker time", "failed"} <= set(
            page.locator("#picture .lane").all_text_contents()
        )
        fetches = "[...summed().values()].reduce((all, slot) => all + slot.requests[1], 0)"
        page.select_option("#chosen [aria-label=API]", "=Fetch")
        assert page.evaluate(total) == page.evaluate(fetches) == 435  # as in the table of exchanges
        rows = opened.texts("#table-slowest tbody td:first-child")
        assert {row.strip() for row in rows} == {"Fetch"}
        page.select_option("#chosen [aria-label=client]", "=greedy-consumer")
        clients = page.locator("#table-clients tbody tr.row")
        expect(clients).to_have_count(1)
        assert page.evaluate(total) < 435
        assert page.is_visible("#table-error_totals .sums")
        page.click("#chosen button")
        assert page.evaluate(total) == 1514
        assert page.locator("#table-clients .count").inner_text() == "32 rows"


def test_marks_and_cells_lead_to_exchanges(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        findings = opened.texts("#findings li .name")
        marks = page.locator("#picture .mark text").all_text_contents()
        assert len(marks) >= 10
        for mark in marks:
            number, _, name = mark.partition(" ")
            assert findings[int(number) - 1].strip() == name
        page.locator("#picture .mark", has_text="throttled").locator(".flag").click()
        box = page.locator("#exchanges")
        expect(box.locator("h3")).to_have_text("3 throttled")
        slowest = box.locator(".exchanges > li").first
        assert "3.96 s Fetch of greedy-consumer" in slowest.inner_text()
        # Its waterfall: nearly all of it is the throttle wait.
        lines = slowest.locator(".waterfall > span:nth-child(3n + 1)").all_inner_texts()
        assert lines == ["request", "waiting", "throttle", "response", "packets"]
        track, bar = (slowest.locator(part).first.bounding_box() for part in (".track", "i.w-throttle"))
        assert track is not None
        assert bar is not None
        assert bar["width"] == pytest.approx(track["width"] * 3958.758 / 3964.163, abs=1)
        # Its packets: the request, and the response after the pause that the quota made.
        texts = slowest.locator(".sequence text").all_text_contents()
        assert [text for text in texts if text.startswith(("1732:", "2298:"))] == ["1732: 106 B", "2298: 21 B"]
        assert "3.91 s without a packet" in texts
        page.keyboard.press("Tab")
        page.locator("#exchanges .head button").click()
        assert not box.is_visible()
        # A finding among the others has the same below it.
        page.locator("#findings .shown-by summary", has_text="Exchanges and packets").first.click()
        page.wait_for_selector("#findings .shown-by svg")


def test_a_click_on_a_cell_prints_its_command(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        page.select_option("#chosen [aria-label=API]", "=Produce")
        at = page.evaluate("""() => {
            const [begin, end, left, right] = JSON.parse(picture.dataset.span);
            const [number, slot] = [...summed()].sort((a, b) => sum(b[1].requests) - sum(a[1].requests))[0];
            const ms = data.picture.start + (number + 0.5) * data.picture.interval;
            return [left + (ms - begin) / (end - begin) * (right - left), sum(slot.requests)];
        }""")
        chart = page.locator("#picture svg").bounding_box()
        assert chart is not None
        lane = page.locator("#picture .lane", has_text="bytes/s").bounding_box()
        assert lane is not None
        page.mouse.click(chart["x"] + at[0] * chart["width"], lane["y"] + 20)
        title = page.inner_text("#exchanges h3")
        assert title.endswith(f": {at[1]} requests")
        command = page.inner_text("#exchanges .command code")
        words = shlex.split(command)
        assert words[:3] == ["kafkatap", "show", "--filter"]
        done = subprocess.run(
            [sys.executable, "-m", "kafkatap", *words[1:], "--json"], capture_output=True, text=True, check=True
        )
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert len([row for row in shown if row["direction"] == "request"]) == at[1]


def test_sections_are_in_groups(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        assert opened.texts("nav a.group") == [title for title, _ in GROUPS]
        assert page.locator("nav li a:visible").count() <= 25
        page.locator("#table-topics").scroll_into_view_if_needed()
        page.wait_for_selector("nav li.open a[href='#table-topics']")
        known = {name for _, names in GROUPS for name in names}
        tables = {box.get_attribute("data-table") for box in page.locator("[data-table]").all()}
        assert tables <= known


def test_a_span_can_be_typed(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file) as opened:
        page = opened.page
        page.fill("#span [name=from]", "15")
        page.press("#span [name=from]", "Enter")
        page.fill("#span [name=to]", "20")
        page.press("#span [name=to]", "Tab")
        assert page.inner_text("#span .say").startswith("2026-11-21T04:44:14.392450Z to 2026-11-21T04:44:19.392450Z")
        expect(page.locator("#table-timeline .count")).to_have_text("1 of 13 rows")
        page.click("#span button")
        expect(page.locator("#table-timeline .count")).to_have_text("13 rows")


def test_print(chromium: Any, page_file: Path) -> None:
    with OpenedPage(chromium, page_file, scheme="dark") as opened:
        opened.page.emulate_media(media="print")
        assert not opened.page.is_visible("nav")
        assert not opened.page.is_visible(".tools")
        assert opened.page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 32, 36)"


SHOW_TIPS = "all => all.forEach((e) => e.dispatchEvent(new PointerEvent('pointermove', {bubbles: true})))"


def test_hostile_names_are_texts(chromium: Any, tmp_path: Path) -> None:
    report = hostile_report()
    path = tmp_path / "hostile.html"
    path.write_text(
        render_report(report, chart_figures(report, True), captures=HOSTILE[:2], utc=True, version=HOSTILE[0]), "utf-8"
    )
    with OpenedPage(chromium, path) as opened:
        page = opened.page
        for button in page.locator(".more button:last-child").all():
            button.click()
        page.eval_on_selector_all("tr.row .more-of", "buttons => buttons.forEach((button) => button.click())")
        page.eval_on_selector_all("figure [data-tip]", SHOW_TIPS)
        assert page.is_visible("#tip")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, iframe, object, embed, form, link[rel=stylesheet]").count() == 0
        assert page.locator("script").count() == 2
        for width in (1600, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        clients = [text.strip() for text in opened.texts("#table-clients tr.row .cell > span")]
        assert HOSTILE[0] in clients
        assert r"a\x00\x1b[31m\x0d\x0ab" in clients
        assert r"\u202eevil\u2066" in clients
        whole = page.content()
        assert "{{7*7}}{% raw %}" in whole
        assert "49" not in opened.texts("#table-clients tr.row .cell > span")
        labels = page.locator("figure text").all_text_contents()
        assert HOSTILE[0][:20] in {label[:20] for label in labels}
        assert not any("\u202e" in text or "\x1b" in text for text in [whole, *labels])
        # No command has a name that a terminal does not show as it is.
        commands = page.locator(".detail code").all_text_contents()
        assert commands
        assert all("\\" not in command for command in commands)


def test_ten_thousand_clients(chromium: Any, tmp_path: Path) -> None:
    count = 10_000
    names = [f"client-{n}".encode() for n in range(count)]
    exchanges = [made.exchange(n, at=n * MS, broker=(1 + n * 7919 % count) * 1000, client_id=n) for n in range(count)]
    report = build_report(made.counted(exchanges), made.context(strings=names), curves=True)
    path = tmp_path / "many.html"
    path.write_text(render_report(report, chart_figures(report, True), captures=["a.pcap"], utc=True), "utf-8")
    with OpenedPage(chromium, path) as opened:
        page = opened.page
        rows = page.locator("#table-clients tbody tr.row")
        assert rows.count() == 20
        assert page.inner_text("#table-clients .count") == "10,000 rows"
        page.click("#table-clients [data-column=client_id]")
        assert opened.texts("#table-clients .cell > span")[:3] == ["client-0", "client-1", "client-2"]
        page.fill("#table-clients input", "client-77")
        expect(page.locator("#table-clients .count")).to_have_text("111 of 10,000 rows")
        assert rows.count() == 20
        page.fill("#table-clients input", "")
        expect(page.locator("#table-clients .count")).to_have_text("10,000 rows")
        page.click("#table-clients .more button")
        assert rows.count() == 220
        page.eval_on_selector("#table-clients .scroll", "box => { box.scrollTop = box.scrollHeight }")
        expect(rows).to_have_count(420)
        page.click("#table-clients [data-column=client_id]")
        assert opened.texts("#table-clients .cell > span")[0] == "client-9999"


def test_any_tables_make_a_page(chromium: Any, tmp_path: Path) -> None:
    """As a comparison does: no report, no charts, rows without commands."""
    columns = (Column("what", "what", "text", "what changed"), Column("delta", "by", "share", "by how much"))
    table = ReportTable("changes", "What changed", columns, [("latency", 0.5), ("errors", None), ("bytes", -0.1)])
    empty = ReportTable("nothing", "Nothing", columns, [], empty="nothing changed")
    path = tmp_path / "tables.html"
    path.write_text(
        render_page("A & B", [table, empty], subtitle="<two>", findings=[PageFinding("worse", "by 50 %")], notes=["n"]),
        "utf-8",
    )
    with OpenedPage(chromium, path) as opened:
        assert opened.page.title() == "A & B"
        assert opened.texts(".subtitle") == ["<two>"]
        assert opened.texts(".empty") == ["Nothing: nothing changed"]
        opened.page.click("[data-column=delta]")
        first = [text.strip() for text in opened.texts("tbody .first")]
        assert first == ["latency", "bytes", "errors"]  # no value comes last
