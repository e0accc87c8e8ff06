"""Tests of comparisons, applied to arrays.

A number is tested as a span from `low` to `high`, which are equal for ordinary columns. The packets of a message are a
span. Each distinct text is tested once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..batch import Array
from ..literals import Moment


@dataclass(frozen=True, slots=True)
class Values:
    """A column over n rows: int64 `low` and `high` (the same array for single values), bool `null` or None."""

    low: Array
    high: Array
    null: Array | None = None

    def take(self, rows: Array) -> Values:
        """The values of some rows."""
        low = self.low[rows]
        high = low if self.high is self.low else self.high[rows]
        return Values(low, high, None if self.null is None else self.null[rows])


@dataclass(frozen=True, slots=True)
class Numbers:
    """`op` (== < <= > >=) with any of some numbers, in the unit of the column."""

    op: str
    values: tuple[int | float | Moment, ...]

    def on(self, values: Values) -> Array:
        """bool (n,): true if a number of the span matches. The caller handles nulls."""
        found = np.zeros(len(values.low), bool)
        for number in self.values:
            assert not isinstance(number, Moment), "Expression.at comes first"
            if self.op == "==":
                found |= (values.low <= number) & (values.high >= number)
            elif self.op == "<":
                found |= values.low < number
            elif self.op == "<=":
                found |= values.low <= number
            elif self.op == ">":
                found |= values.high > number
            else:
                found |= values.high >= number
        return found


@dataclass(frozen=True, slots=True)
class Floats:
    """The same as `Numbers`, for the bits of float64 values."""

    numbers: Numbers

    def on(self, values: Values) -> Array:
        low = values.low.view(np.float64)
        return self.numbers.on(Values(low, low))


@dataclass(frozen=True, slots=True)
class MatchedTexts:
    """One of some texts, a text with a whole name of `names`, or one in which `pattern` (of RE2) matches."""

    texts: frozenset[str] = frozenset()
    names: re.Pattern[str] | None = None
    pattern: str | None = None

    def on(self, texts: Sequence[str]) -> Array:
        """bool (n,)."""
        if self.pattern is not None:
            return matching(self.pattern, texts)
        if self.names is not None:
            return np.array([self.names.match(text) is not None for text in texts], bool)
        return np.array([text in self.texts for text in texts], bool)


@dataclass(frozen=True, slots=True)
class MatchedBytes:
    """One of some `values`, one that has `part` in it, or one in which `pattern` (of RE2) matches, as UTF-8."""

    values: frozenset[bytes] = frozenset()
    part: bytes | None = None
    pattern: str | None = None

    def on(self, values: Sequence[bytes]) -> Array:
        """bool (n,)."""
        if self.pattern is not None:
            return matching(self.pattern, values)
        if self.part is not None:
            return np.array([self.part in value for value in values], bool)
        return np.array([value in self.values for value in values], bool)

    @property
    def sizes(self) -> frozenset[int] | None:
        """The only lengths of values that match; None: any."""
        return frozenset(map(len, self.values)) if self.pattern is None and self.part is None else None


def matching(pattern: str, texts: Sequence[str] | Sequence[bytes]) -> Array:
    """In which texts, or bytes as UTF-8, a regular expression of RE2 matches: bool (n,). ValueError if it is wrong. The
    time is linear in the lengths of the texts, whatever the pattern is."""
    import pyarrow as pa  # imported late: most expressions have no pattern
    import pyarrow.compute as pc

    are_bytes = len(texts) > 0 and isinstance(texts[0], bytes)
    array = pa.array(texts, pa.large_binary() if are_bytes else pa.large_string())
    if are_bytes:
        array = array.view(pa.large_string())  # RE2 does not stumble over what is not UTF-8
    found: Array = pc.match_substring_regex(array, pattern).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, slots=True)
class Present:
    """Any value."""


Test = Numbers | Floats | MatchedTexts | Present


@dataclass(slots=True)
class Verdicts:
    """A text test on numbers of texts. Each number is tested once."""

    test: MatchedTexts
    _known: dict[int, bool] = field(default_factory=dict)

    def on(self, numbers: Array, texts: Callable[[int], Sequence[str]]) -> Array:
        """bool (n,). `texts` returns the texts of a number. One matching text is enough."""
        if not len(numbers):
            return np.zeros(0, bool)
        distinct, inverse = np.unique(numbers, return_inverse=True)
        known = self._known
        new = [(number, text) for number in distinct.tolist() if number not in known for text in texts(number)]
        for (number, _), verdict in zip(new, self.test.on([text for _, text in new]).tolist(), strict=True):
            known[number] = verdict or known.get(number, False)
        answer: Array = np.array([known.setdefault(number, False) for number in distinct.tolist()], bool)[inverse]
        return answer
