"""A selection selects the same exchanges in splits as in one process, with all their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkatap import analyze
from kafkatap.engine.selection import Selection
from kafkatap.reports.literals import read_moment
from kafkatap.reports.section_parts.registry import OVER_FACTS
from kafkatap.splits.run_options import RunOptions
from tests.splits.join_support import assert_same, compared, cut_at_packets, join, local, packets_at_random, rotate
from tests.support.captures import read_bytes
from tests.support.split_plans import planned_splits
from tests.ways import reports

#: By name: arguments of `analyze` that select some of the exchanges of the samples.
SELECTIONS: dict[str, dict[str, Any]] = {
    "columns": {"filter": "latency > 2ms and api != Fetch"},
    "results": {"filter": "error != NONE or outcome != answered"},
    "fields of bodies": {"filter": "Produce.request.Acks == -1 or response.Topics.Partitions.LeaderId >= 0"},
    "client and topic": {"client": ["perf*", "svc*", "rdk*"], "topic": ["*a*", "*o*"]},
    "api and broker": {"api": ["Produce", "3"], "broker": [":9092", ":28101"]},
    "a relative window": {"start": "+1s", "end": "+9s", "filter": "api != Heartbeat"},
}


def selection_of(options: dict[str, Any]) -> Selection:
    found = {
        f"{name}s" if name in ("client", "topic", "api", "broker") else name: value for name, value in options.items()
    }
    return Selection.of(**found | {name: read_moment(options[name]) for name in ("start", "end") if name in options})


@pytest.fixture(scope="module", params=["apache-2.8", "apache-4.3"])
def sample(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "sample.pcap"
    path.write_bytes(read_bytes(samples / f"{request.param}.pcap.zst"))
    return path


@pytest.mark.parametrize("name", SELECTIONS)
def test_splits_select_what_one_process_selects(sample: Path, name: str) -> None:
    wanted = local(sample, records=True, **SELECTIONS[name])
    everything = analyze(sample).exchanges.num_rows
    assert 0 < wanted["exchanges"].num_rows < everything
    splits = cut_at_packets(sample, packets_at_random(sample, 3, len(name)))
    assert_same(join(splits, records=True, selection=selection_of(SELECTIONS[name])), compared(wanted))


def test_a_relative_window_counts_from_the_first_packet_of_all_captures(sample: Path, tmp_path: Path) -> None:
    files = rotate(sample, tmp_path / "rotated", packets_at_random(sample, 3, 2), 2)
    options = SELECTIONS["a relative window"]
    joined = join(planned_splits(files, 0), selection=selection_of(options))
    assert_same(joined, compared(local(files, **options)))


def test_sections_over_selected_exchanges(sample: Path) -> None:
    options = RunOptions(selection=Selection.of(clients=["*a*"]), wanted=tuple(OVER_FACTS))
    wanted = reports.one_engine([sample], options)
    assert wanted["reports"] != reports.one_engine([sample], RunOptions(wanted=options.wanted))["reports"]
    reports.assert_same(reports.over_splits([sample], 3, options), wanted)
