"""Clients that cannot do their work have the verdict `failing`; others do not."""

from __future__ import annotations

import json
from typing import Any

from kafkatap.reports.sections.client_failures import failing_clients
from kafkatap.reports.sections.error_codes import errors
from tests.cli.running import ROOT, kafkatap

from .rows import MS, context, counted, exchange, result

SAMPLES = ROOT / "samples"
_PRODUCE, _METADATA = 0, 3
NOT_ENOUGH_REPLICAS, LEADER_NOT_AVAILABLE = 19, 5


def clients(name: str) -> list[dict[str, Any]]:
    done = kafkatap("report", "--json", "--sections", "clients", SAMPLES / f"{name}.pcap.zst")
    rows: list[dict[str, Any]] = json.loads(done.out)["reports"]["clients"]
    return rows


def test_clients_that_got_an_exception_are_failing() -> None:
    """What each Java client of the script got: offsets of records, or an exception."""
    truth: dict[str, Any] = json.loads((SAMPLES / "questions" / "auth.truth.json").read_text())["clients"]
    rows = clients("questions/auth")
    verdicts = {row["client_id"]: row["verdict"] for row in rows}
    got = {name: outcome[3] for name, outcome in truth.items() if name in verdicts and outcome[3]}
    assert {name for name in got if verdicts[name] == "failing"} == {
        n for n, text in got.items() if "Exception" in text
    }
    assert verdicts["librd-typo"] == "failing"  # a wrong password
    assert verdicts["librd-scram"] != "failing"


def failing(*exchanges: Any, results: tuple[Any, ...] = ()) -> dict[Any, str]:
    counts, made = counted(list(exchanges), list(results)), context()
    return failing_clients(errors(counts, made), counts, made)


def failed(n: int, code: int, at: int = 0, api_key: int = _PRODUCE) -> tuple[Any, Any]:
    return exchange(n, at=at, api_key=api_key), result(n, code)


def test_a_start_that_needs_a_second_try_is_not_failing() -> None:
    first, code = failed(0, LEADER_NOT_AVAILABLE, api_key=_METADATA)
    assert failing(first, *(exchange(n) for n in range(1, 4)), results=(code,)) == {}
    # Two of two, but few of all.
    pairs = [failed(n, LEADER_NOT_AVAILABLE, api_key=_METADATA) for n in range(2)]
    both = [one for one, _ in pairs], tuple(code for _, code in pairs)
    assert failing(*both[0], *(exchange(n) for n in range(2, 12)), results=both[1]) == {}
    assert list(failing(*both[0], *(exchange(n) for n in range(2, 6)), results=both[1]).values()) == [
        "Metadata 2 of 2 failed"
    ]


def test_a_grave_error_that_lasts_is_failing_whatever_went_well_before() -> None:
    good = [exchange(n, at=n * MS, api_key=_PRODUCE) for n in range(100)]

    def after(code: int, ms: int) -> list[str]:
        pairs = [failed(n, code, at=n * ms * MS) for n in range(100, 106)]
        return list(failing(*good, *(x for x, _ in pairs), results=tuple(y for _, y in pairs)).values())

    assert after(NOT_ENOUGH_REPLICAS, 1_100) == ["NOT_ENOUGH_REPLICAS 6"]
    assert after(NOT_ENOUGH_REPLICAS, 100) == []
    assert after(LEADER_NOT_AVAILABLE, 1_100) == []  # clients retry


def test_samples_without_faults_have_nobody_who_fails() -> None:
    for name in ("questions/groups", "apache-2.8"):
        rows = clients(name)
        assert "failing" not in {row["verdict"] for row in rows}
