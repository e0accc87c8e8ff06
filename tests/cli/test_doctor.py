"""`kafkatap doctor`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jsonschema import validate

from kafkatap.reports.rendering.json_report import schema
from tests.support.captures import read_bytes

from .running import ROOT, kafkatap

GOOD, DROPS = ROOT / "samples" / "live-4.3.pcap.zst", ROOT / "samples" / "apache-4.3-two-interfaces.pcapng"


def test_a_good_capture() -> None:
    done = kafkatap("doctor", GOOD)
    assert (done.code, done.err) == (0, "")
    first, second, *rest = done.out.splitlines()
    assert first == "no problem found: 1,543 packets in 17.8 s, 45 Kafka connections, 480 requests"
    assert second.startswith("checked: files, content, link types")
    assert rest == []


def test_the_page_shows_what_is_printed() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    done = kafkatap("doctor", str(DROPS.relative_to(ROOT)))
    assert done.code == 3
    blocks = re.findall(r"```\n\$ kafkatap doctor ([^\n]+)\n(.*?)```\n", page, re.DOTALL)
    shown = blocks[0][1].partition("…\n")
    assert done.out.startswith(shown[0])
    assert done.out.endswith(shown[2])


def test_json_and_everything() -> None:
    done = kafkatap("doctor", "--json", DROPS)
    assert done.code == 3
    made = json.loads(done.out)
    validate(made, schema())
    finding = made["reports"]["findings"][0]
    assert (finding["check"], finding["severity"]) == ("drops", "error")
    assert [row["name"] for row in made["reports"]["interfaces"]] == ["eth0", "lo"]
    assert made["capture"]["drops"] == 499
    whole = kafkatap("doctor", "--ledger", "--utc", GOOD).out
    assert "To capture the same brokers:" in whole
    for title in ("Checks", "Interfaces", "Round trips from the capture point", "Ledger"):
        assert title in whole.splitlines()


def test_pipes_and_exit_codes(tmp_path: Path) -> None:
    whole = read_bytes(GOOD)
    assert kafkatap("doctor", "-", stdin=whole).code == 0
    assert kafkatap("doctor", "-", stdin=whole[:-5]).code == 3
    assert kafkatap("doctor", tmp_path / "none.pcap").code == 2
    (tmp_path / "text").write_text("not a capture, but long enough to be one")
    assert kafkatap("doctor", tmp_path / "text").code == 2
    assert kafkatap("doctor", tmp_path / "text", GOOD).code == 3
    assert kafkatap("doctor", "--jobs", "2", GOOD).code == 2


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = tmp_path / "a\x1b[31mb.pcap"
    evil.write_bytes(read_bytes(GOOD)[:-5])
    done = kafkatap("doctor", evil)
    assert "\x1b" not in done.out + done.err
    assert "a\\x1b[31mb.pcap" in done.out
