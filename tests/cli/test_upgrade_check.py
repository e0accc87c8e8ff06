"""`kafkatap upgrade-check`: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.captures import read_bytes
from tests.support.section_runs import QUESTIONS

from .running import kafkatap

OLD, NEW = QUESTIONS / "upgrade-3.9.pcap.zst", QUESTIONS / "upgrade-4.3.pcap.zst"


def test_a_client_that_breaks() -> None:
    done = kafkatap("upgrade-check", OLD)
    assert done.code == 3
    lines = done.out.splitlines()
    assert "Upgrade to Kafka 4.0" in lines
    assert any("java-0.10.2.2" in line and "breaks" in line and "the client's limit" in line for line in lines)
    assert not any(line.startswith(("Latency", "Clients")) for line in lines)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--release", "4.3"], 3),
        (["--release", "3.9.1"], 0),
        (["--client", "java-2*"], 0),
        (["--client", "java-*"], 3),
        (["--api", "Metadata"], 0),
        (["--release", "5.9"], 2),
        (["--sections", "all"], 2),
    ],
)
def test_exit_codes(options: list[str], code: int) -> None:
    assert kafkatap("upgrade-check", *options, OLD).code == code


def test_several_captures() -> None:
    done = kafkatap("upgrade-check", "--json", OLD, NEW)
    assert done.code == 3
    made = json.loads(done.out)
    assert made["capture"]["files"] == 2
    assert set(made["reports"]) == {"upgrade", "ledger"}
    assert [row["verdict"] for row in made["reports"]["upgrade"]].count("breaks") == 2


def test_nothing_readable_or_no_kafka_or_damage(tmp_path: Path) -> None:
    assert kafkatap("upgrade-check", tmp_path / "none.pcap").code == 2
    whole = read_bytes(OLD)
    (tmp_path / "empty.pcap").write_bytes(whole[:24])
    assert kafkatap("upgrade-check", tmp_path / "empty.pcap").code == 1
    (tmp_path / "cut.pcap").write_bytes(whole[:-10])
    assert kafkatap("upgrade-check", "--client", "java-2*", tmp_path / "cut.pcap").code == 1
    assert kafkatap("upgrade-check", tmp_path / "cut.pcap").code == 3


def test_several_processes_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "whole.pcap"
    path.write_bytes(read_bytes(OLD))
    assert kafkatap("upgrade-check", "--jobs", "4", path) == kafkatap("upgrade-check", "--jobs", "1", path)
