"""What is drawn on the live screen, at any size."""

from __future__ import annotations

import unicodedata
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.dissector.dtypes import RESULT
from kafkatap.engine.engine import Engine
from kafkatap.live.governor import HEADERS, LEAN, PAUSED
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.breakdown import SECOND, Row, window_rows
from kafkatap.live.screen.columns import ROWS, cells, fit, heading
from kafkatap.live.screen.drawing import Drawing, screen_lines
from kafkatap.live.screen.look import Frozen, Kept, Live
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import TEXTS, VIEWS, Page, Shown
from kafkatap.live.screen.recent_exchanges import Message, Recent
from kafkatap.live.status import Status
from kafkatap.reports import units
from kafkatap.reports.batch import Batch
from kafkatap.reports.section_parts.registry import counted_sections, needs_of

from .support import FileSource

SAMPLE = Path("samples/apache-4.3.pcap.zst")
NASTY = "\x1b[31m\x1b]0;title\x07\r\n\t\x9b2J\u202eevil\u200b\u2028\ufeff\U000e0001\ue000\x00[bold]x[/bold]主题"
MESSAGE = Message(
    at=1, exchange=1, connection=1, client=NASTY, broker=NASTY, client_id=NASTY, api="Produce", api_version=3,
    correlation_id=-5, outcome="unanswered", request_bytes=17, response_bytes=None, broker_ns=None, hol_wait_ns=None,
    throttle_wait_ns=None, total_ns=None, throttle_time_ms=None, waits=False, error_codes=(("5120 (no name)", 3),),
    topics=(NASTY, "b") * 20,
)  # fmt: skip
PAGES = (
    *(Page("table", by) for by in VIEWS),
    *(Page("detail", scope=((kind, name),)) for kind, name in (("client", "aio-1"), ("api", "Produce"))),
    Page("detail", scope=(("topic", "greedy"),)), Page("detail", scope=(("error", "TOPIC_ALREADY_EXISTS"),)),
    Page("detail", scope=(("group", "GROUP"),)), Page("messages"), Page("help"),
    Page("messages", scope=(("client", "aio-1"), ("connection", 1))), Page("message", message=MESSAGE),
)  # fmt: skip
STATUS = Status(
    now=1_700_000_100 * SECOND, started=1_700_000_000 * SECOND, interfaces=("eth0", NASTY), packets=10,
    packet_rate=1234.5, byte_rate=4.5e6, dropped=0, dropped_lately=0, level=0, level_since=0, reason="", cpu=0.12,
    memory=150 << 20, connections=3, waiting=2, encrypted_share=0.25,
)  # fmt: skip


@cache
def live() -> Live:
    kept, source = Kept(), FileSource(str(SAMPLE))
    engine = Engine(all_results=True, **needs_of(None)._asdict())
    monitor = Monitor(source, engine, sinks=kept.sinks, clock=source.clock, sections=counted_sections(None))
    monitor.run(lambda: source.over)
    return Live(monitor, kept)


def drawn(
    page: Page, width: int, height: int, status: Status = STATUS, notice: str = "", **shown: Any
) -> list[str]:  # fmt: skip
    how = Shown(window=None, utc=True, word=shown.get("filter", ""), **shown)
    parts = sections(page, live(), how)
    lines = screen_lines(Drawing(page, 1, how, status, parts, notice=notice), width, height)
    return ["".join(text for text, _ in line) for line in lines]


@given(st.sampled_from(PAGES), st.integers(1, 250), st.integers(1, 70), st.sampled_from(("", "a", NASTY)))
def test_it_fits_any_terminal(page: Page, width: int, height: int, text: str) -> None:
    page = replace(page)
    lines = drawn(page, width, height, filter=text, notice=text)
    assert len(lines) == height
    assert all(units.cells(line) <= width for line in lines)
    assert not {c for line in lines for c in line if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn")}


@given(
    st.sampled_from([page for page in PAGES if page.kind not in TEXTS]),
    st.integers(40, 200),
    st.integers(6, 40),
    st.lists(st.integers(0, 200)),
)
def test_the_chosen_row_is_always_on_the_screen(page: Page, width: int, height: int, steps: list[int]) -> None:
    page, how = replace(page), Shown(window=None)
    parts = sections(page, live(), how)
    keys = [key for part in parts for key in part.keys]
    for step in steps:
        page.cursor = keys[step % len(keys)] if keys else None
        lines = screen_lines(Drawing(page, 1, how, STATUS, parts), width, height)
        reversed_lines = [line for line in lines[1:] if line and all("reverse" in style for t, style in line[::2])]
        assert len(reversed_lines) == bool(keys)


def test_where_a_chosen_row_is_gone_its_place_is_chosen() -> None:
    page, how = Page("table", "client"), Shown(window=None)
    parts = sections(page, live(), how)
    page.cursor = parts[0].keys[3]
    screen_lines(Drawing(page, 1, how, STATUS, parts), 80, 24)
    fewer = [replace(parts[0], rows=parts[0].rows[:3], keys=parts[0].keys[:3])]
    screen_lines(Drawing(page, 1, how, STATUS, fewer), 80, 24)
    assert page.cursor == fewer[0].keys[2]


def test_values_move_no_column() -> None:
    row = Row("a", None, False, False, 1, 0.1, 0, 0, None, None, None, 0, 0, 0, 0, 0, None, 0)
    long = Row(
        NASTY * 9, 1, True, True, 10**9, 1e9, 1e12, 1e12, 10**12, 10**13, 10**13, 10**9, 10**14, 10**9, 10**9, 1e9,
        "E" * 99, 10**9,
    )  # fmt: skip
    for width in range(20, 200):
        shown = fit(ROWS, width)
        lengths = {
            sum(units.cells(text) for text, _ in line)
            for line in (heading(shown), cells(shown, row), cells(shown, long))
        }
        assert len(lengths) == 1
        assert lengths.pop() <= width


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_trouble_of_its_own_is_said_in_words(width: int) -> None:
    calm = "\n".join(drawn(PAGES[0], width, 20))
    assert "DROPS" not in calm
    assert "LEVEL" not in calm
    worried = replace(
        STATUS, dropped=1234, dropped_lately=56, level=HEADERS, reason="too much", level_since=1_700_000_050 * SECOND
    )
    text = "\n".join(drawn(PAGES[0], width, 20, worried))
    assert "DROPS 56 in 10 s" in text
    assert "LEVEL headers only" in text
    assert width < 60 or "since 22:14:10: too much" in text


def test_what_is_told_stands_above_the_keys() -> None:
    for page in PAGES:
        without, lines = (drawn(replace(page), 100, 20, notice=notice) for notice in ("", "eth0: network is down"))
        assert lines[-2].rstrip() == "eth0: network is down"
        assert lines[-1] == without[-1]
        assert len(lines) == 20


def test_long_notices_have_three_lines() -> None:
    words = [f"word{n}" for n in range(60)]
    lines = drawn(Page("table"), 100, 20, notice=" ".join(words[:30]))
    assert " ".join(line.strip() for line in lines[-4:-1]) == " ".join(words[:30])
    assert drawn(Page("table"), 100, 20, notice=" ".join(words))[-2].rstrip().endswith("…")
    assert drawn(Page("table"), 100, 15, notice=" ".join(words))[-2].startswith("word0 word1")


def test_why_there_are_no_rows() -> None:
    def empty(page: Page, status: Status) -> str:
        class Quiet(Live):
            @property
            def status(self) -> Status:
                return status

            @contextmanager
            def reading(self, window: int | None, selection: Any = None) -> Any:
                with super().reading(window, selection) as (counts, names, recent):
                    yield type(counts)(by_topic=True), names, recent

        look = Quiet(live().monitor, Kept(Recent(1)))
        return sections(page, look, Shown())[0].empty

    assert empty(PAGES[0], replace(STATUS, packets=0)).startswith("no packets yet")
    assert "no topics" in empty(PAGES[2], replace(STATUS, level=LEAN))
    assert "paused" in empty(PAGES[2], replace(STATUS, level=PAUSED))
    assert "encrypted (TLS)" in empty(PAGES[1], replace(STATUS, encrypted_share=0.99))
    assert empty(PAGES[1], replace(STATUS, waiting=0)) == "no requests"
    assert empty(PAGES[1], STATUS) == "no answers; 2 requests wait (view 6)"


def test_held_still_all_of_it_stays() -> None:
    """Also the windows, names and exchanges that were not on the screen."""
    kept, source = Kept(), FileSource(str(SAMPLE))
    engine = Engine(all_results=True, **needs_of(None)._asdict())
    monitor = Monitor(source, engine, sinks=kept.sinks, clock=source.clock, sections=counted_sections(None))
    monitor.run(lambda: source.taken > 4000)
    look, recent = Live(monitor, kept), kept.recent

    def everything(look: Live | Frozen) -> list[Any]:
        return [sections(page, look, Shown(window=window)) for page in PAGES for window in (10, 60, None)]

    def rows(found: list[Any]) -> list[Any]:
        return [(s.title, s.rows, s.keys) for parts in found for s in parts]

    frozen = Frozen(look)
    before = rows(everything(look))
    assert rows(everything(frozen)) == before
    source.close()
    with monitor.lock:
        monitor.windows.reset()
        recent.add_batch(Batch(recent._exchanges.rows[:9].copy(), np.zeros(0, RESULT)), monitor.engine)
        monitor.engine.addresses.clear()
    assert rows(everything(frozen)) == before


def test_the_interval_of_a_row_is_what_was_counted() -> None:
    look = live()
    status = look.status
    counted = window_rows(look.monitor.windows.start, frozen_names(look), "api", status.now - status.started)
    shown = sections(Page("table"), look, Shown(window=None))[0].rows
    assert {r.name: r.request_rate for r in counted} == {r.name: r.request_rate for r in shown}


def frozen_names(look: Live) -> Any:
    with look.reading(None) as (_, names, _recent):
        return names
