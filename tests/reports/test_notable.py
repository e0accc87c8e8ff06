"""Sections that read notable exchanges only find the same in them as in all exchanges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kafkatap.reports.batch import Batch
from kafkatap.reports.section_parts.notable import NotableExchanges
from kafkatap.reports.section_parts.registry import load_sections
from kafkatap.reports.section_parts.section import SectionInput
from tests.support.section_runs import section_input

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CAPTURES = sorted((*SAMPLES.glob("advice/*.pcap.zst"), *SAMPLES.glob("events/*.pcap.zst"), *SAMPLES.glob("*.pcap.zst")))
WANTED = ("first-lines", "first-lines-on-request")


def test_first_lines_read_notable_exchanges_only() -> None:
    assert all(section.reads_notable for section in load_sections(WANTED))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".pcap")[0])
def test_the_others_make_no_difference(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def of(self: NotableExchanges, batch: Batch) -> Batch:
        found = notable(self, batch)
        kept.append((len(found.exchanges), len(batch.exchanges)))
        return found

    notable = NotableExchanges.of
    with monkeypatch.context() as patch:
        patch.setattr(NotableExchanges, "of", of)
        some = section_input(capture, WANTED)
    monkeypatch.setattr(NotableExchanges, "of", lambda self, batch: batch)
    check_same(some, section_input(capture, WANTED))
    assert 0 < sum(found for found, _ in kept) <= sum(count for _, count in kept)


def check_same(some: SectionInput, whole: SectionInput) -> None:
    for name, counts in whole.sections.forms.items():
        mine = some.sections.forms[name]
        assert np.array_equal(mine.table.key_rows(), counts.table.key_rows()), name
        assert np.array_equal(mine.table.value_rows(), counts.table.value_rows()), name
    for section in whole.sections.sections:
        assert np.array_equal(some.events(section.name), whole.events(section.name)), section.name
