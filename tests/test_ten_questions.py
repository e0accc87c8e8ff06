"""samples/ten_questions.toml: one command answers each question, on its first screen, as the truth has it."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import ROOT, kafkatap

QUESTIONS: list[dict[str, Any]] = tomllib.loads((ROOT / "samples" / "ten_questions.toml").read_text())["question"]


@pytest.mark.parametrize("question", QUESTIONS, ids=[each["ask"] for each in QUESTIONS])
def test_the_answer_is_on_the_first_screen(question: dict[str, Any], samples: Path) -> None:
    words = shlex.split(question["command"])
    done = kafkatap(*words, "--utc", "--width", "120", samples / question["capture"], NO_COLOR="1")
    assert done.code in (0, 3), done.err
    shown = " ".join(" ".join(done.out.splitlines()[: question["lines"]]).split())
    missing = [text for text in question["answer"] if text not in shown]
    assert not missing, shown


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == len({each["ask"] for each in QUESTIONS}) == 10
