"""What the documents say is so: the columns of the tables, and the examples of the library."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from kafkatap.reports.tables import TABLES

ROOT = Path(__file__).resolve().parent.parent


def test_tables_are_documented_as_they_are() -> None:
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == ["Keys", *TABLES]
    for name, columns in TABLES.items():
        told = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", sections[name], re.MULTILINE)
        assert [(column, kind) for column, kind, _ in told] == [(c.name, c.type + "?" * c.nullable) for c in columns], (
            name
        )


def test_the_examples_of_the_library_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "library.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 8
    assert failed == 0
