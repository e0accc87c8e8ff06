"""Two pages show messages of the samples as tshark and as kafkatap print them. KAFKATAP_UPDATE=1 writes them anew.

A comment before each pair says which message it is: `<!-- CAPTURE PORT PACKET LINES -->`. Of longer texts the first
LINES lines are shown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
#: The page for users of Wireshark has one pair, that for contributors the others.
DOCUMENTS = {DOCS / "wireshark-users.md": 1, DOCS / "contributors" / "tshark.md": 7}
_BLOCK = r"```text\n((?:(?!```).*\n)*)```\n"
_PAIR = re.compile(rf"<!-- (\S+) (\d+) (\d+) (\d+) -->\n{_BLOCK}\n{_BLOCK}")
#: The release whose output the document shows.
RELEASE = "4.0."


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_tshark(samples: Path, capture: str, port: str, packet: str) -> str:
    out = run("tshark", "-n", "-r", capture, "-d", f"tcp.port=={port},kafka", "-Y", f"frame.number=={packet}", "-O",
              "kafka", cwd=samples)  # fmt: skip
    return "Kafka (" + out.partition("\nKafka (")[2].strip()


def by_kafkatap(samples: Path, capture: str, packet: str) -> str:
    out = run(sys.executable, "-m", "kafkatap", "show", "--tree", "--utc", "--color", "never", "-f",
              f"packet == {packet}", capture, cwd=samples)  # fmt: skip
    messages = out.partition("\n")[2].strip("\n").split("\n\n")  # behind the line with the day
    return next((m for m in messages if m.split()[:1] == [packet]), messages[-1])  # of many packets it tells the first


def cut(text: str, lines: str) -> str:
    shown = text.splitlines()
    rest = ["    …"] if len(shown) > int(lines) else []
    return "".join(f"{line.rstrip()}\n" for line in [*shown[: int(lines)], *rest])


def pairs(document: Path) -> list[re.Match[str]]:
    return list(_PAIR.finditer(document.read_text(encoding="utf-8")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_document_is_what_is_printed(samples: Path, document: Path) -> None:
    found = pairs(document)
    assert len(found) >= DOCUMENTS[document]
    if os.environ.get("KAFKATAP_UPDATE"):
        text = document.read_text(encoding="utf-8")
        for pair in found:
            capture, port, packet, lines = pair.group(1, 2, 3, 4)
            there = cut(by_tshark(samples, capture, port, packet), lines)
            here = cut(by_kafkatap(samples, capture, packet), lines)
            comment = pair[0].partition("\n")[0]
            text = text.replace(pair[0], f"{comment}\n```text\n{there}```\n\n```text\n{here}```\n")
        document.write_text(text, encoding="utf-8")
        found = pairs(document)
    for pair in found:
        capture, _, packet, lines, _, here = pair.groups()
        assert here == cut(by_kafkatap(samples, capture, packet), lines), pair[0].partition("\n")[0]


def test_tshark_prints_what_the_document_shows(samples: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("needs tshark")
    if f" {RELEASE}" not in run("tshark", "--version", cwd=samples).partition("\n")[0]:
        pytest.skip(f"needs tshark {RELEASE}x")
    for pair in [pair for document in DOCUMENTS for pair in pairs(document)]:
        capture, port, packet, lines, there, _ = pair.groups()
        assert there == cut(by_tshark(samples, capture, port, packet), lines), pair[0].partition("\n")[0]
