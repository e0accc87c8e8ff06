"""Under a table stand at most two short sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkatap import analyze
from kafkatap.reports.section_parts.registry import section_names

ROOT = Path(__file__).parents[2]
CAPTURES = sorted((*ROOT.glob("samples/apache-*.pcap.zst"), *ROOT.glob("samples/questions/*.pcap.zst")))
LONGEST = 150


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".pcap")[0])
def test_notes_are_two_short_sentences(capture: Path) -> None:
    tables = analyze(capture).report(sections=section_names()).tables
    assert len(tables) > 30
    for table in tables:
        sentences = [s for note in table.notes for s in re.split(r"(?<=[a-z0-9)])\. (?=[A-Za-z])", note)]
        assert len(sentences) <= 2, (table.name, sentences)
        assert all(len(sentence) <= LONGEST for sentence in sentences), (table.name, sentences)
