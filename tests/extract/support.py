"""Extractions in tests, compared with the original by the library's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kafkatap
from kafkatap.engine.selection import EVERYTHING, Selection
from kafkatap.extract import Summary, extract

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
#: Columns with numbers of packets: another capture has other numbers.
PACKETS = tuple(f"{message}_packet_{end}" for message in ("request", "response") for end in ("first", "last"))

Rows = dict[int, dict[str, Any]]


def extracted(
    captures: Path | Sequence[Path], output: Path, filter: str | None = None, **options: Any
) -> Summary:  # fmt: skip
    """Extract what a filter selects."""
    paths = [captures] if isinstance(captures, Path) else captures
    selection = EVERYTHING if filter is None else Selection.of(filter=filter)
    return extract([str(path) for path in paths], str(output), selection, **options)


def rows_of(captures: Path | Sequence[Path], filter: str | None = None) -> Rows:
    """The rows of exchanges by key, with their results, without numbers of packets."""
    analysis = kafkatap.analyze(captures, filter=filter)
    rows: Rows = {row["exchange"]: row for row in analysis.exchanges.drop_columns(PACKETS).to_pylist()}
    for row in rows.values():
        row["results"] = []
    for result in analysis.results.to_pylist():
        rows[result["exchange"]]["results"].append(result)
    return rows


def assert_same_rows(captures: Path | Sequence[Path], output: Path, filter: str | None = None) -> Rows:
    """The extracted capture has the rows that the filter selects in the original, and selects the same."""
    expected = rows_of(captures, filter)
    found = rows_of(output)
    assert {key: found.get(key) for key in expected} == expected
    return expected
