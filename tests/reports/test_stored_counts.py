"""Counts become rows of a table, and these the same counts again, whatever the names in them are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkatap.reports.batch import Context
from kafkatap.reports.counting.count_forms import ADDRESS, NUMBER, PLACE, TEXT, CountForm, FormCounts, by_place
from kafkatap.reports.counting.count_table import ANY, LATEST, MAX, MIN, SUM
from kafkatap.reports.counting.parts import Part
from kafkatap.reports.counting.stored_counts import parts_of, stored_table
from kafkatap.reports.name_table import NameTable

FORM = CountForm(
    "things", {"number": NUMBER, "name": TEXT, "address": ADDRESS, "id": TEXT},
    {"count": SUM, "least": MIN, "most": MAX, "last": LATEST, "bits": ANY}, {}, ("size", "time"),
)  # fmt: skip
STRINGS = [b"orders", b"\xff\x00,;:", bytes(range(16)), "\N{GREEK SMALL LETTER OMEGA}".encode(), b""]
ADDRESSES = ["10.0.0.1", "fe80::1"]
NAMES = Context(strings=STRINGS, addresses=ADDRESSES)
NUMBERS = st.integers(-(2**62), 2**62)
ROWS = st.lists(
    st.tuples(
        st.tuples(NUMBERS, st.integers(-1, 4), st.integers(-1, 1), st.integers(-1, 4)),
        st.tuples(st.integers(0, 1000), NUMBERS, NUMBERS, NUMBERS, st.integers(0, 255)),
        st.lists(st.integers(0, 2**40), max_size=3),
    ),
    max_size=8,
)


def counts_of(rows: list[Any]) -> FormCounts:
    counts = FormCounts(FORM)
    for key, values, sizes in rows:
        counts.add(np.array([key], np.int64), np.array([values], np.int64))
        for metric in range(2):
            counts.observe(metric, np.array([key] * len(sizes), np.int64).reshape(-1, 4), np.array(sizes, np.int64))
    return counts


def stored(*parts: list[Any]) -> pa.Table:
    """The stored counts of some places, which are counted together."""
    placed = FormCounts(by_place(FORM))
    for place, rows in enumerate(parts):
        counts_of(rows).move_to(placed, place)
    table, places = stored_table([Part.of(placed).apart(PLACE)], NAMES)
    assert places.tolist() == [place for place, rows in enumerate(parts) if rows]
    return table


def named(counts: FormCounts, strings: Any, addresses: Any) -> dict[Any, Any]:
    """The values and histograms by keys with their texts."""
    found: dict[Any, Any] = {}
    keys = counts.table.key_rows().tolist()
    for (number, name, address, id_), values in zip(keys, counts.table.value_rows().tolist(), strict=True):
        texts = [None if n < 0 else strings[n] for n in (name, id_)]
        found[number, texts[0], None if address < 0 else addresses[address], texts[1]] = (tuple(values), [])
    by_row = list(found.values())
    for metric in FORM.metrics:
        for row, bucket, count in zip(*map(np.ndarray.tolist, counts.buckets(metric)), strict=True):
            by_row[row][1].append((metric, bucket, count))
    return {key: (values, sorted(buckets)) for key, (values, buckets) in found.items()}


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_counts_are_the_same_again(parts: list[list[Any]]) -> None:
    """Those of several places, added up."""
    table = stored(*parts)
    for number, rows in enumerate(each for each in parts if each):
        assert table.slice(number, 1).equals(stored(rows)), "a row is what it is without others"
    names, found = NameTable(), FormCounts(FORM)
    for part in parts_of(table, (FORM.name,), names):
        assert part.add_to(found)
    wanted = counts_of([row for rows in parts for row in rows])
    assert named(found, names.strings, names.addresses) == named(wanted, STRINGS, ADDRESSES)


def test_forms_that_have_changed() -> None:
    """A new value is empty in what was kept before, one that is gone is left out, and keys are found by name."""
    rows = [((7, 0, 0, -1), (3, 1, 2, 3, 1), [5])]
    [part] = parts_of(stored(rows), (FORM.name,), names := NameTable())
    assert names.strings == [b"orders"]
    later = FORM._replace(
        keys={"address": ADDRESS, "id": TEXT, "name": TEXT, "number": NUMBER}, values={"most": MAX, "new": SUM}
    )
    found = FormCounts(later)
    assert part.add_to(found)
    assert (found.table.key_rows().tolist(), found.table.value_rows().tolist()) == ([[0, -1, 0, 7]], [[2, 0]])
    for other in (FORM._replace(keys={"number": NUMBER}), FORM._replace(metrics=("size",))):
        assert not part.add_to(FormCounts(other))


def test_parts_without_rows_are_not_kept() -> None:
    none = np.zeros(0, np.int64)
    empty = Part("empty", {"a": NUMBER}, np.zeros((0, 1), np.int64))
    table, places = stored_table([(Part.of(counts_of([])), none), (empty, none)], NAMES)
    assert table.num_rows == len(places) == 0
    assert list(parts_of(table, (FORM.name, "empty"), NameTable())) == []
