"""The last exchanges: as many as there is room for, whole, and by the names that they had."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.dissector.dtypes import OUTCOMES, RESULT
from kafkatap.engine.engine import Engine
from kafkatap.live.governor import Governor
from kafkatap.live.memory_limits import MemoryLimits
from kafkatap.live.monitor import Monitor
from kafkatap.live.screen.recent_exchanges import Recent, Ring
from kafkatap.live.sink import names_of
from kafkatap.reports.batch import Batch, endpoint
from kafkatap.reports.counting.rollup import api_label
from kafkatap.reports.sections.error_codes import error_label
from kafkatap.run import Run
from tests.support.tcp import merge
from tests.wire.kafkatalk import MS

from .support import SECOND, FileSource
from .watched import Seen, answering, ticking

SAMPLES = sorted(Path("samples").glob("*.pcap*"))
EVERYTHING = 1 << 20


def fed(path: Path, capacity: int) -> tuple[Recent, Engine, list[Batch]]:
    recent, engine = Recent(capacity), Engine(all_results=True)
    batches = []
    for batch in Run([str(path)], engine).batches():
        recent.add_batch(batch, engine)
        batches.append(Batch(batch.exchanges.copy(), batch.results.copy(), None, batch.topics))
    return recent, engine, batches


@given(st.integers(1, 9), st.lists(st.integers(0, 12), max_size=12), st.integers(0, 12))
def test_a_ring_holds_the_last(capacity: int, sizes: list[int], n: int) -> None:
    ring, given_rows, number = Ring(np.dtype([("n", "i8"), ("odd", "u1")]), capacity), [], 0
    for size in sizes:
        rows = np.zeros(size, ring.dtype)
        rows["n"] = range(number, number + size)
        rows["odd"] = rows["n"] % 2
        given_rows += rows["n"].tolist()
        number += size
        ring.put(rows)
    kept = given_rows[-capacity:]
    assert sorted(ring.rows["n"].tolist()) == kept
    for odd in (0, 1):
        places = ring.newest(np.flatnonzero(ring.rows["odd"] == odd), n)
        assert ring.rows["n"][places].tolist() == [k for k in kept[::-1] if k % 2 == odd][:n]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_every_exchange_is_there_as_it_was(path: Path) -> None:
    recent, engine, batches = fed(path, 1 << 16)
    context = names_of(engine)
    errors: dict[int, Counter[str]] = {}
    topics: dict[int, set[str | None]] = {}
    for batch in batches:
        for r in batch.results:
            if r["error_code"]:
                errors.setdefault(int(r["exchange"]), Counter())[error_label(int(r["error_code"]))] += 1
        for r in (*batch.results, *(() if batch.topics is None else batch.topics)):
            topics.setdefault(int(r["exchange"]), set()).add(context.topic(int(r["topic"]), int(r["topic_id"])))
    rows = {int(e["exchange"]): e for batch in batches for e in batch.exchanges}
    messages = recent.matching((), EVERYTHING)
    assert {m.exchange for m in messages} == set(rows)
    assert [m.at for m in messages] == sorted((m.at for m in messages), reverse=True)
    for m in messages:
        e = rows[m.exchange]
        assert m.client == endpoint(context.address(int(e["client_ip"])), int(e["client_port"]))
        assert m.broker == endpoint(context.address(int(e["broker_ip"])), int(e["broker_port"]))
        assert (m.client_id, m.outcome) == (context.text(int(e["client_id"])), OUTCOMES[e["outcome"]])
        assert (m.api, m.api_version) == (api_label(int(e["api_key"]), int(e["long_poll"])), e["api_version"])
        assert m.broker_ns == (e["broker_ns"] if m.outcome == "answered" else None)
        assert dict(m.error_codes) == errors.get(m.exchange, {})
        assert set(m.topics) == {t for t in topics.get(m.exchange, ()) if t is not None}


def test_of_many_the_last_are_kept() -> None:
    recent, _, batches = fed(SAMPLES[0], 100)
    numbers = np.concatenate([batch.exchanges["exchange"] for batch in batches]).tolist()
    assert len(recent) == 100 < len(numbers)
    assert {m.exchange for m in recent.matching((), EVERYTHING)} == set(numbers[-100:])
    assert {m.exchange for m in recent.matching((), 7)} == set(numbers[-7:])
    assert sum(c.requests for c in recent.active((), EVERYTHING)) == 100


def test_many_results_of_one_exchange_stay_within_bounds() -> None:
    _, engine, batches = fed(SAMPLES[0], 1)
    last = batches[-1].exchanges[-1:]
    results = np.zeros(1000, RESULT)
    results["exchange"], results["error_code"] = last["exchange"], 3
    results["topic"] = results["topic_id"] = results["name"] = -1
    recent = Recent(10)
    recent.add_batch(Batch(last, results), engine)
    assert recent.matching()[0].error_codes == (("UNKNOWN_TOPIC_OR_PARTITION", 10),)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_scopes(path: Path) -> None:
    recent, _, _ = fed(path, 1 << 16)
    everything = recent.matching((), EVERYTHING)
    of: dict[str, Any] = {
        "client": lambda m: m.client_id, "api": lambda m: m.api, "broker": lambda m: m.broker,
        "connection": lambda m: m.connection,
    }  # fmt: skip
    for kind, name_of in of.items():
        for name in {name_of(m) for m in everything}:
            wanted = [m for m in everything if name_of(m) == name]
            assert recent.matching(((kind, name),), EVERYTHING) == wanted
    for topic in {t for m in everything for t in m.topics}:
        assert recent.matching((("topic", topic),), EVERYTHING) == [m for m in everything if topic in m.topics]
    first = everything[0]
    both = recent.matching((("client", first.client_id), ("api", first.api)), EVERYTHING)
    assert both == [m for m in everything if (m.client_id, m.api) == (first.client_id, first.api)]
    assert recent.matching((("client", "nobody"),)) == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_connections_are_sums_of_their_messages(path: Path) -> None:
    recent, _, _ = fed(path, 1 << 16)
    everything = recent.matching((), EVERYTHING)
    found = recent.active((), EVERYTHING)
    assert {c.connection for c in found} == {m.connection for m in everything}
    for c in found:
        own = [m for m in everything if m.connection == c.connection]
        prompt = sorted(m.broker_ns for m in own if m.broker_ns is not None and not m.waits)
        assert (c.requests, c.failed) == (len(own), sum(bool(m.error_codes) for m in own))
        assert c.throttled == sum((m.throttle_time_ms or 0) > 0 for m in own)
        assert c.unanswered == sum(m.outcome in ("unanswered", "response_lost") for m in own)
        assert (c.client, c.broker) == (own[0].client, own[0].broker)
        assert c.broker_p50 == (prompt[(len(prompt) + 1) // 2 - 1] if prompt else None)
    assert [c.requests for c in found] == sorted((c.requests for c in found), reverse=True)


@pytest.mark.parametrize("path", SAMPLES[:3], ids=lambda p: p.name)
def test_names_outlive_their_numbers(path: Path) -> None:
    """With bounds so tight that the engine's numbers change every second, all names are still those of before."""
    told = []
    for limits in (None, MemoryLimits(strings=1, text=1, addresses=1)):
        recent, source = Recent(), FileSource(str(path), SECOND // 20)
        monitor = Monitor(
            source, Engine(all_results=True), sinks=[recent], limits=limits, clock=source.clock, governor=Governor(None)
        )
        monitor.run(lambda source=source: source.over)
        told.append(recent)
    assert told[1]._strings  # it had to
    plain, renumbered = (recent.matching((), EVERYTHING) for recent in told)
    # A topic of which only the id was known then may have told its name later.
    assert [replace(m, topics=()) for m in plain] == [replace(m, topics=()) for m in renumbered]
    assert [len(m.topics) for m in plain] == [len(m.topics) for m in renumbered]
    assert told[0].active((), 50) == told[1].active((), 50)
    scope = (("client", plain[0].client_id), ("broker", plain[0].broker))
    assert [m.exchange for m in told[0].matching(scope)] == [m.exchange for m in told[1].matching(scope)]


def test_frozen_it_stays_as_it_was() -> None:
    recent, engine, batches = fed(SAMPLES[0], 500)
    before, active = recent.matching((), EVERYTHING), recent.active()
    copy = recent.frozen()
    for batch in batches[:50]:
        recent.add_batch(batch, engine)
    engine.strings, engine.addresses = [], []  # type: ignore[assignment]
    assert copy.matching((), EVERYTHING) == before
    assert copy.active() == active


def test_requests_without_acks_are_there_at_once_and_stay_one_row(tmp_path: Path) -> None:
    """Their provisional rows; a response that comes all the same takes their place."""
    talk = answering(4, 1_700 * MS, 30 * MS)
    seen = Seen(tmp_path / "x.pcap", merge(talk.segments, ticking(9)))
    recent = Recent()
    seen.monitor.sinks.append(recent)
    outcomes = []
    for _ in seen.seconds():
        messages = recent.matching((("client", "sensor"),))
        assert len({m.exchange for m in messages}) == len(messages)
        outcomes.append([m.outcome for m in reversed(messages)])
        assert all(m.topics == ("orders",) for m in messages)
    assert outcomes[0] == ["no_reply_expected"]
    assert outcomes[2] == ["answered", "no_reply_expected"]
    assert outcomes[-1] == ["answered"] * 4
