"""docs/questions.md shows what its commands print. KAFKATAP_UPDATE=1 writes what they print now."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatap.reports.section_parts.registry import OVER_FACTS
from tests.cli.running import ROOT, kafkatap

PAGE = ROOT / "docs" / "questions.md"
#: Lines of a table in the page, with its title and headings, and what is left of the row in the last one.
LINES = 6
_BLOCK = re.compile(r"```console\n\$ kafkatap ([^\n]+)\n(.*?)```\n", re.DOTALL)
#: Commands that end with another code than 0.
CODES = {"upgrade-check": 3}


def blocks() -> Iterator[tuple[str, str]]:
    """(arguments, what the page shows) of each block."""
    for found in _BLOCK.finditer(PAGE.read_text()):
        yield found[1], found[2]


def printed(arguments: str, title: str) -> str:
    """The first lines of the table with a title (or of the first table) that a command prints."""
    words = shlex.split(arguments)
    done = kafkatap(*words, "--utc", "--width", "140", NO_COLOR="1")
    assert done.code == CODES.get(words[0], 0), done.err
    lines = done.out.splitlines()
    start = lines.index(title) if title else lines.index("") + 1
    table = lines[start : lines.index("", start + 1) if "" in lines[start + 1 :] else None]
    shown = LINES
    while table[shown : shown + 1] and table[shown].startswith(" "):
        shown += 1
    table = table[:shown]
    return "\n".join(line.rstrip() for line in table) + "\n"


BLOCKS = list(blocks())


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=[arguments for arguments, _ in BLOCKS])
def test_the_page_shows_what_is_printed(number: int) -> None:
    arguments, shown = BLOCKS[number]
    title = shown.split("\n", 1)[0]
    found = printed(arguments, title)
    if os.environ.get("KAFKATAP_UPDATE"):
        before = f"```console\n$ kafkatap {arguments}\n{shown}```\n"
        page = PAGE.read_text()
        assert page.count(before) == 1
        PAGE.write_text(page.replace(before, f"```console\n$ kafkatap {arguments}\n{found}```\n"))
        return
    assert found == shown


def test_every_section_is_there() -> None:
    named = {word for arguments, _ in BLOCKS for word in re.split(r"[ ,]", arguments)}
    missing = set(OVER_FACTS) - named - {"upgrade"}
    assert not missing
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE.read_text(), re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_captures_are_small() -> None:
    for path in Path(ROOT / "samples" / "questions").glob("*.zst"):
        assert path.stat().st_size < 400_000, path
