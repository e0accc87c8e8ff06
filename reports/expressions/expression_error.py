"""`ExpressionError`: the reason, and the place in the expression."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Characters of a long line that are shown before and after the place.
_AROUND = 60


class ExpressionError(ValueError):
    """`message` says what is wrong at `text[at:end]`; `column` is the place in its line, from 1.

    str() gives the message, the line of the text, and carets under the place.
    """

    def __init__(self, message: str, text: str, at: int, end: int | None = None) -> None:
        super().__init__(message)
        self.message, self.text = message, text
        self.at = max(0, min(at, len(text)))
        self.end = max(self.at + 1, self.at + 1 if end is None else end)
        self.column = self.at - (text.rfind("\n", 0, self.at) + 1) + 1

    def __str__(self) -> str:
        start = self.at - self.column + 1
        line = self.text[start:].split("\n", 1)[0]
        first = max(0, self.column - 1 - _AROUND)
        last = min(len(line), self.column - 1 + _AROUND)
        shown = "".join(c if c.isprintable() else "?" for c in line[first:last])
        if first:
            shown = "…" + shown
        carets = "^" * max(1, min(self.end - start, last) - (self.column - 1))
        return f"{self.message}\n  {shown}\n  {' ' * (self.column - 1 - first + bool(first))}{carets}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: which known ones are near it, if any."""
    by_plain = {name.lower(): name for name in known}
    plain = word.lower()
    begun = [name for name in by_plain if len(plain) > 2 and name.startswith(plain)]
    near = [by_plain[name] for name in begun[:3] or get_close_matches(plain, by_plain, 3, 0.6)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
