"""Declared counts: what they read, and what becomes of small rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from kafkatap.reports.counting.count_forms import NUMBER, OTHER, TEXT
from kafkatap.reports.section_parts.counted import CONNECTIONS, KEPT, counted, largest, total
from kafkatap.reports.section_parts.section import facts_needed

_OPENED = counted(
    "test.connections", {"name": TEXT}, lambda x: x.port > 0, of=CONNECTIONS, more={"what": 1, "end": "port"},
    other={"what": KEPT, "end": 0}, metrics={"size": "size"},
    connections=total(1), closed=total(), most=largest("size"),
)  # fmt: skip
_CLOSED = _OPENED.also(CONNECTIONS, lambda x: x.port == 7, {"what": 2}, closed=1)


def _added(rows: Any) -> list[tuple[Any, ...]]:
    """What both add of some connections."""
    added: list[tuple[Any, ...]] = []
    tally: Any = SimpleNamespace(
        add=lambda form, keys, values: added.append(("add", form, _lists(keys), _lists(values))),
        observe=lambda form, keys, metric, numbers: added.append(("observe", form, _lists(keys), numbers.tolist())),
    )
    for each in (_OPENED, _CLOSED):
        each.read_connections(rows, tally)
    return added


def _lists(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: column.tolist() if np.ndim(column) else column for name, column in columns.items()}


def test_a_form_counts_rows_by_several_conditions() -> None:
    rows = np.array([(3, 0, 10), (4, 7, -1), (5, 9, 30)], [("name", "i8"), ("port", "i8"), ("size", "i8")])
    name = "test.connections"
    assert _added(rows) == [
        ("add", name, {"name": [4, 5], "what": 1, "end": [7, 9]}, {"connections": 1, "most": [-1, 30]}),
        ("observe", name, {"name": [5], "what": 1, "end": [9]}, [30]),
        ("add", name, {"name": [4], "what": 2, "end": [7]}, {"closed": 1}),
    ]


def test_no_row_adds_nothing() -> None:
    assert _added(np.array([(3, 0, 10)], [("name", "i8"), ("port", "i8"), ("size", "i8")])) == []


def test_small_rows_keep_what_the_form_says() -> None:
    assert _OPENED.form is _CLOSED.form
    assert _OPENED.form.keys == {"name": TEXT, "what": NUMBER, "end": NUMBER}
    assert _OPENED.form.other == {"name": OTHER, "end": 0}


def test_kinds_of_facts_follow() -> None:
    beats = counted("test.beats", {"name": TEXT}, of=("heartbeat",), beside=("commit",), beats=total(1))
    assert facts_needed((), (beats, beats.also(("join group",), beats=1), _OPENED), ()) == (
        "heartbeat",
        "commit",
        "join group",
    )
