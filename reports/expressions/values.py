"""Convert the values of a comparison to the kind and unit of its name."""

from __future__ import annotations

import fnmatch
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from kafkatap.dissector.kafka.error_codes import code_of, error_codes
from kafkatap.dissector.layouts.catalog import api_names, key_of
from kafkatap.dissector.layouts.plain_names import plain_name
from kafkatap.installation import has_arrow, without_arrow

from ..literals import DURATIONS, SIZES, Moment, exact, read_moment, read_number
from .expression_error import ExpressionError, suggestion
from .names import Name
from .tree import Literal
from .verdicts import matching, plain

#: The maximum length of a regular expression.
LONGEST_PATTERN = 1_000
#: Escapes of regular expressions, with those that RE2 writes otherwise.
_PYTHON_ONLY = r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)"
#: By kind: the number of a name, and the names that may be meant.
_NUMBER_OF = {"api": key_of, "error": code_of}
_NAMES_OF: Mapping[str, Callable[[], Iterable[str]]] = {
    "api": lambda: api_names().values(),
    "error": lambda: [each.name for each in error_codes().values()],
}
_WANTED = {
    "number": "a number", "size": "a size such as 1000 or 64KiB", "duration": "a duration such as 50ms",
    "time": "a time such as 15:10:39 or 2026-11-21 15:10:39",
    "flag": "true or false", "text": "a word or a text in quotes",
    "api": "an API's name or key", "error": "an error's name or number", "word": "one of its words",
}  # fmt: skip


def number_of(literal: Literal, name: Name, text: str, utc: bool = False) -> int | float | Moment:
    """A value as a number: keys, codes, ns, bytes, times; ExpressionError where it is not of the name's kind. `utc`:
    times without a zone are in UTC."""
    kind = name.kind
    if kind == "time" and literal.kind in ("time", "string", "number"):
        try:
            moment = read_moment(literal.text.replace("_", ""), utc)
        except ValueError:
            raise _wrong(literal, name, text) from None
        return moment.ns if moment.is_absolute else moment
    if literal.kind == "number":
        return _number(literal, name, text)
    if literal.kind not in ("word", "string"):
        raise _wrong(literal, name, text)
    if kind not in _NUMBER_OF and not (known := _words(name)):
        raise _wrong(literal, name, text)
    found = _NUMBER_OF[kind](literal.text) if kind in _NUMBER_OF else known.get(plain_name(literal.text))
    if found is None:
        words = _NAMES_OF[kind]() if kind in _NAMES_OF else name.words
        what = {"api": "no API is called", "error": "no error is called"}.get(kind, f"{name.name} is never")
        of = f" (it is one of {', '.join(name.words)})" if name.words else ""
        raise ExpressionError(
            f"{what} {literal.text!r}{of}{suggestion(literal.text, words)}", text, literal.at, literal.end
        )
    return found


def text_of(literal: Literal, name: Name, text: str) -> str:
    """A value as a text."""
    if literal.kind == "null":
        raise _wrong(literal, name, text)
    if name.spell is not None:
        try:
            return name.spell(literal.text)
        except ValueError as error:
            raise ExpressionError(str(error), text, literal.at, literal.end) from None
    return literal.text


def bytes_of(literal: Literal, text: str) -> bytes:
    """A value as bytes: a text as UTF-8, or the bytes of a number such as 0x0A1F."""
    digits = literal.text.replace("_", "")
    if literal.kind != "number" or digits[:2].lower() != "0x":
        return literal.text.encode("utf-8", "surrogatepass")
    try:
        return bytes.fromhex(digits[2:])
    except ValueError:
        reason = f"{literal.text} is no whole number of bytes: each has two digits, as in 0x0A1F"
        raise ExpressionError(reason, text, literal.at, literal.end) from None


def pattern_of(literal: Literal, text: str) -> str:
    """A value as a regular expression of RE2, from between its quotes. Its matching takes linear time, so it has no
    backreferences and no lookaround."""
    if literal.kind not in ("string", "word", "number", "address"):
        raise ExpressionError("~ compares with a regular expression in quotes", text, literal.at, literal.end)
    if len(literal.source) > LONGEST_PATTERN:
        raise ExpressionError(
            f"this regular expression is longer than {LONGEST_PATTERN:,} characters", text, literal.at, literal.end
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax that a later Python may change
            re.compile(literal.source)  # names the place of a mistake
    except (re.error, RecursionError, OverflowError) as error:
        place = (getattr(error, "pos", None) or 0) + literal.at + (literal.kind == "string")
        reason = getattr(error, "msg", None) or "it is too deeply nested"
        raise ExpressionError(f"this regular expression is wrong: {reason}", text, place) from None
    if (short := re.search(r"\{,\d+\}", literal.source)) is not None:  # RE2 reads it as a text
        raise ExpressionError(f"write {{0{short[0][1:]} for {short[0]}", text, literal.at, literal.end)
    pattern = re.sub(_PYTHON_ONLY, _of_re2, literal.source, flags=re.DOTALL)
    if plain(pattern) is None and not has_arrow():
        raise ExpressionError(without_arrow("such a regular expression needs"), text, literal.at, literal.end)
    try:
        matching(pattern, ("",))
    except ValueError as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ExpressionError(
            f"this regular expression is not one of RE2, which has no backreferences and no lookaround: {reason}",
            text, literal.at, literal.end,
        ) from None  # fmt: skip
    return pattern


def _of_re2(found: re.Match[str]) -> str:
    """A notation of Python in that of RE2; anything else is unchanged."""
    code = found[1] or found[2]
    return rf"\x{{{code}}}" if code else r"\z" if found[0] == r"\Z" else found[0]


def glob_pattern(option: str, globs: Sequence[str]) -> re.Pattern[str]:
    """The globs of an option as a regular expression that matches whole names. ValueError for a long one."""
    for glob in globs:
        if len(glob) > LONGEST_PATTERN:
            raise ValueError(f"{option}: this pattern is longer than {LONGEST_PATTERN:,} characters")
    return re.compile(rf"\A(?:{'|'.join(map(fnmatch.translate, globs))})", re.DOTALL)


def _number(literal: Literal, name: Name, text: str) -> int | float:
    value, unit = read_number(literal.text)
    kind = name.kind
    if kind in ("text", "word", "flag") or (unit and kind not in ("duration", "size", "number")):
        raise _wrong(literal, name, text)
    if kind == "duration":
        if not unit:
            if name.unit is None and value:
                raise ExpressionError(
                    f"{name.name} needs a unit, such as {literal.text}ms", text, literal.at, literal.end
                )
            return exact(value)
        return exact(value * _unit(unit, DURATIONS, literal, name, text) / (name.unit or 1))
    return exact(value * _unit(unit, SIZES, literal, name, text)) if unit else exact(value)


def _unit(unit: str, units: Mapping[str, int], literal: Literal, name: Name, text: str) -> Decimal:
    found = units.get(unit, units.get(unit.lower()))
    if found is not None and name.kind != "number":
        return Decimal(found)
    at = literal.end - len(unit)
    if name.kind == "number":
        raise ExpressionError(f"{name.name} is a number without a unit", text, at, literal.end)
    if unit in DURATIONS or unit.lower() in SIZES:
        raise _wrong(literal, name, text)
    known = "ns us ms s m h d" if units is DURATIONS else "B kB KiB MB MiB GB GiB"
    raise ExpressionError(f"{unit} is not a unit (known are {known})", text, at, literal.end)


def _wrong(literal: Literal, name: Name, text: str) -> ExpressionError:
    what = {"null": "null", "time": "a time", "address": "an address", "word": "a word", "string": "a text"}
    got = what.get(literal.kind, "a number")
    if literal.kind == "number":
        unit = read_number(literal.text)[1]
        got = "a duration" if unit in DURATIONS else "a size" if unit.lower() in SIZES else got
    return ExpressionError(
        f"{name.name} is compared with {_WANTED[name.kind]}, not with {got}", text, literal.at, literal.end
    )


def _words(name: Name) -> Mapping[str, int]:
    """Numbers by the words that stand for them, without case, _ and -."""
    if name.kind == "flag":
        return {"true": 1, "false": 0}
    return {plain_name(word): number for word, number in name.words.items()}
