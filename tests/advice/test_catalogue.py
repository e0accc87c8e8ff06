"""The catalogue of signatures: its page, its tables, and what may not be in it twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkatap.reports.advice.catalogue import CATALOGUE, ON_REQUEST, USUAL
from kafkatap.reports.findings_page import document, numbers_document
from kafkatap.reports.section_parts.registry import FIRST, load_sections

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(("name", "made"), [("findings.md", document), ("contributors/findings.md", numbers_document)])
def test_the_pages_are_made_from_the_tables(name: str, made: Callable[[], str]) -> None:
    if os.environ.get("KAFKATAP_UPDATE"):
        (DOCS / name).write_text(made())
    assert (DOCS / name).read_text() == made()


def test_each_signature_is_documented_and_has_its_own_names() -> None:
    for signature in CATALOGUE:
        for text in (signature.title, signature.wire, signature.setting, signature.remedy, signature.threshold):
            assert text.strip() == text != "", signature.id
        assert all(form.name.startswith("advice.") for form in signature.every_form), signature.id
    for names in ([s.id for s in CATALOGUE], [kind for s in CATALOGUE for kind in s.events]):
        assert max(Counter(names).values(), default=1) == 1


def test_the_usual_report_reads_no_costly_facts() -> None:
    """Facts of Produce and Fetch, and measures of TCP, only on request."""
    from kafkatap.dissector.programs.fact_kinds import KINDS, NUMBER_OF

    assert len(USUAL) + len(ON_REQUEST) == len(CATALOGUE)
    sections = load_sections(FIRST)
    assert {"advice"} <= {section.name for section in sections}
    assert "advice-on-request" not in {section.name for section in sections}
    for signature in USUAL:
        assert not signature.measures
        assert not {KINDS[NUMBER_OF[fact]].api_key for fact in signature.every_fact} & {-1, 0, 1, 78}
