"""The views of the live screen say what happened: who waits, events, groups, errors, and what a filter selects."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kafkatap
from kafkatap.engine.engine import Engine
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.live.governor import Governor
from kafkatap.live.monitor import Monitor
from kafkatap.live.recording.recorder import Recorder
from kafkatap.live.recording.saved_packets import PacketSaver
from kafkatap.live.screen.columns import ROWS, fit
from kafkatap.live.screen.drawing import Drawing, screen_lines
from kafkatap.live.screen.look import Frozen, Kept, Live
from kafkatap.live.screen.page_sections import sections
from kafkatap.live.screen.pages import Page, Section, Shown
from kafkatap.live.screen.scope_filter import ends_filter, quoted, scope_filter
from kafkatap.live.screen.typed_filter import read_typed
from kafkatap.reports.build import build_report
from kafkatap.reports.section_parts.registry import counted_sections, needs_of
from kafkatap.reports.units import cells
from tests.support.tcp import merge
from tests.wire.kafkatalk import PRODUCE, KafkaTalk

from .support import SECOND, FileSource
from .watched import TOPIC, Seen, ticking

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
BUSY = "apache-4.3"


def play(
    name: str, until: int | None = None, selection: Selection = EVERYTHING, wanted: tuple[str, ...] | None = None
) -> Live:
    """What the screen has of a sample, at its end or so many ns after its begin."""
    kept, source = Kept(), FileSource(str(SAMPLES / f"{name}.pcap.zst"))
    counted = counted_sections(wanted)
    engine = Engine(all_results=True, **needs_of(counted)._asdict())
    monitor = Monitor(
        source, engine, sinks=kept.sinks, clock=source.clock, governor=Governor(None), sections=counted,
        selection=selection,
    )  # fmt: skip
    begin = source.now
    while not source.over and (until is None or source.now < begin + until):
        source.wait(0.1)
        monitor.step()
    if source.over:
        monitor.finish()
    else:
        source.close()
    return Live(monitor, kept)


busy = cache(play)


def rows(look: Live | Frozen, by: str, **shown: Any) -> list[Any]:
    (section,) = sections(Page("table", by), look, Shown(**{"window": None, "utc": True, **shown}))
    return list(section.rows)


def typed(look: Live, text: str) -> dict[str, Any]:
    """A filter in effect, as `Shown` has it."""
    found = read_typed(text, look.monitor.engine, True)
    assert not found.reason, found.reason
    look.narrow(found.selection)
    return {"filter": text, "selection": found.selection, "word": found.word}


def test_who_waits_while_a_broker_hangs() -> None:
    """Everybody whose request has no answer, with address and broker, the longest wait first."""
    steps = json.loads((SAMPLES / "events" / "hang.truth.json").read_text())["steps"]
    look = play("events/hang", 6 * SECOND)
    waits = rows(look, "waiting")
    assert {wait.oldest.client_id for wait in waits} == {"billing", "checkout", "clicks", "packer"}
    assert all(wait.oldest.client.startswith("10.77.0.2") for wait in waits)
    assert "10.77.0.3:9092" in {wait.oldest.broker for wait in waits}
    assert [wait.waited_ns for wait in waits] == sorted((wait.waited_ns for wait in waits), reverse=True)
    hung = look.status.now / SECOND - steps["hung"]
    assert hung - 2 < waits[0].waited_ns / SECOND < hung + 1
    mine = rows(look, "waiting", **typed(look, "client == billing"))
    assert {wait.oldest.client_id for wait in mine} == {"billing"}
    assert rows(look, "waiting", **typed(look, "api == Fetch and broker == 10.77.0.3:9092"))[0].oldest.api == "Fetch"
    shown = screen_lines(
        Drawing(Page("message", message=waits[0].oldest), 2, Shown(utc=True), look.status, ()), 100, 30
    )  # fmt: skip
    assert any("beyond what its broker may hold it" in text for line in shown for text, _ in line)


@pytest.mark.parametrize(("acks", "is_overdue"), [(1, True), (-1, False)])
def test_a_produce_without_an_answer_waits(acks: int, is_overdue: bool, tmp_path: Path) -> None:
    """It is shown at once. Only one that may wait for replicas is no sign of a broker that hangs."""
    talk = KafkaTalk(client_id="app")
    talk.tcp.open()
    talk.request(PRODUCE, 3, 1, Acks=acks, TimeoutMs=30_000, TopicData=TOPIC)
    seen = Seen(tmp_path / "x.pcap", merge(talk.segments, ticking(6)))
    for _ in seen.seconds():
        pass
    (wait,) = rows(Live(seen.monitor, Kept()), "waiting")
    assert (wait.oldest.client_id, wait.connections) == ("app", 1)
    assert 4 < wait.waited_ns / SECOND < 7
    assert bool(seen.monitor.longest_waits) == is_overdue


def test_nobody_waits_where_brokers_answer() -> None:
    assert rows(play("live-4.4", 30 * SECOND), "waiting") == []


def test_events_are_those_that_were_told() -> None:
    look = play("events/stop")
    found = rows(look, "events")
    assert [finding for _, finding in look.kept.events.found] == found
    assert {"broker_stopped", "broker_returned"} <= {finding.id for finding in found}
    assert next(f.begin for f in found if f.id == "broker_returned") > next(
        f.begin for f in found if f.id == "broker_stopped"
    )
    kept = {finding.id for finding in rows(look, "events", word="work again")}
    assert not kept & {"broker_stopped"}
    stopped = next(finding for finding in found if finding.id == "broker_stopped")
    for width in (40, 80, 200):
        lines = screen_lines(Drawing(Page("event", event=stopped), 2, Shown(utc=True), look.status, ()), width, 60)
        text = " ".join("".join(text for text, _ in line)[14:].strip() for line in lines)
        assert stopped.text in text
        assert all(cells("".join(text for text, _ in line)) <= width for line in lines)


def test_events_on_others_are_left_out_by_a_filter() -> None:
    look = play(BUSY)
    assert {party.kind for finding in rows(look, "events") for party in finding.parties} >= {"topic", "group"}
    mine = rows(look, "events", **typed(look, "topic == 't-r1-2'"))
    topics = {party.name for finding in mine for party in finding.parties if party.kind == "topic"}
    assert topics == {"t-r1-2"}


@pytest.mark.parametrize("name", ["questions/rebalances", BUSY])
def test_groups_are_those_of_the_report(name: str) -> None:
    look = play(name, wanted=("summary", "groups"))
    monitor = look.monitor
    report = build_report(
        monitor.windows.start, monitor.context(), sections=("summary", "groups"), over_facts=monitor.sections
    )
    table = report.table("groups")
    wanted = {row["group"]: row for row in map(table.named, table.rows)}
    found = {row.name: row for row in rows(look, "groups")}
    assert set(found) == set(wanted)
    for group, row in found.items():
        told = wanted[group]
        assert (row.rebalances, row.errors, row.commits, row.lag) == (
            told["rebalances"], told["errors"], told["commits"] or 0, told["lag"]
        ), group  # fmt: skip
        assert row.members <= told["members"]
    group = max(found.values(), key=lambda row: row.rebalances)
    members, rebalances = sections(Page("detail", scope=(("group", group.name),)), look, Shown(window=None))
    assert len(rebalances.rows) == min(group.rebalances, 20) > 0
    assert sum(member.is_there for member in members.rows) == group.members


def test_errors_are_those_of_the_report() -> None:
    look = busy(BUSY)
    report = build_report(look.monitor.windows.start, look.monitor.context())
    table = report.table("error_totals")
    wanted: dict[str, int] = {}
    for row in map(table.named, table.rows):
        wanted[row["error"]] = wanted.get(row["error"], 0) + row["count"]
    found = rows(look, "errors")
    assert {row.name: row.codes for row in found} == wanted
    assert [row.codes for row in found] == sorted(wanted.values(), reverse=True)
    page = Page("detail", scope=(("error", found[0].name),))
    parts = sections(page, look, Shown(window=None))
    assert page.about
    assert [part.columns[0].title for part in parts[:-1]] == ["api", "client", "broker", "topic"]
    assert sum(row.codes for row in parts[0].rows) == found[0].codes
    assert all(found[0].name in dict(message.error_codes) for message in parts[-1].rows)
    api = parts[0].keys[0]
    (messages,) = sections(Page("messages", scope=(("error", found[0].name), api)), look, Shown())
    assert {message.api for message in messages.rows} == {api[1]}


def test_clients_have_their_addresses() -> None:
    look = busy(BUSY)
    connections = kafkatap.analyze(SAMPLES / f"{BUSY}.pcap.zst").connections
    known = set(zip(connections["client_id"].to_pylist(), connections["client_ip"].to_pylist(), strict=True))
    found = rows(look, "client")
    assert all(row.addresses for row in found)
    assert {(row.name, address) for row in found for address in row.addresses} >= {k for k in known if k[0]} - {
        (name, ip) for name, ip in known if name not in {row.name for row in found}
    }
    page = Page("detail", scope=(("client", found[0].name),))
    sections(page, look, Shown(window=None))
    assert page.about == f"from {found[0].addresses[0]}"


FILTERS = (
    "api == Produce", "error", "api in (Fetch, Produce) and latency > 20ms", "client ~ '^svc-' and not error",
    "topic == small43.clicks", "outcome != answered", "throttle > 0ms", "broker == :9094",
)  # fmt: skip


def same(one: list[Any], other: list[Any], *without: str) -> bool:
    def values(found: list[Any]) -> list[dict[str, Any]]:
        every = [{name: getattr(row, name) for name in row.__slots__ if "rate" not in name} for row in found]
        return sorted(({k: v for k, v in row.items() if k not in without} for row in every), key=str)

    return values(one) == values(other)


@pytest.mark.parametrize(("text", "after"), [*((text, 12) for text in FILTERS), ("error", None), (FILTERS[4], None)])
def test_a_typed_filter_counts_what_a_filter_from_the_start_counts(text: str, after: int | None) -> None:
    """Whether it is typed in the middle or at the end: the last exchanges are kept."""
    whole = play(BUSY, selection=Selection.of(filter=text, utc=True))
    kept, source = Kept(), FileSource(str(SAMPLES / f"{BUSY}.pcap.zst"))
    monitor = Monitor(source, Engine(all_results=True), sinks=kept.sinks, clock=source.clock, governor=Governor(None))
    look, begin, how = Live(monitor, kept), source.now, None
    while not source.over:
        source.wait(0.1)
        monitor.step()
        if how is None and after is not None and source.now > begin + after * SECOND:
            how = typed(look, text)
    monitor.finish()
    how = how or typed(look, text)
    for by in ("api", "client", "broker"):
        assert same(rows(look, by, **how), rows(whole, by), "api_key"), by
    assert same(rows(look, "errors", **how), rows(whole, "errors"), "rate")
    frozen = Frozen(look)
    frozen.narrow(how["selection"])
    assert same(rows(frozen, "api", **how), rows(whole, "api"))
    (messages,) = sections(Page("messages"), look, Shown(**how))
    (wanted,) = sections(Page("messages"), whole, Shown())
    assert [m.exchange for m in messages.rows] == [m.exchange for m in wanted.rows]


def test_a_typed_filter_ends() -> None:
    look = play(BUSY)
    before = rows(look, "api")
    assert len(rows(look, "api", **typed(look, "api == Produce"))) == 1
    look.narrow(None)
    assert rows(look, "api") == before


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("latncy > 5ms", "there is no name 'latncy'; did you mean latency?", "latncy"),
        ("api == Produc", "no API is called 'Produc'; did you mean Produce?", "Produc"),
        ("api ==", "a value", " "),
        ("group == billing", "from the start: kafkatap live -f 'group == billing'", "group == billing"),
        ("record.value contains 'x'", "only `kafkatap records`", "record.value contains 'x'"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_typed(text: str, reason: str, at: str) -> None:
    look = busy(BUSY)
    found = read_typed(text, look.monitor.engine, True)
    assert reason in found.reason
    assert (text + " ")[found.at : found.end] == at
    shown = Shown(filter=text, wrong=found)
    for width in (40, 80, 200):
        drawing = Drawing(Page("table"), 1, shown, look.status, sections(Page("table"), look, Shown()), editing=True)
        lines = ["".join(text for text, _ in line) for line in screen_lines(drawing, width, 24)]
        assert len(lines) == 24
        assert all(cells(line) <= width for line in lines)
        assert lines[3] == f"/{text}▏"
        if width == 200:
            assert lines[4][1 + found.at :].startswith("^" * len(at))
            assert found.reason in lines[4]


@pytest.mark.parametrize("text", ["aio", "billing-7", "10.0.0.1", "*", "Produce"])
def test_one_word_is_no_expression(text: str) -> None:
    assert read_typed(text, busy(BUSY).monitor.engine, True).word == text


def test_an_expression_without_topics_says_so() -> None:
    look = play(BUSY, 5 * SECOND)
    look.monitor.engine.set_detail(False)
    assert "not decoded now" in read_typed("topic == orders", look.monitor.engine, True).reason
    assert read_typed("error", look.monitor.engine, True).selection is not None


def test_the_filter_of_a_row_selects_what_the_row_has() -> None:
    look = busy(BUSY)
    recent = look.kept.recent
    scopes = [(key,) for by in ("api", "client", "broker", "errors") for key in _keys(look, by)]
    assert len(scopes) > 40
    for scope in scopes:
        found = read_typed(scope_filter(scope), look.monitor.engine, True)
        assert found.selection is not None, (scope, found.reason)
        picked = recent.picked(found.selection).matching((), 1 << 16)
        assert [m.exchange for m in picked] == [m.exchange for m in recent.matching(scope, 1 << 16)], scope


def _keys(look: Live, by: str) -> list[Any]:
    (section,) = sections(Page("table", by), look, Shown(window=None))
    return list(section.keys)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb\x1b", "it's", "主题", ""])
def test_names_are_quoted(name: str) -> None:
    found = Selection.of(filter=f"client_id == {quoted(name)}")
    assert found.expression is not None


@pytest.mark.parametrize("form", ["x.pcap", "x.pcapng"])
def test_the_packets_of_a_row_are_saved(form: str, tmp_path: Path) -> None:
    sample = SAMPLES / f"{BUSY}.pcap.zst"
    told: list[str] = []
    recorder = Recorder(tmp_path / form, on=Selection.of(filter="latency > 1h"), notify=told.append)
    source = FileSource(str(sample))
    monitor = Monitor(source, Engine(), sinks=[recorder], clock=source.clock, governor=Governor(None))
    while not source.over:
        source.wait(0.1)
        monitor.step()
    saver = PacketSaver(recorder, (), told.append)
    told.clear()
    for wanted in ('client_id == "svc-4-zstd"', 'client_id == "nobody"'):
        assert saver.save(wanted, "client x").startswith("saving")
        with saver._busy:
            pass
    first, second = told
    assert "have none of client x" in second
    (path,) = tmp_path.glob("x-saved-*.pcapng")
    assert first.startswith(f"{path}: ")
    assert path.stat().st_mode & 0o777 == 0o600
    saved, whole = kafkatap.analyze(path), kafkatap.analyze(sample)
    mine = [key for key, name in _named(whole) if name == "svc-4-zstd"]
    assert set(mine) <= {key for key, _ in _named(saved)}
    assert [other for other in tmp_path.iterdir() if other.name.startswith(".")] == []
    monitor.finish()


def _named(found: Any) -> list[tuple[int, str]]:
    rows = found.exchanges
    return list(zip(rows["exchange"].to_pylist(), rows["client_id"].to_pylist(), strict=True))


def test_saving_says_why_it_cannot(tmp_path: Path) -> None:
    told: list[str] = []
    folder = tmp_path / "there"
    folder.mkdir()
    recorder = Recorder(folder / "x.pcap", on=Selection.of(filter="error"), notify=told.append)
    saver = PacketSaver(recorder, (), told.append)
    shutil.rmtree(folder)
    saver.save(ends_filter("10.0.0.1:5"), "client x")
    with saver._busy:
        pass
    assert told == ["the packets of client x are not saved: No such file or directory"]
    recorder.close(Engine())


@pytest.mark.parametrize(("width", "room"), [(80, 20), (112, 29), (200, 52)])
def test_names_have_a_quarter_of_the_screen(width: int, room: int) -> None:
    """And no more than they need; what is left goes to them too."""
    assert {c.name: w for c, w in fit(ROWS, width, 100)}["name"] >= room
    assert {c.name: w for c, w in fit(ROWS, width, 100)}.keys() >= {"name", "requests", "p99", "failed", "error"}


def test_tabs_and_filter_fit_side_by_side() -> None:
    look = busy(BUSY)
    shown = Shown(**typed(look, "api == Produce"))
    parts: list[Section] = sections(Page("table"), look, shown)
    for width, wanted in (
        (60, "[1 API] 2 3 4 5 6 7 8 9  only api == Produce"),
        (112, "[1 API] 2 client 3 topic 4 broker 5 conns 6 waits 7 events 8 groups 9 errors  only api == Produce"),
    ):
        lines = screen_lines(Drawing(Page("table"), 1, shown, look.status, parts), width, 24)
        assert "".join(text for text, _ in lines[3]).startswith(wanted)
    look.narrow(None)
