"""Estimated response times beside the true ones, over recordings of eight client libraries (samples/tls)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tls_estimates import NAMES, SAMPLES, Client, clients_of
from kafkatap.reports.sections import tls
from kafkatap.reports.sections.tls import COVERS
from tests.support.section_runs import section_input

#: Those whose records overlap in `libraries` when they send many; the others wait for each response.
PIPELINED = ("java", "librdkafka", "franz-go", "kafkajs")
LIBRARIES = (*PIPELINED, "kafka-python", "aiokafka", "sarama", "segmentio")
CAPTURE = SAMPLES / "libraries.pcap.zst"


@cache
def clients(name: str) -> list[Client]:
    return clients_of(str(SAMPLES / f"{name}.pcap.zst"), [str(SAMPLES / f"{name}.keys.log")])


def busiest(name: str) -> Client:
    """The connection of a client in `libraries` with the most requests."""
    return max((client for client in clients("libraries") if client.name == name), key=lambda each: len(each.true))


@pytest.mark.parametrize("name", NAMES)
def test_medians_that_are_shown_are_true(name: str) -> None:
    shown = [client for client in clients(name) if client.coverage >= COVERS]
    assert len(shown) >= 8
    for client in shown:
        true, estimated = np.median(client.true), np.median(client.estimated)
        assert abs(estimated - true) <= 0.2 * true, client.name


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_that_wait_for_each_response_have_estimates(library: str) -> None:
    assert busiest(f"{library}-one").coverage >= 0.85
    assert (busiest(f"{library}-many").coverage >= COVERS) == (library not in PIPELINED)


@pytest.mark.parametrize("library", PIPELINED)
def test_requests_that_overlap_have_next_to_none(library: str) -> None:
    client = busiest(f"{library}-many")
    assert len(client.true) >= 30
    assert client.coverage < 0.05


def test_the_report_shows_the_coverage_and_no_time_without_it() -> None:
    _, connections = tls.estimates(section_input(Path(CAPTURE), "tls"))
    names = [column.name for column in connections.columns]
    rows = [dict(zip(names, row, strict=True)) for row in connections.rows]
    assert len(rows) > 20
    assert {row["coverage"] >= COVERS for row in rows} == {True, False}  # type: ignore[operator]
    for row in rows:
        assert (row["estimated_p50_ns"] is not None) == (row["coverage"] >= COVERS)  # type: ignore[operator]
