"""Cases of exhaustive tests: which of them run in every run, and which with `--long` only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
#: The profile of Hypothesis that `--long` loads.
LONG = "long"


def spread(cases: Sequence[T], short: int) -> list[T]:
    """`short` cases: the first, the last, and evenly between."""
    return [cases[round(i * (len(cases) - 1) / (short - 1))] for i in range(min(short, len(cases)))]


def seeds(count: int, short: int = 2) -> list[Any]:
    """Parameters 0 to count - 1 of a test of random data. Those from `short` on are marked `long`: each has the same
    kind of data, so a few find what every run of them would find, and `--long` has them all."""
    return [pytest.param(seed, marks=pytest.mark.long) if seed >= short else seed for seed in range(count)]


def examples(count: int) -> int:
    """How many examples Hypothesis tries for a property: `count` with `--long`, else a quarter of them."""
    return count if settings.get_current_profile_name() == LONG else count // 4
