"""Sections that read notable exchanges only find the same in them as in all exchanges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kafkatap.reports.advice.catalogue import CATALOGUE
from kafkatap.reports.advice.signature import Signature
from kafkatap.reports.batch import Batch
from kafkatap.reports.section_parts import registry, section_counts
from kafkatap.reports.section_parts.counted import CLIENT, counted, total
from kafkatap.reports.section_parts.notable import NotableExchanges
from kafkatap.reports.section_parts.registry import load_sections
from kafkatap.reports.section_parts.section import SectionInput
from kafkatap.reports.sections.advice import signatures_section
from tests.support.section_runs import section_input
from tests.ways.recordings import recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CAPTURES = sorted((*SAMPLES.glob("advice/*.pcap.zst"), *SAMPLES.glob("events/*.pcap.zst"), *SAMPLES.glob("*.pcap.zst")))
WANTED = ("first-lines", "first-lines-on-request")


def test_first_lines_read_notable_exchanges_only() -> None:
    assert all(section.reads_notable for section in load_sections(WANTED))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.partition(".pcap")[0])
def test_the_others_make_no_difference(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[tuple[int, int]]()

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


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = recording("advice", tmp_path_factory.mktemp("joined"))
    return path


@pytest.mark.parametrize("signature", CATALOGUE, ids=lambda signature: signature.id)
def test_a_signature_needs_no_exchanges_that_others_make_notable(
    signature: Signature, joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their facts. Alone it counts the same in notable exchanges and in all."""
    check_alone(signature, joined, monkeypatch)


def test_counts_of_other_exchanges_are_found(joined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata requests are notable only where other signatures read them."""
    asked = counted("advice.asked", CLIENT, lambda x: x.api_key == 3, requests=total(1))
    metadata = Signature("metadata", "", "", "", "", "", lambda given: [], counts=(asked,))
    with pytest.raises(AssertionError):
        check_alone(metadata, joined, monkeypatch)


def check_alone(signature: Signature, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = signatures_section("alone", "", [signature], is_main=False)
    for module in (registry, section_counts):
        monkeypatch.setattr(module, "load_sections", lambda wanted: (section,))
    some = section_input(path, "alone")
    monkeypatch.setattr(NotableExchanges, "of", lambda self, batch: batch)
    check_same(some, section_input(path, "alone"))


def check_same(some: SectionInput, whole: SectionInput) -> None:
    for name, counts in whole.sections.forms.items():
        mine = some.sections.forms[name]
        assert np.array_equal(mine.table.key_rows(), counts.table.key_rows()), name
        assert np.array_equal(mine.table.value_rows(), counts.table.value_rows()), name
    for section in whole.sections.sections:
        assert np.array_equal(some.events(section.name), whole.events(section.name)), section.name
