"""Tests of comparisons, applied to arrays.

A number is tested as a span from `low` to `high`, which are equal for ordinary columns. The packets of a message are a
span. Each distinct text is tested once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

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
    time is linear in the lengths of the texts, whatever the pattern is. ModuleNotFoundError without pyarrow, unless it
    is `plain`."""
    found: Array
    are_bytes = len(texts) > 0 and isinstance(texts[0], bytes)
    if (own := plain(pattern, are_bytes)) is not None:
        found = np.array([own.search(text) is not None for text in texts], bool)
        return found
    import pyarrow as pa
    import pyarrow.compute as pc

    array = pa.array(texts, pa.large_binary() if are_bytes else pa.large_string())
    if are_bytes:
        array = array.view(pa.large_string())  # RE2 does not stumble over what is not UTF-8
    found = pc.match_substring_regex(array, pattern).to_numpy(zero_copy_only=False)
    return found


#: Characters, classes of letters and digits, and alternatives of these, each of which may be fixed to the start or end.
#: One repetition, where the start is fixed: other ones take time beyond that of the text's length.
_CHARACTER = r"(?:[^\\.^$|?*+()\[\]{}]|\\[!-/:-@\[-\^`{-~]|\.|\[(?:[a-zA-Z0-9]-[a-zA-Z0-9]|[\w.:/ ])+\])"
_ALTERNATIVE = rf"(?:\^{_CHARACTER}*(?:{_CHARACTER}[*+?])?{_CHARACTER}*|{_CHARACTER}*)\$?"
_PLAIN = re.compile(rf"{_ALTERNATIVE}(?:\|{_ALTERNATIVE})*", re.ASCII)
#: Longer ones are rare, and to look at them costs more than it saves.
_LONGEST_PLAIN = 100


#: A character of UTF-8 besides a line end, as RE2 reads it.
_ANY = r"(?:[\x00-\x09\x0b-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"


@lru_cache(256)
def plain(pattern: str, of_bytes: bool = False) -> re.Pattern[Any] | None:
    """An expression of RE2 as one of Python, if it means the same there and takes linear time; or else None."""
    if len(pattern) > _LONGEST_PLAIN or _PLAIN.fullmatch(pattern) is None:
        return None

    def translated(found: re.Match[str]) -> str:
        if found[0] == "$":
            return r"\Z"  # in Python, $ also matches before a line end at the end
        if not of_bytes or found[0][0] in "\\[":
            return found[0]
        return _ANY if found[0] == "." else f"(?:{found[0].encode().decode('latin-1')})"

    made = re.sub(r"\\.|\[[^\]]*\]|[$.]|[^\x00-\x7f]", translated, pattern, flags=re.DOTALL)
    return re.compile(made.encode("latin-1") if of_bytes else made)


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
