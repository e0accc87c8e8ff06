"""`Selection`: what its options select of rows made by hand, that it travels, and what waits for a name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from kafkatap.dissector import dtypes as r
from kafkatap.dissector.results import EXCHANGE_TOPIC
from kafkatap.engine.selection import EVERYTHING, Selection, Selector
from kafkatap.reports.batch import Context
from kafkatap.reports.counting.counts import ReportCounts
from kafkatap.reports.expressions.meaning import atoms_of
from kafkatap.reports.literals import read_moment

from .reports import rows as made
from .reports.rows import MS, START, batch, context, exchange, result

ROWS = batch([
    exchange(0, at=0, client_id=made.BILLING, client_ip=0, broker_ip=1, broker_port=9092, api_key=0),
    exchange(1, at=MS, client_id=made.HOSTILE, client_ip=0, broker_ip=1, broker_port=9093, api_key=1),
    exchange(2, at=2 * MS, client_id=made.BILLING, client_ip=2, broker_ip=2, broker_port=9092, api_key=1),
    exchange(3, at=3 * MS, client_id=-1, client_ip=2, broker_ip=1, broker_port=9092, api_key=3),
])  # fmt: skip
NAMES = context()._replace(first=START)


def selected(selection: Selection, names: Context = NAMES) -> list[int]:
    return [int(n) for part in selection.apply([ROWS], names) for n in part.exchanges["exchange"]]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0, 1, 2, 3]),
        ({"start": "+1ms"}, [1, 2, 3]),
        ({"start": "+1 ms", "end": "+3ms"}, [1, 2]),
        ({"clients": ["billing"]}, [0, 2]),
        ({"clients": ["b*"], "apis": ["fetch"]}, [2]),
        ({"clients": ["10.0.0.9"]}, [2, 3]),
        ({"clients": ["10.0.0.9", "billing"]}, [0, 2, 3]),
        ({"clients": ["Billing"]}, []),
        ({"brokers": ["10.0.0.2"]}, [0, 1, 3]),
        ({"brokers": ["10.0.0.2:9092"]}, [0, 3]),
        ({"brokers": [":9092"]}, [0, 2, 3]),
        ({"brokers": ["10.0.0.2:9093", "10.0.0.9"]}, [1, 2]),
        ({"brokers": ["192.0.2.1"]}, []),
        ({"apis": ["Produce", "3"]}, [0, 3]),
        ({"apis": ["Produce", "3"], "filter": "client == billing"}, [0]),
        ({"filter": "time >= +2ms or api == Produce"}, [0, 2, 3]),
    ],
)
def test_options_select(options: dict[str, Any], wanted: list[int]) -> None:
    times = {name: read_moment(options[name]) for name in ("start", "end") if name in options}
    selection = Selection.of(**{**options, **times})
    assert bool(selection) == bool(options)
    assert selected(selection) == wanted
    assert selected(pickle.loads(pickle.dumps(selection))) == wanted
    resolved = selection.at(START)
    assert resolved.is_resolved
    assert selected(pickle.loads(pickle.dumps(resolved)), NAMES._replace(first=None)) == wanted


def test_nothing_is_left_out_and_nothing_is_needed() -> None:
    assert Selection.of() == EVERYTHING
    assert not EVERYTHING
    needed = EVERYTHING.engine_options
    assert (needed.all_results, needed.inspectors, needed.apis) == (False, (), None)
    assert list(EVERYTHING.apply([ROWS], NAMES)) == [ROWS]


def test_only_what_can_match_is_decoded() -> None:
    selection = Selection.of(apis=[["Fetch", "Produce"][0]], topics=["orders"])
    assert selection.engine_options.apis == frozenset({1})
    assert selection.engine_options.all_results
    assert not Selection.of(clients=["x"]).engine_options.all_results


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_an_empty_filter_is_refused(empty: str) -> None:
    with pytest.raises(ValueError, match="the filter is empty"):
        Selection.of(filter=empty)


def test_an_exchange_is_selected_with_all_its_rows() -> None:
    rows = batch([exchange(0), exchange(1)], [
        result(0, 6, topic=made.ORDERS), result(0, 5, topic=made.BILLING), result(1, topic=made.BILLING),
    ])  # fmt: skip
    for selection in (Selection.of(topics=["ord*"]), Selection.of(filter="error == 6")):
        (found,) = selection.apply([rows], NAMES)
        assert found.exchanges["exchange"].tolist() == [0]
        assert found.results["error_code"].tolist() == [6, 5]


@pytest.mark.parametrize(
    ("expression", "codes"),
    [
        ("topic == orders", [6, 7]),
        ("topic == orders and partition == 0", [6]),
        ("not topic == billing", []),
        ("topic == orders or client == billing", [6, 7, 5, 3]),
        ("topic == orders or client == nobody", [6, 7]),
        ("topic == orders and topic == billing", [6, 7, 5, 3]),  # no result is on both
        ("topic == 'group-1'", []),  # the request names it, and no result does
        ("partition == 3 or name == 'group-1'", [3]),
        ("error == 5", [6, 7, 5, 3]),
    ],
)
def test_results_on_other_topics_do_not_count(expression: str, codes: list[int]) -> None:
    topics = np.zeros(1, EXCHANGE_TOPIC)
    topics["exchange"], topics["topic"], topics["topic_id"] = 0, made.GROUP, -1
    rows = batch([exchange(0)], [
        result(0, 6), result(0, 7, partition=1), result(0, 5, topic=made.BILLING),
        result(0, 3, topic=made.BILLING, partition=3),
    ])._replace(topics=topics)  # fmt: skip
    found = list(Selection.of(filter=expression).apply([rows], NAMES))
    assert [int(code) for part in found for code in part.counted_results["error_code"]] == codes
    assert all(len(part.results) == 4 for part in found)
    counts = ReportCounts()
    for part in found:
        counts.add(part)
    assert (counts.total("error_codes"), counts.total("failed_exchanges")) == (len(codes), min(len(codes), 1))


def test_results_on_other_groups_do_not_count() -> None:
    others = {"kind": r.KIND_GROUP, "topic": -1, "partition": r.NO_INT32}
    rows = batch([exchange(0, api_key=15)], [result(0, 15, name=made.GROUP, **others),
                                             result(0, 16, name=made.BILLING, **others)])  # fmt: skip
    selection = Selection.of(groups=["group-1"])
    assert selection.expression is not None
    marks = np.array([(1 << len(list(atoms_of(selection.expression.root)))) - 1], np.uint64)
    condition = selection.condition()
    assert condition is not None
    left_out = condition.results_left_out(rows._replace(marks=marks), NAMES)
    assert left_out is not None
    assert left_out.tolist() == [False, True]


def test_a_topic_whose_name_comes_later_waits_for_it() -> None:
    """A Fetch names its topic by id; the name comes in a later Metadata response."""
    known: dict[int, int] = {}
    names = NAMES._replace(topic_names=known)
    first = batch([exchange(0), exchange(1)], [
        result(0, 6, topic=-1, topic_id=made.ORDERS_ID), result(0, 6, topic=made.BILLING), result(1, 5),
    ])  # fmt: skip
    second = batch([exchange(2)], [result(2, 4, topic=made.BILLING)])
    found = []
    for part in Selection.of(topics=["ord*"]).apply([first, second], names):
        found += part.exchanges["exchange"].tolist()
        known[made.ORDERS_ID] = made.ORDERS
    assert found == [1, 0]
    assert Selector(Selection.of(topics=["ord*"]), NAMES).select(first).tolist() == [False, True]
